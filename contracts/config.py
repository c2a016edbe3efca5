"""The settings of a peer's market, with the reason for each default."""

from __future__ import annotations

from dataclasses import dataclass, field

from medusa.contracts.market.config import MarketConfig
from medusa.overlay.errors import InvalidInputError


@dataclass(frozen=True)
class MarketTiming:
    """Intervals and waits of the market that only tests, which are in a hurry, set otherwise.
    Seconds.

    Attributes:
        review_s: the time between two checks of the contracts in force and of the peers to reach,
            without other news: a member may have been revoked, a peer may have joined.
        sample_s: the time between two samples of the loads for the Brain.
        settle_look_s: the time between two checks for receipts that are due.
        retry_s, retry_most_s: the time until a proposal without an answer is sent again; doubles up
            to the latter, so payments resume at most that long after a partition ends.
        count_s: the time after which an unanswered count is requested again.
        passed_tries_s: waits between tries to tell the peer that passed a task on that the task has
            moved again.
        arrears_s: the time for which a partner that is up may leave a receipt unsigned: more than
            two of `retry_most_s`, so that an honest one has answered.
        arrears_again_s: the time between two tries to give a task back.
        keep_s: the time for which inputs are kept for a deal whose bills make no progress: a
            partner that does not bill, or does not pay, must not fill the other's disk.
        content_look_s: the time between two checks of the contracts for streams, and of the streams
            read under them.
        content_again_s: shortest and longest wait before a sender is notified again; doubled in
            between.
        suggestions_look_s: the time between two comparisons of each stream's place with the best
            one suggested.
        still_s: the time for which a stream may stand still before this peer reads it from another
            place.
        aside_s: the time for which a suggested place is not chosen again after it failed.
    """

    review_s: float = 2.0
    sample_s: float = 1.0
    settle_look_s: float = 1.0
    retry_s: float = 5.0
    retry_most_s: float = 120.0
    count_s: float = 60.0
    passed_tries_s: tuple[float, ...] = (0.5, 2.0, 10.0, 30.0)
    arrears_s: float = 300.0
    arrears_again_s: float = 10.0
    keep_s: float = 3600.0
    content_look_s: float = 1.0
    content_again_s: tuple[float, float] = (2.0, 60.0)
    suggestions_look_s: float = 1.0
    still_s: float = 60.0
    aside_s: float = 300.0


@dataclass(frozen=True)
class ContractsConfig:
    """
    Attributes:
        trade: whether load is offered and taken at all.
        price: cost of a unit of load for this peer at its capacity, micros per second. It scales
            the peer's cost, so it is the price at which the peer fills up to its capacity.
        settle_s: seconds between the receipts of a task.
        confirm_s: seconds for which a load must last before a task is moved because of it.
        stay_s: least seconds that a task from a partner stays.
        market, timing: no settings: medusa.toml does not have them.
    """

    trade: bool = True
    price: int = 1_000_000
    settle_s: float = 30.0
    confirm_s: float = 5.0
    stay_s: float = 30.0
    market: MarketConfig = field(default=MarketConfig(), metadata={"setting": False})
    timing: MarketTiming = field(default=MarketTiming(), metadata={"setting": False})

    def __post_init__(self) -> None:
        for name in ("price", "settle_s"):
            if getattr(self, name) <= 0:
                raise InvalidInputError(f"contracts.{name} must be positive: {getattr(self, name)}")
        for name in ("confirm_s", "stay_s"):
            if getattr(self, name) < 0:
                raise InvalidInputError(f"contracts.{name} is negative: {getattr(self, name)}")

"""The settings of a peer's market, with the reason for each default."""

from __future__ import annotations

from dataclasses import dataclass

from overlay.errors import InvalidInputError


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
    """

    trade: bool = True
    price: int = 1_000_000
    settle_s: float = 30.0
    confirm_s: float = 5.0
    stay_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("price", "settle_s"):
            if getattr(self, name) <= 0:
                raise InvalidInputError(f"contracts.{name} must be positive: {getattr(self, name)}")
        for name in ("confirm_s", "stay_s"):
            if getattr(self, name) < 0:
                raise InvalidInputError(f"contracts.{name} is negative: {getattr(self, name)}")

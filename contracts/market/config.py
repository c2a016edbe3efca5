"""The parameters of the market; the defaults suit real peers with epochs of a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from medusa.overlay.backoff import Backoff

MAX_ITEMS: Final = 64
"""Tasks in an offer: its message stays within some tens of KiB. A peer far above its capacity sends
the next offer as soon as this one is answered."""

MAX_HOPS: Final = 6
"""Full peers in a row that may be asked to make room, one after another: the diameter of some
100,000 peers with seven contracts each. Nearer ones are asked first: each hop is one move more."""


@dataclass(frozen=True, slots=True)
class MarketConfig:
    """
    Attributes:
        hysteresis: share of a price by which a move must pay, on both sides; otherwise the two
            would swap tasks for nothing (EPSILON_COST of the shipped system, there 0.002 to 0.8 %).
        recall: share of the price by which a task must be cheaper at home to be recalled. Above
            `hysteresis`: a recall stalls a consumer and saves little.
        settle_s: seconds for which it must have been cheaper at home: others want the room too.
        horizon_s: seconds over which a move must earn its migration cost.
        collect_s: seconds during which offers are collected, so that the best paid comes first.
        offer_s: seconds after which an unanswered offer counts as refused.
        confirm_s: seconds for which a load must last before a task is moved because of it. A peer
            with less than twice its capacity waits as long again, so that more overloaded peers
            come first.
        reserve_s: seconds for which room is kept for an accepted task that does not arrive.
        stay_s: least seconds that a task from a partner stays.
        press_s: seconds for each hop that full partners have to make room, before the next ones are
            asked.
        retry_s, retry_most_s: seconds before a partner that refused is asked again, the first time
            and at most; each wait is four times the one before, so that a steady market falls
            silent.
        batch: tasks in an offer, at most MAX_ITEMS.
        moving: tasks that may be leaving at once.
    """

    hysteresis: float = 0.004
    recall: float = 0.2
    settle_s: float = 120.0
    horizon_s: float = 600.0
    collect_s: float = 0.5
    offer_s: float = 10.0
    confirm_s: float = 5.0
    reserve_s: float = 120.0
    stay_s: float = 30.0
    press_s: float = 3.0
    retry_s: float = 15.0
    retry_most_s: float = 3600.0
    batch: int = MAX_ITEMS
    moving: int = MAX_ITEMS

    def waits(self) -> Backoff:
        """The waits before one partner, or all, are asked again."""
        return Backoff(self.retry_s, self.retry_most_s, factor=4.0)

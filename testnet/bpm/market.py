"""What nodes charge: one cost function for all, price ranges of contracts, the Brains."""

from __future__ import annotations

import random
from typing import Final

from contracts.market.brain import Brain
from contracts.market.config import MarketConfig
from contracts.market.cost import QueueingCost
from contracts.market.prices import price_range
from testnet.bpm.tasks import TASK_LOAD

PRICE: Final = 1_000_000
"""Micros per unit and second at capacity: one of the money's units, so that figures read well."""

CHEAPEST: Final = 0.8
"""Mixed prices are this share of PRICE to all of it: D's discount in the poster's demonstration.
Dearer than PRICE would be worth being above capacity for."""

_STEPS: Final = 997
"""Different prices there are when mixed; a prime."""


class Market:
    """
    Attributes:
        price, min_price: the range of a contract at full price, micros per unit and second.
    """

    def __init__(self, capacity: float, range_tasks: int, *, mixed: bool, seed: int) -> None:
        """
        Args:
            capacity: units. range_tasks: width of the range, tasks (delta_k).
            mixed: every contract has a price of its own.

        Raises:
            InvalidInputError: the range is wider than the capacity.
        """
        self._capacity = capacity
        self._cost = QueueingCost(capacity, PRICE)
        self._config = MarketConfig()
        self._mixed = mixed
        self._seed = seed
        self._rng = random.Random(seed)
        self.min_price, self.price = price_range(self._cost, capacity, TASK_LOAD, range_tasks)

    def make_brain(self, peer: str, number: int) -> Brain:
        """A Brain. All share a generator: 2.5 KB each would be most of what they take."""
        return Brain(
            peer, self._cost, self._capacity, config=self._config, rng=self._rng, number=number
        )

    def terms(self, low: int, high: int) -> tuple[int, int]:
        """The price range of the contract between two nodes, the lower one first."""
        if not self._mixed:
            return self.min_price, self.price
        # Both sides, and a later look, must get the same without a table of all contracts.
        step = (low * 7919 + high * 104_729 + self._seed * 31) % _STEPS
        share = CHEAPEST + (1 - CHEAPEST) * step / (_STEPS - 1)
        return round(self.min_price * share), round(self.price * share)

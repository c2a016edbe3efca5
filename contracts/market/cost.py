"""The cost of load for a peer: it grows with the load, and so does the cost of the next unit."""

from __future__ import annotations

import math
from typing import Final, Protocol

from medusa.overlay.errors import InvalidInputError

UTILISATION_AT_CAPACITY: Final = 0.8
"""Declared capacity as a share of the machine. Beyond it queues grow fast, and the mechanism needs
some room above capacity in which costs still show which peer is worse off (Balazinska et al., NSDI
2004, section 3.3)."""


class Cost(Protocol):
    """The cost of a load: increasing, convex, and finite at the capacity.

    Attributes:
        total: units of load from which on it is infinite.
    """

    @property
    def total(self) -> float: ...

    def level(self, load: float) -> float:
        """Micros per second for this load (units, >= 0); inf from `total` on."""
        ...


class QueueingCost:
    """D(rho) = rho / (1 - rho), the work waiting in an M/M/1 queue, scaled so that a unit costs
    `price` where the load is `capacity` (Balazinska et al., NSDI 2004, section 3)."""

    __slots__ = ("_scale", "total")

    def __init__(self, capacity: float, price: int) -> None:
        """
        Args:
            capacity: units. price: micros per unit and second.

        Raises:
            InvalidInputError: the capacity or the price is not positive.
        """
        if not (0 < capacity < math.inf and price > 0):
            raise InvalidInputError(
                f"cost: capacity {capacity} and price {price} must both be positive numbers"
            )
        self.total = capacity / UTILISATION_AT_CAPACITY
        self._scale = price * self.total * (1 - UTILISATION_AT_CAPACITY) ** 2

    def level(self, load: float) -> float:
        spare = self.total - load
        return self._scale * load / spare if spare > 0 else math.inf


def unit_cost(cost: Cost, load: float, change: float) -> float:
    """The unit marginal cost of a task: the average cost, per unit, of adding `change` units to a
    load, or, if `change` is negative, of having its last units.

    Returns:
        micros per unit and second; inf if either load is beyond `cost.total`. To take load away
        there is worth any price.
    """
    before, after = cost.level(load), cost.level(max(load + change, 0.0))
    if math.isinf(before) or math.isinf(after):
        return math.inf
    return (after - before) / change

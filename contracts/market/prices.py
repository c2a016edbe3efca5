"""Prices of contracts: the range that lets load flow through full peers."""

from __future__ import annotations

import math
from typing import Final

from medusa.contracts.market.cost import Cost, unit_cost
from medusa.overlay.errors import InvalidInputError

MAX_PRICE: Final = 2**40
"""Micros per unit and second: a million of the parties' money; amounts stay within 64 bits."""


def fixed_price(cost: Cost, capacity: float, task_load: float) -> int:
    """The price at which a peer fills up to exactly its capacity: above the cost of the last task
    that fits, and below that of the next one (the harmonic mean of the two; with `QueueingCost`
    that is the price it was made with).

    Args:
        capacity, task_load: units.

    Returns:
        micros per unit and second.

    Raises:
        InvalidInputError: no task fits, or the price cannot be expressed.
    """
    if not 0 < task_load <= capacity:
        raise InvalidInputError(
            f"price: a task of {task_load} units must be above 0 and fit the capacity {capacity}"
        )
    last = unit_cost(cost, capacity, -task_load)
    following = unit_cost(cost, capacity, task_load)
    price = 2 / (1 / last + 1 / following) if last > 0 else 0.0
    if not (math.isfinite(price) and 1 <= price <= MAX_PRICE):
        raise InvalidInputError(
            f"price: {price:.6g} micros a unit; scale the cost to between 1 and {MAX_PRICE}"
        )
    return round(price)


def delta_k(cost: Cost, capacity: float, task_load: float, k: int) -> float:
    """The drop of the unit marginal cost when k tasks leave a peer at its capacity, as a share of
    the cost at capacity (NSDI 2004, section 3.3). Among identical peers, a range of that width lets
    load flow through k full ones.

    Raises:
        InvalidInputError: k tasks are more than the capacity, or k is negative.
    """
    left = capacity - k * task_load
    if k < 0 or left < task_load * (1 - 1e-9):
        raise InvalidInputError(
            f"price range: {k} tasks of {task_load} units do not fit the capacity {capacity}"
        )
    return 1 - unit_cost(cost, left, -task_load) / unit_cost(cost, capacity, -task_load)


def price_range(cost: Cost, capacity: float, task_load: float, k: int) -> tuple[int, int]:
    """(min, max) micros per unit and second: [P - delta_k, P]; k = 0 gives a fixed price.

    Raises:
        InvalidInputError: k tasks are more than the capacity, or the price cannot be expressed.
    """
    price = fixed_price(cost, capacity, task_load)
    return max(0, math.floor(price * (1 - delta_k(cost, capacity, task_load, k)))), price

"""The figures of the whole system, kept up to date at each change, so that they cost nothing."""

from __future__ import annotations

from typing import Final

TINY: Final = 1e-6
"""Units of load that count as none: far below any task, above the rounding of sums of floats."""


class Tally:
    """
    Attributes:
        capacity: of each node, units.
        excess: load above capacity, units, of all nodes; unused: capacity without load.
        over, under: nodes above and below capacity, by more than TINY.
        moves: tasks that changed their worker, for whatever reason. recalls: those among them that
            went home. failed: moves that came to nothing.
        prices: of the moves since the last look, for `mean_price`.
        paid: micros per second that flow over all contracts now.
        messages: sent in all.
    """

    __slots__ = (
        "_price_count",
        "_price_sum",
        "capacity",
        "excess",
        "failed",
        "messages",
        "moves",
        "over",
        "paid",
        "recalls",
        "under",
        "unused",
    )

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.excess = self.unused = self.paid = 0.0
        self.over = self.under = 0
        self.moves = self.recalls = self.failed = self.messages = 0
        self._price_sum = self._price_count = 0

    def enter(self, load: float, sign: int = 1) -> None:
        """Count a node with that load; sign -1: count it no more."""
        over = load - self.capacity
        if over > TINY:
            self.excess += sign * over
            self.over += sign
        elif over < -TINY:
            self.unused -= sign * over
            self.under += sign

    def change(self, before: float, after: float) -> None:
        """A node's load is another."""
        self.enter(before, -1)
        self.enter(after)

    def moved(self, price: int) -> None:
        """A task went to a partner at that price, micros per unit and second."""
        self.moves += 1
        self._price_sum += price
        self._price_count += 1

    def went_home(self) -> None:
        """A task was taken home."""
        self.moves += 1
        self.recalls += 1

    def mean_price(self) -> float | None:
        """Of the moves since this was last asked; None where there were none."""
        count, total = self._price_count, self._price_sum
        self._price_count = self._price_sum = 0
        return total / count if count else None

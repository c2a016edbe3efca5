"""Virtual time: what is due next, whatever lies between costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeVarTuple

Arguments = TypeVarTuple("Arguments")


class Clock:
    """
    Attributes:
        now: seconds since the simulation began.
    """

    __slots__ = ("_due", "_number", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._number = 0
        self._due: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []

    def at(self, time: float, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Do that at that time, seconds; at once if it has passed; ties in order of asking."""
        self._number += 1
        heappush(self._due, (max(time, self.now), self._number, do, arguments))

    def after(self, delay: float, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Do that in so many seconds."""
        self.at(self.now + delay, do, *arguments)

    def run(self, until: float) -> None:
        """Do all that is due up to and including that time; then it is that time."""
        due = self._due
        while due and due[0][0] <= until:
            self.now, _, do, arguments = heappop(due)
            do(*arguments)
        self.now = until

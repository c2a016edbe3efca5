"""The moment from which a task may not wait any longer for a missing input. Sans IO.

The Delay of Delay, Process and Correct (Balazinska et al., TODS 2008, section 5): tuples are kept
back for most of the user's bound, in case the missing input still comes. Then results are made
without it. Only stable tuples are delayed: tentative ones have waited at an earlier task. So a
failure that is shorter than the bound shows nowhere, however long the chain of tasks behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from engine.objects.schema import BEGINNING, END

ALPHA: Final = 0.9
"""The share of the bound for waiting; the rest is for the work itself (TODS 2008, and Borealis)."""

GRACE: Final = 0.05
"""The share of the bound for which tentative tuples wait for silent inputs: those may become
tentative by the same failure, at the same moment."""

AHEAD: Final = 0.02
"""The share of the bound by which results may come early, to be in the same job as others: inputs
that come side by side must not cost a job each."""

MARKS: Final = 1_000
"""Waiting boundaries of one input; those that come more closely count as one."""


@dataclass(slots=True)
class _Mark:
    """A boundary that an input reached at `at`; results must be there at `due`, seconds."""

    boundary: int
    at: float
    due: float


@dataclass(slots=True)
class _Input:
    """An input's boundary, and the time since which it has it, seconds."""

    reached: int = BEGINNING
    advanced_at: float = float("-inf")
    stable: deque[_Mark] = field(default_factory=deque)
    tentative: deque[_Mark] = field(default_factory=deque)


class Deadlines:
    """The deadlines of one task. Times are seconds on one steady clock, boundaries microseconds.

    Args:
        inputs: their names.
        bound_s: the user's, seconds.
        live_s: an input that moved within so many seconds is waited for.
    """

    def __init__(self, inputs: Iterable[str], bound_s: float, live_s: float) -> None:
        assert bound_s > 0, "without a bound nothing is ever due"
        self._inputs = {name: _Input() for name in inputs}
        self._wait_s = ALPHA * bound_s
        self._grace_s = GRACE * bound_s
        self._ahead_s = AHEAD * bound_s
        self._live_s = live_s
        self._spacing_s = self._wait_s / MARKS
        self._covered = BEGINNING

    def advanced(self, name: str, boundary: int, now: float, *, tentative: bool) -> None:
        """An input has reached a boundary, by stable or by tentative tuples."""
        input_ = self._inputs[name]
        if boundary <= max(input_.reached, self._covered) or boundary == END:
            # an input that has ended brings nothing new, so it makes nothing due
            input_.reached = max(input_.reached, boundary)
            return
        input_.reached, input_.advanced_at = boundary, now
        marks = input_.tentative if tentative else input_.stable
        wait_s = self._grace_s if tentative else self._wait_s
        if marks and now - marks[-1].at < self._spacing_s:
            marks[-1].boundary = boundary
        else:
            marks.append(_Mark(boundary, now, now + wait_s))

    def covered(self, boundary: int) -> None:
        """There are results up to a boundary, stable or tentative."""
        self._covered = max(self._covered, boundary)
        for input_ in self._inputs.values():
            for marks in (input_.stable, input_.tentative):
                while marks and marks[0].boundary <= self._covered:
                    marks.popleft()

    def due(self, now: float) -> int | None:
        """The boundary up to which results are due now; None: none are."""
        if self.next_at() > now:
            return None
        return max(
            mark.boundary
            for input_ in self._inputs.values()
            for marks, at in ((input_.stable, _due), (input_.tentative, self._due_tentative))
            for mark in marks
            if at(mark) <= now + self._ahead_s
        )

    def next_at(self) -> float:
        """When the next result is due if nothing happens before; infinity: never."""
        times = [
            at(marks[0])
            for input_ in self._inputs.values()
            for marks, at in ((input_.stable, _due), (input_.tentative, self._due_tentative))
            if marks
        ]
        return min(times, default=float("inf"))

    def _due_tentative(self, mark: _Mark) -> float:
        """At once if every input has that boundary; else when those behind seem to be missing."""
        behind = [each for each in self._inputs.values() if each.reached < mark.boundary]
        if not behind:
            return mark.at
        return max(mark.due, *(each.advanced_at + self._live_s for each in behind))


def _due(mark: _Mark) -> float:
    return mark.due

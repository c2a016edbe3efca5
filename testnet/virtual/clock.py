"""Virtual time: it stands still while any task can run, and then jumps to the next event.

The next event is the earlier one of trio's next deadline and the network's next event.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Final, TypeVarTuple

import trio
import trio.testing
from trio._core._run import GLOBAL_RUN_CONTEXT

from medusa.overlay.listeners import Listeners

Arguments = TypeVarTuple("Arguments")


class Clock:
    """A queue of timed events; time without events costs nothing.

    Attributes:
        now: the virtual time, seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._number = 0
        self._due: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []

    def at(self, time: float, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Call a function at that time, seconds; at once if it has passed; equal times in order of
        calls."""
        self._number += 1
        heappush(self._due, (max(time, self.now), self._number, do, arguments))

    def after(self, delay: float, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Call a function after `delay` virtual seconds."""
        self.at(self.now + delay, do, *arguments)

    @property
    def next_due(self) -> float:
        """The time of the next event; infinite if there is none."""
        return self._due[0][0] if self._due else inf

    def run(self, until: float) -> None:
        """Run all events up to and including that time, and set the time to it."""
        due = self._due
        while due and due[0][0] <= until:
            self.now, _, do, arguments = heappop(due)
            do(*arguments)
        self.now = until


START: Final = 20_000.0
"""Trio's clock at the start. Real ones start anywhere from 10,000 up, never near 0."""

MOST_READINGS: Final = 5_000_000
"""Readings of the clock at one moment after which a simulation counts as looping: trio reads it
several times in every pass over its tasks, and a busy moment has some thousands."""


class VirtualTime(Clock):
    """Trio's clock for one run, with events of its own: outside of tasks, and in trio's seconds.

    Attributes:
        clock: the clock to pass to `trio.run`.
        stalls: called when the simulation does not progress any more. stalled: the reason for which
            it does not, or "".
    """

    def __init__(self) -> None:
        super().__init__(START)
        self.stalled = ""
        self.stalls: Listeners[[]] = Listeners()
        self._readings = 0
        # trio lets only its own MockClock jump; this replaces the target of its jumps
        self.clock = trio.testing.MockClock(autojump_threshold=0.0)
        self.clock.current_time = self._read  # type: ignore[method-assign]
        self.clock._autojump = self._advance  # type: ignore[method-assign]

    @property
    def elapsed(self) -> float:
        """True seconds since the start."""
        return self.now - START

    def _read(self) -> float:
        self._readings += 1
        if self._readings == MOST_READINGS:
            self._stall("much happens and no time passes")
        return self.now

    def _stall(self, why: str) -> None:
        self.stalled = why
        self.stalls.notify()

    def _advance(self) -> None:
        """Move to the next moment and run the network's events: all tasks are waiting."""
        moment = min(GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline(), self.next_due)
        if moment == inf:
            self._stall("nothing will ever happen again")
            return
        self._readings = 0
        self.run(max(self.now, moment))

"""What a person should see: a bounded list of remarkable things, the newest last."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["info", "warning", "error"]

MAX_EVENTS: Final = 500
"""Events kept: some screens full; hostile traffic cannot grow it."""

MAX_TEXT: Final = 500
"""Characters of one event: some lines."""


def wall_clock() -> float:
    """Seconds since the epoch. Drivers pass it on as `now`; logic never reads it."""
    return time.time()  # noqa: TID251


@dataclass(frozen=True, slots=True)
class Event:
    """at: seconds since the epoch, of its latest occurrence. times: occurrences in a row."""

    at: float
    level: Level
    text: str
    times: int = 1


class Events:
    """The recent events of one peer. The same text again in a row is counted, not repeated."""

    def __init__(self, clock: Callable[[], float] = wall_clock) -> None:
        self._clock = clock
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def note(self, level: Level, text: str) -> None:
        """Add an event of now; control characters of strangers do not reach the terminal."""
        line = "".join(c if c.isprintable() else "?" for c in text[:MAX_TEXT])
        times = 1
        if self._events and (self._events[-1].level, self._events[-1].text) == (level, line):
            times += self._events.pop().times
        self._events.append(Event(self._clock(), level, line, times))

    def recent(self) -> tuple[Event, ...]:
        """The events kept, oldest first."""
        return tuple(self._events)

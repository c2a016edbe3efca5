"""What a person should see: a bounded list of remarkable things, the newest last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from overlay.errors import MedusaError
from overlay.plain import plain

Level = Literal["info", "warning", "error"]

MAX_EVENTS: Final = 500
"""Events kept: some screens full; hostile traffic cannot grow it."""


def wall_clock() -> float:
    """Seconds since the epoch. Drivers pass it on as `now`; logic never reads it."""
    return time.time()  # noqa: TID251


@dataclass(frozen=True, slots=True)
class Event:
    """at: seconds since the epoch, of its latest occurrence. times: its occurrences."""

    at: float
    level: Level
    text: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Change:
    """What something learned did. error: why it was refused, None if it was taken."""

    text: str
    error: MedusaError | None = None

    @property
    def level(self) -> Level:
        return "warning" if self.error is not None else "info"

    def __str__(self) -> str:
        return self.text


class Events:
    """The recent events of one peer. The same text again is counted, not repeated, so that a
    stranger who does the same thing again and again does not push out the others."""

    def __init__(self, clock: Callable[[], float] = wall_clock) -> None:
        self._clock = clock
        self._events: dict[tuple[Level, str], Event] = {}

    def note(self, level: Level, text: str) -> None:
        """Add an event of now; control characters of strangers do not reach the terminal."""
        line = plain(text)
        before = self._events.pop((level, line), None)
        times = 1 if before is None else before.times + 1
        self._events[level, line] = Event(self._clock(), level, line, times)
        if len(self._events) > MAX_EVENTS:
            del self._events[next(iter(self._events))]

    def recent(self) -> tuple[Event, ...]:
        """The events kept, oldest first."""
        return tuple(self._events.values())

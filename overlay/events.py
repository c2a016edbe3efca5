"""Events: a bounded list of notable occurrences for people, the newest last, and the log."""

from __future__ import annotations

import hashlib
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final, Literal, TypeAlias, Unpack, cast

from medusa.overlay.errors import MedusaError
from medusa.overlay.log import LEVELS, LOGGER, Fields, bound_fields
from medusa.overlay.plain import plain

Level = Literal["debug", "info", "warning", "error"]
"""debug: only in the log."""

MAX_EVENTS: Final = 500
"""Events kept: some screens full. Hostile traffic cannot grow the list."""

MAX_OF_A_KIND: Final = 100
"""Events kept from one line of code: a sender that causes a new text there with each message does
not push out the events of other lines."""

_CAUSE_BYTES: Final = 5
"""Bytes of a cause's id: enough to make two equal ids in a peer's life improbable."""

_Kind: TypeAlias = tuple[str, int]
"""The place in the code that noted an event."""


def wall_clock() -> float:
    """Seconds since the epoch. Drivers pass it on as `now`; logic never reads it."""
    return time.time()  # noqa: TID251


@dataclass(frozen=True, slots=True)
class Event:
    """One notable occurrence, or several of the same text.

    Attributes:
        at: seconds since the epoch, of the latest occurrence.
        times: number of occurrences.
        cause: the id under which the log has the latest; may be empty.
    """

    at: float
    level: Level
    text: str
    times: int = 1
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """The result of taking in one item. error: why it was refused; None if it was taken."""

    text: str
    error: MedusaError | None = None

    @property
    def level(self) -> Level:
        return "warning" if self.error is not None else "info"

    def __str__(self) -> str:
        return self.text


class Events:
    """The recent events of one peer. A repeated text is counted, not listed again, so that a
    message that is sent again and again does not push out other events.

    Args:
        peer: the peer's name, a field of each line of the log.
    """

    def __init__(self, clock: Callable[[], float] = wall_clock, peer: str = "") -> None:
        self.peer = peer
        self._clock = clock
        self._events: dict[tuple[Level, str], Event] = {}
        self._kinds: dict[_Kind, deque[tuple[Level, str]]] = {}
        self._causes = 0
        self._began = clock()

    def note(
        self, level: Level, text: str, error: BaseException | None = None, **fields: Unpack[Fields]
    ) -> None:
        """Add an event with the present time, and a line to the log, without control characters.

        Args:
            error: the log gets its traceback.
            fields: the fields of the line, beside the bound ones.
        """
        self._write(level, text, error, fields, sys._getframe(1))

    def fault(self, text: str, error: BaseException) -> str:
        """Note a bug with its traceback.

        Returns:
            The id that finds it in the log: that of the call that met the bug, if a call did.
        """
        cause = bound_fields().get("cause") or self.new_cause()
        fields = Fields(cause=cause)
        self._write("error", f"{text}: {_in_words(error)}", error, fields, sys._getframe(1))
        return cause

    def why(self, cause: str) -> str:
        """A sentence that sends a reader to the log of this peer, with the id to look for."""
        owner = f" of {self.peer}" if self.peer else ""
        return f"why: `grep {cause} logs/medusa.log` in the home{owner}"

    def new_cause(self) -> str:
        """An id for a call that begins here. A peer that a simulation runs twice makes the same ids
        twice."""
        self._causes += 1
        life = f"{self.peer} {self._began} {self._causes}".encode()
        return hashlib.blake2s(life, digest_size=_CAUSE_BYTES).hexdigest()

    def recent(self) -> tuple[Event, ...]:
        """The events kept, oldest first."""
        return tuple(self._events.values())

    def _write(
        self, level: Level, text: str, error: BaseException | None, given: Fields, code: FrameType
    ) -> None:
        line = plain(text)
        fields = cast("Fields", {"peer": self.peer, **bound_fields(), **given})
        LOGGER.log(
            LEVELS[level], "%s", line, exc_info=error, extra={"fields": fields}, stacklevel=3
        )
        if level == "debug":
            return
        key = level, line
        before = self._events.pop(key, None)
        times = 1 if before is None else before.times + 1
        self._events[key] = Event(self._clock(), level, line, times, fields.get("cause", ""))
        if before is None:
            self._make_room(key, (code.f_code.co_filename, code.f_lineno))

    def _make_room(self, key: tuple[Level, str], kind: _Kind) -> None:
        """Make room for one more event: drop the oldest of its kind, or the oldest of all."""
        alike = self._kinds.setdefault(kind, deque())
        alike.append(key)
        if len(alike) > MAX_OF_A_KIND:
            self._events.pop(alike.popleft(), None)
        if len(self._events) > MAX_EVENTS:
            del self._events[next(iter(self._events))]


def _in_words(error: BaseException) -> str:
    """The text of a bug's exception; of a group, the text of each."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(_in_words(part) for part in group.exceptions)
    return repr(error)

"""The disk that a peer's streams take: its quota, and the part for other participants' consumers.

The log keeps tuples that a subscriber of another participant has not acknowledged, so that the
subscriber can continue after an absence. These tuples must not stop posts, to this stream or to
another one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.stream_state import LogKey
from medusa.overlay.concurrency import Watched
from medusa.overlay.errors import StorageFullError
from medusa.overlay.events import Events
from medusa.overlay.troubles import Reason, Trouble

NEARLY: Final = 0.8
"""The share of the quota at which a person is warned, in time to act: tuples that are kept during a
network split, or for an absent subscriber, grow until it ends."""

AGAIN: Final = 0.7
"""The share below which use must fall before a new warning is possible."""


QUOTA_MEND: Final = (
    "let subscribers, or inputs that are missing, come back, declare less history, or allow more "
    "(engine.disk_bytes)"
)

FULL_BYTES: Final = 2**20
"""A disk with fewer free bytes counts as full: it has no room for a segment of a journal, and
hardly for an epoch."""


def free_bytes(folder: Path) -> int:
    """Bytes that this peer may still take of the disk; a large number if the disk cannot be
    asked."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:  # streams that meet the fault report it
        return FULL_BYTES


class DiskQuota:
    """The disk quota of a peer's streams.

    Args:
        folder: has the streams. limit_bytes: the quota. taken: returns the bytes in use.
        make: called when it is full, before a post is refused, to free disk.
        free: returns the bytes that this peer may still take of a folder's disk.
    """

    def __init__(
        self,
        folder: Path,
        limit_bytes: int,
        taken: Callable[[], int],
        events: Events,
        make: Callable[[], None],
        *,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._taken = taken
        self._make = make
        self._free = free
        self._events = events
        self._seen = Watched(0)
        self._told = False

    @property
    def limit_bytes(self) -> int:
        """The quota."""
        return self._limit_bytes

    def allow(self, limit_bytes: int) -> None:
        """Set another quota; waiters continue if there is room."""
        self._limit_bytes = limit_bytes
        self.look()

    def check(self, stream: str) -> None:
        """Refuse more bytes if the quota is full. Raises: StorageFullError."""
        if self._taken() > self._limit_bytes:
            self._make()
        if self._taken() > self._limit_bytes:
            raise StorageFullError(
                f"{stream}: the streams of this peer hold {self._taken()} bytes, "
                f"{self._limit_bytes} are allowed: {QUOTA_MEND}"
            )

    def troubles(self) -> Iterator[Trouble]:
        """Whether the quota, or the disk itself, is full or nearly so."""
        taken, thing = self._taken(), f"the disk of {self._folder}"
        held = f"the streams of this peer hold {taken} bytes, and {self._limit_bytes} are allowed"
        if taken > self._limit_bytes:
            yield Trouble(Reason.DISK_FULL, thing, f"is used up: {held}", QUOTA_MEND)
        elif (free := self._free(self._folder)) < FULL_BYTES:
            what = f"is full: {free} bytes are free"
            yield Trouble(Reason.DISK_FULL, thing, what, "make room on it; all goes on by itself")
        elif self._told:
            yield Trouble(Reason.DISK_NEARLY_FULL, thing, f"fills: {held}", QUOTA_MEND)

    @property
    def short_bytes(self) -> int:
        """Bytes to free until the quota is no longer nearly full; 0: none."""
        return max(0, self._taken() - int(self._limit_bytes * NEARLY))

    async def wait(self) -> None:
        """Return once there is room."""
        await self._seen.until(lambda _: self._taken() <= self._limit_bytes)

    def look(self) -> None:
        """Wake waiters for room, and warn a person in time."""
        taken = self._taken()
        if taken <= self._limit_bytes:
            self._seen.set(taken)
        share = taken / self._limit_bytes
        if share >= NEARLY and not self._told:
            self._events.note(
                "warning",
                f"takes {share:.0%} of engine.disk_bytes for its streams; at 100 % posts and "
                f"copies of streams wait, and nothing is dropped: {QUOTA_MEND}",
            )
        self._told = share >= NEARLY or (self._told and share >= AGAIN)


OF_ALL: Final = 1 / 4
"""The share of `engine.disk_bytes` for all other participants together: the larger part of the
disk stays for our own participant."""

OF_PARTICIPANT: Final = OF_ALL / 2
"""The part for one participant, on all streams: so that there is always room for another
participant."""

OF_STREAM: Final = OF_PARTICIPANT / 2
"""The share for one participant on one stream, so that it can read a second stream."""


@dataclass(frozen=True, slots=True)
class Held:
    """The part of one stream's log that is kept for one consumer of another participant.

    Attributes:
        key: the key of the log. consumer: the subscriber, or the task, that the log waits for.
        holder: its participant.
        bytes: the bytes of files that are kept for it, and that no consumer of our own needs.
            since: when it last acknowledged a boundary, or began to lag; seconds.
    """

    key: LogKey
    consumer: Hold
    holder: str
    bytes: int
    since: float


def to_release(
    held: Iterable[Held], *, disk_bytes: int, short_bytes: int, hold_s: float, now: float
) -> dict[Held, str]:
    """The consumers to release, each with the reason in words for people; those that hold the most
    come first. Args: disk_bytes: the quota of this peer's streams. short_bytes: bytes to free now.
    hold_s: how long a consumer that acknowledges nothing is waited for, seconds.
    """
    gone: dict[Held, str] = {}
    for each in held:
        if now - each.since > hold_s:
            gone[each] = f"it acknowledged nothing for {hold_s:g} s (engine.foreign_hold_s)"
    left = sorted((each for each in held if each not in gone), key=lambda each: each.bytes)

    def release(group: Callable[[Held], object], limit: float, reason: str) -> None:
        for name in {group(each): None for each in left}:
            while (kept := _kept(members := [e for e in left if group(e) == name])) > limit:
                gone[members[-1]] = f"{kept} bytes were kept {reason}"
                left.remove(members[-1])

    release(lambda each: (each.holder, each.key), disk_bytes * OF_STREAM, "for it in this stream")
    release(lambda each: each.holder, disk_bytes * OF_PARTICIPANT, "for its participant")
    release(lambda each: None, disk_bytes * OF_ALL, "for other participants")
    if short_bytes > 0:
        release(lambda each: None, max(0, _kept(left) - short_bytes), "while room is short")
    return gone


def _kept(held: Iterable[Held]) -> int:
    """Bytes that these consumers keep together: for each stream, the bytes of the consumer that
    lags most."""
    most: dict[LogKey, int] = {}
    for each in held:
        most[each.key] = max(most.get(each.key, 0), each.bytes)
    return sum(most.values())

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from overlay.concurrency import Watched
from overlay.errors import StorageFullError
from overlay.events import Events

NEARLY: Final = 0.8
"""The share of the quota at which a person is warned, in time to act: tuples kept for a network
split, or for an absent subscriber, grow until that is over."""

AGAIN: Final = 0.7
"""Below this share the next time that the quota is nearly used up is a new warning."""


class DiskQuota:
    """The disk quota of a peer's streams.

    Args:
        limit_bytes: the quota. taken: returns the bytes in use.
        make: called when it is full, before a post is refused, to free disk.
    """

    def __init__(
        self,
        limit_bytes: int,
        taken: Callable[[], int],
        events: Events,
        make: Callable[[], None],
    ) -> None:
        self._limit_bytes = limit_bytes
        self._taken = taken
        self._make = make
        self._events = events
        self._seen = Watched(0)
        self._told = False

    @property
    def limit_bytes(self) -> int:
        """The quota."""
        return self._limit_bytes

    def allow(self, limit_bytes: int) -> None:
        """Set another quota; waiters go on if there is room."""
        self._limit_bytes = limit_bytes
        self.look()

    def check(self, stream: str) -> None:
        """Refuse more bytes if the quota is full. Raises: StorageFullError."""
        if self._taken() > self._limit_bytes:
            self._make()
        if self._taken() > self._limit_bytes:
            raise StorageFullError(
                f"{stream}: the streams of this peer hold {self._taken()} bytes, "
                f"{self._limit_bytes} are allowed (engine.disk_bytes): "
                "let subscribers catch up, declare less history, or allow more"
            )

    @property
    def short_bytes(self) -> int:
        """Bytes that must go until it is no longer nearly full; 0: none."""
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
                "copies of streams wait, and nothing is dropped: let subscribers, or inputs that "
                "are missing, come back, declare less history, or allow more",
            )
        self._told = share >= NEARLY or (self._told and share >= AGAIN)

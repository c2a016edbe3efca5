"""The room that the streams of a peer may take on its disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from overlay.errors import StorageFullError
from overlay.events import Events

NEARLY: Final = 0.8
"""A share of the room from which a person is told, while there is time to do something: what a
split or an absent subscriber makes a peer keep only grows until they come back."""

AGAIN: Final = 0.7
"""Below this share it is news when it is nearly full the next time."""


class Room:
    """
    Args:
        limit_bytes: that may be taken. taken: bytes that are.
        make: called when it is full, before anybody is refused: lets go of what may go.
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
        self._made = trio.Event()
        self._told = False

    def check(self, stream: str) -> None:
        """
        Raises:
            StorageFullError: it is full.
        """
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
        """What must go for it not to be nearly full; 0: nothing."""
        return max(0, self._taken() - int(self._limit_bytes * NEARLY))

    async def wait(self) -> None:
        """Return once there is some."""
        while self._taken() > self._limit_bytes:
            await self._made.wait()

    def look(self) -> None:
        """Let those go on who wait, and tell a person in time."""
        taken = self._taken()
        if taken <= self._limit_bytes:
            self._made.set()
            self._made = trio.Event()
        share = taken / self._limit_bytes
        if share >= NEARLY and not self._told:
            self._events.note(
                "warning",
                f"the streams of this peer take {share:.0%} of engine.disk_bytes; at 100 % posts "
                "and copies of streams wait, and nothing is dropped: let subscribers, or what is "
                "missing, come back, declare less history, or allow more",
            )
        self._told = share >= NEARLY or (self._told and share >= AGAIN)

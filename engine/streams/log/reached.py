"""How far a log has come, for those that wait for more of it."""

from __future__ import annotations

import time

import trio

from medusa.overlay.concurrency import Watched
from medusa.overlay.errors import ClosedError


class Reached:
    """The boundary of one log, for tasks that wait until it moves or the log is closed.

    Attributes:
        moved_at: when it last moved, on the monotonic clock, seconds.
    """

    def __init__(self, name: str, boundary: int) -> None:
        self._name = name
        self._boundary = Watched(boundary)
        self.is_closed = False
        self.moved_at = time.monotonic()

    @property
    def boundary(self) -> int:
        """The boundary, microseconds: every row with stime up to it is in the log."""
        return self._boundary.value

    def move(self, boundary: int) -> None:
        """Set another boundary, and wake the waiters."""
        self.moved_at = time.monotonic()
        self._boundary.set(boundary)

    async def beyond(self, boundary: int) -> None:
        """Return once the boundary is later. Raises: ClosedError: the log was closed."""
        await trio.lowlevel.checkpoint()
        while self.boundary <= boundary:
            self.check_open()
            await self._boundary.changed()

    def check_open(self) -> None:
        """Raises: ClosedError: the log was closed."""
        if self.is_closed:
            raise ClosedError(f"the log in {self._name} is closed")

    def close(self) -> None:
        """Wake all waiters with a ClosedError."""
        self.is_closed = True
        self._boundary.set(self.boundary)

"""How far a task may go for now."""

from __future__ import annotations

import trio

from engine.objects.schema import END


class Halt:
    """
    Attributes:
        at: its output's boundary does not pass this one, microseconds.
    """

    def __init__(self) -> None:
        self.at = END
        self._moved = trio.Event()

    def move(self, boundary: int) -> None:
        """Let it go so far, and no further."""
        if boundary != self.at:
            self.at = boundary
            self._moved.set()
            self._moved = trio.Event()

    async def passed(self, boundary: int) -> None:
        """Returns once it may go beyond that."""
        while self.at <= boundary < END:
            await self._moved.wait()

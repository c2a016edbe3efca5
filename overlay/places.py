"""Shares a bounded number of places among holders: connections, and messages under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


class Places:
    """A number of places, of which each holder may take as many as are free (see
    `medusa.overlay.memory.Memory`). One greedy holder gets half of them, n of them 1/(n+1) each; so
    there is room for one more.

    Args:
        limit: places, for all holders.
        most: places of one holder, however many are free.
    """

    def __init__(self, limit: int, most: int | None = None) -> None:
        self.limit = limit
        self._most = limit if most is None else most
        self._held: Counter[str] = Counter()
        self._given_back = trio.lowlevel.ParkingLot()

    def held(self, holder: str) -> int:
        """Places that the holder has."""
        return self._held[holder]

    def take(self, holder: str) -> bool:
        """Take a place; false: the holder's share is used up."""
        wanted = self._held[holder] + 1
        if wanted > min(self._most, self.limit - self._held.total()):
            return False
        self._held[holder] = wanted
        return True

    def give_back(self, holder: str) -> None:
        """Give a place back."""
        self._held -= Counter({holder: 1})
        self._given_back.unpark_all()

    @asynccontextmanager
    async def place(self, holder: str) -> AsyncIterator[None]:
        """Wait until the holder may take a place, and hold the place while the block runs."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self.take(holder):
            await self._given_back.park()
        try:
            yield
        finally:
            self.give_back(holder)

"""Readings without an end, posted as time passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import trio

from overlay.events import wall_clock
from tools.client.async_client import AsyncMedusaClient

Take = Callable[[list[int], list[int]], pa.Table]
"""Makes the table of readings from their times (microseconds) and numbers, and keeps a record for
the comparison."""


class Sensor:
    """Posts readings of the present to a stream, numbered from 1.

    Args:
        every_us: between two readings. tick_s: between two posts, seconds: the source's boundary
            lags the clock by as much.
        promise: promise boundaries even without readings.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        client: AsyncMedusaClient,
        stream: str,
        take: Take,
        *,
        every_us: int,
        tick_s: float,
        promise: bool = False,
        wall: Callable[[], float] = wall_clock,
    ) -> None:
        self._client = client
        self._stream = stream
        self._take = take
        self._every_us: Final = every_us
        self._tick_s: Final = tick_s
        self._promise = promise
        self._wall = wall
        self._upto_us = int(wall() * 1e6)
        self._count = 0
        self._ending = False
        self.ended = trio.Event()

    async def run(self) -> None:
        """Post until `end` is called, and until all is acknowledged."""
        due = trio.current_time()
        while not self._ending:
            due += self._tick_s
            await trio.sleep_until(due)
            now_us = int(self._wall() * 1e6)
            at_us = list(range(self._upto_us + self._every_us, now_us + 1, self._every_us))
            numbers = list(range(self._count + 1, self._count + 1 + len(at_us)))
            self._count += len(at_us)
            self._upto_us = at_us[-1] if at_us else self._upto_us
            if at_us or self._promise:  # a sensor without readings is no failure
                table = self._take(at_us, numbers) if at_us else None
                boundary = now_us if self._promise else None
                await self._client.post_event(self._stream, table, boundary=boundary)
        await self._client.post_event(self._stream, None, end=True)
        await self._client.flush()
        self.ended.set()

    def end(self) -> None:
        """Stop posting after the present post."""
        self._ending = True

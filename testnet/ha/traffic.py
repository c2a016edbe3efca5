"""Readings without an end, posted as time passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from overlay.events import wall_clock
from testnet.ha.chain import SOURCE, Reading, readings_table
from tools.client.async_client import AsyncMedusaClient

RATE: Final = 400
"""Readings per second: what the chain costs is its epochs, not its rows."""
TICK_S: Final = 0.05
"""Between two posts, seconds: the source's boundary follows the clock by so much."""


class Sensor:
    """Posts readings of the present, numbered from 1.

    Args:
        posted: takes every reading handed over.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        client: AsyncMedusaClient,
        posted: list[Reading],
        wall: Callable[[], float] = wall_clock,
    ) -> None:
        self._client = client
        self._posted = posted
        self._wall = wall
        self._upto_us = int(wall() * 1e6)
        self._ending = False
        self.ended = trio.Event()

    async def run(self) -> None:
        """Post until told to end, and until all is acknowledged."""
        due = trio.current_time()
        while not self._ending:
            due += TICK_S
            await trio.sleep_until(due)
            readings = self.next_readings()
            if readings:
                self._posted += readings
                await self._client.post_event(SOURCE.name, readings_table(readings))
        await self._client.post_event(SOURCE.name, None, end=True)
        await self._client.flush()
        self.ended.set()

    def next_readings(self) -> list[Reading]:
        """Those since the last call, `RATE` a second, evenly over the time that has passed."""
        step_us = 1_000_000 // RATE
        count = max(int(self._wall() * 1e6) - self._upto_us, 0) // step_us
        first = len(self._posted) + 1
        found = [Reading(self._upto_us + (n + 1) * step_us, first + n) for n in range(count)]
        self._upto_us += count * step_us
        return found

    def end(self) -> None:
        """Post no more than what is under way."""
        self._ending = True

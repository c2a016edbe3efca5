"""Readings without an end, posted as time passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from overlay.events import wall_clock
from testnet.partition.chain import Row, Source, readings_table
from tools.client.async_client import AsyncMedusaClient

RATE: Final = 525
"""Readings per second of all sources together: Borealis' 175 a stream."""
TICK_S: Final = 0.1
"""Between two posts, seconds: the source's boundary follows the clock by so much (as there)."""


class Sensor:
    """Posts readings of the present to one source, numbered from 1.

    Args:
        posted: takes every reading handed over.
        wall: seconds since the epoch.
    """

    def __init__(
        self,
        client: AsyncMedusaClient,
        source: Source,
        posted: list[Row],
        wall: Callable[[], float] = wall_clock,
    ) -> None:
        self._client = client
        self._source = source
        self._posted = posted
        self._wall = wall
        self._step_us = round(1e6 / (RATE * source.share))
        self._upto_us = int(wall() * 1e6)
        self._count = 0
        self._ending = False

    async def run(self) -> None:
        """Post until told to end, and until all is acknowledged."""
        stream, due = self._source.stream.name, trio.current_time()
        while not self._ending:
            due += TICK_S
            await trio.sleep_until(due)
            now_us = int(self._wall() * 1e6)
            at_us = list(range(self._upto_us + self._step_us, now_us + 1, self._step_us))
            numbers = list(range(self._count + 1, self._count + 1 + len(at_us)))
            self._posted += [(self._source.sensor, number) for number in numbers]
            self._count += len(at_us)
            self._upto_us = at_us[-1] if at_us else self._upto_us
            table = readings_table(self._source.sensor, at_us, numbers) if at_us else None
            # a promise as well: a sensor that has nothing to say is no failure
            await self._client.post_event(stream, table, boundary=now_us)
        await self._client.post_event(stream, None, end=True)
        await self._client.flush()

    def end(self) -> None:
        """Post no more than what is under way."""
        self._ending = True

"""Posts as time passes: the parts of a trace at their times, and readings without an end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import trio

from medusa.overlay.events import wall_clock
from medusa.tools.client.async_client import AsyncMedusaClient

POST_ROWS: Final = 16_384
"""Rows in one post at full speed: some 1.5 MB, so several are under way and none is large."""
TICK_S: Final = 0.25
"""Real seconds covered by one post when paced: short enough for a lively screen."""


@dataclass(frozen=True)
class Part:
    """Rows to post, with their time.

    Attributes:
        due: seconds after the scenario's first post; 0.0 at full speed.
    """

    table: pa.Table
    due: float


def paced(tables: Iterable[pa.Table], zero: float, speed: float | None) -> Iterator[Part]:
    """Cut ascending tables into posts.

    Args:
        zero: the ts that is due at once, seconds.
        speed: seconds of trace per second; None for as fast as possible.
    """
    if speed is None:
        for table in tables:
            for start in range(0, table.num_rows, POST_ROWS):
                yield Part(table.slice(start, POST_ROWS), 0.0)
        return
    step = TICK_S * speed
    for table in tables:
        yield from _ticks(table, zero, step)


def _ticks(table: pa.Table, zero: float, step: float) -> Iterator[Part]:
    """One part for each tick that has rows; a tick may continue in the next table."""
    ts = table.column("ts")
    start = 0
    while start < table.num_rows:
        tick = (ts[start].as_py() - zero) // step
        until = zero + (tick + 1) * step
        # ascending, so the rows of this tick are the next ones; there is at least one
        count = max(pc.sum(pc.less(ts.slice(start), until)).as_py(), 1)
        rows = min(count, POST_ROWS)
        # due at the end of its tick, when all of it would have been observed
        yield Part(table.slice(start, rows), (tick + 1) * TICK_S)
        start += rows


@dataclass(frozen=True)
class Timing:
    """The times of the parts that several participants post.

    Attributes:
        started: when the first was due, on trio's clock.
        hurry: whether all remaining parts are posted at once after the disturbance.
        disturbed: the disturbance has ended.
    """

    started: float
    hurry: bool = False
    disturbed: trio.Event = field(default_factory=trio.Event)

    async def run(self, disturb: Callable[[], Awaitable[None]] | None) -> None:
        """Run the disturbance, if any, and note its end."""
        if disturb is not None:
            await disturb()
        self.disturbed.set()

    def seconds_until(self, part: Part) -> float:
        if self.hurry and self.disturbed.is_set():
            return 0.0
        return max(self.started + part.due - trio.current_time(), 0.0)

    async def until(self, part: Part) -> None:
        """Wait until the part is due."""
        with trio.move_on_at(self.started + part.due):
            if self.hurry:
                await self.disturbed.wait()
            else:
                await trio.sleep_forever()


Take = Callable[[list[int], list[int]], pa.Table]
"""Makes the table of readings from their times (microseconds) and numbers, and keeps a record for
the comparison."""


class Sensor:
    """Posts readings of the present to a stream, numbered from 1.

    Args:
        every_us: the time between two readings. tick_s: the time between two posts, seconds: the
            source's boundary lags the clock by as much.
        promise: whether to promise boundaries even without readings.
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

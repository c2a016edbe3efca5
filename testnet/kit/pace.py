"""When each part of a trace is due: at once, or so many seconds of trace per second."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import trio

POST_ROWS: Final = 16_384
"""Rows in one post at full speed: some 1.5 MB, so several are under way and none is large."""
TICK_S: Final = 0.25
"""Real seconds of trace in one post when paced: what a screen needs to look alive."""


@dataclass(frozen=True)
class Part:
    """Rows to post, and when.

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
    """One part for each tick that has rows; a tick may go on in the next table."""
    ts = table.column("ts")
    start = 0
    while start < table.num_rows:
        tick = (ts[start].as_py() - zero) // step
        until = zero + (tick + 1) * step
        # Ascending, so the rows of this tick are the next ones; at least one is.
        count = max(pc.sum(pc.less(ts.slice(start), until)).as_py(), 1)
        rows = min(count, POST_ROWS)
        # Due at the end of its tick, when all of it would have been seen.
        yield Part(table.slice(start, rows), (tick + 1) * TICK_S)
        start += rows


@dataclass(frozen=True)
class Timing:
    """When the parts go out that several participants post.

    Attributes:
        started: when the first was due, on trio's clock.
        hurry: whether all that is left is due at once when nothing disturbs any more.
        disturbed: whatever disturbs the posting has ended.
    """

    started: float
    hurry: bool = False
    disturbed: trio.Event = field(default_factory=trio.Event)

    async def run(self, disturb: Callable[[], Awaitable[None]] | None) -> None:
        """Run what disturbs, if anything, and take note of its end."""
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

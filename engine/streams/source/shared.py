from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from medusa.engine.streams.journal.journal import Position
from medusa.engine.streams.source.deciding import is_held
from medusa.engine.streams.source.logs import SourceLogs
from medusa.engine.streams.source.source import Source
from medusa.overlay.concurrency import Watched


class SharedSources:
    """The source of a stream and the source of its late tuples, which tasks share; wakes tasks that
    wait for changes. Args: logs: the logs of both.

    Attributes:
        source: the source of the stream. late: the source of its late tuples.
        lock: held by the task that uses them; see `exclusive`.
    """

    def __init__(self, source: Source, late: Source, logs: SourceLogs) -> None:
        self.source = source
        self.late = late
        self.lock = trio.Lock()
        self._logs = logs
        self._ready = Watched(source.ready)
        self._grown = Watched(source.journal.position)
        self._clocked = Watched(self.watch_clock)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Within the block no post is accepted, and no file of the journal changes."""
        async with self.lock:
            yield
        self.notify()

    def replace(self, source: Source, late: Source) -> None:
        """Close the journals, and continue with others over the same logs. The caller is in the
        context `Cutter.at_rest`, so that nothing is moved to the logs meanwhile."""
        self.close()
        self.source, self.late = source, late

    def close(self) -> None:
        """Close the journals; pending posts stay in them."""
        self.source.close()
        self.late.close()

    async def read(self, at: Position, limit: int) -> tuple[Position, bytes]:
        """A part of the stream's journal; see `Journal.read`."""
        async with self.lock:
            return self.source.journal.read(at, limit)

    # -- news -------------------------------------------------------------------------------------

    def notify(self) -> None:
        """Wake the tasks that wait for a change of the sources."""
        if self._has_ready:
            self._ready.set(self.source.ready)
        self._clocked.set(self.watch_clock)
        self._grown.set(self.source.journal.position)

    @property
    def _has_ready(self) -> bool:
        late = self.late.ready > self._logs.late.boundary  # even after the stream's end
        return late or self.source.ready > self._logs.stream.boundary

    @property
    def watch_clock(self) -> bool:
        """Whether the clock alone, without a post, may move its boundary or end the presence of a
        producer. A leader that was away checks once: it waits for producers from then on."""
        state = self.source.acceptance
        return self.source.attendance.was_away or bool(state.presence.count) or is_held(state)

    async def wait_clock(self) -> None:
        """Return once `watch_clock` is true."""
        await trio.lowlevel.checkpoint()
        await self._clocked.until(lambda watch: watch)

    async def wait_ready(self) -> None:
        """Return once `Cutter.advance` has work: a post has moved the boundary beyond the boundary
        of the log, or has brought late tuples."""
        await trio.lowlevel.checkpoint()
        await self._ready.until(lambda _: self._has_ready)

    async def wait_grown(self, beyond: Position) -> None:
        """Return once the journal is longer than that."""
        await trio.lowlevel.checkpoint()
        await self._grown.until(lambda _: self.source.journal.position > beyond)

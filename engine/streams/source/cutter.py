from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.source.logs import SourceLogs
from medusa.engine.streams.source.shared import SharedSources
from medusa.engine.streams.source.source import Source


class Cutter:
    """Cuts the ready tuples of a source stream into epochs of its logs."""

    def __init__(self, sources: SharedSources, logs: SourceLogs) -> None:
        self._sources = sources
        self._logs = logs
        self._cutting = trio.Lock()

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """As `SharedSources.exclusive`; within the block no epoch is cut, either."""
        async with self._cutting, self._sources.exclusive():
            yield

    async def advance(self, now: float, *, may_leap: bool = True) -> bool:
        """Move ready tuples into the logs, in several epochs if they are many; returns whether
        there were any. Args: see `Source.tick`.

        Raises:
            StorageFullError: nothing is lost; call again when there is room.
        """
        async with self._cutting:
            async with self._sources.lock:
                self._sources.source.tick(now, may_leap=may_leap)
            self._sources.notify()
            return await self._log_ready()

    async def log_ready(self) -> None:
        """Move ready tuples into the logs, without reading the clock. Raises: as `advance`."""
        async with self._cutting:
            await self._log_ready()

    async def _log_ready(self) -> bool:
        await self._advance_revisions()
        moved = await self._advance(self._sources.source, self._logs.stream)
        return await self._advance(self._sources.late, self._logs.late) or moved

    async def _advance_revisions(self) -> None:
        """Advance the revisions first: a reader of the stream up to a boundary must find them."""
        log = self._logs.revisions
        if log is None:
            return
        source = self._sources.source
        assert source.revisions is not None, "it has a log of revisions"
        async with self._sources.lock:
            cut = source.revisions.cut(source.ready)
        if cut is not None:
            upto, table = cut
            if log.boundary < upto:
                await log.commit(upto, table)
            async with self._sources.lock:
                source.revisions.commit(upto)

    async def _advance(self, source: Source, log: StreamLog) -> bool:
        ready = source.ready
        moved = False
        while log.boundary < ready or source.waiting.has_cut:
            async with self._sources.lock:
                cut = source.cut()
            if cut is None:
                break
            upto, table = cut
            # A cancelled call may have ended after the commit: then only the source is behind.
            if log.boundary < upto:
                await log.commit(upto, table)
            async with self._sources.lock:
                source.committed(upto)
            moved = True
        return moved

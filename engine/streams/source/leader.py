"""A source stream at its leader, under trio: the source, its log, and the streams beside it.

`open_leader` is all that a peer needs: post, advance now and then, and read the logs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.definitions import StreamDefinition, is_revised
from medusa.engine.objects.schema import BEGINNING, Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.journal.entries import Bytes
from medusa.engine.streams.journal.journal import Position
from medusa.engine.streams.log.epochs import EpochDamagedError
from medusa.engine.streams.log.recent import RECENT_BYTES, SharedMemory
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Posted
from medusa.engine.streams.revisions.columns import revisions_schema
from medusa.engine.streams.source.cutter import Cutter
from medusa.engine.streams.source.logs import SourceLogs
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.replica import Replica
from medusa.engine.streams.source.revising import Revising
from medusa.engine.streams.source.shared import SharedSources
from medusa.engine.streams.source.source import Source
from medusa.engine.streams.source.sources import journal_folders, logged_before, open_sources
from medusa.overlay.errors import InvalidInputError, UnavailableError
from medusa.overlay.failpoints import Failpoint, failpoint

_INLINE_BYTES: Final = 16 * 2**10
"""A post below this is handled at once (tens of microseconds); above, in a worker thread."""

_PATIENCE_S: Final = 1.0
"""How long a post waits for a log that is behind, seconds; then it is accepted or refused."""


class Leader:
    """The leader of a source stream: accepts posts in order, and changes of the stream.

    Attributes:
        logs: the logs of the stream. sources: order and journal the posts.
        cutter: appends the ready tuples to the logs.
    """

    def __init__(self, source: Source, late: Source, logs: SourceLogs) -> None:
        self.logs = logs
        self.sources = SharedSources(source, late, logs)
        self.cutter = Cutter(self.sources, logs)
        order: AbstractAsyncContextManager[None] = nullcontext()
        self._order = order if logs.revisions is None else trio.Lock()
        self._retired = False

    @property
    def source(self) -> Source:
        """The source; do not use it while a post is under way: see `SharedSources.exclusive`."""
        return self.sources.source

    @property
    def boundary(self) -> int:
        """The source's boundary; `advance` then moves the log's boundary there."""
        return self.source.boundary

    @property
    def pending_bytes(self) -> int:
        """Bytes of tuples that wait for the boundary to pass them."""
        return self.source.waiting.pending.bytes

    @property
    def replica(self) -> Replica:
        """What a leader or a replica of a stream with replicas does with `source`, besides
        accepting posts."""
        return Replica(self.source)

    @property
    def lost(self) -> tuple[str, ...]:
        """The known losses of acknowledged rows, in words for people."""
        return (*self.logs.lost, *self.sources.late.journal.lost, *self.source.journal.lost)

    @property
    def cut_off(self) -> tuple[str, ...]:
        """See `Source.cut_off`."""
        return (*self.sources.late.journal.cut_off, *self.source.journal.cut_off)

    async def post(self, request: PostRequest, *, now: float) -> Posted:
        """See `Source.post`. The caller passes the posts of one producer one after the other. A
        post waits a while if the log is behind."""
        if self.source.crowded:
            with trio.move_on_after(_PATIENCE_S):
                await self.logs.stream.wait_beyond(self.logs.stream.boundary)

        # called under the lock, because the source may be replaced until then
        def accept() -> Posted:
            return self.source.post(request, now=now)

        async with self._order, self.sources.lock:
            self._check_open()
            if len(request.body) < _INLINE_BYTES:
                posted = accept()
            else:
                posted = await trio.to_thread.run_sync(accept)
        self.sources.notify()
        return posted

    async def revise(self, request: PostRequest, *, history_us: int, now: float) -> Posted:
        """See `Revising.revise`; in order with the posts of that producer. Posts wait while the
        tuples are looked up; replicas and logs continue.

        Raises:
            InvalidInputError: the stream takes no revisions.
            UnavailableError: a part of the log was found damaged; the next try leaves it out.
        """
        log, revisions = self.logs.stream, self.logs.revisions
        if revisions is None or not self.source.schema.key:
            raise InvalidInputError("the stream takes no revisions: its schema declares no key")
        async with self._order:
            with ExitStack() as pinned:
                async with self.sources.lock:
                    self._check_open()
                    revising = Revising(self.source)
                    if (posted := self.source.known(request)) is not None:
                        return posted
                    here = pinned.enter_context(revising.here(log, revisions))
                try:
                    looked_up = await trio.to_thread.run_sync(revising.look_up, request.body, here)
                except EpochDamagedError as error:
                    log.damage.find(error.path)
                    revisions.damage.find(error.path)
                    raise UnavailableError("a part of its history is damaged: try again") from error
            async with self.sources.lock:
                revise = partial(Revising(self.source).revise, request, looked_up)
                accept = partial(revise, history_us=history_us, now=now)
                posted = await trio.to_thread.run_sync(accept)
        self.sources.notify()
        return posted

    async def alter(self, definition: StreamDefinition) -> None:
        """See `Source.alter`."""
        async with self.sources.exclusive():
            await trio.to_thread.run_sync(self.source.alter, definition)

    async def reopen(self, term_number: int | None = None) -> None:
        """Let an ended stream continue; no reader has seen its end.

        Args:
            term_number: the number of the leader's term, for a stream with replicas: see
                `Replica.lead`.

        Raises:
            UnavailableError: its end is not in the log yet, or a reader is at the end.
                StorageError: the disk does not take it; the stream stays ended.
        """
        async with self.cutter.at_rest():
            if not self.logs.have_end:
                raise UnavailableError("its end is not in its log yet: try again")
            boundary = self.source.acceptance.goes_on_from(self.logs.stream.files.before_end)
            self._shorten(boundary)  # if a crash follows, the journal restores the end
            if term_number is None:
                await trio.to_thread.run_sync(self.source.reopen, boundary)
            else:
                lead = partial(self.replica.lead, term_number, reopened=boundary)
                await trio.to_thread.run_sync(lead)

    def note_reopening(self, at: Position, data: Bytes) -> None:
        """Shorten the logs before a replica follows the start of a segment: they may have an end
        that the stream does not have any more. The caller is in the context `Cutter.at_rest`.

        Raises:
            DecodeError: the data does not fit this place. UnavailableError: a reader is at the end.
                StorageError: the disk does not take it.
        """
        boundary = self.replica.reopened_by(at, data)
        if boundary is not None:
            self._shorten(boundary)

    def _shorten(self, boundary: int) -> None:
        try:
            self.logs.shorten(boundary)
        finally:
            self.source.shortened(boundary, self.logs.stream.boundary, self.logs.revised)

    @failpoint(Failpoint.SOURCE_RETIRE)
    async def retire(self) -> None:
        """Accept no more posts, because the stream will be deleted. Return once none is under
        way."""
        async with self._order, self.sources.lock:
            self._retired = True

    def _check_open(self) -> None:
        if self._retired:
            raise UnavailableError("the stream is not here any more: send it again")

    async def settle(self, upto: Position, now: float) -> None:
        """Note that all replicas have everything before `upto`; see `Replica.settle`."""
        async with self.sources.exclusive():
            self.replica.settle(upto, now)

    async def wait_ready(self) -> None:
        """See `SharedSources.wait_ready`."""
        await self.sources.wait_ready()

    async def advance(self, now: float, *, may_leap: bool = True) -> bool:
        """See `Cutter.advance`."""
        return await self.cutter.advance(now, may_leap=may_leap)

    def close(self) -> None:
        """Close the files and wake the logs' readers; pending posts stay in the journal."""
        self.sources.close()
        self.logs.close()


@asynccontextmanager
async def open_leader(
    folder: Path,
    name: str,
    schema: Schema,
    config: SourceConfig,
    *,
    history_us: int,
    recent_bytes: int = RECENT_BYTES,
    shared: SharedMemory | None = None,
    journal: int = 0,
    now: float,
) -> AsyncIterator[Leader]:
    """Open a source stream in `folder` (`log`, `journal`, `late`, `late-journal`, and `revisions`
    if it is revised).

    Args:
        journal: for a stream with replicas, the term in which this peer's journal was begun: it is
            part of the journal's folder name. 0: the first journal, or a stream without replicas.
        now: seconds since the epoch.

    Raises:
        InternalError: its files are damaged. StorageFullError: no room to begin.
    """
    shared = shared or SharedMemory()

    def open_log(name: str, columns: pa.Schema, in_memory: int = 2**20) -> StreamLog:
        return StreamLog.open(
            folder / name,
            columns,
            history_us=history_us,
            recent_bytes=in_memory,
            shared=shared,
            durable=config.durable,
        )

    def open_all() -> Leader:
        log = open_log("log", schema.source, recent_bytes)
        late_log = open_log("late", schema.source)
        revisions_log = None
        if is_revised(schema, config.lateness_us):
            revisions_log = open_log("revisions", revisions_schema(schema, source=True).source)
        if not config.replicated:  # the log of a replica may be behind its leader's
            journals = journal_folders(folder, journal)
            for each, place in zip((log, late_log), journals, strict=True):
                each.reaches(logged_before(place))
        source, late = open_sources(
            folder,
            name,
            schema,
            config,
            committed=(log.boundary, late_log.boundary),
            revised=BEGINNING if revisions_log is None else revisions_log.boundary,
            journal=journal,
            now=now,
        )
        return Leader(source, late, SourceLogs(log, late_log, revisions_log))

    leader = await trio.to_thread.run_sync(open_all)
    try:
        yield leader
    finally:
        leader.close()

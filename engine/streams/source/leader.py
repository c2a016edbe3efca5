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
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.journal.entries import Bytes
from medusa.engine.streams.journal.journal import Position
from medusa.engine.streams.log.epochs import EpochDamagedError
from medusa.engine.streams.log.recent import RECENT_BYTES, SharedMemory
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Posted
from medusa.engine.streams.revisions.columns import revisions_schema
from medusa.engine.streams.source.deciding import is_held
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.replica import Replica
from medusa.engine.streams.source.revising import Revising
from medusa.engine.streams.source.source import Source
from medusa.engine.streams.source.sources import journal_folders, logged_before, open_sources
from medusa.overlay.concurrency import Watched
from medusa.overlay.errors import InvalidInputError, UnavailableError
from medusa.overlay.killpoints import KillPoint, kill_point

_INLINE_BYTES: Final = 16 * 2**10
"""A post below this is handled at once (tens of microseconds); above, in a worker thread."""

_PATIENCE_S: Final = 1.0
"""How long a post waits for a log that is behind, seconds; then it goes on, or is refused."""


class Leader:
    """The leader of a source stream: orders posts, journals them, and appends them to its logs.

    Attributes:
        log: the stream. late_log: its late tuples, in order of arrival.
        revisions_log: its revisions, where it takes any.
    """

    def __init__(
        self,
        source: Source,
        log: StreamLog,
        late: Source,
        late_log: StreamLog,
        revisions_log: StreamLog | None = None,
    ) -> None:
        self.revisions_log = revisions_log
        self._source = source
        self._late = late
        self._lock = trio.Lock()
        order: AbstractAsyncContextManager[None] = nullcontext()
        self._order = order if revisions_log is None else trio.Lock()
        self._advancing = trio.Lock()
        self.log = log
        self.late_log = late_log
        self._ready = Watched(source.ready)
        self._grown = Watched(source.position)
        self._clocked = Watched(self.watches_clock)
        self._retired = False

    @property
    def boundary(self) -> int:
        """The source's boundary; `advance` moves the log's after it."""
        return self._source.boundary

    @property
    def late_rows(self) -> int:
        """Tuples that came late, and went to the stream of late tuples."""
        return self._source.acceptance.late_rows

    @property
    def inserted_rows(self) -> int:
        """Late tuples that became revisions."""
        return self._source.acceptance.inserted_rows

    @property
    def present(self) -> int:
        """Producers that its boundary waits for."""
        return self._source.acceptance.presence.count

    @property
    def pending_rows(self) -> int:
        """Tuples that wait for the boundary to pass them."""
        return self._source.waiting.pending.rows

    @property
    def pending_bytes(self) -> int:
        return self._source.waiting.pending.bytes

    @property
    def source(self) -> Source:
        """The source; leave it alone while a post is under way: see `exclusive`."""
        return self._source

    @property
    def replica(self) -> Replica:
        """The operations on `source` besides posts, of a stream with replicas."""
        return Replica(self._source)

    @property
    def lost(self) -> tuple[str, ...]:
        """Acknowledged rows that are known to be missing, for people."""
        logs = [text for log in self.logs for text in log.lost]
        return (*logs, *self._late.lost, *self._source.lost)

    @property
    def cut_off(self) -> tuple[str, ...]:
        """See `Source.cut_off`."""
        return (*self._late.cut_off, *self._source.cut_off)

    @property
    def logs(self) -> tuple[StreamLog, ...]:
        """Its logs: the log of its revisions, which is never behind, comes first."""
        return (*self.logs_beside[1:], self.log, self.late_log)

    @property
    def logs_beside(self) -> tuple[StreamLog, ...]:
        """The logs of its late tuples, and of its revisions if it takes any."""
        revisions = () if self.revisions_log is None else (self.revisions_log,)
        return (self.late_log, *revisions)

    @property
    def starts(self) -> tuple[int, int, int]:
        """The boundaries from which on the stream, its late tuples and its revisions are here."""
        revisions = BEGINNING if self.revisions_log is None else self.revisions_log.start
        return self.log.start, self.late_log.start, revisions

    @property
    def whole_from(self) -> tuple[int, int, int]:
        """As `starts`: the boundaries from which on nothing of them is lost."""
        revisions = BEGINNING if self.revisions_log is None else self.revisions_log.files.whole_from
        return self.log.files.whole_from, self.late_log.files.whole_from, revisions

    @property
    def revised(self) -> int:
        """The boundary of the log of its revisions, microseconds."""
        return BEGINNING if self.revisions_log is None else self.revisions_log.boundary

    @property
    def late_source(self) -> Source:
        """As `source`."""
        return self._late

    async def post(self, request: PostRequest, *, now: float) -> Posted:
        """See `Source.post`. Hand in the posts of one producer one after the other. A post waits a
        while if the log is behind."""
        if self._source.crowded:
            with trio.move_on_after(_PATIENCE_S):
                await self.log.wait_beyond(self.log.boundary)
        accept = partial(self._source.post, request, now=now)
        async with self._order, self._lock:
            self._check_open()
            if len(request.body) < _INLINE_BYTES:
                posted = accept()
            else:
                posted = await trio.to_thread.run_sync(accept)
        self._tell()
        return posted

    async def revise(self, request: PostRequest, *, history_us: int, now: float) -> Posted:
        """See `Revising.revise`; in order with the posts of that producer. Posts wait while
        the tuples are looked up; replicas and logs go on.

        Raises:
            InvalidInputError: the stream takes no revisions.
            UnavailableError: a part of the log was found damaged; the next try leaves it out.
        """
        if self.revisions_log is None or not self._source.schema.key:
            raise InvalidInputError("the stream takes no revisions: its schema declares no key")
        async with self._order:
            with ExitStack() as pinned:
                async with self._lock:
                    self._check_open()
                    revising = Revising(self._source)
                    if (posted := self._source.known(request)) is not None:
                        return posted
                    here = pinned.enter_context(revising.here(self.log, self.revisions_log))
                try:
                    looked_up = await trio.to_thread.run_sync(revising.look_up, request.body, here)
                except EpochDamagedError as error:
                    self.log.damage.find(error.path)
                    self.revisions_log.damage.find(error.path)
                    raise UnavailableError("a part of its history is damaged: try again") from error
            async with self._lock:
                revise = partial(Revising(self._source).revise, request, looked_up)
                accept = partial(revise, history_us=history_us, now=now)
                posted = await trio.to_thread.run_sync(accept)
        self._tell()
        return posted

    @property
    def definition(self) -> StreamDefinition | None:
        """See `Source.definition`."""
        return self._source.definition

    async def alter(self, definition: StreamDefinition) -> None:
        """See `Source.alter`."""
        async with self.exclusive():
            await trio.to_thread.run_sync(self._source.alter, definition)

    @property
    def end_is_logged(self) -> bool:
        """Whether the logs have the stream's end, so that readers see it."""
        return all(log.boundary == END for log in self._logs_that_end)

    @property
    def _logs_that_end(self) -> list[StreamLog]:
        return [log for log in (self.log, self.revisions_log) if log is not None]

    async def reopen(self, term_number: int | None = None) -> None:
        """Let an ended stream go on; no reader has seen its end.

        Args:
            term_number: of the leader of a stream with replicas, see `Replica.lead`.

        Raises:
            UnavailableError: its end is not in the log yet, or a reader is there.
            StorageError: the disk does not take it; the stream has still ended.
        """
        async with self.at_rest():
            if not self.end_is_logged:
                raise UnavailableError("its end is not in its log yet: try again")
            boundary = self._source.goes_on_from(self.log.files.before_end)
            self._shorten(boundary)  # after a crash here the journal brings the end again
            if term_number is None:
                await trio.to_thread.run_sync(self._source.reopen, boundary)
            else:
                lead = partial(self.replica.lead, term_number, reopened=boundary)
                await trio.to_thread.run_sync(lead)

    def note_reopening(self, at: Position, data: Bytes) -> None:
        """Shorten the logs before a replica follows the start of a segment, `at_rest`: they may
        have an end that the stream does not have any more.

        Raises:
            DecodeError: no leader sends this there. UnavailableError: a reader is at the end.
                StorageError: the disk does not take it.
        """
        boundary = self.replica.reopened_by(at, data)
        if boundary is not None:
            self._shorten(boundary)

    def _shorten(self, boundary: int) -> None:
        try:
            for log in self._logs_that_end:
                if log.boundary == END:
                    log.reopen(boundary)
        finally:
            self._source.shortened(boundary, self.log.boundary, self.revised)

    @kill_point(KillPoint.SOURCE_RETIRE)
    async def retire(self) -> None:
        """Take no more posts: the stream is about to go. Returns once none is under way."""
        async with self._order, self._lock:
            self._retired = True

    def _check_open(self) -> None:
        if self._retired:
            raise UnavailableError("the stream is not here any more: send it again")

    async def settle(self, upto: Position, now: float) -> None:
        """Note that all replicas have everything before `upto`; see `Replica.settle`."""
        async with self.exclusive():
            self.replica.settle(upto, now)

    async def read(self, at: Position, limit: int) -> tuple[Position, bytes]:
        """A part of the journal; see `Journal.read`."""
        async with self._lock:
            return self._source.read(at, limit)

    async def wait_grown(self, beyond: Position) -> None:
        """Return once the journal is longer than that."""
        await trio.lowlevel.checkpoint()
        await self._grown.until(lambda _: self._source.position > beyond)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Within the block no post goes through, and no file of the journal changes."""
        async with self._lock:
            yield
        self._tell()

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """As `exclusive`; no epoch is cut either."""
        async with self._advancing, self.exclusive():
            yield

    def replace(self, source: Source, late: Source) -> None:
        """Close the journals, and go on with others over the same logs, `at_rest`."""
        self._source.close()
        self._late.close()
        self._source, self._late = source, late

    def _tell(self) -> None:
        if self._has_ready:
            self._ready.set(self._source.ready)
        self._clocked.set(self.watches_clock)
        self._grown.set(self._source.position)

    @property
    def _has_ready(self) -> bool:
        late = self._late.ready > self.late_log.boundary  # also after the stream's end
        return late or self._source.ready > self.log.boundary

    @property
    def watches_clock(self) -> bool:
        """Whether the clock alone, without a post, may move its boundary or end the presence of a
        producer. One that was away looks once: producers are waited for from then on."""
        state = self._source.acceptance
        return self._source.was_away or bool(state.presence.count) or is_held(state)

    async def wait_clock(self) -> None:
        """Return once it watches the clock."""
        await trio.lowlevel.checkpoint()
        await self._clocked.until(lambda watches: watches)

    async def wait_ready(self) -> None:
        """Returns once `advance` has work: a post has moved the boundary beyond the log's, or has
        brought late tuples."""
        await trio.lowlevel.checkpoint()
        await self._ready.until(lambda _: self._has_ready)

    async def advance(self, now: float, *, may_leap: bool = True) -> bool:
        """Move ready tuples into the logs, in several epochs if they are many; gives whether there
        were any. Args: see `Source.tick`.

        Raises:
            StorageFullError: nothing is lost; call again when there is room.
        """
        async with self._advancing:
            async with self._lock:
                self._source.tick(now, may_leap=may_leap)
            self._tell()
            return await self._log_ready()

    async def log_ready(self) -> None:
        """Move ready tuples into the logs, without a look at the clock. Raises: as `advance`."""
        async with self._advancing:
            await self._log_ready()

    async def _log_ready(self) -> bool:
        await self._advance_revisions()
        moved = await self._advance(self._source, self.log)
        return await self._advance(self._late, self.late_log) or moved

    def close(self) -> None:
        """Close the files and wake the logs' readers; pending posts stay in the journal."""
        self._source.close()
        self._late.close()
        for log in self.logs:
            log.close()

    async def _advance_revisions(self) -> None:
        """Advance the revisions first: a reader of the stream up to a boundary finds them there."""
        log = self.revisions_log
        if log is None:
            return
        source = self._source
        assert source.revisions is not None, "it has a log of revisions"
        async with self._lock:
            cut = source.revisions.cut(source.ready)
        if cut is not None:
            upto, table = cut
            if log.boundary < upto:
                await log.commit(upto, table)
            async with self._lock:
                source.revisions.commit(upto)

    async def _advance(self, source: Source, log: StreamLog) -> bool:
        ready = source.ready
        moved = False
        while log.boundary < ready or source.has_cut:
            async with self._lock:
                cut = source.cut()
            if cut is None:
                break
            upto, table = cut
            # A cancelled call may have left after the commit: then only the source is behind.
            if log.boundary < upto:
                await log.commit(upto, table)
            async with self._lock:
                source.committed(upto)
            moved = True
        return moved


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
        journal: number of its journals, to tell them from others; 0: there are no others.
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
        if not config.replicated:  # a replica's log may be behind its leader's
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
        return Leader(source, log, late, late_log, revisions_log)

    leader = await trio.to_thread.run_sync(open_all)
    try:
        yield leader
    finally:
        leader.close()

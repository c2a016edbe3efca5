"""Revisions of a source stream's tuples: in the journal of the tuples, with a log of their own.

A post of revisions is looked up when it is accepted, and the result is journaled: a replay looks up
nothing. Its place in the stream's time is beyond the boundary, so it is cut like tuples of that
stime. The log of revisions is moved first (`leader.py`): it is never behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.journal.entries import Bytes
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import MAX_BATCH_BYTES, Posted
from medusa.engine.streams.revisions.resolving import (
    LogLookup,
    Search,
    of_keys,
    read_request,
    read_rows,
    replaced_times,
    resolve,
)
from medusa.engine.streams.source.acceptance import Entry
from medusa.engine.streams.source.deciding import decide
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.source import Source
from medusa.engine.streams.source.waiting import WaitingRevisions
from medusa.engine.streams.validate import Batch, check_ahead
from medusa.overlay.errors import InvalidInputError, UnavailableError


class Lookup(Protocol):
    """Finds tuples in the stream's log; see
    `medusa.engine.streams.revisions.resolving.LogLookup`."""

    def newest_first(self, wanted: pa.Table, upto: int) -> Iterator[tuple[int, pa.Table]]: ...


class Revising:
    """Accepts posts of revisions for a source stream whose schema has a key.

    Attributes:
        waiting: the accepted revisions that are not in their log yet.
    """

    def __init__(self, source: Source) -> None:
        assert source.revisions is not None, "it takes no revisions"
        self._source = source
        self.waiting: WaitingRevisions = source.revisions

    def look_up(self, body: Bytes, here: Here) -> LookedUp:
        """Look up the tuples of a post of revisions: the long part, for any thread. It does not see
        posts that are accepted meanwhile, so accept none; the clock may continue.

        Args:
            body: an Arrow IPC stream of `request_schema`, or empty.

        Raises:
            InvalidInputError: the body is invalid.
        """
        request = read_request(body, self._source.schema)
        return LookedUp(Search(request, self._source.schema, here), here)

    def revise(
        self, request: PostRequest, looked_up: LookedUp, *, history_us: int, now: float
    ) -> Posted:
        """Accept a post of revisions: when this returns, it survives the death of the process.

        Args:
            history_us: tuples further behind cannot be revised.

        Raises:
            InvalidInputError: the stream has ended, or the post is too large.
            NotRetainedError: this peer does not have some of its tuples.
            UnavailableError: the stream has changed since the lookup.
            Else as `Source.post`; nothing was stored.
        """
        if (posted := self._source.known(request)) is not None:
            return posted
        request.check()
        writer, promise = request.writer, request.promise
        here, now_us = looked_up.here, int(now * 1e6)
        if here.source is not self._source or here.accepted != self.accepted:
            raise UnavailableError(
                f"stream {self._source.name}: its leader is changing: send it again"
            )
        times = replaced_times(looked_up.search.request, self._source.schema)
        check_ahead(
            times, promise, self._source.schema, self._source.state.config.definition, now_us
        )
        if self._source.boundary == END:
            raise InvalidInputError(f"stream {self._source.name} has ended: it is revised no more")
        resolved = resolve(
            looked_up.search,
            place=lambda latest: self._source.acceptance.revised_at_after(now_us, latest),
            history_us=history_us,
        )
        entry = Entry(
            writer.producer,
            request.post.sequence,
            boundary=self._source.boundary,
            count=resolved.rows.num_rows,
            first=self._source.acceptance.revisions,
            greatest=resolved.position,
            arrival=None,
            promise=promise,
            late=0,
            position=resolved.position,
            missed=resolved.missed,
            participant=writer.participant,
            offset=request.offset,
            taken=now_us,
            done=request.is_done,
        )
        entry = decide(self._source.acceptance, entry, Batch(resolved.rows), 0)
        journaled = encode(resolved.rows) if entry.count else memoryview(b"")
        self._check_revisions(entry, len(journaled))
        self._source.journal.append(entry, journaled, Batch(resolved.rows))
        accepted = looked_up.search.request.num_rows - len(entry.missed)
        return Posted(
            request.post.sequence, accepted, 0, self._source.boundary, missed=entry.missed
        )

    @contextmanager
    def here(self, log: StreamLog, revisions_log: StreamLog) -> Iterator[Here]:
        """The present tuples and revisions; their files stay during the block."""
        with (
            log.reader.pinned(log.files.whole_from, self._source.waiting.committed) as tuples,
            revisions_log.reader.pinned(
                revisions_log.files.whole_from, self.waiting.committed
            ) as revisions,
        ):
            read = partial(
                read_rows, revisions, revisions_log.schema, BEGINNING, self.waiting.committed
            )
            yield Here(
                self._source,
                self.accepted,
                max(log.files.whole_from, revisions_log.files.whole_from),
                self._source.waiting.tables,
                self._source.waiting.committed,
                LogLookup(tuples, self._source.schema),
                tuple(self.waiting.pending.tables()),
                read,
            )

    @property
    def accepted(self) -> tuple[int, int]:
        """The numbers of tuples, and of rows of revisions, that were accepted so far."""
        return self._source.acceptance.rows, self._source.acceptance.revisions

    def _check_revisions(self, entry: Entry, size: int) -> None:
        if size > MAX_BATCH_BYTES:
            raise InvalidInputError(
                f"a post of revisions whose tuples take {size} bytes, as they were and as they "
                f"become: revise at most {MAX_BATCH_BYTES} at a time"
            )
        source = self._source
        limit = source.state.config.pending_bytes
        self.waiting.check_room(source.name, size, limit, source.ready, entry.becomes)


@dataclass(frozen=True, slots=True)
class Here:
    """The tuples and revisions of a stream at this peer at one moment; see `Retained`.

    Attributes:
        accepted: see `Revising.accepted`.
        waiting: the tuples that are not in the log. logged: the log's boundary, microseconds.
        revising: the revisions that are not in their log. revised: reads the other revisions.
    """

    source: Source
    accepted: tuple[int, int]
    start: int
    waiting: pa.Table
    logged: int
    lookup: Lookup
    revising: Sequence[pa.Table]
    revised: Callable[[], Sequence[pa.Table]]

    def newest_first(self, wanted: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """As `Retained.newest_first`; the tuples in memory, which are the newest, come first."""
        yield self.logged, of_keys(self.waiting, wanted)
        yield from self.lookup.newest_first(wanted, self.logged)

    def revisions(self) -> Sequence[pa.Table]:
        return [*self.revised(), *self.revising]


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A post of revisions, with its lookup."""

    search: Search
    here: Here

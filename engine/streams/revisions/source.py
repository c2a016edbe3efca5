"""A source stream whose tuples may be revised: one journal for both, and a log beside the log.

A post of revisions is looked up when it is accepted, and what it comes to is journaled: a replay
looks up nothing. Its place in the stream's time is beyond the boundary, so it is cut as tuples of
that stime are. The log of revisions is moved first (`engine.streams.home`): it is never behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa

from engine.objects.schema import BEGINNING, END
from engine.streams.acceptance import Entry, Offsets, Writer, check_promise, decode_entry
from engine.streams.ahead import check_ahead
from engine.streams.entries import Bytes
from engine.streams.ipc import decode, encode
from engine.streams.journal import Position
from engine.streams.log import StreamLog
from engine.streams.messages import MAX_BATCH_BYTES, Posted
from engine.streams.pending import Pending
from engine.streams.replicated import ReplicatedSource
from engine.streams.revisions.columns import revisions_schema
from engine.streams.revisions.lookup import LogLookup, read_rows
from engine.streams.revisions.resolving import (
    Search,
    of_keys,
    read_request,
    replaced_times,
    resolve,
)
from engine.streams.source import Source
from engine.streams.validate import Batch
from overlay.errors import BusyError, InvalidInputError, UnavailableError

PENDING_SHARE: Final = 0.25
"""Of what may wait for the boundary in memory, for revisions beside the tuples."""


class Lookup(Protocol):
    """Finds tuples in the stream's log; see `engine.streams.revisions.lookup.LogLookup`."""

    def newest_first(self, wanted: pa.Table, upto: int) -> Iterator[tuple[int, pa.Table]]: ...


class RevisingSource(Source):
    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - as Source
        super().__init__(*args, **more)
        self._revision = revisions_schema(self._schema, source=True)
        self._waiting = Pending(self._revision.source)

    def look_up(self, body: Bytes, here: Here) -> LookedUp:
        """Reads what a post of revisions is about: the long part of it, for any thread. What is
        accepted meanwhile it does not see: let nothing be, but the clock.

        Args:
            body: an Arrow IPC stream of `request_schema`, or empty.

        Raises:
            InvalidInputError: the body is not right.
        """
        request = read_request(body, self._schema)
        return LookedUp(Search(request, self._schema, here), here)

    def revise(
        self,
        writer: Writer,
        sequence: int,
        looked_up: LookedUp,
        *,
        history_us: int,
        boundary: int | None = None,
        end: bool = False,
        offsets: Offsets | None = None,
        now: float,
    ) -> Posted:
        """Accepts a post of revisions: when this returns, it survives the death of the process.

        Args:
            history_us: what is further behind is not looked for.
            boundary, end, offsets: as of `Source.post`.

        Raises:
            InvalidInputError: the stream has ended, or it is too much at once.
            NotRetainedError: some of it is about what this peer does not have.
            UnavailableError: the stream has changed since it was looked up.
            Else as `Source.post`, and as there nothing was stored.
        """
        if (posted := self.known(writer, sequence, offsets)) is not None:
            return posted
        here, promise, now_us = looked_up.here, END if end else boundary, int(now * 1e6)
        if here.source is not self or here.accepted != self.accepted:
            raise UnavailableError(f"stream {self._name}: its home is changing: send it again")
        check_promise(promise)
        times = replaced_times(looked_up.search.request, self._schema)
        check_ahead(times, promise, self._schema, self.definition, now_us)
        if self.boundary == END:
            raise InvalidInputError(f"stream {self._name} has ended: it is revised no more")
        resolved = resolve(
            looked_up.search,
            place=lambda latest: self._acceptance.revised_at_after(now_us, latest),
            history_us=history_us,
        )
        entry = Entry(
            writer.producer,
            sequence,
            boundary=self.boundary,
            count=resolved.rows.num_rows,
            first=self._acceptance.revisions,
            greatest=resolved.position,
            arrival=None,
            promise=promise,
            late=0,
            position=resolved.position,
            missed=resolved.missed,
            participant=writer.participant,
            offset=None if offsets is None else offsets[1],
        )
        journaled = encode(resolved.rows) if entry.count else memoryview(b"")
        self._check_revisions(entry, len(journaled))
        self._append(entry, journaled, Batch(resolved.rows))
        accepted = looked_up.search.request.num_rows - len(entry.missed)
        return Posted(sequence, accepted, 0, self.boundary, missed=entry.missed)

    def shortened(self, upto: int, logged: int, revised: int) -> None:
        """See `Source.shortened`."""
        super().shortened(upto, logged, revised)
        self._waiting.shorten(upto, revised)

    def cut(self) -> tuple[int, pa.Table] | None:
        """As `Source.cut`, as far as the revisions are in their log."""
        reached = min(self.ready, self._revised)
        if self._pending.cut is None and reached > self._committed:
            self._pending.take(reached)
        return self._pending.cut

    def cut_revisions(self) -> tuple[int, pa.Table] | None:
        """As `cut`, of the revisions: all that is ready."""
        if self._waiting.cut is None and self.ready > self._revised:
            self._waiting.take(self.ready)
        return self._waiting.cut

    def revisions_committed(self, upto: int) -> None:
        """As `committed`."""
        assert self._waiting.cut is not None, "nothing was cut"
        assert self._waiting.cut[0] == upto, "not what was cut"
        self._waiting.let_go()
        self._revised = upto

    @contextmanager
    def here(self, log: StreamLog, revisions_log: StreamLog) -> Iterator[Here]:
        """What there is to revise, as it is now; its files stay while the context lasts."""
        with (
            log.files(log.whole_from, self._committed) as tuples,
            revisions_log.files(revisions_log.whole_from, self._revised) as revisions,
        ):
            read = partial(read_rows, revisions, revisions_log.schema, BEGINNING, self._revised)
            yield Here(
                self,
                self.accepted,
                max(log.whole_from, revisions_log.whole_from),
                pa.concat_tables([self._columns.empty_table(), *self._pending.tables()]),
                self._committed,
                LogLookup(tuples, self._schema),
                tuple(self._waiting.tables()),
                read,
            )

    @property
    def accepted(self) -> tuple[int, int]:
        """How many tuples, and rows of revisions, were accepted so far."""
        return self._acceptance.rows, self._acceptance.revisions

    # -----------------------------------------------------------------------------------------

    @property
    def _reached(self) -> int:
        # the clock may have moved both, and a crash come before the tuples' log was
        return max(super()._reached, self._revised)

    def _check_revisions(self, entry: Entry, size: int) -> None:
        if size > MAX_BATCH_BYTES:
            raise InvalidInputError(
                f"a post of revisions whose tuples take {size} bytes, as they were and as they "
                f"become: revise at most {MAX_BATCH_BYTES} at a time"
            )
        limit, waiting = PENDING_SHARE * self._config.pending_bytes, self._waiting.bytes
        if not waiting or waiting + size <= limit:
            return
        if self._waiting.ready(self.ready):
            raise BusyError(f"stream {self._name}: {waiting} bytes of revisions wait for their log")
        if not self._waiting.ready(self._acceptance.boundary_after(entry)):
            raise InvalidInputError(
                f"stream {self._name}: {waiting} bytes of revisions wait for the boundary to move: "
                "post what follows, or send a boundary"
            )

    def _take(self, entry: Entry, batch: Batch | None, at: Position) -> None:
        if entry.position is None:
            super()._take(entry, batch, at)
            return
        self._acceptance.apply(entry)
        if not entry.count:
            return
        self._greatest[at[0]] = max(self._greatest.get(at[0], BEGINNING), entry.position)
        if batch is not None and entry.position > self._revised:
            place = pa.repeat(pa.scalar(entry.position, pa.int64()), entry.count)
            numbers = pa.arange(entry.first, entry.first + entry.count)
            columns = [place, numbers, *batch.payload.columns]
            rows = pa.Table.from_arrays(columns, schema=self._waiting.schema)
            self._waiting.add(rows, entry.position, entry.position, ordered=True)

    def _decoded(self, meta: bytes, body: Bytes) -> tuple[Entry, Batch | None]:
        entry = decode_entry(meta)
        if entry.position is None:
            return super()._decoded(meta, body)
        if not entry.count or entry.position <= self._revised:
            return entry, None
        return entry, Batch(decode(body, self._revision.payload))


class ReplicatedRevisingSource(ReplicatedSource, RevisingSource):
    """Both: what revisions come to is in the journal, so replicas follow it as they follow posts,
    and each has a log of revisions of its own, of what is settled."""


@dataclass(frozen=True, slots=True)
class Here:
    """All of a stream that is at this peer at one moment; see `Retained`.

    Attributes:
        accepted: how much of it there is.
        waiting: the tuples that are not in the log. logged: so far that is, microseconds.
        revising: the revisions that are not in their log. revised: reads those that are.
    """

    source: RevisingSource
    accepted: tuple[int, int]
    start: int
    waiting: pa.Table
    logged: int
    lookup: Lookup
    revising: Sequence[pa.Table]
    revised: Callable[[], Sequence[pa.Table]]

    def newest_first(self, wanted: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """What is in memory first: it is the newest."""
        yield self.logged, of_keys(self.waiting, wanted)
        yield from self.lookup.newest_first(wanted, self.logged)

    def revisions(self) -> Sequence[pa.Table]:
        return [*self.revised(), *self.revising]


@dataclass(frozen=True, slots=True)
class LookedUp:
    """A post of revisions, and what it is about."""

    search: Search
    here: Here

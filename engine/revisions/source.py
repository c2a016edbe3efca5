"""A source stream whose tuples may be revised: one journal for both, and a log beside the log.

A post of revisions is looked up when it is accepted, and what it comes to is journaled: a replay
looks up nothing. Its place in the stream's time is beyond the boundary, so it is cut as tuples of
that stime are. The log of revisions is moved first (`engine.streams.home`): it is never behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from engine.messages import MAX_BATCH_BYTES, Posted
from engine.revisions.columns import revisions_schema
from engine.revisions.resolving import of_keys, read_request, resolve
from engine.schema import BEGINNING, END, Schema
from engine.streams.acceptance import Entry, decode_entry
from engine.streams.ipc import decode, encode
from engine.streams.journal import Bytes, Position
from engine.streams.pending import Pending
from engine.streams.source import Source
from engine.streams.validate import Batch
from overlay.errors import BusyError, InvalidInputError

MISSES_KEPT: Final = 1024
"""Posts of which is remembered what was missed, so that a client whose answer was lost gets the
same one when it posts again: more than a poster has unanswered, for many of them."""

PENDING_SHARE: Final = 0.25
"""Of what may wait for the boundary in memory, for revisions beside the tuples."""


class Lookup(Protocol):
    """Finds tuples in the stream's log; see `engine.revisions.lookup.LogLookup`."""

    def newest_first(self, wanted: pa.Table, upto: int) -> Iterator[tuple[int, pa.Table]]: ...


class RevisingSource(Source):
    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - as Source
        super().__init__(*args, **more)
        self._revision = revisions_schema(self._schema, source=True)
        self._waiting = Pending(self._revision.source)
        self._missed: OrderedDict[tuple[str, int], tuple[int, ...]] = OrderedDict()

    def revise(
        self,
        producer: str,
        sequence: int,
        body: Bytes,
        lookup: Lookup,
        logged: Callable[[], Sequence[pa.Table]],
        *,
        history_us: int,
        boundary: int | None = None,
        end: bool = False,
        now: float,
    ) -> Posted:
        """Accepts a post of revisions: when this returns, it survives the death of the process.

        Args:
            body: an Arrow IPC stream of `request_schema`, or empty.
            lookup: finds tuples in the log. logged: reads the revisions in theirs.
            history_us: what is further behind is not looked for.
            boundary, end: as of `Source.post`.

        Raises:
            InvalidInputError: the body is not right, or the stream has ended. Else as
                `Source.post`, and as there nothing was stored.
        """
        if self._acceptance.is_duplicate(producer, sequence):
            missed = self._missed.get((producer, sequence), ())
            return Posted(sequence, 0, 0, self.boundary, duplicate=True, missed=missed)
        promise = END if end else boundary
        if promise is not None and not BEGINNING <= promise <= END:
            raise InvalidInputError(f"boundary {promise} is not an int64 of microseconds")
        if self.boundary == END:
            raise InvalidInputError(f"stream {self._name} has ended: it is revised no more")
        request = read_request(body, self._schema)
        retained = _Retained(self, lookup, [*logged(), *self._waiting.tables()])
        resolved = resolve(
            request,
            self._schema,
            retained,
            place=lambda latest: self._acceptance.revised_at_after(int(now * 1e6), latest),
            history_us=history_us,
        )
        entry = Entry(
            producer,
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
        )
        journaled = encode(resolved.rows) if entry.count else memoryview(b"")
        self._check_revisions(entry, len(journaled))
        self._append(entry, journaled, Batch(resolved.rows))
        accepted = request.num_rows - len(entry.missed)
        return Posted(sequence, accepted, 0, self.boundary, missed=entry.missed)

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

    def waiting(self) -> tuple[pa.Table, int]:
        """The tuples that are not in the log, as far as `committed` has said so; and how far that
        is, microseconds."""
        tables = [self._columns.empty_table(), *self._pending.tables()]
        return pa.concat_tables(tables), self._committed

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def logged(self) -> int:
        """So far the tuples are in the log, microseconds."""
        return self._committed

    @property
    def revised(self) -> int:
        """So far the revisions are in their log, microseconds."""
        return self._revised

    # -----------------------------------------------------------------------------------------

    def _opened(self) -> None:
        # the clock may have moved both, and a crash come before the tuples' log was
        self._acceptance.advance(self._revised)
        super()._opened()

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
        if entry.missed:
            self._missed[entry.producer, entry.sequence] = entry.missed
            if len(self._missed) > MISSES_KEPT:
                self._missed.popitem(last=False)
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


class _Retained:
    """What is in memory first: it is the newest."""

    def __init__(
        self, source: RevisingSource, lookup: Lookup, revisions: Sequence[pa.Table]
    ) -> None:
        self._source = source
        self._lookup = lookup
        self._revisions = revisions

    def newest_first(self, wanted: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        waiting, logged = self._source.waiting()
        yield logged, of_keys(waiting, wanted)
        yield from self._lookup.newest_first(wanted, logged)

    def revisions(self) -> Sequence[pa.Table]:
        return self._revisions

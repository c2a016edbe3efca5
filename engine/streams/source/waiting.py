"""Accepted rows in memory, from the journal to the logs: tuples, late tuples and revisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import (
    REVISED_SEQ,
    REVISED_STIME,
    REVISION_KIND,
    SEQ,
    STIME,
    Schema,
)
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.ipc import decode
from medusa.engine.streams.journal.entries import Bytes
from medusa.engine.streams.journal.journal import Position
from medusa.engine.streams.ordering import bounds, copied, rows_upto, sort, tidy
from medusa.engine.streams.revisions.columns import revisions_schema
from medusa.engine.streams.revisions.corrections import Kind
from medusa.engine.streams.source.acceptance import Entry
from medusa.engine.streams.source.lateness import Judged
from medusa.engine.streams.validate import Batch, read_post
from medusa.overlay.errors import BusyError, InvalidInputError

_NUMBERED_BYTES: Final = 16
"""Bytes that a leader adds to each row: stime and seq."""


HELD_SHARE: Final = 0.5
"""Share of the memory for waiting tuples that tuples may take which wait only for other producers:
the rest is for posts that move the boundary."""


class _Waiting:
    """Rows of one source stream, from their entries in the journal to their log.

    Attributes:
        committed: the boundary of their log, microseconds.
        pending: the rows that wait for the stream's boundary to pass them.
    """

    def __init__(self, schema: pa.Schema, committed: int) -> None:
        self.committed = committed
        self.pending = Pending(schema)

    @property
    def has_cut(self) -> bool:
        """Whether a cut waits to be committed."""
        return self.pending.cut is not None

    def cut(self, ready: int) -> tuple[int, pa.Table] | None:
        """Cut all rows up to the boundary `ready`, as `Source.cut`."""
        if self.pending.cut is None and ready > self.committed:
            self.pending.take(ready)
        return self.pending.cut

    def commit(self, upto: int) -> None:
        """Note that the log has committed the epoch that `cut` returned, up to the boundary
        `upto`."""
        assert self.pending.cut is not None, "nothing was cut"
        assert self.pending.cut[0] == upto, "not what was cut"
        self.pending.drop_cut()
        self.committed = upto

    def shorten(self, upto: int, committed: int) -> None:
        """Remove rows, as `Source.shortened`."""
        self.pending.shorten(upto, committed)
        self.committed = committed


class WaitingTuples(_Waiting):
    """The tuples of one source stream.

    Attributes:
        late_queue: late tuples that the stream of late tuples does not have yet.
    """

    def __init__(self, name: str, schema: Schema, committed: int, late: Taker | None) -> None:
        self._name = name
        self._schema = schema
        super().__init__(schema.source, committed)
        self.late_queue = LateQueue(name, late)

    @property
    def tables(self) -> pa.Table:
        """The tables of all waiting rows that are not late."""
        return pa.concat_tables([self.pending.schema.empty_table(), *self.pending.tables()])

    def decoded(self, entry: Entry, body: Bytes, revised: int) -> Batch | None:
        """The rows of an entry of the journal; None: they are not needed any more.

        Args:
            revised: the boundary of the log of revisions.

        Raises:
            InvalidInputError: the body is not of this stream.
        """
        inserts = entry.inserted is not None and entry.inserted.position > revised
        if entry.greatest <= self.committed and not entry.late and not inserts:
            return None
        batch = read_post(body, self._schema)
        return batch if entry.arrival is None else batch.arrived(entry.arrival)

    def check_room(self, batch: Batch, entry: Entry, ready: int, config: SourceConfig) -> None:
        """Refuse a post for which there is no room. A producer that waits for others has a share of
        the room: the rest is for posts that move the boundary. Args: ready: the boundary up to
        which `cut` returns rows. Raises: BusyError: too many rows wait for the log, or for other
        producers. InvalidInputError: too many rows wait for the slack.
        """
        if not entry.count:
            return
        held = entry.ceiling < entry.greatest - entry.slack_us - 1
        limit = int(config.pending_bytes * (HELD_SHARE if held else 1))
        late_queue = self.late_queue.bytes
        waiting = self.pending.bytes + late_queue
        more = taken_by(batch.payload) + _NUMBERED_BYTES * entry.count
        if waiting == 0 or waiting + more <= limit:
            return
        if late_queue or self.pending.ready(ready):
            raise BusyError(f"stream {self._name}: {waiting} bytes wait for its log; try again")
        if held:
            raise BusyError(f"stream {self._name}: {waiting} bytes wait for other producers")
        if not self.pending.ready(entry.becomes):
            raise InvalidInputError(
                f"stream {self._name}: its slack of {config.slack_us / 1e6:g} s holds more "
                f"than {limit} bytes of tuples: send a boundary, or declare less slack"
            )

    def take(self, entry: Entry, batch: Batch, at: Position, late_posts: int) -> None:
        """Let an accepted entry's rows wait, late ones for the stream of late tuples. Args: at:
        where the entry ends in the journal. late_posts: the number of earlier posts with late rows.
        """
        found = entry.judged(batch)
        if found is not None and entry.late:
            late = batch.payload.filter(found.late)
            self.late_queue.add(LateRows(late_posts + 1, at, late, (entry.taken or 0) / 1e6))
        if entry.in_order:
            self._pend(entry, batch, found)

    def _pend(self, entry: Entry, batch: Batch, found: Judged | None) -> None:
        numbers = pa.arange(entry.first, entry.first + entry.count)
        rows = pa.Table.from_arrays(
            [batch.stime, numbers, *batch.payload.columns], schema=self.pending.schema
        )
        if found is None and batch.low > self.committed:
            self.pending.add(rows, batch.low, batch.high, ordered=batch.ordered)
            return
        waits = pc.greater(batch.stime, self.committed)
        rows = rows.filter(waits if found is None else pc.and_(waits, found.in_order))
        if rows.num_rows:
            low, high = bounds(rows.column(STIME), ordered=batch.ordered)
            self.pending.add(rows, low, high, ordered=batch.ordered)


class Taker(Protocol):
    """The source of `<stream>/late`."""

    def take_late(self, producer: str, number: int, payload: pa.Table, now: float) -> None: ...


@dataclass(frozen=True, slots=True)
class LateRows:
    """The late rows of one post.

    Attributes:
        number: the number of the post, among the posts with late rows.
        position: where its entry ends in the journal.
        taken: their time of arrival, seconds since the epoch; 0: the time when they are passed on.
    """

    number: int
    position: Position
    payload: pa.Table
    taken: float


class LateQueue:
    """Late rows in the order of their posts."""

    def __init__(self, name: str, late: Taker | None) -> None:
        self._name = name
        self._late = late
        self._waiting: deque[LateRows] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def bytes(self) -> int:
        return sum(taken_by(rows.payload) for rows in self._waiting)

    @property
    def segment(self) -> int:
        """The journal's segment with the first late row; the queue is not empty."""
        return self._waiting[0].position[0]

    def add(self, rows: LateRows) -> None:
        if self._late is not None:
            self._waiting.append(rows)

    def hand_on(self, now: float, may: Callable[[Position], bool]) -> None:
        """Pass late rows to the stream of late tuples, as far as it accepts them now. Args: may:
        takes the place in the journal at which an entry ends; returns whether the entry's rows may
        be passed on now.
        """
        while self._waiting and self._late is not None:
            rows = self._waiting[0]
            if not may(rows.position):
                return
            try:
                self._late.take_late(self._name, rows.number, rows.payload, rows.taken or now)
            except BusyError:
                return
            self._waiting.popleft()


EPOCH_BYTES: Final = 12 * 2**20
"""Arrow bytes in one epoch, about, exceeded by one post at most: so memory can hold several epochs
for subscribers, and a writer, a reader or a receiver holds little."""

_COLUMN_BYTES: Final = 2**10
"""Overhead of one column of one post, about: many tiny posts must count in full."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one post.

    Attributes:
        low, high: their least and greatest stime. ordered: whether the rows are in the order of
            stime.
        bytes: see `taken_by`, which takes some 30 us: a thousand posts may wait for the slack, and
            each epoch visits all of them.
    """

    rows: pa.Table
    low: int
    high: int
    ordered: bool
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", taken_by(self.rows))

    def beyond(self, boundary: int) -> int:
        """How many rows have stime > boundary."""
        if self.high <= boundary or self.low > boundary:
            return 0 if self.high <= boundary else self.rows.num_rows
        return pc.sum(pc.greater(self.rows.column(STIME), boundary)).as_py() or 0

    def split(self, boundary: int) -> tuple[_Piece | None, _Piece | None]:
        """The rows with stime <= boundary, and the others; either may be None."""
        if self.high <= boundary:
            return self, None
        if self.low > boundary:
            return None, self
        if self.ordered:
            count = rows_upto(self.rows, boundary)
            before, after = self.rows.slice(0, count), self.rows.slice(count)
            if after.num_rows < count:
                after = copied(after)  # few rows must not keep a large body in memory
        else:
            early = pc.less_equal(self.rows.column(STIME), boundary)
            before, after = self.rows.filter(early), self.rows.filter(pc.invert(early))
        return _piece(before, self.ordered), _piece(after, self.ordered)


def taken_by(rows: pa.Table) -> int:
    """Bytes that the rows of one post take while they wait."""
    return int(rows.nbytes + _COLUMN_BYTES * rows.num_columns)


def _piece(rows: pa.Table, ordered: bool) -> _Piece:
    ends = pc.min_max(rows.column(STIME))
    return _Piece(rows, ends["min"].as_py(), ends["max"].as_py(), ordered)


class Pending:
    """Accepted tuples in memory, waiting for the boundary to pass them.

    Attributes:
        schema: the schema of the rows.
        bytes: the bytes of the rows in memory, the cut included. cut: (boundary, rows up to it),
            until the log has it.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._pieces: deque[_Piece] = deque()
        self.bytes = 0
        self.cut: tuple[int, pa.Table] | None = None

    @property
    def rows(self) -> int:
        waiting: int = sum(piece.rows.num_rows for piece in self._pieces)
        return waiting + int(self.cut[1].num_rows if self.cut else 0)

    def tables(self) -> list[pa.Table]:
        """The tables of all held rows, including the cut ones."""
        cut = [] if self.cut is None else [self.cut[1]]
        return [*cut, *(piece.rows for piece in self._pieces)]

    def add(self, rows: pa.Table, low: int, high: int, *, ordered: bool) -> None:
        """Add rows in order of arrival, not empty."""
        piece = _Piece(rows, low, high, ordered)
        self._pieces.append(piece)
        self.bytes += piece.bytes

    def beyond(self, boundary: int) -> int:
        """How many rows have stime > boundary."""
        return sum(piece.beyond(boundary) for piece in self._pieces)

    def ready(self, boundary: int) -> bool:
        """Whether the log's next epochs will make room, if the boundary is this one."""
        return self.cut is not None or any(piece.low <= boundary for piece in self._pieces)

    def take(self, boundary: int) -> None:
        """Make `cut` of the rows with stime <= boundary, in canonical order; up to an earlier
        boundary if they are more than about `EPOCH_BYTES`."""
        assert self.cut is None, "one cut at a time"
        boundary = self._within(boundary)
        early: list[_Piece] = []
        late: deque[_Piece] = deque()
        for piece in self._pieces:
            before, after = piece.split(boundary)
            if before is not None:
                early.append(before)
            if after is not None:
                late.append(after)
        self._pieces = late
        self.cut = boundary, self._in_order(early)
        self.bytes = sum(piece.bytes for piece in late) + self.cut[1].nbytes

    def drop_cut(self) -> None:
        """Drop the cut, because the log has it."""
        self.cut = None
        self.bytes = sum(piece.bytes for piece in self._pieces)

    def shorten(self, upto: int, logged: int) -> None:
        """Let the cut end at `upto`, because the log may reach no further for now; all of the cut's
        rows are before `upto`. Drop the cut if the log, at `logged`, already has it."""
        if self.cut is None:
            return
        boundary = min(self.cut[0], upto)
        if logged >= boundary:
            self.drop_cut()
        else:
            self.cut = boundary, self.cut[1]

    def _within(self, boundary: int) -> int:
        """The boundary, or the latest earlier one that keeps the epoch small."""
        size = 0
        pieces = sorted(self._pieces, key=lambda piece: piece.low)
        for piece in pieces:
            if size >= EPOCH_BYTES and piece.low > pieces[0].low:
                return min(boundary, piece.low - 1)
            size += piece.bytes
        return boundary

    def _in_order(self, pieces: list[_Piece]) -> pa.Table:
        if not pieces:
            return self.schema.empty_table()
        rows = tidy(pa.concat_tables([piece.rows for piece in pieces]))
        ordered = all(piece.ordered for piece in pieces) and all(
            first.high <= second.low for first, second in pairwise(pieces)
        )
        return rows if ordered else sort(rows)


PENDING_SHARE: Final = 0.25
"""Share of the memory for waiting tuples that revisions may take beside them."""


class WaitingRevisions(_Waiting):
    """The revisions of one source stream."""

    def __init__(self, schema: Schema, committed: int) -> None:
        revision = revisions_schema(schema, source=True)
        self._payload = revision.payload
        super().__init__(revision.source, committed)

    def check_room(self, name: str, size: int, limit: int, ready: int, becomes: int) -> None:
        """Refuse revisions for which there is no room.

        Args:
            name: the name of the stream. size: bytes of the revisions. limit: bytes of tuples that
                may wait.
            ready: the boundary up to which `cut` returns rows. becomes: the stream's boundary after
                the post. Raises: BusyError: too many revisions wait for their log.
                InvalidInputError: too many wait for the boundary.
        """
        waiting = self.pending.bytes
        if not waiting or waiting + size <= PENDING_SHARE * limit:
            return
        if self.pending.ready(ready):
            raise BusyError(f"stream {name}: {waiting} bytes of revisions wait for their log")
        if not self.pending.ready(becomes):
            raise InvalidInputError(
                f"stream {name}: {waiting} bytes of revisions wait for the boundary "
                "to move: post what follows, or send a boundary"
            )

    def decoded(self, entry: Entry, body: Bytes) -> Batch | None:
        """The rows of an entry of the journal; None: the log has them, or the entry has none."""
        assert entry.position is not None, "an entry of tuples"
        if not entry.count or entry.position <= self.committed:
            return None
        return Batch(decode(body, self._payload))

    def take(self, entry: Entry, batch: Batch | None) -> None:
        """Let the rows of an accepted entry wait, unless the log has them."""
        if batch is None or entry.position is None or entry.position <= self.committed:
            return
        place = pa.repeat(pa.scalar(entry.position, pa.int64()), entry.count)
        numbers = pa.arange(entry.first, entry.first + entry.count)
        columns = [place, numbers, *batch.payload.columns]
        rows = pa.Table.from_arrays(columns, schema=self.pending.schema)
        self.pending.add(rows, entry.position, entry.position, ordered=True)

    def insert(self, entry: Entry, batch: Batch) -> None:
        """Let the late tuples of an entry that are within the stream's lateness wait, unless the
        log has them."""
        inserted = entry.inserted
        assert inserted is not None, "none of its tuples is inserted"
        found = entry.judged(batch)
        if found is None or inserted.position <= self.committed:
            return
        places = pc.max_element_wise(pc.add(found.bounds, 1), inserted.revised_at)
        numbers = pa.arange(entry.first, entry.first + entry.count)
        rows = pa.Table.from_arrays(
            [places, batch.stime, numbers, *batch.payload.columns],
            names=[STIME, REVISED_STIME, REVISED_SEQ, *batch.payload.column_names],
        ).filter(found.near)
        columns = {
            SEQ: pa.arange(inserted.first, inserted.first + inserted.count),
            REVISION_KIND: pa.repeat(pa.scalar(str(Kind.INSERTION)), inserted.count),
            **{name: rows.column(name) for name in rows.column_names},
        }
        shape = self.pending.schema
        placed = pa.table([columns[name] for name in shape.names], schema=shape)
        placed = placed.slice(rows_upto(placed, self.committed))
        self.pending.add(placed, *bounds(placed.column(STIME), ordered=True), ordered=True)

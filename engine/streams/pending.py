from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.objects.schema import STIME
from engine.streams.ordering import copied, rows_upto, sort, tidy

EPOCH_BYTES: Final = 12 * 2**20
"""Arrow bytes in one epoch, about, and one post more at most: memory has several epochs for
subscribers, and a writer, a reader or a receiver holds little."""

_COLUMN_BYTES: Final = 2**10
"""Overhead of one column of one post, about: many tiny posts must count in full."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one post. low, high: their least and greatest stime. ordered: by stime."""

    rows: pa.Table
    low: int
    high: int
    ordered: bool

    @property
    def bytes(self) -> int:
        return taken_by(self.rows)

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
                after = copied(after)  # few rows must not keep a large body alive
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
        schema: of the rows.
        bytes: held in memory, those of the cut included.
        cut: (boundary, rows up to it), until the log confirms it.
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
        """All that is held, the cut included."""
        cut = [] if self.cut is None else [self.cut[1]]
        return [*cut, *(piece.rows for piece in self._pieces)]

    def add(self, rows: pa.Table, low: int, high: int, *, ordered: bool) -> None:
        """Add rows in order of arrival, not empty."""
        piece = _Piece(rows, low, high, ordered)
        self._pieces.append(piece)
        self.bytes += piece.bytes

    def ready(self, boundary: int) -> bool:
        """Whether the log's next epochs make room, if the boundary is this one."""
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

    def let_go(self) -> None:
        """Drop the cut, which the log has."""
        self.cut = None
        self.bytes = sum(piece.bytes for piece in self._pieces)

    def shorten(self, upto: int, logged: int) -> None:
        """Shorten the cut: the log goes no further than `upto` for now. All rows are before that;
        the log is at `logged`."""
        if self.cut is None:
            return
        boundary = min(self.cut[0], upto)
        if logged >= boundary:
            self.let_go()
        else:
            self.cut = boundary, self.cut[1]

    def _within(self, boundary: int) -> int:
        """The boundary, or the latest before it that keeps the epoch small."""
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

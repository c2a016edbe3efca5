"""A part of a stream for a reader: some rows after a boundary, and often a new boundary.

A reader's position is a boundary, and the number of rows behind it that the reader has already, if
one stime has more rows than a part. The rows after a boundary never change. So a position does not
depend on the cut of a log into files, nor on the rows in memory; and the peer keeps nothing for a
reader between two parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from medusa.engine.objects.schema import STIME
from medusa.engine.streams.ipc import encode, reopen
from medusa.engine.streams.log.epochs import EpochFile, reading, rows_of
from medusa.engine.streams.ordering import between, rows_upto, tidy

PART_ROWS: Final = 2**17
"""Most rows of one part, about."""

PART_BYTES: Final = 7 * 2**20
"""Most Arrow bytes of one part, unless a single row has more: bounds the memory of one reader at
both ends, and fits one message."""


@dataclass(slots=True, eq=False)
class Part:
    """Rows of one epoch, at most as many as fit one message.

    Attributes:
        after: the boundary that the rows follow, microseconds.
        upto: the boundary that they complete; None: the next part follows the same boundary.
        table: the rows, in canonical order; may be empty.
    """

    after: int
    upto: int | None
    table: pa.Table
    _body: memoryview | None = field(default=None)

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def body(self) -> memoryview:
        """The rows as one Arrow IPC stream; empty without rows."""
        if self._body is None:
            self._body = encode(self.table) if self.rows else memoryview(b"")
        return self._body

    def encoded(self) -> Part:
        """The same part, with a table that is a view of the body, so that memory has one copy, not
        two."""
        body = self.body()
        table = reopen([body], self.table.schema) if self.rows else self.table
        return Part(self.after, self.upto, table, body)


def first_part(
    after: int, upto: int, table: pa.Table, *, limit_rows: int | None = None, more: bool = False
) -> Part:
    """Cut the first part from rows; it ends at a boundary between two stimes if it can. Args:
    after: the boundary that the rows follow. The reader may already have some rows after it. upto:
    the boundary that the rows reach. table: rows in canonical order. limit_rows: the most rows
    of the part; None: `PART_ROWS`. more: whether further rows, up to `upto`, follow, perhaps with
    the last one's stime.
    """
    count = _fitting(table, limit_rows or PART_ROWS)
    if count == table.num_rows and not more:
        return Part(after, upto, tidy(table))
    stime = table.column(STIME)
    last = stime[count - 1].as_py()
    if count < table.num_rows and stime[count].as_py() > last:
        return Part(after, last, tidy(table.slice(0, count)))
    whole = rows_upto(table.slice(0, count), last - 1)
    if whole:
        return Part(after, last - 1, tidy(table.slice(0, whole)))
    return Part(after, None, tidy(table.slice(0, count)))


def _fitting(table: pa.Table, limit_rows: int) -> int:
    """How many of the first rows are within the limits; at least one, unless there are no rows."""
    count = min(int(table.num_rows), max(1, limit_rows))
    while count > 1 and (size := table.slice(0, count).nbytes) > PART_BYTES:
        count = max(1, min(count - 1, count * PART_BYTES // size))
    return count


def read_part(
    files: Sequence[EpochFile], schema: pa.Schema, after: int, taken: int, limit_rows: int | None
) -> Part:
    """The part that follows a boundary and the rows that the reader has already; blocking, in any
    thread.

    Args:
        files: neighbours; the first one reaches beyond `after`.
        taken: rows with stime > `after` that the reader has.
        limit_rows: see `first_part`.

    Raises:
        EpochDamagedError: a file is damaged. StorageError: a file cannot be read for now.
    """
    found = [schema.empty_table()]
    rows, size, upto = 0, 0, after
    for file in files:
        with reading(file.path) as parquet:
            for group in range(parquet.num_row_groups):
                metadata = parquet.metadata.row_group(group)
                ends = metadata.column(0).statistics
                if ends.max <= after:
                    continue
                if metadata.num_rows <= taken and ends.min > after:
                    taken -= metadata.num_rows
                    continue
                if _is_enough(rows, size, limit_rows):
                    table = pa.concat_tables(found)
                    last = table.column(STIME)[-1].as_py()
                    goes_on = ends.min == last
                    return first_part(after, last, table, limit_rows=limit_rows, more=goes_on)
                table = between(rows_of(parquet, group, schema), after, file.upto)
                found.append(table.slice(taken))
                taken = max(0, taken - table.num_rows)
                rows += found[-1].num_rows
                size += found[-1].nbytes
        upto = file.upto
        if _is_enough(rows, size, limit_rows):
            break
    return first_part(after, upto, pa.concat_tables(found), limit_rows=limit_rows)


def _is_enough(rows: int, size: int, limit_rows: int | None) -> bool:
    """Whether the part needs no further row group."""
    return rows >= (limit_rows or PART_ROWS) or size >= PART_BYTES // 2

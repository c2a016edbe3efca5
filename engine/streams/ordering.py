"""The order of rows: by stime, and then as they arrived. Vectorised; no Python per row."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import STIME

_CHUNK_BYTES: Final = 256 * 2**10
"""Chunks smaller than this on average are combined: many tiny chunks make every later step slow."""


def is_ordered(stime: pa.Array) -> bool:
    """Whether no value is less than the one before it."""
    if len(stime) < 2:
        return True
    return bool(pc.all(pc.less_equal(stime[:-1], stime[1:])).as_py())


def bounds(stime: pa.Array | pa.ChunkedArray, *, ordered: bool) -> tuple[int, int]:
    """Least and greatest value of a column that is not empty."""
    if ordered:
        return stime[0].as_py(), stime[-1].as_py()
    both = pc.min_max(stime)
    return both["min"].as_py(), both["max"].as_py()


def rows_upto(table: pa.Table, boundary: int) -> int:
    """How many rows of an ordered table have stime <= boundary."""
    return bisect_right(table.column(STIME), boundary, key=lambda value: value.as_py())


def between(table: pa.Table, after: int, upto: int) -> pa.Table:
    """The rows of an ordered table with after < stime <= upto, without copying."""
    if not table.num_rows:
        return table
    start = rows_upto(table, after)
    return table.slice(start, rows_upto(table, upto) - start)


def tidy(table: pa.Table) -> pa.Table:
    """The same rows in chunks that are not too small."""
    chunks = table.column(0).num_chunks if table.num_columns else 0
    if chunks > 1 + table.nbytes // _CHUNK_BYTES:
        return table.combine_chunks()
    return table


def sort(table: pa.Table) -> pa.Table:
    """The rows sorted by stime; rows of equal stime keep their order."""
    # Arrow's array_sort_indices is stable, so arrival order (seq) needs no second key.
    indices = pc.array_sort_indices(table.column(STIME).combine_chunks())
    return table.take(indices)


def repeated(table: pa.Table, times: pa.ChunkedArray) -> pa.Table:
    """Each row repeated as often as `times` says; a row whose number is below 1 is left out."""
    chosen = pc.greater(times, 0)
    table, times = table.filter(chosen), times.filter(chosen).combine_chunks()
    if not table.num_rows:
        return table
    rows = pa.arange(0, table.num_rows)
    runs = pa.RunEndEncodedArray.from_arrays(pc.cumulative_sum(times), rows)
    return table.take(pc.run_end_decode(runs))


def copied(table: pa.Table) -> pa.Table:
    """A copy of the rows, so that the memory of which they are slices can be freed."""
    return table.take(pa.arange(0, table.num_rows))

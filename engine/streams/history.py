"""Parts of a log from its files: a few row groups at a time, whatever their number and size."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from engine.objects.schema import STIME
from engine.streams import parts
from engine.streams.epochs import EpochFile, reading, rows_of
from engine.streams.ordering import between
from engine.streams.parts import Part, first_part


def read_part(
    files: Sequence[EpochFile], schema: pa.Schema, after: int, taken: int, limit_rows: int | None
) -> Part:
    """The part after a boundary and some rows that the reader has; blocking, in any thread.

    Args:
        files: neighbours; the first one reaches beyond `after`.
        taken: rows with stime > `after` that the reader has.
        limit_rows: see `first_part`.

    Raises:
        EpochDamagedError: a file is damaged. StorageError: one cannot be read for now.
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
    return rows >= (limit_rows or parts.PART_ROWS) or size >= parts.PART_BYTES // 2

"""Compares an answer with the right one, as bags of rows.

* Columns are paired by their names if these are the same, else by their order: some columns have no
  name in a query's text.
* Where the right answer has whole numbers, fractions are cut off: Flink's AVG of BIGINT is a
  BIGINT, ours a double. Where it has DECIMALs, doubles are rounded to as many digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import SEQ, STIME

DELETED: Final = "deleted"
"""The column of a table that says that its row's key is deleted."""


@dataclass(frozen=True)
class Difference:
    """The number of rows of the right answer that are missing, and of rows that are not in it."""

    missing: int
    extra: int


def difference(answer: pa.Table, right: pa.Table) -> Difference:
    """Compare an answer with the right one.

    Raises: ValueError: its columns do not fit those of the right one; the message names them.
    """
    ours = _alike(answer, right)
    with duckdb.connect() as database:
        for name, table in (("ours", ours), ("theirs", right)):
            plain = table.rename_columns([f"c{n}" for n in range(table.num_columns)])
            database.register(name, plain)
        both = ("theirs", "ours"), ("ours", "theirs")
        counts = [_count(database, one, other) for one, other in both]
    return Difference(*counts)


def _count(database: duckdb.DuckDBPyConnection, one: str, other: str) -> int:
    """The number of rows of one table that the other lacks, counted with their repetitions."""
    counted = database.sql(
        f"SELECT count(*) AS n FROM (FROM {one} EXCEPT ALL FROM {other})"  # noqa: S608 - ours
    )
    return int(counted.to_arrow_table()["n"][0].as_py())


def final_state(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """The final state of a table: the newest row of each key, unless that row deletes the key.

    Args:
        table: the rows of its stream, in order.
        key: the columns of the key.
    """
    place = "place in the stream"
    numbered = table.append_column(place, pa.array(range(table.num_rows), pa.int64()))
    newest = numbered.group_by(list(key)).aggregate([(place, "max")])[f"{place}_max"]
    kept = table.take(newest.sort())
    if DELETED not in kept.column_names:
        return kept
    gone = pc.fill_null(kept[DELETED], False)
    return kept.filter(pc.invert(gone)).drop_columns([DELETED])


def _alike(answer: pa.Table, right: pa.Table) -> pa.Table:
    """The answer with the columns and the types of the right one."""
    answer = answer.drop_columns([name for name in (STIME, SEQ) if name in answer.column_names])
    if answer.num_columns != right.num_columns:
        raise ValueError(f"columns {answer.column_names}, not {right.column_names}")
    if set(answer.column_names) == set(right.column_names):
        answer = answer.select(right.column_names)
    columns = [
        _of_type(column, type_)
        for column, type_ in zip(answer.columns, right.schema.types, strict=True)
    ]
    return pa.table(columns, schema=right.schema)


def _of_type(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_floating(column.type) and pa.types.is_integer(type_):
        column = pc.trunc(column)
    if pa.types.is_floating(column.type) and pa.types.is_decimal(type_):
        column = pc.round(column, ndigits=type_.scale)
    try:
        return column.cast(type_)
    except pa.ArrowException as error:
        raise ValueError(f"{column.type} instead of {type_}: {error}") from None

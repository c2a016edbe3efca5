"""The rows that simulated posters post: numbered, so that each can be accounted for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from msgspec import Struct

from engine.objects.schema import Field, FieldType, Schema

Row = dict[str, Any]
"""A tuple as subscribers get it: stime and the fields; of a source stream also `seq`."""


class Posted(Struct, frozen=True):
    """One row. t: its time, microseconds; (poster, number) names it."""

    t: int
    poster: str
    number: int
    key: int
    value: int


def schema_of(stream: str) -> Schema:
    """The schema of a source stream: its name is the stream's and `/schema`."""
    return Schema(
        f"{stream}/schema",
        (
            Field("t", FieldType.LONG),
            Field("poster", FieldType.STRING, size=32),
            Field("number", FieldType.LONG),
            Field("key", FieldType.INT),
            Field("value", FieldType.INT),
        ),
        time="t",
    )


def table_of(rows: Iterable[Posted]) -> pa.Table:
    rows = list(rows)
    return pa.table(
        {
            "t": pa.array([row.t for row in rows], pa.int64()),
            "poster": pa.array([row.poster for row in rows], pa.string()),
            "number": pa.array([row.number for row in rows], pa.int64()),
            "key": pa.array([row.key for row in rows], pa.int32()),
            "value": pa.array([row.value for row in rows], pa.int32()),
        }
    )


def rows_of(table: pa.Table) -> tuple[Row, ...]:
    """The rows of an epoch, with times as microseconds."""
    plain = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return tuple(pa.table(plain, names=table.column_names).to_pylist())

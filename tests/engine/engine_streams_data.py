"""Schemas, rows and readers that the tests of the streams share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from engine.schema import BEGINNING, END, Field, FieldType, Schema
from engine.streams.ipc import encode
from engine.streams.log import StreamLog

SCHEMA = Schema(
    "medusa://mit.edu/event",
    (
        Field("t", FieldType.LONG),
        Field("name", FieldType.STRING, size=8, nullable=True),
        Field("value", FieldType.INT),
    ),
    time="t",
)
ARRIVING = Schema("medusa://mit.edu/event", SCHEMA.fields)

Row = tuple[int, int]
"""(stime, value)."""


def payload(rows: Iterable[Row]) -> pa.Table:
    rows = list(rows)
    columns = [
        [stime for stime, _ in rows],
        [f"n{value % 7}" if value % 5 else None for _, value in rows],
        [value for _, value in rows],
    ]
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA.payload, strict=True)],
        schema=SCHEMA.payload,
    )


def body(rows: Iterable[Row]) -> memoryview:
    return encode(payload(rows))


def logged(rows: Sequence[Row], first_seq: int = 0) -> pa.Table:
    """Rows as they stand in the log of a source stream."""
    table = payload(rows)
    stime = pa.array([stime for stime, _ in rows], pa.int64())
    seq = pa.arange(first_seq, first_seq + len(rows))
    return pa.Table.from_arrays([stime, seq, *table.columns], schema=SCHEMA.source)


def pairs(table: pa.Table) -> list[Row]:
    return list(
        zip(table.column("stime").to_pylist(), table.column("value").to_pylist(), strict=True)
    )


def all_rows(log: StreamLog, after: int = BEGINNING, limit_rows: int = 5) -> list[Row]:
    """Everything after a boundary, read in pieces; checks that the pieces join."""
    found: list[Row] = []
    after = max(after, log.start)
    while after < END and (epoch := log.read(after, limit_rows)) is not None:
        assert epoch.after == after
        assert epoch.after < epoch.upto <= log.boundary
        rows = pairs(epoch.table)
        assert all(epoch.after < stime <= epoch.upto for stime, _ in rows)
        epoch.table.validate(full=True)
        assert epoch.table.schema.equals(log.schema)
        found += rows
        after = epoch.upto
    assert after == log.boundary
    return found

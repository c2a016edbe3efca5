"""Schemas, rows and readers that the tests of the streams share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

import pyarrow as pa

from engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from engine.streams.feed import Cursor, parts_of
from engine.streams.ipc import encode
from engine.streams.log import StreamLog
from engine.streams.messages import Tuples

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


async def messages_of(cursor: Cursor) -> AsyncGenerator[tuple[Tuples, memoryview], None]:
    """What follows a place, as it is sent."""
    async with aclosing(parts_of(cursor)) as found:
        async for message, part in found:
            yield message, part.body()


def all_rows(log: StreamLog, after: int = BEGINNING, limit_rows: int = 5) -> list[Row]:
    """Everything after a boundary, read in pieces; checks that the pieces join."""
    found: list[Row] = []
    after, taken = max(after, log.start), 0
    while after < END and (part := log.read(after, taken, limit_rows)) is not None:
        upto = log.boundary if part.upto is None else part.upto
        assert part.after == after
        assert after < upto <= log.boundary
        rows = pairs(part.table)
        assert all(after < stime <= upto for stime, _ in rows)
        part.table.validate(full=True)
        assert part.table.schema.equals(log.schema)
        found += rows
        after, taken = (after, taken + len(rows)) if part.upto is None else (part.upto, 0)
    assert after == log.boundary
    return found


def next_epoch(log: StreamLog, after: int, limit_rows: int = 1000) -> tuple[int, pa.Table] | None:
    """A boundary and the rows up to it: some, and all of a stime; None where nothing follows."""
    tables: list[pa.Table] = []
    while (part := log.read(after, sum(map(len, tables)), limit_rows)) is not None:
        tables.append(part.table)
        if part.upto is not None:
            return part.upto, pa.concat_tables(tables)
    return None

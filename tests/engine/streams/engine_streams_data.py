"""Shared by the tests of streams: schemas, rows, readers; a leader of a source stream, and a
replica, without a peer around them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Self

import pyarrow as pa
from field_texts import fields_of

from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Tuples
from medusa.engine.streams.reading.feed import Cursor, parts_of
from medusa.engine.streams.source import replica
from medusa.engine.streams.source.acceptance import Writer
from medusa.engine.streams.source.leader import Leader, open_leader
from medusa.engine.streams.source.sources import open_sources

SCHEMA = Schema("medusa://mit.edu/event", fields_of("t long, name string(8)?, value int"), time="t")
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
    """Return rows as the log of a source stream stores them."""
    table = payload(rows)
    stime = pa.array([stime for stime, _ in rows], pa.int64())
    seq = pa.arange(first_seq, first_seq + len(rows))
    return pa.Table.from_arrays([stime, seq, *table.columns], schema=SCHEMA.source)


def pairs(table: pa.Table) -> list[Row]:
    return list(
        zip(table.column("stime").to_pylist(), table.column("value").to_pylist(), strict=True)
    )


async def messages_of(cursor: Cursor) -> AsyncGenerator[tuple[Tuples, memoryview], None]:
    """Return the messages that follow a place."""
    async with aclosing(parts_of(cursor)) as found:
        async for message, part in found:
            yield message, part.body()


def all_rows(log: StreamLog, after: int = BEGINNING, limit_rows: int = 5) -> list[Row]:
    """Read all rows after a boundary in pieces; check that the pieces join."""
    found: list[Row] = []
    after, taken = max(after, log.start), 0
    while after < END and (part := log.reader.read(after, taken, limit_rows)) is not None:
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
    """Return a boundary and the rows up to it: a limited number of rows, but all rows of each
    stime; None if no row follows."""
    tables: list[pa.Table] = []
    while (part := log.reader.read(after, sum(map(len, tables)), limit_rows)) is not None:
        tables.append(part.table)
        if part.upto is not None:
            return part.upto, pa.concat_tables(tables)
    return None


P = Writer("p")
NOW = 1_700_000_000.0


def home_in(
    folder: Path, config: SourceConfig | None = None, history_us: int = 10**9
) -> AbstractAsyncContextManager[Leader]:
    return open_leader(
        folder,
        "medusa://mit.edu/s",
        SCHEMA,
        config or SourceConfig(),
        history_us=history_us,
        now=NOW,
    )


NOW = 1_700_000_000.0


CONFIG = SourceConfig(segment_bytes=4096, replicated=True)


class Replica:
    """The sources and logs of one peer, without concurrency."""

    def __init__(self, folder: Path, config: SourceConfig = CONFIG) -> None:
        self.folder, self.config = folder, config
        self.open()

    def open(self) -> None:
        self.log = StreamLog.open(self.folder / "log", SCHEMA.source)
        self.late_log = StreamLog.open(self.folder / "late", SCHEMA.source)
        source, self.late = open_sources(
            self.folder,
            "s",
            SCHEMA,
            self.config,
            committed=(self.log.boundary, self.late_log.boundary),
            journal=0,
            now=NOW,
        )
        self.source = source
        self.replica = replica.Replica(source)

    def close(self) -> None:
        self.source.close()
        self.late.close()
        self.log.close()
        self.late_log.close()

    def crash(self) -> None:
        self.close()
        self.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def lead(self, term_number: int) -> None:
        self.replica.lead(term_number)
        self.replica.settling.leading = True

    def cut(self) -> None:
        for source, log in ((self.source, self.log), (self.late, self.late_log)):
            while (cut := source.cut()) is not None:
                log.append(*cut)
                source.committed(cut[0])

    def take(self, other: Replica, limit: int) -> None:
        """Yield the part of the other replica's journal that ours lacks, in pieces."""
        start = self.source.journal.position if self.source.journal.position[0] else (1, 0)
        at = start
        while at < other.source.journal.position:
            at, data = other.source.journal.read(at, limit)
            self.replica.follow(at, data)
            at = (at[0], at[1] + len(data))

    def settle(self, upto: tuple[int, int]) -> None:
        self.replica.settle(upto, NOW + 5)

    @property
    def rows(self) -> list[Row]:
        return all_rows(self.log)

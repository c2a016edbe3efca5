"""The work that is moved while it goes on: windows of a minute, with very many rows in them.

One minute of rows is made once; every later minute is the same, shifted, so that what each window
must answer is known from the first one. On the wall a minute takes `MINUTE_S`.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import trio

from engine.objects.definitions import StreamDefinition
from engine.objects.query import Aggregate, AggregateFunction, Function, Query
from engine.objects.schema import Field, FieldType, Schema

MINUTE_US: Final = 60_000_000
ROWS: Final = 600_000
"""Rows in a minute. At `MOVE_AT` of it, half a million of them are in the open window."""
MOVE_AT: Final = 0.85
"""When within its minute a task is told to move: as late as leaves the move itself inside."""
LOOK_UPTO: Final = 1.4
"""The end of what is looked at, in minutes from the start of the one in which a task is moved: the
window's answer, by the new worker and from the whole state, is within."""
MINUTE_S: Final = 12.0
"""Wall seconds that a minute of rows is posted in."""
SOURCES: Final = 5_000
"""Groups in each window."""
EPOCH_S: Final = 1.0
"""An epoch: what a peer's default is, seconds."""
GOLDEN: Final = 0.618
"""Multiples of it, modulo 1, are spread evenly."""

SCHEMA_FIELDS: Final = (
    Field("time_us", FieldType.LONG),
    Field("src_ip", FieldType.STRING),
    Field("dst_port", FieldType.INT),
    Field("bytes", FieldType.LONG),
)

Answer = tuple[int, str, int, int, int]
"""(window_start in microseconds, src_ip, conns, ports, bytes)."""


def schema(participant: str) -> Schema:
    """What a row is; `time_us` is its stime."""
    return Schema(f"medusa://{participant}/minute", SCHEMA_FIELDS, time="time_us")


def stream(participant: str) -> StreamDefinition:
    """The source stream of these rows."""
    return StreamDefinition(
        f"medusa://{participant}/minutes", schema(participant).name, max_ahead_us=None
    )


def query(participant: str, source: str) -> Query:
    """Connections, ports and bytes of each source address and minute: one task, with state."""
    return Query(
        f"medusa://{participant}/per-minute",
        (
            Aggregate(
                "per-minute",
                source,
                f"medusa://{participant}/talkers",
                MINUTE_US,
                MINUTE_US,
                ("src_ip",),
                (
                    AggregateFunction(Function.COUNT, None, "conns"),
                    AggregateFunction(Function.COUNT_DISTINCT, "dst_port", "ports"),
                    AggregateFunction(Function.SUM, "bytes", "bytes"),
                ),
            ),
        ),
    )


@dataclass(frozen=True)
class Minutes:
    """
    Attributes:
        first: the rows of the minute that begins at stime 0, by ascending `time_us`.
    """

    first: pa.Table

    @staticmethod
    def make(rows: int = ROWS) -> Minutes:
        """The same rows for the same number."""
        with duckdb.connect() as database:
            made = database.sql(
                """
                SELECT n * $span // $rows AS time_us,
                       format('10.{}.{}.{}', s % 7, s // 250, s % 250) AS src_ip,
                       CAST(hash(n * 3 + 1) % 1024 AS INTEGER) AS dst_port,
                       CAST(hash(n * 3 + 2) % 65521 AS BIGINT) AS bytes
                FROM (SELECT range AS n, CAST(hash(range * 3) % $sources AS INTEGER) AS s
                      FROM range($rows))
                ORDER BY n""",
                params={"span": MINUTE_US, "rows": rows, "sources": SOURCES},
            )
            return Minutes(made.to_arrow_table().cast(schema("bench").payload))

    def part(self, minute: int, of: int, number: int) -> pa.Table:
        """The part with that number, of so many equal ones, of a minute."""
        rows = self.first.num_rows
        lo, hi = number * rows // of, (number + 1) * rows // of
        part = self.first.slice(lo, hi - lo)
        later = pc.add(part.column("time_us"), minute * MINUTE_US)
        return part.set_column(0, part.schema.field("time_us"), later)

    def answers(self, minute: int) -> list[Answer]:
        """What its window must answer, sorted: one batch computation in DuckDB."""
        return answers_of(self.part(minute, 1, 0))


def answers_of(rows: pa.Table) -> list[Answer]:
    """The answers over all rows given, sorted. It shares no code with the engine."""
    with duckdb.connect() as database:
        database.register("minutes", rows)
        found = database.execute(
            """
            SELECT CAST(floor(time_us / 60000000.0) AS BIGINT) * 60000000 AS window_start,
                   src_ip, count(*), count(DISTINCT dst_port), CAST(sum(bytes) AS BIGINT)
            FROM minutes GROUP BY ALL ORDER BY ALL"""
        )
        return found.fetchall()


def answers_in(received: pa.Table) -> list[Answer]:
    """The rows of the query's output in that form, in the order they have."""
    columns = [received.column(name) for name in ("src_ip", "conns", "ports", "bytes")]
    starts = received.column("window_start").cast(pa.int64())
    return list(zip(*(column.to_pylist() for column in (starts, *columns)), strict=True))


class Act(Enum):
    """What happens to the task in a minute."""

    WARM_UP = "warm up"
    OUT = "out"
    """It moves to a worker that has never run it."""
    HOME = "home"
    """It moves to one that has."""
    QUIET = "quiet"
    """It stays: the measure of the others."""


@dataclass(frozen=True)
class Schedule:
    """What is due when, on trio's clock. began: the first minute."""

    began: float

    async def until_part(self, minute: int, of: int, number: int) -> None:
        """Wait until that part of the minute is whole."""
        await self._until(minute + (number + 1) / of)

    async def until_move(self, minute: int) -> None:
        """Wait until it is time to move the task in that minute: a little later in each, so that
        moves begin at every phase of an epoch."""
        phase = minute * GOLDEN % 1.0
        await self._until(minute + MOVE_AT + phase * EPOCH_S / MINUTE_S)

    async def until_seen(self, minute: int) -> None:
        """Wait until what that minute is looked at for has passed."""
        await self._until(minute + LOOK_UPTO)

    async def _until(self, minutes: float) -> None:
        await trio.sleep_until(self.began + minutes * MINUTE_S)


@dataclass(frozen=True)
class Run:
    """Minutes of traffic, and what a consumer saw.

    Attributes:
        began: when the first minute did. seen: when anything was seen. Seconds of one clock.
        acts: of each minute.
    """

    began: float
    seen: Collection[float]
    acts: Sequence[Act]

    @property
    def gap_s(self) -> float:
        """The usual time between two sights, seconds."""
        return statistics.median(b - a for a, b in pairwise(sorted(self.seen)))

    def stalls(self, act: Act) -> list[float]:
        """For each minute with that act the longest gap around it, less the usual longest one at
        the same phase of the quiet minutes: seconds."""
        usual = statistics.median(self.longest(Act.QUIET))
        return [max(0.0, gap - usual) for gap in self.longest(act)]

    def longest(self, act: Act) -> list[float]:
        """The longest gap around the act of each minute that has it, seconds."""
        return [self._longest(k) for k, done in enumerate(self.acts) if done is act]

    def _longest(self, minute: int) -> float:
        lo = self.began + (minute + MOVE_AT) * MINUTE_S
        hi = self.began + (minute + LOOK_UPTO) * MINUTE_S
        return max(b - a for a, b in pairwise(sorted(self.seen)) if b > lo and a < hi)

"""The workload of the moving benchmark: windows of a minute, with very many rows each.

One minute of rows is made once; every later minute is the same, shifted, so that the right answer
of each window is known from the first one. In wall time a minute takes `MINUTE_S`.
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

from medusa.engine.objects.definitions import ANY, StreamDefinition
from medusa.engine.objects.query import Aggregate, AggregateCall, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.testnet.kit.answers import tuples_in

MINUTE_US: Final = 60_000_000
ROWS: Final = 600_000
"""Rows in a minute. At `MOVE_AT` of it, half a million of them are in the open window."""
MOVE_AT: Final = 0.85
"""Time within its minute at which a task begins to move: as late as possible with the whole move
inside the minute."""
LOOK_UPTO: Final = 1.4
"""The end of the observed time, in minutes from the start of the one in which a task is moved. It
includes the window's answer, made by the new worker from the whole state."""
MINUTE_S: Final = 12.0
"""Wall seconds in which a minute of rows is posted."""
SOURCES: Final = 5_000
"""Groups in each window."""
EPOCH_S: Final = 1.0
"""Seconds of an epoch: a peer's default."""
GOLDEN: Final = 0.618
"""The golden ratio: its multiples, modulo 1, are spread evenly."""

SCHEMA_FIELDS: Final = (
    Field("time_us", FieldType.LONG),
    Field("src_ip", FieldType.STRING),
    Field("dst_port", FieldType.INT),
    Field("bytes", FieldType.LONG),
)

Answer = tuple[int, str, int, int, int]
"""(window_start in microseconds, src_ip, conns, ports, bytes)."""


def schema(participant: str) -> Schema:
    """The schema of a row; `time_us` is its stime."""
    return Schema(f"medusa://{participant}/minute", SCHEMA_FIELDS, time="time_us")


def stream(participant: str) -> StreamDefinition:
    """The source stream of these rows; every member may read it, and work on it."""
    return StreamDefinition(
        f"medusa://{participant}/minutes",
        schema(participant).name,
        readers=(ANY,),
        max_ahead_us=None,
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
                    AggregateCall("count", None, "conns"),
                    AggregateCall("count_distinct", "dst_port", "ports"),
                    AggregateCall("sum", "bytes", "bytes"),
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
        """Make the rows; the same number gives the same rows."""
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
        """Return the part of a minute that has that number, of `of` equal parts."""
        rows = self.first.num_rows
        lo, hi = number * rows // of, (number + 1) * rows // of
        part = self.first.slice(lo, hi - lo)
        later = pc.add(part.column("time_us"), minute * MINUTE_US)
        return part.set_column(0, part.schema.field("time_us"), later)

    def answers(self, minute: int) -> list[Answer]:
        """The right answers of a minute's window, sorted: one batch computation in DuckDB."""
        return answers_of(self.part(minute, 1, 0))


def answers_of(rows: pa.Table) -> list[Answer]:
    """The answers over all given rows, sorted. It shares no code with the engine."""
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
    """The rows of the query's output as answers, in their order."""
    return tuples_in(received, ("window_start", "src_ip", "conns", "ports", "bytes"))


class Act(Enum):
    """The treatment of the task in a minute."""

    WARM_UP = "warm up"
    OUT = "out"
    """The task moves to a worker that has never run it."""
    HOME = "home"
    """The task moves to a worker that has run it."""
    QUIET = "quiet"
    """The task stays: the baseline."""


@dataclass(frozen=True)
class Schedule:
    """The times of posts and moves, on trio's clock. began: the start of the first minute."""

    began: float

    async def until_part(self, minute: int, of: int, number: int) -> None:
        """Wait until that part of the minute is complete."""
        await self._until(minute + (number + 1) / of)

    async def until_move(self, minute: int) -> None:
        """Wait until the task is to be moved in that minute. The time is a little later in each
        minute, so that moves begin at every phase of an epoch."""
        phase = minute * GOLDEN % 1.0
        await self._until(minute + MOVE_AT + phase * EPOCH_S / MINUTE_S)

    async def until_seen(self, minute: int) -> None:
        """Wait until the observed time of that minute has passed."""
        await self._until(minute + LOOK_UPTO)

    async def _until(self, minutes: float) -> None:
        await trio.sleep_until(self.began + minutes * MINUTE_S)


@dataclass(frozen=True)
class Run:
    """Minutes of traffic, as a consumer saw them.

    Attributes:
        began: start of the first minute. seen: arrival times of results. Seconds of one clock.
        acts: the acts of each minute.
    """

    began: float
    seen: Collection[float]
    acts: Sequence[Act]

    @property
    def gap_s(self) -> float:
        """The usual time between two arrivals, seconds."""
        return statistics.median(b - a for a, b in pairwise(sorted(self.seen)))

    def stalls(self, act: Act) -> list[float]:
        """For each minute with that act: the longest gap around it, less the usual longest one at
        the same phase of the quiet minutes; seconds."""
        usual = statistics.median(self.longest(Act.QUIET))
        return [max(0.0, gap - usual) for gap in self.longest(act)]

    def longest(self, act: Act) -> list[float]:
        """The longest gap around the act, for each minute with that act; seconds."""
        return [self._longest(k) for k, done in enumerate(self.acts) if done is act]

    def _longest(self, minute: int) -> float:
        lo = self.began + (minute + MOVE_AT) * MINUTE_S
        hi = self.began + (minute + LOOK_UPTO) * MINUTE_S
        return max(b - a for a, b in pairwise(sorted(self.seen)) if b > lo and a < hi)

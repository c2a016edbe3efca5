"""Tuples in any order of arrival within the allowed lateness, on real Spark: the results with their
revisions are DuckDB's results over all tuples at once."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import trio
from engine_peers import DEADLINE_S, begin, open_cluster, send_rows, until
from lent_spark import LentSpark

from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.objects.schema import END
from medusa.engine.spark.session import Spark
from medusa.engine.streams.revisions.corrections import Change, Kind
from medusa.tools.client.async_client import Corrections

pytestmark = pytest.mark.spark

LATENESS_US = 500
SIZE_US, ADVANCE_US = 200, 50
PER_POST = 40


@pytest.fixture(autouse=True)
def _peers_share_spark(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusa.engine.spark.session.Spark", lambda *_: LentSpark(spark))


def arrivals(rng: random.Random) -> pa.Table:
    """Draw tuples in their order of arrival: none is `LATENESS_US` behind one before it."""
    times = [rng.randrange(3000) for _ in range(800)]
    times.sort(key=lambda time: time + rng.randrange(LATENESS_US))
    return pa.table(
        {
            "t": pa.array(times, pa.int64()),
            "name": [rng.choice("xyz") for _ in times],
            "value": pa.array([rng.randrange(100) for _ in times], pa.int32()),
        }
    )


EXPECTED = f"""
    SELECT k * {ADVANCE_US} + {SIZE_US} - 1 AS stime, k * {ADVANCE_US} AS window_start, name,
           count(*) AS n, sum(value)::BIGINT AS total, max(value) AS greatest
    FROM tuples, range(-100, 100) AS windows(k)
    WHERE value % 2 = 1 AND t >= k * {ADVANCE_US} AND t < k * {ADVANCE_US} + {SIZE_US}
    GROUP BY ALL
"""


async def test_any_order_of_arrival_within_the_lateness(tmp_path: Path) -> None:
    tuples = arrivals(random.Random(11))
    async with open_cluster(tmp_path) as cluster:
        mit, client, stream = await cluster.founder_with_stream(
            slack_us=20, lateness_us=LATENESS_US
        )
        odd, sums = mit.name("odd"), mit.name("sums")
        functions = (
            AggregateCall("count", None, "n"),
            AggregateCall("sum", "value", "total"),
            AggregateCall("max", "value", "greatest"),
        )
        boxes = (
            Filter("odd", stream, (odd,), ("value % 2 = 1",)),
            Aggregate("sum", odd, sums, SIZE_US, ADVANCE_US, ("name",), functions),
        )
        await begin(client, Query(mit.name("q"), boxes))
        found: list[tuple[object, ...]] = []
        async with client.follow(sums, Corrections.REVISIONS) as changes:
            for start in range(0, tuples.num_rows, PER_POST):
                await send_rows(client, stream, tuples.slice(start, PER_POST))
                before = mit.state("s").log.boundary
                await until(lambda b=before: mit.state("sums").log.boundary >= b)
            await client.post_event(stream, None, end=True)
            with trio.fail_after(DEADLINE_S):
                async for change in changes:
                    found = changed(found, change)
                    if change.boundary == END:
                        break
        state = mit.state("s").leader
        assert state is not None
        assert state.source.acceptance.late_rows == 0
        assert state.source.acceptance.inserted_rows > 100, "many came behind the boundary"
    expected = duckdb.sql(EXPECTED).fetchall()
    assert sorted(found) == sorted(expected)
    assert len(found) > 100


def changed(rows: list[tuple[object, ...]], change: Change) -> list[tuple[object, ...]]:
    """Apply a change to the rows; the key of a row is its window and name."""
    at = change.table.column_names.index("window_start")
    starts = change.table.column(at).cast(pa.int64())
    table = change.table.set_column(at, "window_start", starts)
    told = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    if change.kind is Kind.DELETION:
        return [row for row in rows if row not in told]
    if change.kind is Kind.REPLACEMENT:
        keys = [row[:3] for row in told]
        rows = [row for row in rows if row[:3] not in keys]
    return [*rows, *told]

"""A query is modified while it runs on real Spark: up to T its results are those of a batch run
with the old parameters, after T those of one with the new ones. Both runs are a few lines of
PyArrow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import trio
from engine_peers import Place, begin, make_stream, open_cluster
from lent_spark import LentSpark
from modified_queries import ModifiedReader, change, modify

from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.objects.schema import END
from medusa.engine.spark.session import Spark
from medusa.engine.streams.config import Timing
from medusa.tools.client.async_client import AsyncMedusaClient

QUICK = Timing(modified_s=0.05)


pytestmark = pytest.mark.spark

T = 799
"""A common end of old windows, of 100 microseconds, and of new ones, of 160."""
GATE, LAST = 700, 2000
PER_POST = 40


@pytest.fixture(autouse=True)
def _peers_share_spark(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusa.engine.spark.session.Spark", lambda *_: LentSpark(spark))


def tuples(stimes: range) -> pa.Table:
    return pa.table(
        {
            "t": pa.array(stimes, pa.int64()),
            "name": ["xyz"[t * t % 7 % 3] for t in stimes],
            "value": pa.array([t * 7919 % 1009 for t in stimes], pa.int32()),
        }
    )


def sums_of_some(place: Place, source: str) -> Query:
    functions = (
        AggregateCall("sum", "value", "total"),
        AggregateCall("count", None, "number"),
        AggregateCall("max", "value", "greatest"),
    )
    state, sums = place.name("kept"), place.name("sums")
    boxes = (
        Filter("sieve", source, (state,), ("value % 2 = 1",)),
        Aggregate("sum", state, sums, 100, 100, ("name",), functions),
    )
    return Query(place.name("q"), boxes, (state,))


def sieved(passes: Callable[[pa.Table], Any]) -> pa.Table:
    """Return all tuples that pass the filter."""
    everything = tuples(range(LAST))
    return everything.filter(passes(everything["value"]))


def summed(state: pa.Table, size: int) -> pa.Table:
    """Return all sums by window and name."""
    last = pa.array([t - t % size + size - 1 for t in state["t"].to_pylist()], pa.int64())
    kinds = [("value", "sum"), ("value", "count"), ("value", "max")]
    groups = state.append_column("last", last).group_by(["last", "name"]).aggregate(kinds)
    return groups.sort_by([("last", "ascending"), ("name", "ascending")])


def rows_of(table: pa.Table, time: str, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in (time, *columns)), strict=True))


def old_then_new(old: list[tuple[Any, ...]], new: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    assert old != new
    return [row for row in old if row[0] <= T] + [row for row in new if row[0] > T]


async def pour(client: AsyncMedusaClient, source: str, modified: trio.Event) -> None:
    """Post without pause, but stop at T until the test knows T."""
    for first in range(0, LAST, PER_POST):
        if first >= GATE:
            await modified.wait()
        stimes = range(first, min(first + PER_POST, LAST))
        await client.post_event(source, tuples(stimes), end=stimes[-1] == LAST - 1)
        await trio.sleep(0.05)


async def test_old_up_to_a_given_boundary_and_new_after_it_on_spark(tmp_path: Path) -> None:
    async with open_cluster(tmp_path, timing=QUICK) as cluster:
        one = await cluster.settle("mit.edu")
        async with one.client() as client, one.client() as poster:
            source = await make_stream(client, one, "s")
            query = sums_of_some(one, source)
            await begin(client, query)
            state = ModifiedReader(client, one.name("kept"), "name", "value")
            sums = ModifiedReader(client, one.name("sums"), "name", "total", "number", "greatest")
            modified = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pour, poster, source, modified)
                await sums.take(199)  # readers already have results
                assert sums.rows
                changes = (
                    change("sieve", expression_0="value % 3 = 1"),
                    change("sum", window_size="0.00016"),
                )
                assert (await modify(client, query.name, *changes, at=T)).since == T
                assert one.state("kept").log.boundary < T, "it is before its time"
                modified.set()
                await sums.take(T)
                await sums.take(END)
                await state.take(END)
    odd = sieved(lambda value: pc.equal(pc.bit_wise_and(value, 1), 1))
    thirds = sieved(lambda value: pa.array([each % 3 == 1 for each in value.to_pylist()]))
    columns = ("name", "value")
    assert state.rows == old_then_new(rows_of(odd, "t", *columns), rows_of(thirds, "t", *columns))
    names = ("name", "value_sum", "value_count", "value_max")
    assert sums.rows == old_then_new(
        rows_of(summed(odd, 100), "last", *names), rows_of(summed(thirds, 160), "last", *names)
    )
    assert {row[0] for row in sums.rows if T - 100 <= row[0] <= T + 160} == {699, T, T + 160}


async def test_panes_of_both_editions_on_spark(tmp_path: Path) -> None:
    """Windows that overlap are folded from panes, which two editions make for a window's length."""
    size, advance = 600, 100
    async with open_cluster(tmp_path, timing=QUICK) as cluster:
        one = await cluster.settle("mit.edu")
        async with one.client() as client, one.client() as poster:
            source = await make_stream(client, one, "s")
            sieve, window = sums_of_some(one, source).boxes
            window = msgspec.structs.replace(window, size_us=size, advance_us=advance)
            await begin(client, Query(one.name("q"), (sieve, window)))
            sums = ModifiedReader(client, one.name("sums"), "name", "total", "number", "greatest")
            modified = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pour, poster, source, modified)
                await sums.take(199)  # readers already have results
                changes = change("sieve", expression_0="value % 3 = 1")
                since = (await modify(client, one.name("q"), changes)).since
                modified.set()
                await sums.take(END)
    odd = sieved(lambda value: pc.equal(pc.bit_wise_and(value, 1), 1))
    thirds = sieved(lambda value: pa.array([each % 3 == 1 for each in value.to_pylist()]))
    old, new = rolled(odd, size, advance), rolled(thirds, size, advance)
    assert 199 + size - advance <= since < GATE + size
    assert sums.rows == [row for row in old if row[0] <= since] + [
        row for row in new if row[0] > since
    ]


def rolled(state: pa.Table, size: int, advance: int) -> list[tuple[Any, ...]]:
    """Return all sums by each window and name."""
    rows: list[tuple[Any, ...]] = []
    for start in range(advance - size, LAST, advance):
        inside = pc.and_(pc.greater_equal(state["t"], start), pc.less(state["t"], start + size))
        kinds = [("value", "sum"), ("value", "count"), ("value", "max")]
        groups = state.filter(inside).group_by("name").aggregate(kinds).sort_by("name")
        names = ("name", "value_sum", "value_count", "value_max")
        columns = (groups[name].to_pylist() for name in names)
        rows += [(start + size - 1, *row) for row in zip(*columns, strict=True)]
    return rows

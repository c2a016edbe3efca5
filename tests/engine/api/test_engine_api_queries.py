"""Queries at complete peers (`engine_peers`) are stopped, started, deleted, restarted, and begun
late."""

from __future__ import annotations

import pyarrow as pa
import pytest
from engine_peers import (
    Cluster,
    Place,
    Row,
    begin,
    make_stream,
    next_rows,
    pairs_of,
    received,
    send_rows,
    to_the_end,
    until,
)
from lent_spark import LentSpark

from medusa.engine.objects.query import Aggregate, AggregateCall, Filter, Query
from medusa.engine.spark.session import Spark
from medusa.engine.streams.config import Timing
from medusa.overlay.errors import InternalError
from medusa.tools.client.async_client import AsyncMedusaClient, Subscription

pytestmark = [pytest.mark.spark, pytest.mark.cluster(timing=Timing(maintenance_s=0.02))]


@pytest.fixture(autouse=True)
def _peers_share_spark(spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("medusa.engine.spark.session.Spark", lambda *_: LentSpark(spark))


def odd(place: Place, name: str, source: str, output: str) -> Query:
    return Query(place.name(name), (Filter("odd", source, (output,), ("value % 2 = 1",)),))


def counting(place: Place, name: str, source: str, output: str) -> Query:
    """Return a query that counts rows in windows of ten microseconds, at every fifth
    microsecond."""
    functions = (AggregateCall("count", None, "rows"),)
    box = Aggregate("count", source, output, 10, 5, (), functions)
    return Query(place.name(name), (box,))


async def pass_time(client: AsyncMedusaClient, place: Place, stream: str, stimes: range) -> None:
    """Post a row at each microsecond; the log has all of them as one epoch."""
    await send_rows(client, stream, [(s, s) for s in stimes], boundary=stimes[-1])
    await until(lambda: place.state(stream).log.boundary >= stimes[-1])


def odd_rows(stimes: range) -> list[Row]:
    return [(s, s) for s in stimes if s % 2]


async def windows(subscription: Subscription) -> list[tuple[int, int]]:
    """Return (window start, rows) to the end of the stream."""
    found: list[tuple[int, int]] = []
    async for epoch in subscription:
        starts = epoch.table.column("window_start").cast(pa.int64()).to_pylist()
        found += zip(starts, epoch.table.column("rows").to_pylist(), strict=True)
    return found


async def two(cluster: Cluster) -> tuple[Place, Place]:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    return mit, utah


async def test_a_stopped_query_misses_nothing(cluster: Cluster) -> None:
    """The peers of the source and of the query keep its input, however short the stream's history
    is."""
    mit, utah = await two(cluster)
    client, other = await cluster.clients(mit, utah)
    source = await make_stream(client, mit, "s", history_us=1)
    await client.create_query(odd(mit, "q", source, mit.name("out")))
    await other.create_query(odd(utah, "q", source, utah.name("out")))
    await pass_time(client, mit, source, range(10))
    await pass_time(client, mit, source, range(10, 20))
    here, there = other.subscribe(mit.name("out")), client.subscribe(utah.name("out"))
    await client.start_query(mit.name("q"))
    await other.start_query(utah.name("q"))
    assert await received(here, 10) == odd_rows(range(20))
    assert await received(there, 10) == odd_rows(range(20))
    await client.stop_query(mit.name("q"))
    await other.stop_query(utah.name("q"))
    for first in (20, 30, 40):
        await pass_time(client, mit, source, range(first, first + 10))
    snapshot = await client.status()
    assert {t.state for peer in snapshot.peers for t in peer.tasks} == {"stopped"}
    await client.start_query(mit.name("q"))
    await other.start_query(utah.name("q"))
    await client.post_event(source, None, end=True)
    assert await to_the_end(here) == odd_rows(range(20, 50))
    assert await to_the_end(there) == odd_rows(range(20, 50))
    # subscribers that have reached the end hold no rows any more: only the history keeps rows
    await until(lambda: mit.state(source).log.start >= 39)


async def test_a_deleted_query_makes_room_for_another(cluster: Cluster) -> None:
    mit, utah = await two(cluster)
    client, other = await cluster.clients(mit, utah)
    source = await make_stream(client, mit, "s", history_us=1)
    await begin(other, odd(utah, "q", source, utah.name("out")))
    await pass_time(client, mit, source, range(10))
    assert await received(client.subscribe(utah.name("out")), 5) == odd_rows(range(10))
    await other.delete_query(utah.name("q"))
    # the stream's leader keeps no rows for the mirror that is gone
    for first in (10, 20, 30):
        await pass_time(client, mit, source, range(first, first + 10))
    await until(lambda: mit.state(source).log.start >= 29)
    await begin(other, counting(utah, "q", source, utah.name("out")))
    await client.post_event(source, None, end=True)
    start = mit.state(source).log.start + 1
    expected = [(k, min(10, 40 - k)) for k in range(start, 40, 5)]
    another = await cluster.client(mit)
    assert await windows(another.subscribe(utah.name("out"))) == expected


async def test_peers_that_restart_go_on_where_they_were(cluster: Cluster) -> None:
    mit, utah = await two(cluster)
    client, other = await cluster.clients(mit, utah)
    source = await make_stream(client, mit, "s", history_us=1)
    await begin(other, counting(utah, "q", source, utah.name("out")))
    reader = client.subscribe(utah.name("out"), subscriber="me")
    await pass_time(client, mit, source, range(20))
    assert len(await next_rows(reader)) > 0
    await cluster.restart(utah)
    await pass_time(client, mit, source, range(20, 40))
    await cluster.restart(mit)
    await pass_time(client, mit, source, range(40, 60))
    await cluster.restart(utah)
    await client.post_event(source, None, end=True)
    rest = await windows(reader)
    every = [(k, 5 if k in {-5, 55} else 10) for k in range(-5, 60, 5)]
    assert rest == every[-len(rest) :]
    assert len(rest) >= 8
    assert await windows(client.subscribe(utah.name("out"), after=18)) == every[-10:]


async def test_where_the_beginning_is_gone_no_window_is_partial(cluster: Cluster) -> None:
    mit, utah = await two(cluster)
    client, other = await cluster.clients(mit, utah)
    source = await make_stream(client, mit, "s", history_us=30)
    for first in range(0, 100, 10):
        await pass_time(client, mit, source, range(first, first + 10))
    await until(lambda: mit.state(source).log.start == 69)
    for place, by in ((mit, client), (utah, other)):
        await begin(by, counting(place, "q", source, place.name("out")))
    await client.post_event(source, None, end=True)
    expected = [(70, 10), (75, 10), (80, 10), (85, 10), (90, 10), (95, 5)]
    for place in (mit, utah):
        assert await windows(client.subscribe(place.name("out"))) == expected
    assert utah.state(source).log.start == 69


async def test_a_task_that_fails_says_why_and_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, client, source = await cluster.founder_with_stream()
    await client.create_query(odd(mit, "q", source, mit.name("out")))

    def fail(*_: object) -> None:
        raise InternalError("Spark failed: as the test wants")

    reader = client.subscribe(mit.name("out"))
    with monkeypatch.context() as patch:
        patch.setattr(LentSpark, "run", fail)
        await client.start_query(mit.name("q"))
        await pass_time(client, mit, source, range(10))
        tasks = mit.up.engine.queries.task_status
        await until(lambda: tasks()[0].state == "failing")
        assert "as the test wants" in tasks()[0].reason
    assert await received(reader, 5) == odd_rows(range(10))
    await until(lambda: tasks()[0].state == "waiting")
    assert tasks()[0].reason == ""
    assert pairs_of(await next_rows(client.subscribe(mit.name("out"), after=8))) == [(9, 9)]

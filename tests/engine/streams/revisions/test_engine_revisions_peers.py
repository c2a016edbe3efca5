"""Revisions at complete peers (`engine_peers`) are posted, logged beside the stream, and applied
downstream."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import trio
from engine_peers import (
    DEADLINE_S,
    Cluster,
    Place,
    begin,
    make_stream,
    open_cluster,
    pairs_of,
    rows,
    send_rows,
    until,
)
from replicated_queries import LOSSLESS, QUICK, Made, asked, die, stands_by
from revised_streams import (
    ClientCopy,
    changes_of,
    counted,
    deletions,
    keyed_stream,
    logged,
    replacements,
    window_of,
)

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import END, REVISED_STIME, REVISION_KIND
from medusa.engine.objects.view import Last, View
from medusa.engine.streams.revisions.corrections import Kind
from medusa.overlay.errors import InvalidInputError
from medusa.tools.client.async_client import AsyncMedusaClient, Corrections
from medusa.tools.commands.medusa.post_file import Options, post_rows

pytestmark = pytest.mark.usefixtures("interpreted")


async def test_revisions_are_a_stream_beside_their_stream(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    stream = await keyed_stream(client, mit, slack_us=10)
    await send_rows(client, stream, [(10, 1), (20, 2), (30, 3)], boundary=25)
    await until(lambda: mit.state("s").log.boundary == 25)
    assert await client.post_revisions(stream, deletions([10, 11])) == [1]
    missed = await client.post_revisions(
        stream, replacements([(20, 5), (10, 1), (30, 4)]), boundary=40
    )
    assert missed == [1]  # the tuple is gone
    await until(lambda: mit.state("s").log.boundary == 40)
    state = mit.state("s/revisions").log
    assert state.boundary == 40
    epoch = state.reader.read(state.start)
    assert epoch is not None
    assert changes_of(epoch.table) == [
        (26, "DELETION", 10, 1),
        (30, "DELETION", 20, 2),
        (30, "INSERTION", 20, 5),
        (30, "DELETION", 30, 3),
        (30, "INSERTION", 30, 4),
    ]
    stable = mit.state("s").log.reader.read(mit.state("s").log.start)
    assert stable is not None
    assert pairs_of(stable.table) == [(10, 1), (20, 2), (30, 3)]
    await client.post_event(stream, None, end=True)
    found = [epoch async for epoch in client.subscribe(f"{stream}/revisions")]
    assert sum(epoch.table.num_rows for epoch in found) == 5
    assert found[-1].upto == END


async def test_revisions_pass_a_filter_and_a_window(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    stream = await keyed_stream(client, mit)
    big = Filter("big", stream, (mit.name("big"),), ("value > 10",))
    sums = counted("sums", mit.name("big"), mit.name("sums"))
    query = Query(mit.name("q"), (big, sums), outputs=(mit.name("big"),))
    names = await client.create_query(query)
    assert mit.name("sums/revisions") in names
    await client.start_query(query.name)
    await send_rows(client, stream, [(10, 11), (20, 12), (30, 3), (110, 14)], boundary=120)
    missed = await client.post_revisions(
        stream, replacements([(20, 2), (30, 13), (110, 15), (10, 12)])
    )
    assert missed == []
    assert await client.post_revisions(stream, deletions([10])) == []
    await send_rows(client, stream, end=True)
    for path in ("big", "sums", "big/revisions", "sums/revisions"):
        await until(lambda p=path: mit.state(p).log.boundary == END, path)
    assert changes_of(logged(mit, "big/revisions")) == [
        (121, "DELETION", 10, 11),
        (121, "DELETION", 20, 12),
        (121, "INSERTION", 30, 13),
        (121, "DELETION", 110, 14),
        (121, "INSERTION", 110, 15),
    ]
    names = ("stime", REVISION_KIND, REVISED_STIME, "n", "total")
    table = logged(mit, "sums/revisions")
    assert list(zip(*(table.column(n).to_pylist() for n in names), strict=True)) == [
        (121, "DELETION", 99, 2, 23),
        (121, "INSERTION", 99, 1, 13),
        (199, "DELETION", 199, 1, 14),
        (199, "INSERTION", 199, 1, 15),
    ]


@pytest.mark.parametrize("corrections", list(Corrections))
async def test_a_remote_client_receives_the_revisions(
    cluster: Cluster, corrections: Corrections
) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client, other = await cluster.clients(mit, utah)
    stream = await keyed_stream(client, mit)
    query = Query(utah.name("q"), (counted("sums", stream, utah.name("sums")),))
    await begin(other, query)
    told, plain = ClientCopy(), ClientCopy()
    subscription = client.follow(utah.name("sums"), corrections)
    source = client.follow(stream, corrections)
    await client.post_event(stream, rows([(10, 1), (20, 2), (110, 4), (210, 8)]), boundary=250)
    await told.follow(subscription, 250)
    assert told.tuples == Counter([window_of(0, 2, 3), window_of(100, 1, 4)])
    await client.post_revisions(stream, replacements([(10, 5)]))
    await client.post_revisions(stream, deletions([110, 210]), boundary=260)
    await told.follow(subscription, 260)
    assert told.tuples == Counter([window_of(0, 2, 7)])
    if corrections is Corrections.REVISIONS:
        assert told.kinds == [Kind.INSERTION, Kind.DELETION, Kind.REPLACEMENT]
    else:
        assert told.kinds == [Kind.INSERTION, Kind.UNDO, Kind.INSERTION, Kind.REC_DONE]
    await client.post_event(stream, rows([(270, 3)]), end=True)
    await told.follow(subscription, END)
    assert told.tuples == Counter([window_of(0, 2, 7), window_of(200, 1, 3)])
    await plain.follow(source, END)
    assert {row[0]: row[-1] for row in plain.tuples} == {10: 5, 20: 2, 270: 3}
    with pytest.raises(StopAsyncIteration), trio.fail_after(DEADLINE_S):
        await anext(subscription)


async def test_revisions_survive_restarts_of_the_leader_and_of_the_query(cluster: Cluster) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    async with mit.client(producer="me") as client, utah.client() as other:
        stream = await keyed_stream(client, mit)
        query = Query(utah.name("q"), (counted("sums", stream, utah.name("sums")),))
        await begin(other, query)
        await client.post_event(stream, rows([(10, 1), (20, 2)]), boundary=50)
        assert await client.post_revisions(stream, deletions([10, 11])) == [1]
        await cluster.restart(mit)
        await send_rows(client, stream, [(60, 3)], boundary=100)
        await until(lambda: utah.state("sums/revisions").log.boundary == 100)
        await cluster.restart(utah)
        assert await client.post_revisions(stream, replacements([(20, 7)]), end=True) == []
        told = ClientCopy()
        await told.follow(client.follow(utah.name("sums"), Corrections.REVISIONS), END)
        assert told.tuples == Counter([window_of(0, 2, 10)])
        changes = logged(utah, "sums/revisions")
        assert changes.column("stime").to_pylist() == [99, 99, 101, 101]
    # posting the same posts again changes nothing, and the answer repeats what was missed
    client = await cluster.open(mit.client(producer="me"))
    await client.post_event(stream, rows([(10, 1), (20, 2)]), boundary=50)
    assert await client.post_revisions(stream, deletions([10, 11])) == [1]
    poster = await client.poster(stream)
    assert (poster.rows, poster.duplicates) == (0, 2)


async def test_a_peer_refuses_impossible_revisions(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    plain = await make_stream(client, mit, "plain")
    with pytest.raises(InvalidInputError, match="declares no key"):
        await client.post_revisions(plain, deletions([1]))
    stream = await keyed_stream(client, mit, history_us=100)
    await send_rows(client, stream, [(10, 1), (200, 2)], boundary=200)
    assert await client.post_revisions(stream, deletions([10, 200])) == [0]
    many = deletions([1]).append_column("value", pa.array([None], pa.int32()))
    wrong = many.set_column(0, REVISION_KIND, pa.array(["INSERTION"]))
    with pytest.raises(InvalidInputError, match="row 1: 'INSERTION' is neither"):
        await client.post_revisions(stream, wrong)
    with pytest.raises(InvalidInputError, match="field value is null in row 1"):
        await client.post_revisions(
            stream, many.set_column(0, REVISION_KIND, pa.array(["REPLACEMENT"]))
        )
    await client.post_event(stream, None, end=True)
    with pytest.raises(InvalidInputError, match="has ended"):
        await client.post_revisions(stream, deletions([200]))


async def test_a_view_shows_the_tuples_as_they_came(cluster: Cluster) -> None:
    """The view has no revisions, and neither do streams that are derived from it."""
    mit, client = await cluster.founder()
    stream = await keyed_stream(client, mit)
    await client.post_event(stream, rows([(10, 1), (20, 2)]), boundary=30)
    await client.create_view(View(mit.name("v"), stream, Last(5)))
    query = Query(mit.name("q"), (counted("sums", mit.name("v"), mit.name("sums")),))
    assert mit.name("sums/revisions") not in await client.create_query(query)
    await client.start_query(query.name)
    assert await client.post_revisions(stream, deletions([10]), end=True) == []
    for name in ("v", "sums"):
        told = ClientCopy()
        await told.follow(client.follow(mit.name(name), Corrections.REVISIONS), END)
        assert told.kinds == [Kind.INSERTION]
    assert told.tuples == Counter([window_of(0, 2, 3)])


async def test_a_file_of_revisions_is_posted(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "wrong.csv"
    file.write_text(
        "revision_kind,t,name,value\nDELETION,10,,\nDELETION,11,,\nREPLACEMENT,20,y,7\n"
    )
    mit, client = await cluster.founder()
    stream = await keyed_stream(client, mit)
    await client.post_event(stream, rows([(10, 1), (20, 2)]))
    options = Options(end=True, revisions=True)
    done = await post_rows(client, stream, str(file), options)
    assert done.missed == (2,)
    await until(lambda: mit.state("s/revisions").log.boundary == END)
    assert changes_of(logged(mit, "s/revisions")) == [
        (20, "DELETION", 10, 1),
        (20, "DELETION", 20, 2),
        (20, "INSERTION", 20, 7),
    ]
    plain = await make_stream(client, mit, "plain")
    with pytest.raises(InvalidInputError, match="declares no key"):
        await post_rows(client, plain, str(file), options)


@asynccontextmanager
async def cluster_of(folder: Path) -> AsyncIterator[tuple[Cluster, list[Place]]]:
    async with open_cluster(folder, timing=QUICK) as cluster:
        yield cluster, await cluster.siblings(4)


async def some_revisions(client: AsyncMedusaClient, stream: str, at: int) -> None:
    """Post tuples of value 1 at every tenth of the hundred microseconds before `at`, and revise two
    of them."""
    times = range(at - 100, at, 10)
    await send_rows(client, stream, [(time, 1) for time in times], boundary=at - 5)
    assert await client.post_revisions(stream, replacements([(at - 100, 5)])) == []
    assert await client.post_revisions(stream, deletions([at - 90]), boundary=at - 1) == []


EXPECTED = [window_of(start, 9, 13) for start in (0, 100, 200)]


@pytest.mark.parametrize("mode", LOSSLESS)
async def test_a_dead_primary(tmp_path: Path, made: Made, mode: Mode) -> None:
    async with (
        cluster_of(tmp_path) as (cluster, (leader, primary, secondary, reader)),
        leader.client() as poster,
        primary.client() as owner,
        reader.client() as client,
    ):
        stream = await keyed_stream(poster, leader)
        query = Query(leader.name("q"), (counted("sums", stream, leader.name("sums")),))
        await begin(owner, asked(query, mode, secondary))
        subscription, told = client.follow(leader.name("sums"), Corrections.REVISIONS), ClientCopy()
        await some_revisions(poster, stream, 100)
        await told.follow(subscription, 99)
        await stands_by(primary, secondary, "q")
        await some_revisions(poster, stream, 200)
        await told.follow(subscription, 199)
        await die(made, primary, cluster, leader, secondary, reader)
        await some_revisions(poster, stream, 300)
        await poster.post_event(stream, None, end=True)
        await told.follow(subscription, END)
        assert sorted(told.tuples) == EXPECTED


async def test_revisions_survive_a_move_to_a_worker_and_back(tmp_path: Path, made: Made) -> None:
    async with (
        cluster_of(tmp_path) as (_, (leader, owner, worker, _)),
        leader.client() as poster,
        owner.client() as client,
    ):
        stream = await keyed_stream(poster, leader)
        query = Query(leader.name("q"), (counted("sums", stream, leader.name("sums")),))
        await begin(client, query)
        await some_revisions(poster, stream, 100)
        await client.move_task(leader.name("sums/revisions"), worker.id)
        await some_revisions(poster, stream, 200)
        await client.move_task(leader.name("sums/revisions"))
        await some_revisions(poster, stream, 300)
        await poster.post_event(stream, None, end=True)
        name = leader.name("sums/revisions")
        await until(lambda: owner.state(name).log.boundary == END)
        changes = logged(owner, name)
        assert changes.column("stime").to_pylist() == [99, 99, 199, 199, 299, 299]
        told = ClientCopy()
        await told.follow(poster.follow(leader.name("sums"), Corrections.REVISIONS), END)
        assert sorted(told.tuples) == EXPECTED

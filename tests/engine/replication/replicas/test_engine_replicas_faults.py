"""Failover when something goes wrong at the worst moment: names used again, restarts, crashes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, Place, begin, make_stream, until
from moving_tasks import Sums, post, windows
from replicated_queries import (
    QUICK,
    Made,
    asked,
    begin_stood_by,
    believes,
    die,
    has,
    passed,
    standby_boundary,
    stands_by,
    taken_over,
)

from medusa.dht.catalog import Catalog
from medusa.engine.objects.availability import Mode, Recovery
from medusa.engine.objects.catalog_records import STREAM
from medusa.engine.objects.files import file_name
from medusa.engine.objects.query import Query
from medusa.engine.replication.replicas.primaries import Primaries
from medusa.engine.replication.replicas.standbys import Standbys
from medusa.overlay.errors import InternalError, NotFoundError, StorageFullError
from medusa.overlay.gossip.events import Health
from medusa.overlay.names import NO_PEER, ObjectName

pytestmark = pytest.mark.cluster(timing=QUICK)


def query_file(place: Place, query: str) -> Path:
    return place.home.data / "queries" / file_name(query, ".json")


def query_primary(place: Place, query: Query) -> str:
    standby = place.up.engine.standbys.get(query.name)
    assert standby is not None
    return standby.term.holder.hex()


async def test_a_query_made_again_is_not_deposed_by_the_term_of_its_namesake(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary = await cluster.siblings(3)
    poster, one, two = await cluster.clients(home, primary, secondary)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
    await begin_stood_by(one, query, primary, secondary)
    await post(poster, source, range(250))
    await taken_over(made, primary, secondary, query.name)
    await two.stop_query(query.name)
    await two.delete_query(query.name)
    believes(made, secondary, primary.id, Health.ALIVE)
    await begin(one, query)
    await trio.sleep(0.5)
    assert has(primary, query.name)
    sums = Sums(poster, home.name("out"))
    await sums.finish(poster, source, range(250, 777))


async def test_a_later_term_that_no_peer_holds_is_outdone(cluster: Cluster, made: Made) -> None:
    """The primary itself made the later term, before its clock was set back (ADR 17): it gives
    itself a still later one, and keeps the query."""
    home, primary, secondary = await cluster.siblings(3)
    poster, one = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
    await begin_stood_by(one, query, primary, secondary)
    sums = Sums(poster, home.name("out"))
    await sums.feed(poster, source, range(250))
    running = primary.up.engine.queries.get(query.name)
    term = running.stored.term
    lost = msgspec.structs.replace(term, subject=home.name("out"), number=term.number + 1024)
    primary.up.engine.directory.believe(msgspec.structs.replace(lost, holder=NO_PEER))
    await until(lambda: running.stored.term.number > lost.number, "it has a later term")
    assert primary.up.engine.queries.get(query.name) is running
    await stands_by(primary, secondary, "q/out")
    assert running.stored.parted == ()
    await sums.finish(poster, source, range(250, 777))


@pytest.mark.cluster(timing=dataclasses.replace(QUICK, ask_s=1.0))
async def test_a_query_may_be_made_again_where_its_namesake_was_stood_by_for(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secondary does not know yet that the query is deleted."""

    async def unheard(*_: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Primaries, "_dismiss", unheard)
    home, primary, secondary = await cluster.siblings(3)
    poster, one, two = await cluster.clients(home, primary, secondary)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.ACTIVE_STANDBY, secondary)
    await begin_stood_by(one, query, primary, secondary)
    await post(poster, source, range(250))
    await one.stop_query(query.name)
    await one.delete_query(query.name)
    again = windows(home, source)
    await begin(two, again)
    sums = Sums(poster, home.name("out"))
    await trio.sleep(1.8)  # by then the peer would have asked
    await sums.finish(poster, source, range(250, 777))
    assert query_file(secondary, again.name).exists()
    assert secondary.up.engine.standbys.get(again.name) is None


async def test_a_query_deleted_while_a_secondary_is_found_stays_deleted(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for, go_on = trio.Event(), trio.Event()
    stand_by = Standbys.stand_by

    async def slowly(self: Standbys, *args: Any) -> Any:
        asked_for.set()
        await go_on.wait()
        return await stand_by(self, *args)

    home, primary, secondary = await cluster.siblings(3)
    monkeypatch.setattr(Standbys, "stand_by", slowly)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
    await owner.create_query(query)
    with trio.fail_after(DEADLINE_S):
        await asked_for.wait()
    await owner.delete_query(query.name)
    go_on.set()
    await until(
        lambda: (
            secondary.up.engine.standbys.get(query.name) is None
            and not query_file(secondary, query.name).exists()
        )
    )
    await trio.sleep(0.3)
    assert not query_file(primary, query.name).exists()
    assert secondary.up.engine.standbys.get(query.name) is None
    await owner.create_query(windows(home, source, "other"))  # the owner still works


async def test_a_query_deleted_while_its_secondary_was_away_stays_deleted(
    cluster: Cluster, made: Made
) -> None:
    """Only the catalog can still tell the secondary."""
    home, primary, secondary = await cluster.siblings(3)
    poster = await cluster.client(home)
    source = await make_stream(poster, home, "s")
    query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
    async with primary.client() as owner:
        await begin_stood_by(owner, query, primary, secondary)
        await post(poster, source, range(250))
        await cluster.stop(secondary)
        await owner.stop_query(query.name)
        await owner.delete_query(query.name)
    dead = primary.id
    await cluster.stop(primary)
    await cluster.start(secondary)
    assert secondary.up.engine.standbys.get(query.name) is not None
    believes(made, secondary, dead, Health.DEAD)
    await until(lambda: secondary.up.engine.standbys.get(query.name) is None)
    assert not has(secondary, query.name)
    assert not query_file(secondary, query.name).exists()


async def test_a_worker_is_not_named_for_a_query_that_is_no_more(
    cluster: Cluster, made: Made
) -> None:
    (place,) = await cluster.siblings(1)
    client = await cluster.client(place)
    source = await make_stream(client, place, "s")
    await client.create_query(windows(place, source))
    queries = place.up.engine.queries
    (task,) = queries.get(place.name("q/out")).tasks
    await client.delete_query(place.name("q/out"))
    with pytest.raises(NotFoundError):
        await queries.name_worker(task)


async def test_a_restarted_primary_survives_a_catalog_that_refuses(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, client = await cluster.clients(home, reader)
    async with primary.client() as owner:
        source = await make_stream(poster, home, "s")
        query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
        await begin_stood_by(owner, query, primary, secondary)
    publish, refusals = Catalog.publish, 0

    async def refuse(self: Catalog, *args: Any) -> int:
        nonlocal refusals
        if refusals < 3:
            refusals += 1
            raise StorageFullError("the disk is full")
        return await publish(self, *args)

    await cluster.stop(primary)
    monkeypatch.setattr(Catalog, "publish", refuse)
    await cluster.start(primary)
    sums = Sums(client, home.name("out"))
    await sums.finish(poster, source, range(777))
    await until(lambda: refusals == 3, "it tries again")


async def test_a_restarted_standby_keeps_its_carry_though_nothing_comes(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, owner, client = await cluster.clients(home, primary, reader)
    source = await make_stream(poster, home, "s", history_us=0)
    query = asked(windows(home, source), Mode.PASSIVE_STANDBY, secondary)
    await begin(owner, query)
    sums = Sums(client, home.name("out"))
    await stands_by(primary, secondary, "q/out")
    for start in range(0, 280, 20):
        await post(poster, source, range(start, start + 20))
        await sums.take(start + 19)
    boundary = standby_boundary(secondary, "q/out", "out")
    await until(lambda: boundary() == 279)
    await until(lambda: standby_boundary(secondary, "q/out", "s")() == 279)
    await trio.sleep(0.3)
    await cluster.stop(primary)
    await cluster.restart(secondary)
    await trio.sleep(0.3)  # retention has run
    for witness in (home, reader, secondary):
        believes(made, witness, query_primary(secondary, query), Health.DEAD)
    await sums.finish(poster, source, range(280, 777))


@pytest.mark.cluster(timing=dataclasses.replace(QUICK, save_s=0.0))
async def test_a_restarted_standby_copies_on_from_where_it_was(
    cluster: Cluster, made: Made
) -> None:
    home, primary, secondary = await cluster.siblings(3)
    poster, owner = await cluster.clients(home, primary)
    source = await make_stream(poster, home, "s")
    query = asked(passed(home, source, "out"), Mode.PASSIVE_STANDBY, secondary, Recovery.ROLLBACK)
    slow = msgspec.structs.replace(query.availability, checkpoint_s=1.5)
    query = msgspec.structs.replace(query, availability=slow)
    await begin_stood_by(owner, query, primary, secondary)
    await post(poster, source, range(100))
    boundary = standby_boundary(secondary, "q/out", "out")
    await until(lambda: boundary() == 99)
    await post(poster, source, range(100, 200))
    (task,) = primary.up.engine.queries.get(query.name).tasks
    await until(lambda: task.boundary == 199)
    assert boundary() == 99
    await cluster.restart(secondary)
    boundary = standby_boundary(secondary, "q/out", "out")
    await until(lambda: boundary() == 199, "it has copied the rest")


async def test_a_crash_while_stepping_down_does_no_harm(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query's file is gone, but its logs are not; a query at this peer reads its output."""
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, client = await cluster.clients(home, reader)
    async with primary.client() as owner:
        source = await make_stream(poster, home, "s")
        query = asked(passed(home, source, "mid"), Mode.ACTIVE_STANDBY, secondary)
        await begin(owner, query)
        await begin(owner, windows(home, home.name("mid")))
        await stands_by(primary, secondary, "q/mid")
    sums = Sums(client, home.name("out"))
    await sums.feed(poster, source, range(250))
    file = query_file(primary, query.name)
    with monkeypatch.context() as crashing:

        async def crash(*_: object) -> None:
            raise InternalError("as if it died here")

        crashing.setattr("medusa.engine.replication.following.book.Followers.part_with", crash)
        believes(made, secondary, primary.id, Health.DEAD)
        await until(lambda: not file.exists(), "it has begun to step down")
        await cluster.stop(primary)
    await cluster.start(primary)
    for witness in (home, secondary, reader):
        believes(made, witness, primary.id, Health.ALIVE)
    await sums.finish(poster, source, range(250, 777))
    name = ObjectName.parse(home.name("mid"))
    await home.up.engine.catalog.lookup(STREAM, name)  # the catalog still names the successor


async def test_a_peer_that_stops_hears_no_more_of_others(cluster: Cluster, made: Made) -> None:
    home, other = await cluster.siblings(2)
    detector = made[bytes.fromhex(home.id)]
    await until(lambda: len(detector.changed) > 1)
    await cluster.stop(home)
    assert len(detector.changed) == 0
    assert other.up


async def test_a_query_started_as_its_primary_died_is_taken_over(
    cluster: Cluster, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client knows that the query was started, but the secondary does not."""
    home, primary, secondary, reader = await cluster.siblings(4)
    poster, client = await cluster.clients(home, reader)
    async with primary.client() as owner:
        source = await make_stream(poster, home, "s")
        query = asked(windows(home, source), Mode.UPSTREAM_BACKUP, secondary)
        await owner.create_query(query)
        await stands_by(primary, secondary, "q/out")

        async def mute(*_: object) -> None:
            await trio.lowlevel.checkpoint()

        monkeypatch.setattr(Primaries, "_attend", mute)
        await owner.start_query(query.name)
    standby = secondary.up.engine.standbys.get(query.name)
    assert standby is not None
    assert standby.stored.entry.status == "SETUP"
    await die(made, primary, cluster, home, secondary, reader)
    sums = Sums(client, home.name("out"))
    await sums.finish(poster, source, range(777))


async def test_a_query_whose_stop_was_not_waited_for_can_be_started_again(
    cluster: Cluster, made: Made
) -> None:
    (place,) = await cluster.siblings(1)
    client = await cluster.client(place)
    source = await make_stream(client, place, "s")
    await begin(client, windows(place, source))
    running = place.up.engine.queries.get(place.name("q/out"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await running.stop()
    running.start()
    sums = Sums(client, place.name("out"))
    await sums.finish(client, source, range(777))

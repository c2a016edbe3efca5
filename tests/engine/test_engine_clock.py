"""Peers whose machine's clock is wrong, at their start and while they run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import (
    Cluster,
    Place,
    begin,
    make_stream,
    open_cluster,
    received,
    rows,
    schema_of,
    send_rows,
    until,
)

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.availability import Availability, Mode
from medusa.engine.objects.catalog_records import PRODUCER
from medusa.engine.objects.definitions import Idle, Producer, StreamDefinition
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.engine.replication.directory.book import key_of
from medusa.engine.replication.queries.digests import Digest, Version
from medusa.engine.replication.records.stored_query import WrittenTerm
from medusa.engine.replication.records.term import HIGHEST_NUMBER, Term
from medusa.engine.replication.replicas.messages import KeptUp, StandBy
from medusa.overlay.clock import AGREE_S, shown
from medusa.overlay.encoding import encode
from medusa.overlay.errors import InvalidInputError, NotFoundError, UnavailableError
from medusa.overlay.names import ObjectName
from medusa.overlay.timing import OverlayTiming
from medusa.overlay.troubles import Reason, Trouble
from medusa.tools.client.async_client import AsyncMedusaClient

DAY = 86_400.0
MINUTE = 60.0

QUICK = OverlayTiming(clock_look_s=0.02)
pytestmark = [pytest.mark.cluster(overlay=QUICK), pytest.mark.usefixtures("interpreted")]


def odd(place: Place) -> Query:
    return Query(
        place.name("odd"),
        (Filter("odd", place.name("s"), (place.name("odds"),), ("value % 2 = 1",)),),
    )


async def own_something(place: Place, client: AsyncMedusaClient) -> None:
    """Create a stream with two tuples, a query over it, and a schema that nothing uses."""
    await make_stream(client, place, "s")
    await begin(client, odd(place))
    await client.create_schema(schema_of(place.participant, "unused"))
    await send_rows(client, place.name("s"), [(1, 1), (2, 2)], boundary=10)


async def knows_its_own(place: Place, boundary: int) -> None:
    """Check that a client can read and continue all of its own objects."""
    async with place.client(producer=f"p{boundary}") as client:
        listed = (await client.list_objects()).names
        assert place.name("s") in listed["stream"]
        assert place.name("odds") in listed["stream"]
        assert place.name("odd") in listed["query"]
        assert place.name("unused") in listed["schema"]
        for path in ("s", "odds", "odd", "unused"):
            assert (await client.lookup_object(place.name(path))).entries
        # creating the same definition again is no error, another definition is an error
        await client.create_stream(StreamDefinition(place.name("s"), place.name("event")))
        await send_rows(client, place.name("s"), [(boundary - 1, 7)], boundary=boundary)
        found = await received(client.subscribe(place.name("odds"), boundary - 2), 1)
        assert found == [(boundary - 1, 7)]
        await client.create_schema(schema_of(place.participant, f"new{boundary}"))


@pytest.mark.parametrize("wrong_s", [-50 * MINUTE, 100 * DAY])
async def test_a_lone_peer_knows_its_own_objects_whatever_its_clock_says(
    cluster: Cluster, wrong_s: float
) -> None:
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        await own_something(mit, client)
    for boundary, off_s in ((20, wrong_s), (30, 0.0), (40, wrong_s), (50, wrong_s)):
        earlier_s = mit.clock_off_s
        await cluster.stop(mit)
        mit.clock_off_s = off_s
        await cluster.start(mit)
        await knows_its_own(mit, boundary)
        told = [text for text in mit.errors() if "clock" in text]
        if off_s < earlier_s:  # behind the boundary that it published
            assert any("set it" in text and shown(mit.wall())[:13] in text for text in told)


@pytest.mark.parametrize("wrong_s", [-50 * MINUTE, 100 * DAY, 45.0])
async def test_a_clock_that_is_set_wrong_and_back_while_peers_run_is_reported_and_changes_nothing(
    cluster: Cluster, wrong_s: float
) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    client = await cluster.open(mit.client(producer="p"))
    far = await cluster.client(utah)
    await own_something(mit, client)
    await make_stream(client, mit, "ticking", idle=Idle.CLOCK, idle_timeout_us=0)
    arriving = Schema(mit.name("arriving"), (Field("value", FieldType.INT),))
    await client.create_schema(arriving)
    await client.create_stream(StreamDefinition(mit.name("arriving"), arriving.name))
    subscription = far.subscribe(mit.name("odds"))
    assert await received(subscription, 1) == [(1, 1)]
    begun = mit.wall()
    for step, off_s in enumerate((wrong_s, 0.0, wrong_s, 0.0)):
        mit.clock_off_s = off_s
        await trio.sleep(0.3)
        after = 10 * step + 11
        await client.post_event(mit.name("s"), rows([(after, 2 * after + 1)]), boundary=after)
        await send_rows(client, mit.name("arriving"), rows([(0, step)]).select(["value"]))
        assert await received(subscription, 1) == [(after, 2 * after + 1)]
        assert mit.name("s") in (await far.list_objects()).names["stream"]
        assert (await far.lookup_object(mit.name("ticking"))).entries
    # the peer follows the time on which other peers agree
    until_s = mit.wall() + 1 + (wrong_s if abs(wrong_s) <= AGREE_S else 0)
    arrived = await received(client.subscribe(mit.name("arriving")), 4)
    assert begun - 1 <= arrived[0][0] / 1e6 <= arrived[-1][0] / 1e6 <= until_s
    assert begun - 1 <= mit.state("ticking").log.boundary / 1e6 <= until_s
    assert any("clock leap from" in text and "set it" in text for text in mit.errors())


async def test_an_idle_stream_goes_on_while_the_clock_is_behind(cluster: Cluster) -> None:
    mit, client = await cluster.founder()
    await make_stream(client, mit, "ticking", idle=Idle.CLOCK, idle_timeout_us=0)
    log = mit.state("ticking").log
    await until(lambda: log.boundary > 0)
    mit.clock_off_s = -50 * MINUTE
    await trio.sleep(0.1)
    boundary = log.boundary
    await until(lambda: log.boundary > boundary)


async def test_a_peer_that_starts_alone_with_its_clock_behind_denies_nothing(
    cluster: Cluster,
) -> None:
    """By the peer's clock the others' records lie in the future, so it knows no other peer."""
    mit, sibling, utah = await cluster.settle_all("mit.edu", "mit.edu", "utah.edu")
    await make_stream(await cluster.client(sibling), sibling, "ours")
    await make_stream(await cluster.client(utah), utah, "theirs")
    await cluster.close_clients()
    for place in (mit, sibling, utah):
        await cluster.stop(place)
    mit.clock_off_s = -50 * MINUTE
    await cluster.start(mit)
    async with mit.client(patience_s=0.2) as client:
        for name in (mit.name("ours"), utah.name("theirs")):
            with pytest.raises(UnavailableError):
                await client.lookup_object(name)


async def test_a_peer_that_starts_with_a_wrong_clock_reports_it(
    cluster: Cluster,
) -> None:
    mit, utah = await cluster.settle("mit.edu"), await cluster.settle("utah.edu")
    async with mit.client() as client:
        await own_something(mit, client)
    await make_stream(await cluster.client(utah), utah, "there")
    await cluster.stop(mit)
    mit.clock_off_s = -50 * MINUTE
    await cluster.start(mit)
    await until(lambda: any("whose clock" in text for text in mit.errors()))
    # the peer does not claim that there is no such stream
    async with mit.client(patience_s=0.5) as doubtful:
        with pytest.raises(UnavailableError, match=r"other clocks contradict ours.*set it"):
            await doubtful.lookup_object(utah.name("there"))
        assert (await doubtful.lookup_object(mit.name("s"))).entries
    (error,) = (text for text in mit.errors() if "whose clock" in text)
    assert shown(mit.wall())[:13] in error
    assert shown(utah.wall())[:13] in error
    assert "set the one that is wrong" in error
    # and once the clock is set, the peer trusts it again, although it named the same time before
    mit.clock_off_s = 0.0
    await until(lambda: abs(mit.up.engine.overlay.clock() - mit.wall()) < 1)
    client = await cluster.open(mit.client(producer="q"))
    far = await cluster.client(utah)
    await make_stream(client, mit, "later")
    with trio.fail_after(DEADLINE_S):
        while True:
            try:
                found = await far.lookup_object(mit.name("later"))
                break
            except Exception:  # noqa: BLE001 - until it is told
                await trio.sleep(0.1)
    assert found.entries


@pytest.mark.parametrize("wrong_s", [2 * 60 * MINUTE, -50 * MINUTE])
async def test_a_partners_wrong_clock_does_not_stop_what_is_ones_own(
    cluster: Cluster, wrong_s: float
) -> None:
    """In a federation of two, both report the difference, and other names are not denied."""
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    await make_stream(await cluster.client(utah), utah, "there")
    await cluster.close_clients()
    await cluster.stop(utah)
    utah.clock_off_s = wrong_s
    await cluster.start(utah)
    await until(lambda: all(told_of_clocks(place) for place in (mit, utah)))
    for place, other in ((mit, utah), (utah, mit)):
        (told,) = told_of_clocks(place)
        assert told.thing == f"the clock of {other.participant}"
        assert shown(place.wall())[:13] in told.what
        assert shown(other.wall())[:13] in told.what
        assert "one of the two is wrong" in told.what
        assert "set" in told.mend
        async with place.client(patience_s=0.2) as client:
            await own_something(place, client)
            assert await received(client.subscribe(place.name("odds")), 1) == [(1, 1)]
            await client.stop_query(place.name("odd"))
            await client.start_query(place.name("odd"))
            await client.create_query_xml("CREATE STREAM more AS SELECT * FROM s WHERE value > 5")
            await client.delete_query(place.name("more"))
            await client.alter_stream(place.name("s"), Alteration(readers=()))
            await make_stream(client, place, "spare")
            await client.delete_stream(place.name("spare"))
            with pytest.raises(NotFoundError):
                await client.lookup_object(place.name("none"))
            with pytest.raises(UnavailableError, match=r"clock.*set"):
                await client.lookup_object(other.name("none"))


def told_of_clocks(place: Place) -> list[Trouble]:
    return [each for each in place.up.engine.overlay.troubles.now() if each.reason is Reason.CLOCK]


async def test_a_stream_far_behind_its_clock_is_not_taken_there_before_it_is_confirmed(
    cluster: Cluster,
) -> None:
    """A lone peer starts once with its clock 100 days ahead: later tuples must not be late."""
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        await make_stream(client, mit, "ticking", idle=Idle.CLOCK, idle_timeout_us=0)
        await until(lambda: mit.state("ticking").log.boundary > 0)
    for off_s in (100 * DAY, 0.0):
        await cluster.stop(mit)
        mit.clock_off_s = off_s
        await cluster.start(mit)
        await trio.sleep(0.3)
    now_us = int(mit.wall() * 1e6)
    assert mit.state("ticking").log.boundary <= now_us
    # a peer trusts a clock that has not moved for long enough
    await cluster.stop(mit)
    mit.overlay_timing = dataclasses.replace(QUICK, clock_hold_s=0.2)
    mit.clock_off_s = 2 * DAY
    await cluster.start(mit)
    await until(lambda: mit.state("ticking").log.boundary > now_us + 1.9 * DAY * 1e6)
    # and a stream whose boundary is ahead of the clock reports it
    await cluster.stop(mit)
    mit.clock_off_s = 0.0
    await cluster.start(mit)
    assert any(f"finds {mit.name('ticking')} at" in text for text in mit.errors())


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_query_of_a_wrong_clock_is_believed_once_the_clock_is_right(
    tmp_path: Path, restarted: bool
) -> None:
    """The query's term was of the future, and every later one would have been refused, too."""
    believing = dataclasses.replace(QUICK, clock_hold_s=0.1)
    async with open_cluster(tmp_path, overlay=believing) as cluster:
        mit = await cluster.settle("mit.edu")
        await cluster.stop(mit)
        mit.clock_off_s = 100 * DAY
        await cluster.start(mit)
        async with mit.client() as client:
            await own_something(mit, client)

        def term_number() -> int:
            return mit.up.engine.queries.get(mit.name("odd")).stored.term.number

        assert term_number() > HIGHEST_NUMBER.latest(mit.wall() - DAY)
        mit.clock_off_s = 0.0
        if restarted:
            await cluster.restart(mit)
        await until(lambda: 0 < term_number() <= HIGHEST_NUMBER.latest(mit.wall()))
        assert any("term" in text and "wrong clock" in text for text in mit.errors())
        utah = await cluster.settle("utah.edu")
        await cluster.acquainted(mit, utah)
        async with utah.client() as far:
            assert await received(far.subscribe(mit.name("odds")), 1) == [(1, 1)]


@pytest.mark.parametrize("mode", [Mode.NONE, Mode.UPSTREAM_BACKUP])
async def test_a_query_goes_on_after_a_restart_with_a_clock_that_was_behind(
    tmp_path: Path, mode: Mode
) -> None:
    """By the slow clock the query got a term with a lower number than its last one, which the
    consumers and the secondary know."""
    believing = dataclasses.replace(QUICK, clock_hold_s=0.1)
    async with open_cluster(tmp_path, overlay=believing) as cluster:
        mit = await cluster.settle("mit.edu")
        sibling = await cluster.settle("mit.edu", sibling=True)
        utah = await cluster.settle("utah.edu")
        await cluster.acquainted(mit, sibling, utah)
        async with mit.client() as client:
            await make_stream(client, mit, "s")
            await begin(client, msgspec.structs.replace(odd(mit), availability=Availability(mode)))
            await send_rows(client, mit.name("s"), [(1, 1), (2, 2)], boundary=10)

        def terms() -> list[Term]:
            queries = [place.up.engine.queries.all() for place in (mit, sibling)]
            return [running.stored.term for each in queries for running in each]

        await until(lambda: mode is Mode.NONE or all(term.secondary for term in terms()))
        (before,) = (term.number for term in terms())
        async with utah.client() as far:
            assert await received(far.subscribe(mit.name("odds")), 1) == [(1, 1)]
        await cluster.stop(mit)
        mit.clock_off_s = -50 * MINUTE
        await cluster.start(mit)
        await until(lambda: any(0 < term.number < before for term in terms()))
        mit.clock_off_s = 0.0
        await until(lambda: [term.number > before for term in terms()] == [True])
        await cluster.acquainted(mit, sibling, utah)
        async with mit.client() as client, utah.client() as far:
            await send_rows(client, mit.name("s"), [(11, 7)], boundary=20)
            assert await received(far.subscribe(mit.name("odds"), 10), 1) == [(11, 7)]


async def test_a_term_of_the_future_by_a_sibling_is_outdone(cluster: Cluster) -> None:
    """A thief of a peer's key claims the query in the catalog, by gossip and by call."""
    mit = await cluster.settle("mit.edu")
    thief = await cluster.settle("mit.edu", sibling=True)
    utah = await cluster.settle("utah.edu")
    await cluster.acquainted(mit, thief, utah)
    client, far = await cluster.clients(mit, utah)
    await own_something(mit, client)
    stream = mit.name("odds")
    assert await received(far.subscribe(stream), 1) == [(1, 1)]
    for term_number in (2**62, HIGHEST_NUMBER.latest(mit.wall() + 3600)):
        claim = Producer(stream, term_number=term_number)
        await thief.up.engine.catalog.publish(PRODUCER, ObjectName.parse(stream), claim)
        thief.up.engine.overlay.gossip.publish(
            encode(Digest(0, 1, (Version(key_of(stream), term_number),)))
        )
        stored = mit.up.engine.queries.get(mit.name("odd")).stored
        term = WrittenTerm(term_number, thief.id, mit.id)
        lie = StandBy(msgspec.structs.replace(stored, written_term=term))
        connection = await thief.up.engine.overlay.connect(bytes.fromhex(mit.id))
        with pytest.raises(InvalidInputError, match="of the future: check the clock"):
            await connection.call("replica.stand_by", lie, KeptUp)
    for place in (mit, utah):
        await place.up.engine.directory.learn(stream)
        assert place.up.engine.directory.number(stream) < HIGHEST_NUMBER.latest(mit.wall())
        events = place.up.engine.overlay.events.recent()
        assert any("disbelieves a term of the future" in e.text for e in events)
    await send_rows(client, mit.name("s"), [(11, 7)], boundary=20)
    assert await received(far.subscribe(stream, 10), 1) == [(11, 7)]

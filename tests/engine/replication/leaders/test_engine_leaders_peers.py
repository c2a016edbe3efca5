"""Streams with replicas at complete peers (`engine_peers`): when the leader dies, its replica
continues with all tuples, once; queries and clients read from the present leader."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec
import pytest
import trio
from engine_peers import Cluster, Place, make_stream, pairs_of, received, rows, send_rows, until
from leaders_cluster import QUIET_S, new_leader, post, replicas_of, state_at, take_over, voter

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.leaders.ballot import SourceTerm
from medusa.engine.replication.leaders.logs import StoredBallot
from medusa.engine.replication.leaders.messages import (
    REQUEST,
    AskVote,
    Install,
    VoterAnswer,
    VoterRequest,
)
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.source.leader import Leader
from medusa.engine.streams.source.replica import Replica
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.overlay.errors import InternalError, InvalidInputError, MedusaError, StorageFullError
from medusa.overlay.files import load_json, save_json
from medusa.tools.client.async_client import open_medusa

pytestmark = pytest.mark.cluster(leader_silence_s=QUIET_S)


async def test_a_stream_with_replicas_is_posted_to_and_read(places: list[Place]) -> None:
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1, slack_us=2)
        await client.post_event(stream, rows([(5, 1), (3, 2)]))
        await send_rows(client, stream, [(9, 3)], boundary=9)
        subscription = client.subscribe(stream)
        assert await received(subscription, 3) == [(3, 2), (5, 1), (9, 3)]
        (replica,) = replicas_of(places, stream, first)
        state = state_at(replica, stream)
        assert state.role is Role.REPLICA
        await until(lambda: state.log.boundary == 9, "the replica cuts its log as well")
        assert state.leader is not None
        leads = state_at(first, stream).leader
        assert leads is not None
        assert state.leader.source.journal.segments == leads.source.journal.segments


async def test_too_few_peers(cluster: Cluster) -> None:
    places = await cluster.siblings(2)
    client = await cluster.client(places[0])
    with pytest.raises(InvalidInputError, match=r"k_safety 1 needs 3 peers of mit.edu; 2 are"):
        await make_stream(client, places[0], "s", k_safety=1)
    with pytest.raises(InvalidInputError, match="k_safety is 0 to 3"):
        await make_stream(client, places[0], "t", k_safety=4)


async def test_the_replica_takes_over_with_all_that_was_acknowledged(
    cluster: Cluster, places: list[Place]
) -> None:
    first, second, third = places
    poster, reader = await cluster.clients(second, third)
    stream = await make_stream(poster, first, "s", k_safety=1, leader=first.id)
    subscription = reader.subscribe(stream)
    for number in range(1, 11):
        await poster.post_event(stream, rows([(number, number)]), boundary=number)
    assert await received(subscription, 10) == [(n, n) for n in range(1, 11)]
    await cluster.stop(first)
    home = await new_leader(places, stream)
    assert home is second or home is third
    for number in range(11, 21):
        await poster.post_event(stream, rows([(number, number)]), boundary=number)
    await poster.flush()
    assert await received(subscription, 10) == [(n, n) for n in range(11, 21)]
    # the old leader returns, and is a replica when the new leader dies
    await cluster.start(first)
    await until(lambda: voter(first, stream).election.leader == home.id, "it hears")
    assert state_at(first, stream).role is Role.REPLICA


async def test_leader_after_leader_dies_and_each_tuple_is_there_once(cluster: Cluster) -> None:
    """The leaders die in turn during posts; the reader's peer is none of the voters."""
    peers = await cluster.siblings(4)
    async with peers[0].client() as client:
        stream = await make_stream(client, peers[0], "s", k_safety=1)
    voters = voter(peers[0], stream).election.ballot.voters
    places = [place for place in peers if place.id in voters]
    (side,) = [place for place in peers if place.id not in voters]
    client = await cluster.client(side)
    subscription = client.subscribe(stream)
    number, found = 0, []
    for _ in range(3):
        home = await new_leader(places, stream)
        for _ in range(10):
            number += 1
            await client.post_event(stream, rows([(number, number)]), boundary=number)
        await cluster.stop(home)
        for _ in range(10):
            number += 1
            await client.post_event(stream, rows([(number, number)]), boundary=number)
        await client.flush()
        found += await received(subscription, 20)
        await cluster.start(home)
    assert found == [(n, n) for n in range(1, number + 1)]


async def test_a_client_whose_peer_dies_posts_through_another(
    cluster: Cluster, places: list[Place]
) -> None:
    first, second, third = places
    async with (
        open_medusa(first.home.folder, also=[second.home.folder, third.home.folder]) as client,
        third.client() as reader,
    ):
        stream = await make_stream(client, first, "s", k_safety=1)
        subscription = reader.subscribe(stream)
        for number in range(1, 41):
            await client.post_event(stream, rows([(number, number)]), boundary=number)
            if number == 20:
                await cluster.stop(first)
        await client.flush()
        assert await received(subscription, 40) == [(n, n) for n in range(1, 41)]


async def test_late_tuples_and_clock_boundaries_are_the_same_at_the_next_leader(
    cluster: Cluster, places: list[Place]
) -> None:
    client = await cluster.client(places[2])
    stream = await make_stream(client, places[0], "s", k_safety=1, leader=places[0].id)
    await client.post_event(stream, rows([(100, 1)]), boundary=100)
    # the late tuples are behind the boundary, and behind a later tuple of the same post
    await send_rows(client, stream, [(50, 2), (150, 3), (140, 5)])
    assert await received(client.subscribe(stream), 1) == [(100, 1)]
    before = await received(client.subscribe(f"{stream}/late"), 2)
    await cluster.stop(places[0])
    await new_leader(places, stream)
    await send_rows(client, stream, [(60, 4)], boundary=200)
    assert await received(client.subscribe(stream), 2) == [(100, 1), (150, 3)]
    late = await received(client.subscribe(f"{stream}/late"), 3)
    assert late[:2] == before, "their times of arrival as well"
    assert [value for _, value in late] == [2, 5, 4]


async def test_posts_wait_for_a_replica_whose_disk_is_full(
    places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        await send_rows(client, stream, [(1, 1)])
        full = True
        follow = Replica.follow

        def refuse(self: Replica, *args: Any) -> None:
            if full:
                raise StorageFullError("no room for a journal")
            follow(self, *args)

        monkeypatch.setattr(Replica, "follow", refuse)
        await client.post_event(stream, rows([(2, 2)]), boundary=2)
        await until(lambda: "no room" in voter(first, stream).news.trouble)
        with trio.move_on_after(QUIET_S):
            await client.flush()
            raise AssertionError("it was acknowledged")
        assert state_at(first, stream).log.boundary < 2, "and nobody saw it"
        full = False
        await client.flush()
        assert await received(client.subscribe(stream), 2) == [(1, 1), (2, 2)]


async def test_a_voter_that_claims_a_term_of_the_future_stops_no_election(
    cluster: Cluster, places: list[Place]
) -> None:
    """A leader of the greatest term could have no successor. So voters refuse it, and a voter that
    once voted for it votes for others."""
    first, second, third = places
    client = await cluster.client(third)
    stream = await make_stream(client, first, "s", k_safety=1, leader=first.id)
    await send_rows(client, stream, [(1, 1)], boundary=1)
    members = (third.id, second.id)
    for message in (AskVote(2**62), Install(SourceTerm(2**62, third.id, members[1:]))):
        for place in (first, second):
            connection = await third.up.engine.overlay.connect(bytes.fromhex(place.id))
            with pytest.raises(InvalidInputError, match="of the future: check the clock"):
                await connection.call(REQUEST, VoterRequest(stream, message), VoterAnswer)
    await cluster.stop(second)
    (file,) = (second.home.data / "ballots").glob("*.json")
    stored = load_json(file, StoredBallot, mend="")
    ballot = msgspec.structs.replace(stored.ballot, promised=2**62, voted=third.id)
    save_json(file, msgspec.structs.replace(stored, ballot=ballot))
    await cluster.start(second)
    await send_rows(client, stream, [(2, 2)], boundary=2)
    await cluster.stop(first)
    await new_leader(places, stream)
    await send_rows(client, stream, [(3, 3)], boundary=3)
    assert await received(client.subscribe(stream), 3) == [(1, 1), (2, 2), (3, 3)]


async def follow(place: Place, stream: str) -> StreamState:
    """Follow the stream as a query at that peer does."""
    entry = await place.up.engine.directory.entry(stream)
    mirror = await place.up.engine.followers.follow(entry, "a query")
    mirror.log.retention.hold(Hold("task", "a"), BEGINNING)
    return mirror


def read(state: StreamState) -> list[tuple[int, int]]:
    found, after = [], BEGINNING
    while (epoch := state.log.reader.read(after)) is not None:
        found += pairs_of(epoch.table)
        after = epoch.upto
    return found


async def test_a_witness_that_reads_the_stream_can_become_its_replica_and_its_leader(
    cluster: Cluster, places: list[Place]
) -> None:
    """A witness follows the stream for its own query, apart from its state as a voter."""
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        (replica,) = replicas_of(places, stream, first)
        (witness,) = [place for place in places if place not in (first, replica)]
        mirror = await follow(witness, stream)
        posted = await post(client, stream, range(1, 6))
        await cluster.stop(replica)
        await until(lambda: witness in replicas_of(places, stream, first), "it is recruited")
        posted += await post(client, stream, range(6, 11))
        await until(lambda: read(mirror) == posted, "the query goes on")
    await cluster.start(replica)
    await cluster.stop(first)
    home = await new_leader(places, stream)
    async with home.client() as client:
        posted += await post(client, stream, range(11, 21))
        assert await received(client.subscribe(stream), 20) == posted
        await until(lambda: read(mirror) == posted, "whoever is leader")
    await until(lambda: read(state_at(witness, stream)) == posted)


@pytest.mark.parametrize("stays", [True, False], ids=["as a replica", "as a witness"])
async def test_a_reader_reads_on_when_another_leader_takes_over(
    cluster: Cluster, places: list[Place], stays: bool
) -> None:
    """The log of a former leader stops if that leader is no replica any more."""
    client = await cluster.client(places[0])
    first = places[0]
    stream = await make_stream(client, first, "s", k_safety=1)
    subscription = client.subscribe(stream)
    mirror = await follow(first, stream)
    posted = await post(client, stream, range(1, 6))
    assert await received(subscription, 5) == posted
    (replica,) = replicas_of(places, stream, first)
    await take_over(replica, stream, without="" if stays else first.id)
    async with places[2].client() as there:
        later = await post(there, stream, range(6, 11))
    assert (first in replicas_of(places, stream, replica)) is stays
    assert await received(subscription, 5) == later
    await until(lambda: read(mirror) == posted + later)


async def test_a_reader_of_a_helpless_leader_reads_on_when_another_takes_over(
    cluster: Cluster, places: list[Place]
) -> None:
    """The leader was cut off from its replicas and gave up before another one succeeded it."""
    client = await cluster.client(places[0])
    first = places[0]
    stream = await make_stream(client, first, "s", k_safety=1)
    subscription = client.subscribe(stream, subscriber="named")
    posted = await post(client, stream, range(1, 6))
    assert await received(subscription, 5) == posted
    (replica,) = replicas_of(places, stream, first)
    home = voter(first, stream)
    await home._carry_out(home.election._follow(trio.current_time(), succeeded=False), None)
    await take_over(replica, stream, without=first.id)
    async with places[2].client() as there:
        later = await post(there, stream, range(6, 11))
    assert await received(subscription, 5) == later


@pytest.mark.cluster(lease_s=3600.0)
async def test_tuples_kept_by_the_last_leader_are_kept_for_the_readers_lease(
    cluster: Cluster, places: list[Place]
) -> None:
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1, history_us=0)
        state_at(first, stream).log.retention.hold(Hold("task", "a"), BEGINNING)
        await post(client, stream, range(1, 6))
        await until(lambda: state_at(first, stream).log.boundary == 5)
    await cluster.stop(first)
    home = await new_leader(places, stream)
    log = state_at(home, stream).log
    async with home.client() as client:
        await post(client, stream, range(6, 11))
    await until(lambda: log.boundary == 10)
    log.upkeep.retain(trio.current_time())
    assert log.start < 5, "its reader is waited for"
    log.upkeep.retain(trio.current_time() + 3601)
    assert log.start >= 5, "but not for ever"


async def test_a_stream_whose_log_is_spoiled_stops_and_the_peer_lives(
    cluster: Cluster, places: list[Place]
) -> None:
    client = await cluster.client(places[0])
    first = places[0]
    bad = await make_stream(client, first, "bad")
    good = await make_stream(client, first, "good")
    advance = Leader.advance

    async def fail(home: Leader, now: float, *, may_leap: bool) -> bool:
        if home is first.state(bad).leader:
            raise InternalError("rows of 1..2 in epoch (3, 4]")
        return await advance(home, now, may_leap=may_leap)

    with mock.patch.object(Leader, "advance", fail):
        await client.post_event(bad, rows([(1, 1)]), boundary=1)
        await until(first.state(bad).at_rest.is_set)
    with pytest.raises(MedusaError, match="stands still here: InternalError: rows"):
        await post(client, bad, range(2, 4))
    events = [event.text for event in first.up.engine.overlay.events.recent()]
    assert any(f"stopped {bad}" in text for text in events)
    other = await cluster.client(places[1])
    posted = await post(other, good, range(1, 4))
    assert await received(other.subscribe(good), 3) == posted

"""Streams with replicas at whole peers: the leader dies, its replica goes on with all of it,
once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from engine_peers import Place, Town, make_stream, received, rows, until
from leaders_town import QUIET_S, keeper, new_leader, replicas_of, state_at

from engine.replication.leaders.ballot import SourceTerm
from engine.replication.leaders.logs import StoredBallot
from engine.replication.leaders.messages import TELL, AskVote, Install, Tell, Told
from engine.streams.replica import Replica
from engine.streams.stream_state import Role
from overlay.errors import InvalidInputError, StorageFullError
from overlay.files import load_json, save_json
from tools.client.async_client import open_medusa

pytestmark = pytest.mark.town(leader_silence_s=QUIET_S)


async def test_a_stream_with_replicas_is_posted_to_and_read(places: list[Place]) -> None:
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        await client.post_event(stream, rows([(5, 1), (3, 2)]))
        await client.post_event(stream, rows([(9, 3)]), boundary=9)
        await client.flush()
        subscription = client.subscribe(stream)
        assert await received(subscription, 3) == [(3, 2), (5, 1), (9, 3)]
        (replica,) = replicas_of(places, stream, first)
        state = state_at(replica, stream)
        assert state.role is Role.REPLICA
        await until(lambda: state.log.boundary == 9, "the replica cuts its log as well")
        assert state.leader is not None
        assert state.leader.source.segments == state_at(first, stream).leader.source.segments  # type: ignore[union-attr]


async def test_too_few_peers(town: Town) -> None:
    places = await town.siblings(2)
    client = await town.client(places[0])
    with pytest.raises(InvalidInputError, match=r"k_safety 1 needs 3 peers of mit.edu; 2 are"):
        await make_stream(client, places[0], "s", k_safety=1)
    with pytest.raises(InvalidInputError, match="k_safety is 0 to 3"):
        await make_stream(client, places[0], "t", k_safety=4)


async def test_the_replica_takes_over_with_all_that_was_acknowledged(
    town: Town, places: list[Place]
) -> None:
    first, second, third = places
    poster, reader = await town.clients(second, third)
    stream = await make_stream(poster, first, "s", k_safety=1, leader=first.id)
    subscription = reader.subscribe(stream)
    for number in range(1, 11):
        await poster.post_event(stream, rows([(number, number)]), boundary=number)
    assert await received(subscription, 10) == [(n, n) for n in range(1, 11)]
    await town.stop(first)
    home = await new_leader(places, stream)
    assert home is second or home is third
    for number in range(11, 21):
        await poster.post_event(stream, rows([(number, number)]), boundary=number)
    await poster.flush()
    assert await received(subscription, 10) == [(n, n) for n in range(11, 21)]
    # the old leader comes back, and is a replica when the new one dies
    await town.start(first)
    await until(lambda: keeper(first, stream).election.leader == home.id, "it hears")
    assert state_at(first, stream).role is Role.REPLICA


async def test_home_after_home_dies_and_everything_is_there_once(town: Town) -> None:
    """Each in turn, while posts are under way, seen from a peer that is none of its voters."""
    peers = await town.siblings(4)
    async with peers[0].client() as client:
        stream = await make_stream(client, peers[0], "s", k_safety=1)
    voters = keeper(peers[0], stream).election.ballot.voters
    places = [place for place in peers if place.id in voters]
    (side,) = [place for place in peers if place.id not in voters]
    client = await town.client(side)
    subscription = client.subscribe(stream)
    number, found = 0, []
    for _ in range(3):
        home = await new_leader(places, stream)
        for _ in range(10):
            number += 1
            await client.post_event(stream, rows([(number, number)]), boundary=number)
        await town.stop(home)
        for _ in range(10):
            number += 1
            await client.post_event(stream, rows([(number, number)]), boundary=number)
        await client.flush()
        found += await received(subscription, 20)
        await town.start(home)
    assert found == [(n, n) for n in range(1, number + 1)]


async def test_a_client_whose_peer_dies_posts_through_another(
    town: Town, places: list[Place]
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
                await town.stop(first)
        await client.flush()
        assert await received(subscription, 40) == [(n, n) for n in range(1, 41)]


async def test_late_tuples_and_clock_boundaries_are_the_same_at_the_next_home(
    town: Town,
    places: list[Place],
) -> None:
    client = await town.client(places[2])
    stream = await make_stream(client, places[0], "s", k_safety=1, leader=places[0].id)
    await client.post_event(stream, rows([(100, 1)]), boundary=100)
    await client.post_event(stream, rows([(50, 2), (150, 3)]))
    await client.flush()
    assert await received(client.subscribe(stream), 1) == [(100, 1)]
    before = await received(client.subscribe(f"{stream}/late"), 1)
    await town.stop(places[0])
    await new_leader(places, stream)
    await client.post_event(stream, rows([(60, 4)]), boundary=200)
    await client.flush()
    assert await received(client.subscribe(stream), 2) == [(100, 1), (150, 3)]
    late = await received(client.subscribe(f"{stream}/late"), 2)
    assert late[0] == before[0], "its time of arrival as well"
    assert [value for _, value in late] == [2, 4]


async def test_posts_wait_for_a_replica_whose_disk_is_full(
    places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        await client.post_event(stream, rows([(1, 1)]))
        await client.flush()
        full = True
        follow = Replica.follow

        def refuse(self: Replica, *args: Any) -> None:
            if full:
                raise StorageFullError("no room for a journal")
            follow(self, *args)

        monkeypatch.setattr(Replica, "follow", refuse)
        await client.post_event(stream, rows([(2, 2)]), boundary=2)
        await until(lambda: "no room" in keeper(first, stream).trouble)
        with trio.move_on_after(QUIET_S):
            await client.flush()
            raise AssertionError("it was acknowledged")
        assert state_at(first, stream).log.boundary < 2, "and nobody saw it"
        full = False
        await client.flush()
        assert await received(client.subscribe(stream), 2) == [(1, 1), (2, 2)]


async def test_an_elector_that_claims_a_term_of_the_future_stops_nobody(
    town: Town, places: list[Place]
) -> None:
    """Nobody could be leader after it; a vote for it that was given before is not kept to."""
    first, second, third = places
    client = await town.client(third)
    stream = await make_stream(client, first, "s", k_safety=1, leader=first.id)
    await client.post_event(stream, rows([(1, 1)]), boundary=1)
    await client.flush()
    members = (third.id, second.id)
    for message in (AskVote(2**62), Install(SourceTerm(2**62, third.id, members[1:]))):
        for place in (first, second):
            connection = await third.up.engine.overlay.connect(bytes.fromhex(place.id))
            with pytest.raises(InvalidInputError, match="of the future: check the clock"):
                await connection.call(TELL, Tell(stream, message), Told)
    await town.stop(second)
    (file,) = (second.home.data / "ballots").glob("*.json")
    stored = load_json(file, StoredBallot, mend="")
    ballot = msgspec.structs.replace(stored.ballot, promised=2**62, voted=third.id)
    save_json(file, msgspec.structs.replace(stored, ballot=ballot))
    await town.start(second)
    await client.post_event(stream, rows([(2, 2)]), boundary=2)
    await client.flush()
    await town.stop(first)
    await new_leader(places, stream)
    await client.post_event(stream, rows([(3, 3)]), boundary=3)
    await client.flush()
    assert await received(client.subscribe(stream), 3) == [(1, 1), (2, 2), (3, 3)]

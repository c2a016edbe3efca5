"""Streams with replicas survive worse faults than a leader that dies."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import trio
from damaged_files import flip
from engine_peers import Cluster, Place, make_stream, received, rows, send_rows, until
from leaders_cluster import QUIET_S, new_leader, post, replicas_of, state_at, voter

from medusa.engine.streams.source.replica import Replica
from medusa.engine.streams.source.sources import journal_folders

pytestmark = pytest.mark.cluster(leader_silence_s=QUIET_S)


def lose_disk(place: Place) -> None:
    """Delete all that the peer kept of streams, but not its identity."""
    data = place.home.data
    kept = [data / name for name in ("streams", "ballots", "leases.json")]
    for path in [*kept, *data.glob("*.inventory"), data.with_name("data.inventory")]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


async def test_a_stream_of_k_2_loses_two_peers_at_once(cluster: Cluster) -> None:
    places = await cluster.siblings(5)
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=2)
        posted = await post(client, stream, range(1, 11))
    replica, _ = replicas_of(places, stream, first)
    async with trio.open_nursery() as nursery:
        for place in (first, replica):
            nursery.start_soon(cluster.stop, place)
    home = await new_leader(places, stream)
    async with home.client() as client:
        posted += await post(client, stream, range(11, 21))
        assert await received(client.subscribe(stream), 20) == posted
    assert len(replicas_of(places, stream, home)) == 2
    for place in (first, replica):
        await cluster.start(place)
    await until(lambda: voter(first, stream).election.leader == home.id)


async def test_the_next_leader_knows_the_position_of_a_producer(
    cluster: Cluster, places: list[Place]
) -> None:
    first = places[0]
    async with first.client(producer="p") as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        poster = await client.poster(stream)
        assert await poster.resume() is None
        await poster.post(rows([(1, 1)]), offset_after=lambda _: b"1 row")
        await poster.flush()
    await cluster.stop(first)
    home = await new_leader(places, stream)
    async with home.client(producer="p") as client:
        assert await (await client.poster(stream)).resume() == b"1 row"


async def test_a_leader_whose_replica_lost_its_disk_recruits_another(
    cluster: Cluster, places: list[Place]
) -> None:
    """The peer does not know that it is a voter any more; the two others are a quorum."""
    first = places[0]
    client = await cluster.client(first)
    stream = await make_stream(client, first, "s", k_safety=1)
    posted = await post(client, stream, range(1, 6))
    (replica,) = replicas_of(places, stream, first)
    await cluster.stop(replica)
    lose_disk(replica)
    await cluster.start(replica)
    posted += await post(client, stream, range(6, 11))
    (other,) = replicas_of(places, stream, first)
    assert other is not replica
    assert await received(client.subscribe(stream), 10) == posted


async def test_a_replica_that_lost_its_journal_gets_it_again(
    cluster: Cluster, places: list[Place]
) -> None:
    """It does not lose its ballot: it must not forget its vote."""
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        posted = await post(client, stream, range(1, 6))
        (replica,) = replicas_of(places, stream, first)
        (witness,) = [place for place in places if place not in (first, replica)]
        await cluster.stop(witness)
        await cluster.stop(replica)
        shutil.rmtree(replica.home.data / "streams")
        await cluster.start(replica)
        posted += await post(client, stream, range(6, 11))
        assert replicas_of(places, stream, first) == [replica]
        await until(lambda: state_at(replica, stream).log.boundary == 10)
    await cluster.start(witness)
    await cluster.stop(first)
    client = await cluster.client(replica)
    posted += await post(client, stream, range(11, 16))
    assert await received(client.subscribe(stream), 15) == posted


async def test_posts_go_as_fast_as_a_slow_replica_and_none_is_lost(
    cluster: Cluster, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        follow = Replica.follow

        async def slowly(function: Any, *args: Any, **more: Any) -> Any:
            if getattr(function, "__func__", None) is follow:
                await trio.sleep(0.05)
            return await real(function, *args, **more)

        real = trio.to_thread.run_sync
        monkeypatch.setattr("medusa.engine.replication.leaders.following.INLINE_BYTES", 0)
        monkeypatch.setattr(trio.to_thread, "run_sync", slowly)
        posted = await post(client, stream, range(1, 41))
        home = voter(first, stream)
        assert home.is_leader, "slow is not lost"
        assert home.election.commitment.committed == home.logs.leader.source.journal.position
        await cluster.stop(first)
    monkeypatch.undo()
    leader_now = await new_leader(places, stream)
    client = await cluster.client(leader_now)
    assert await received(client.subscribe(stream), 40) == posted


async def test_a_member_that_lost_a_part_of_its_journal_does_not_become_leader(
    cluster: Cluster, places: list[Place]
) -> None:
    """A loss of power without `engine.fsync` leaves such a journal; the old leader has all
    entries."""
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        posted = await post(client, stream, range(1, 6))
    (replica,) = replicas_of(places, stream, first)
    journals = list((replica.home.data / "streams").glob("*@home/journal*/*.journal"))
    assert journals
    await cluster.stop(first)
    await cluster.stop(replica)
    for path in journals:
        path.write_bytes(b"torn")
    await cluster.start(replica)
    await until(lambda: voter(replica, stream).election.ballot.joined == 0)
    text = "what it had as a replica is not whole"
    events = replica.up.engine.overlay.events.recent()
    assert any(text in event.text for event in events)
    await cluster.start(first)
    home = await new_leader(places, stream)
    client = await cluster.client(home)
    posted += await post(client, stream, range(6, 11))
    assert await received(client.subscribe(stream), 10) == posted


async def test_all_members_are_stopped_at_once_and_come_back(
    cluster: Cluster, places: list[Place]
) -> None:
    """Tuples that no log has yet wait in the journals for their boundary."""
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        await client.post_event(stream, rows([(1, 1), (2, 2)]))
        await send_rows(client, stream, [(2, 3)])
    for place in places:
        await cluster.stop(place)
    for place in places:
        await cluster.start(place)
    home = await new_leader(places, stream)
    client = await cluster.client(home)
    await send_rows(client, stream, [(9, 4)], boundary=9)
    assert await received(client.subscribe(stream), 4) == [(1, 1), (2, 2), (2, 3), (9, 4)]


async def test_a_founder_that_led_alone_leads_again_with_its_journal(
    cluster: Cluster, places: list[Place]
) -> None:
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        await send_rows(client, stream, [(5, 1)])
    (replica,) = replicas_of(places, stream, first)
    async with trio.open_nursery() as nursery:
        for place in (first, replica):
            nursery.start_soon(cluster.stop, place)
    await cluster.start(first)
    home = await new_leader([place for place in places if place is not replica], stream)
    client = await cluster.client(home)
    await send_rows(client, stream, [(9, 4)], boundary=9)
    assert await received(client.subscribe(stream), 2) == [(5, 1), (9, 4)]


async def test_a_closed_engine_receives_nothing_of_other_peers(
    cluster: Cluster, places: list[Place]
) -> None:
    engine = places[0].up.engine
    assert len(engine.overlay.gossip.changed) > 0
    await cluster.stop(places[0])
    assert len(engine.overlay.gossip.changed) == 0


def said(place: Place) -> str:
    return "\n".join(event.text for event in place.up.engine.overlay.events.recent())


async def test_a_leader_whose_journal_is_damaged_gets_the_entry_again(
    cluster: Cluster, places: list[Place]
) -> None:
    """The damaged entry was settled and not in the log yet, so the rest of the journal is not
    enough."""
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        for number in range(10):
            await client.post_event(stream, rows([(number, number)]), boundary=0)
        await client.flush()
        segment, end = state_at(first, stream).leader.source.journal.position  # type: ignore[union-attr]
        journal = voter(first, stream).election.ballot.journal
    (replica,) = replicas_of(places, stream, first)
    await cluster.stop(replica)
    await cluster.stop(first)
    folder, _ = journal_folders(first.home.data / "streams/mit.edu,s@home", journal)
    flip(folder / f"{segment:012}.journal", end - 300)
    await cluster.start(first)
    await until(lambda: voter(first, stream).election.ballot.joined == 0)
    assert "bytes from byte" in said(first)
    await cluster.start(replica)
    await until(lambda: voter(first, stream).election.ballot.joined > 0)
    home = await new_leader(places, stream)
    client = await cluster.client(home)
    await send_rows(client, stream, [(10, 10)], boundary=10)
    assert await received(client.subscribe(stream), 11) == [(n, n) for n in range(11)]


async def test_a_leader_that_finds_its_journal_damaged_lets_another_peer_lead(
    cluster: Cluster, places: list[Place]
) -> None:
    """The leader finds the damage when it reads the journal for another replica."""
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        posted = await post(client, stream, range(1, 11))
        (replica,) = replicas_of(places, stream, first)
        (path,) = (first.home.data / "streams").glob("mit.edu,s@home/journal*/*.journal")
        flip(path, path.stat().st_size // 2)
        await cluster.stop(replica)
        await until(lambda: "is damaged after byte" in said(first))
    await cluster.start(replica)
    await new_leader(places, stream)
    async with replica.client() as client:
        posted += await post(client, stream, range(11, 16))
        assert await received(client.subscribe(stream), 15) == posted
    assert voter(first, stream).election.leader == replica.id

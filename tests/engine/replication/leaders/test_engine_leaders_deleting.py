"""Streams with replicas are deleted by a quorum, for good; ended ones are reopened at every voter,
unless a reader received the end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import trio
from engine_peers import (
    Cluster,
    Place,
    make_stream,
    next_rows,
    received,
    rows,
    schema_of,
    send_rows,
    to_the_end,
    until,
)
from leaders_cluster import (
    QUIET_S,
    new_leader,
    once_confirmed,
    replicas_of,
    serves_as_leader,
    state_at,
    voter,
)
from msgspec.structs import replace
from revised_streams import changes_of, deletions

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.replication.leaders import changing
from medusa.engine.replication.leaders.ballot import Ballot
from medusa.engine.streams.journal.journal import Position
from medusa.engine.streams.store.folders import StreamFolders
from medusa.engine.streams.store.store import REPLICATED
from medusa.engine.streams.store.stream_state import LogKey
from medusa.overlay.errors import (
    ConflictError,
    MedusaError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = pytest.mark.cluster(leader_silence_s=QUIET_S)


def folder(place: Place, stream: str) -> Path:
    return place.up.engine.store.folders.of(LogKey(stream, REPLICATED))


def ballot(place: Place, stream: str) -> Ballot:
    return place.up.engine.leaders._voters[stream].election.ballot


async def gone(client: AsyncMedusaClient, stream: str) -> None:
    for name in (stream, f"{stream}/late"):
        with pytest.raises(NotFoundError):
            await client.stream_entry(name)


async def none_left(places: list[Place], stream: str) -> None:
    await until(lambda: all(ballot(place, stream).deleted for place in places))
    await until(lambda: not any(folder(place, stream).exists() for place in places))


async def posted(client: AsyncMedusaClient, home: Place, path: str = "s") -> str:
    stream = await make_stream(client, home, path, k_safety=1)
    await client.post_event(stream, rows([(5, 1), (9, 2)]), boundary=9)
    await send_rows(client, stream, [(1, 3)])
    await until(lambda: serves_as_leader(home, stream))
    return stream


async def test_a_deleted_stream_is_gone_at_all_peers_and_for_good(
    cluster: Cluster, places: list[Place]
) -> None:
    home, *others = places
    async with home.client() as near, others[-1].client() as far:
        stream = await posted(near, home)
        assert sum(folder(place, stream).exists() for place in places) == 2
        await far.delete_stream(stream)
        await none_left(places, stream)
        await gone(far, stream)
    for place in places:
        await cluster.restart(place)
    await cluster.acquainted(*places)
    await trio.sleep(1.5)  # several silence times: no replica may become a candidate
    await none_left(places, stream)
    async with home.client() as near:
        await gone(near, stream)
        with pytest.raises(MedusaError, match="was deleted, and a voter"):
            await make_stream(near, home, "s", k_safety=1)
        await make_stream(near, home, "s")
        await send_rows(near, stream, [(7, 7)], boundary=9)
        assert await received(near.subscribe(stream), 1) == [(7, 7)]
    await cluster.restart(home)
    near = await cluster.client(home)
    assert (await near.stream_entry(stream)).stream.k_safety == 0, "the new one stays"


async def test_the_streams_beside_a_revised_stream_are_deleted_with_it(
    cluster: Cluster, places: list[Place]
) -> None:
    home = places[0]
    async with home.client() as client:
        schema = replace(schema_of("mit.edu"), key=("t",))
        await client.create_schema(schema)
        stream = home.name("s")
        await client.create_stream(StreamDefinition(stream, schema.name, k_safety=1))
        await client.post_event(stream, rows([(5, 1), (9, 2)]), boundary=9)
        assert await client.post_revisions(stream, deletions([5])) == []
        await send_rows(client, stream, [(20, 3)], boundary=20)
        revisions = f"{stream}/revisions"
        reading = client.subscribe(revisions, subscriber="me")
        assert changes_of(await next_rows(reading))[0][1:] == ("DELETION", 5, 1)
        with pytest.raises(
            ConflictError, match=f"{revisions} is read, end that first: subscriber me"
        ):
            await client.delete_stream(stream)
        reading.close()
        home.up.engine.subscriptions.forget(revisions)  # the test lets the lease expire
        await once_confirmed(client.delete_stream, stream, ConflictError)
        await none_left(places, stream)
        for name in (stream, f"{stream}/late", revisions):
            with pytest.raises(NotFoundError):
                await client.stream_entry(name)
    for place in places:
        await cluster.restart(place)
    await cluster.acquainted(*places)
    assert all(stream not in own_names(place) for place in places)
    assert all(revisions not in own_names(place) for place in places)


def own_names(place: Place) -> tuple[str, ...]:
    return tuple(place.up.engine.catalog.own_names().get("stream", ()))


async def test_an_alteration_that_a_deletion_overtakes_is_not_announced(
    places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another voter may complete the deletion, so a lock at the leader is not enough."""
    home = places[0]
    async with home.client() as client:
        stream = await posted(client, home)
        its = voter(home, stream)
        acknowledged, everywhere = its.news.acknowledged, trio.Event()

        async def slowly(upto: Position) -> None:
            await acknowledged(upto)
            everywhere.set()
            await its.cleared.wait()

        monkeypatch.setattr(its.news, "acknowledged", slowly)
        async with trio.open_nursery() as nursery:

            async def alter() -> None:
                with pytest.raises(NotFoundError, match="is deleted"):
                    await changing.alter(its, Alteration(slack_us=7))

            nursery.start_soon(alter)
            await everywhere.wait()
            await changing.delete(its)
        assert all(stream not in own_names(place) for place in places)
        await gone(client, stream)


async def test_a_reader_is_named_and_prevents_the_deletion(places: list[Place]) -> None:
    home = places[0]
    async with home.client() as client:
        stream = await posted(client, home)
        subscription = client.subscribe(stream, subscriber="me")
        await received(subscription, 2)
        with pytest.raises(
            ConflictError, match=r"is read, end that first: subscriber me of mit\.edu"
        ):
            await client.delete_stream(stream)
        assert voter(home, stream).is_leader
        subscription.close()
        await send_rows(client, stream, [(12, 4)], boundary=20)


async def test_without_a_majority_nothing_changes(cluster: Cluster, places: list[Place]) -> None:
    home, *others = places
    async with home.client() as client:
        stream = await posted(client, home)
        silent = sorted(place.id for place in others)
        for place in others:
            await cluster.stop(place)
        election = voter(home, stream).election
        await until(lambda: not election.is_confirmed(trio.current_time()))
        await until(lambda: election.down == tuple(silent))
        with pytest.raises(UnavailableError, match=f", and {in_words(silent)} "):
            await client.delete_stream(stream)
        assert not ballot(home, stream).deleted
        for place in others:
            await cluster.start(place)
        await cluster.acquainted(*places)
        at_home = await new_leader(places, stream)
    client = await cluster.client(at_home)
    assert await received(client.subscribe(stream), 2) == [(5, 1), (9, 2)]


@pytest.mark.parametrize("away", ["replica", "witness"])
async def test_a_voter_that_was_away_learns_of_the_deletion(
    cluster: Cluster, places: list[Place], away: str
) -> None:
    home = places[0]
    async with home.client() as client:
        stream = await posted(client, home)
        (replica,) = replicas_of(places, stream, home)
        absent = replica if away == "replica" else next(p for p in places[1:] if p is not replica)
        await cluster.stop(absent)
        home = await new_leader(places, stream)
        await once_confirmed(client.delete_stream, stream, ConflictError)
    await cluster.stop(home)  # the peer that decided the deletion is away when the other peer asks
    await cluster.start(absent)
    await none_left([place for place in places if place is not home], stream)
    await cluster.start(home)
    await none_left(places, stream)


async def test_a_leader_dies_in_the_middle_of_a_deletion(
    cluster: Cluster, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quorum has stored that the stream is to be deleted, and no voter knows yet that it is a
    quorum."""
    home, *others = places
    async with home.client() as client:
        stream = await posted(client, home)
        its = voter(home, stream)
        with monkeypatch.context() as patching:
            patching.setattr(its.election, "_take_installed", lambda *_: [])
            waited_for = in_words(place.id for place in others)
            with pytest.raises(UnavailableError, match=f"of its voters, and {waited_for} "):
                await client.delete_stream(stream)
            assert all(_asked(ballot(place, stream)) for place in others)
            await cluster.stop(home)
    await none_left(others, stream)
    await cluster.start(home)
    await cluster.acquainted(*places)
    await none_left(places, stream)
    client = await cluster.client(home)
    await gone(client, stream)


def in_words(peers: Iterable[str]) -> str:
    return ", ".join(f"peer {peer[:8]}" for peer in sorted(peers))


def _asked(found: Ballot) -> bool:
    return found.deleted or (found.term is not None and found.term.deleted)


async def test_a_crash_before_the_files_are_gone(
    cluster: Cluster, places: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = places[0]
    async with home.client() as client:
        stream = await posted(client, home)
        with monkeypatch.context() as patching:
            patching.setattr(StreamFolders, "remove", _nothing)
            with pytest.raises(StorageError, match="its files stay"):
                await client.delete_stream(stream)
            assert ballot(home, stream).deleted
            assert folder(home, stream).exists()
            await cluster.stop(home)
    await cluster.start(home)
    await none_left([home], stream)
    await until(lambda: stream not in home.up.engine.catalog.own_names().get("stream", ()))


async def _nothing(_folders: StreamFolders, _key: str) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.cluster(lease_s=2.0)
async def test_a_new_leader_waits_for_the_readers_of_the_last_one(
    cluster: Cluster, places: list[Place]
) -> None:
    home = places[0]
    async with home.client() as client:
        stream = await posted(client, home)
    await cluster.stop(home)
    second = await new_leader(places, stream)
    async with second.client() as client:
        with pytest.raises(ConflictError, match="readers of the last one may come back for up to"):
            await client.delete_stream(stream)
        await once_confirmed(client.delete_stream, stream, ConflictError)
    await cluster.start(home)
    await none_left(places, stream)


TOLD = r"has ended, and that was told a subscriber of mit\.edu, whose answers may depend"


def has_end(place: Place, stream: str) -> bool:
    home = state_at(place, stream).leader
    return home is not None and home.logs.have_end


async def ended(client: AsyncMedusaClient, home: Place, path: str = "s") -> str:
    stream = await make_stream(client, home, path, k_safety=1)
    await client.post_event(stream, rows([(5, 1), (9, 2)]), boundary=9)
    await send_rows(client, stream, end=True)
    await until(lambda: has_end(home, stream))
    return stream


async def test_a_reopened_stream_goes_on_at_every_voter_over_restarts(
    cluster: Cluster, places: list[Place]
) -> None:
    home, *others = places
    async with home.client() as near, others[-1].client() as far:
        stream = await ended(near, home)
        (replica,) = replicas_of(places, stream, home)
        await until(lambda: has_end(replica, stream))
        await once_confirmed(far.reopen_stream, stream)
        await far.reopen_stream(stream)  # the stream is open already: no change
        home = await new_leader(places, stream)
        assert state_at(home, stream).log.boundary == 9
        await send_rows(near, stream, [(9, 3), (12, 4)], boundary=20)
    for place in places:
        await cluster.restart(place)
    await cluster.acquainted(*places)
    home = await new_leader(places, stream)
    await cluster.stop(home)
    last = await new_leader(places, stream, besides=home)
    client = await cluster.client(last)
    await send_rows(client, stream, [(30, 5)], end=True)
    assert await to_the_end(client.subscribe(stream)) == [(5, 1), (9, 2), (12, 4), (30, 5)]


async def test_a_reader_that_received_the_end_is_named_by_any_leader(
    cluster: Cluster, places: list[Place]
) -> None:
    home = places[0]
    async with home.client() as client:
        stream = await ended(client, home)
        assert await to_the_end(client.subscribe(stream)) == [(5, 1), (9, 2)]
        for _ in range(2):
            with pytest.raises(ConflictError, match=r"was told a subscriber of mit\.edu, whose"):
                await once_confirmed(client.reopen_stream, stream)
    await cluster.stop(home)
    second = await new_leader(places, stream, besides=home)
    await cluster.start(home)
    await cluster.acquainted(*places)
    client = await cluster.client(second)
    with pytest.raises(ConflictError, match=TOLD):
        await once_confirmed(client.reopen_stream, stream)
    home = await new_leader(places, stream)
    assert has_end(home, stream), "it has a leader again"


async def test_a_voter_that_is_away_is_named(cluster: Cluster, places: list[Place]) -> None:
    home = places[0]
    client = await cluster.client(home)
    stream = await ended(client, home)
    witness = next(p for p in places[1:] if p not in replicas_of(places, stream, home))
    away = witness.id
    await cluster.stop(witness)
    unconfirmed = voter(home, stream).election.mandate.unconfirmed
    await until(lambda: unconfirmed(trio.current_time()) == (away,))
    with pytest.raises(UnavailableError, match=f"and peer {away[:8]} did not answer"):
        await client.reopen_stream(stream)
    assert serves_as_leader(home, stream), "nothing has changed"
    await cluster.start(witness)
    await cluster.acquainted(*places)
    await once_confirmed(client.reopen_stream, stream)


async def test_a_stream_that_is_revised_goes_on(places: list[Place]) -> None:
    home = places[0]
    async with home.client() as client:
        schema = replace(schema_of("mit.edu"), key=("t",))
        await client.create_schema(schema)
        stream = home.name("keyed")
        await client.create_stream(StreamDefinition(stream, schema.name, k_safety=1))
        await client.post_event(stream, rows([(5, 1), (9, 2)]), boundary=9)
        assert await client.post_revisions(stream, deletions([5])) == []
        await send_rows(client, stream, end=True)
        await until(lambda: has_end(home, stream))
        await once_confirmed(client.reopen_stream, stream)
        await client.post_event(stream, rows([(12, 3)]), boundary=20)
        assert await client.post_revisions(stream, deletions([9])) == []
        await send_rows(client, stream, end=True)
        assert await to_the_end(client.subscribe(stream)) == [(5, 1), (9, 2), (12, 3)]
        beside = [epoch.table async for epoch in client.subscribe(f"{stream}/revisions")]
        changes = [change[1:] for table in beside for change in changes_of(table)]
        assert changes == [("DELETION", 5, 1), ("DELETION", 9, 2)]

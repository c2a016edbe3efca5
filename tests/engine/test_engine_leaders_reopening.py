"""Streams with replicas that have ended and go on: at every voter, unless somebody was told."""

from __future__ import annotations

import pytest
import trio
from engine_peers import Place, Town, make_stream, rows, schema_of, to_the_end, until
from leaders_town import (
    QUIET_S,
    keeper,
    new_leader,
    once_confirmed,
    replicas_of,
    serves_as_leader,
    state_at,
)
from msgspec.structs import replace
from revised_streams import changes_of, deletions

from engine.objects.definitions import StreamDefinition
from overlay.errors import ConflictError, UnavailableError
from tools.client.async_client import AsyncMedusaClient

pytestmark = pytest.mark.town(leader_silence_s=QUIET_S)


TOLD = r"has ended, and that was told a subscriber of mit\.edu, whose answers may depend"


def has_end(place: Place, stream: str) -> bool:
    home = state_at(place, stream).leader
    return home is not None and home.end_is_logged


async def ended(client: AsyncMedusaClient, home: Place, path: str = "s") -> str:
    stream = await make_stream(client, home, path, k_safety=1)
    await client.post_event(stream, rows([(5, 1), (9, 2)]), boundary=9)
    await client.post_event(stream, None, end=True)
    await client.flush()
    await until(lambda: has_end(home, stream))
    return stream


async def test_it_goes_on_at_every_elector_over_restarts_and_homes(
    town: Town, places: list[Place]
) -> None:
    home, *others = places
    async with home.client() as near, others[-1].client() as far:
        stream = await ended(near, home)
        (replica,) = replicas_of(places, stream, home)
        await until(lambda: has_end(replica, stream))
        await once_confirmed(far.reopen_stream, stream)
        await far.reopen_stream(stream)  # it is as it should be
        home = await new_leader(places, stream)
        assert state_at(home, stream).log.boundary == 9
        await near.post_event(stream, rows([(9, 3), (12, 4)]), boundary=20)
        await near.flush()
    for place in places:
        await town.restart(place)
    await town.acquainted(*places)
    home = await new_leader(places, stream)
    await town.stop(home)
    last = await new_leader(places, stream, besides=home)
    client = await town.client(last)
    await client.post_event(stream, rows([(30, 5)]), end=True)
    await client.flush()
    assert await to_the_end(client.subscribe(stream)) == [(5, 1), (9, 2), (12, 4), (30, 5)]


async def test_who_was_told_of_the_end_is_named_whoever_is_home(
    town: Town, places: list[Place]
) -> None:
    home = places[0]
    async with home.client() as client:
        stream = await ended(client, home)
        assert await to_the_end(client.subscribe(stream)) == [(5, 1), (9, 2)]
        for _ in range(2):
            with pytest.raises(ConflictError, match=r"was told a subscriber of mit\.edu, whose"):
                await once_confirmed(client.reopen_stream, stream)
    await town.stop(home)
    second = await new_leader(places, stream, besides=home)
    await town.start(home)
    await town.acquainted(*places)
    client = await town.client(second)
    with pytest.raises(ConflictError, match=TOLD):
        await once_confirmed(client.reopen_stream, stream)
    home = await new_leader(places, stream)
    assert has_end(home, stream), "it has a leader again"


async def test_an_elector_that_is_away_is_named(town: Town, places: list[Place]) -> None:
    home = places[0]
    client = await town.client(home)
    stream = await ended(client, home)
    witness = next(p for p in places[1:] if p not in replicas_of(places, stream, home))
    away = witness.id
    await town.stop(witness)
    unconfirmed = keeper(home, stream).election.unconfirmed
    await until(lambda: unconfirmed(trio.current_time()) == (away,))
    with pytest.raises(UnavailableError, match=f"and peer {away[:8]} did not answer"):
        await client.reopen_stream(stream)
    assert serves_as_leader(home, stream), "nothing has changed"
    await town.start(witness)
    await town.acquainted(*places)
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
        await client.post_event(stream, None, end=True)
        await client.flush()
        await until(lambda: has_end(home, stream))
        await once_confirmed(client.reopen_stream, stream)
        await client.post_event(stream, rows([(12, 3)]), boundary=20)
        assert await client.post_revisions(stream, deletions([9])) == []
        await client.post_event(stream, None, end=True)
        await client.flush()
        assert await to_the_end(client.subscribe(stream)) == [(5, 1), (9, 2), (12, 3)]
        beside = [epoch.table async for epoch in client.subscribe(f"{stream}/revisions")]
        changes = [change[1:] for table in beside for change in changes_of(table)]
        assert changes == [("DELETION", 5, 1), ("DELETION", 9, 2)]

"""Queries and clients at the voters of a stream read it from whoever is leader."""

from __future__ import annotations

from unittest import mock

import pytest
import trio
from engine_peers import Place, Town, make_stream, pairs_of, received, rows, until
from leaders_town import (
    QUIET_S,
    keeper,
    new_leader,
    post,
    replicas_of,
    state_at,
    take_over,
)

from engine.objects.schema import BEGINNING
from engine.streams.leader import Leader
from engine.streams.retention import Hold
from engine.streams.stream_state import StreamState
from overlay.errors import InternalError, MedusaError

pytestmark = pytest.mark.town(leader_silence_s=QUIET_S)


async def follow(place: Place, stream: str) -> StreamState:
    """As a query at that peer reads it."""
    entry = await place.up.engine.directory.entry(stream)
    mirror = await place.up.engine.followers.follow(entry, "a query")
    mirror.log.hold(Hold("task", "a"), BEGINNING)
    return mirror


def read(state: StreamState) -> list[tuple[int, int]]:
    found, after = [], BEGINNING
    while (epoch := state.log.read(after)) is not None:
        found += pairs_of(epoch.table)
        after = epoch.upto
    return found


async def test_a_witness_that_reads_the_stream_can_become_its_replica_and_its_home(
    town: Town,
    places: list[Place],
) -> None:
    """A witness follows the stream for its own query, apart from its state as a voter."""
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1)
        (replica,) = replicas_of(places, stream, first)
        (witness,) = [place for place in places if place not in (first, replica)]
        mirror = await follow(witness, stream)
        posted = await post(client, stream, range(1, 6))
        await town.stop(replica)
        await until(lambda: witness in replicas_of(places, stream, first), "it is recruited")
        posted += await post(client, stream, range(6, 11))
        await until(lambda: read(mirror) == posted, "the query goes on")
    await town.start(replica)
    await town.stop(first)
    home = await new_leader(places, stream)
    async with home.client() as client:
        posted += await post(client, stream, range(11, 21))
        assert await received(client.subscribe(stream), 20) == posted
        await until(lambda: read(mirror) == posted, "whoever is leader")
    await until(lambda: read(state_at(witness, stream)) == posted)


@pytest.mark.parametrize("stays", [True, False], ids=["as a replica", "as a witness"])
async def test_who_reads_at_a_home_reads_on_when_another_takes_over(
    town: Town, places: list[Place], stays: bool
) -> None:
    """The log of a leader that was demoted stands still where it is no replica any more."""
    client = await town.client(places[0])
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


async def test_who_reads_at_a_home_that_could_do_nothing_reads_on_when_another_takes_over(
    town: Town,
    places: list[Place],
) -> None:
    """It was cut off from its replicas and gave up, before anybody succeeded it."""
    client = await town.client(places[0])
    first = places[0]
    stream = await make_stream(client, first, "s", k_safety=1)
    subscription = client.subscribe(stream, subscriber="named")
    posted = await post(client, stream, range(1, 6))
    assert await received(subscription, 5) == posted
    (replica,) = replicas_of(places, stream, first)
    home = keeper(first, stream)
    await home._carry_out(home.election._follow(trio.current_time(), succeeded=False), None)
    await take_over(replica, stream, without=first.id)
    async with places[2].client() as there:
        later = await post(there, stream, range(6, 11))
    assert await received(subscription, 5) == later


@pytest.mark.town(lease_s=3600.0)
async def test_what_the_last_home_kept_for_readers_is_kept_for_their_lease(
    town: Town, places: list[Place]
) -> None:
    first = places[0]
    async with first.client() as client:
        stream = await make_stream(client, first, "s", k_safety=1, history_us=0)
        state_at(first, stream).log.hold(Hold("task", "a"), BEGINNING)
        await post(client, stream, range(1, 6))
        await until(lambda: state_at(first, stream).log.boundary == 5)
    await town.stop(first)
    home = await new_leader(places, stream)
    log = state_at(home, stream).log
    async with home.client() as client:
        await post(client, stream, range(6, 11))
    await until(lambda: log.boundary == 10)
    log.retain(trio.current_time())
    assert log.start < 5, "its reader is waited for"
    log.retain(trio.current_time() + 3601)
    assert log.start >= 5, "but not for ever"


async def test_a_stream_whose_log_is_spoiled_stops_and_the_peer_lives(
    town: Town, places: list[Place]
) -> None:
    client = await town.client(places[0])
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
    other = await town.client(places[1])
    posted = await post(other, good, range(1, 4))
    assert await received(other.subscribe(good), 3) == posted

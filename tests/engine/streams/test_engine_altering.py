"""Running streams are altered, at any peer that is asked, for good, and for every peer that has a
part in them."""

from __future__ import annotations

import pytest
import trio
from engine_peers import (
    DEADLINE_S,
    Cluster,
    make_stream,
    received,
    rows,
    schema_of,
    send_rows,
    until,
)
from leaders_cluster import QUIET_S, new_leader, voter

from medusa.engine.objects.alteration import Alteration, altered
from medusa.engine.objects.definitions import Idle, StreamDefinition
from medusa.engine.streams.store.stream_state import Role, StoredStream
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.files import load_json
from medusa.tools.client.async_client import AsyncMedusaClient, Subscription

pytestmark = pytest.mark.cluster(leader_silence_s=QUIET_S)


async def definition_at(client: AsyncMedusaClient, stream: str) -> StreamDefinition:
    return (await client.stream_entry(stream)).stream


async def test_any_peer_of_the_owner_alters_a_stream_for_good(cluster: Cluster) -> None:
    home, other = await cluster.settle_all("mit.edu", "mit.edu")
    async with home.client() as near, other.client() as far:
        stream = await make_stream(near, home, "s", slack_us=7)
        await far.alter_stream(stream, Alteration(slack_us=3, readers=("utah.edu",)))
        now = await definition_at(far, stream)
        assert (now.slack_us, now.readers, now.edition) == (3, ("utah.edu",), 1)
        await near.alter_stream(stream, Alteration(history_us=9, max_ahead_us=None))
        await near.alter_stream(stream, Alteration(history_us=9))
        now = await definition_at(far, stream)
        assert (now.slack_us, now.history_us, now.max_ahead_us, now.edition) == (3, 9, None, 2)
        late = await definition_at(far, f"{stream}/late")
        assert (late.readers, late.history_us) == (("utah.edu",), 9)
    await cluster.restart(home)
    assert home.state("s").entry.stream == now
    assert home.state("s").log.retention.history_us == 9
    far = await cluster.client(other)
    await far.alter_stream(stream, Alteration(writers=("*",)))
    assert (await definition_at(far, stream)).edition == 3


async def test_less_slack_counts_at_once_and_more_from_then_on(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream(slack_us=100)
    await send_rows(client, stream, [(50, 1), (60, 2)])
    assert mit.state("s").log.boundary < 50
    await client.alter_stream(stream, Alteration(slack_us=0))
    await until(lambda: mit.state("s").log.boundary == 59)
    await client.alter_stream(stream, Alteration(slack_us=50))
    await client.post_event(stream, rows([(100, 3), (61, 4)]))
    await send_rows(client, stream, [(55, 5)], boundary=100)
    subscription = client.subscribe(stream)
    assert await received(subscription, 4) == [(50, 1), (60, 2), (61, 4), (100, 3)]


async def test_a_stream_that_stood_still_goes_by_the_clock(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream(idle_timeout_us=300_000)
    now_us = int(mit.wall() * 1e6)
    await send_rows(client, stream, [(now_us, 1)])
    await client.alter_stream(stream, Alteration(idle=Idle.CLOCK))
    with trio.fail_after(DEADLINE_S):
        assert await received(client.subscribe(stream), 1) == [(now_us, 1)]


async def refused(subscription: Subscription) -> None:
    """Return once the peer refuses the reader."""
    with trio.fail_after(DEADLINE_S), pytest.raises(NotAuthorisedError):
        async for _ in subscription:
            pass


async def test_a_removed_reader_loses_its_open_calls(cluster: Cluster) -> None:
    _mit, _utah, owner, guest, stream = await cluster.owner_and_guest(
        readers=("utah.edu", "mit.edu")
    )
    await owner.post_event(stream, rows([(1, 1)]), boundary=1)
    subscription = guest.subscribe(stream)
    assert await received(subscription, 1) == [(1, 1)]
    await owner.alter_stream(stream, Alteration(readers=()))
    await refused(subscription)
    with pytest.raises(NotAuthorisedError):
        await received(guest.subscribe(stream), 1)
    await owner.alter_stream(stream, Alteration(readers=("*",)))
    assert await received(guest.subscribe(stream), 1) == [(1, 1)]


async def test_a_mirror_learns_what_its_stream_is_now(cluster: Cluster) -> None:
    _mit, utah, owner, guest, stream = await cluster.owner_and_guest()
    entry = await guest.stream_entry(stream)
    state = await utah.up.engine.followers.follow(entry, "a test")
    assert state.role is Role.FOLLOWER
    await owner.post_event(stream, rows([(1, 1)]), boundary=1)
    await until(lambda: state.log.boundary == 1)
    await owner.alter_stream(stream, Alteration(readers=("utah.edu",)))
    await until(lambda: state.entry.stream.readers == ("utah.edu",))
    await owner.post_event(stream, rows([(2, 2)]), boundary=2)
    await until(lambda: state.log.boundary == 2)
    folder = utah.up.engine.store.folders.of(state.key)
    stored = load_json(folder / "stream.json", StoredStream, mend="")
    assert stored == StoredStream(state.entry, Role.FOLLOWER), "a restart knows it too"


async def test_a_forbidden_alteration_is_refused(cluster: Cluster) -> None:
    mit, _utah, owner, guest, stream = await cluster.owner_and_guest()
    with pytest.raises(NotAuthorisedError, match=r"administered by mit\.edu"):
        await guest.alter_stream(stream, Alteration(readers=("utah.edu",)))
    with pytest.raises(InvalidInputError, match=r"slack of -1e-06 s is out of range"):
        await owner.alter_stream(stream, Alteration(slack_us=-1))
    with pytest.raises(InvalidInputError, match="kept for tuples that come late"):
        await owner.alter_stream(f"{stream}/late", Alteration(readers=()))
    with pytest.raises(NotFoundError):
        await owner.alter_stream(mit.name("none"), Alteration(readers=()))
    assert (await definition_at(owner, stream)).edition == 0
    await owner.alter_stream(stream, Alteration(slack_us=2))
    again = StreamDefinition(stream, schema_of("mit.edu").name)
    with pytest.raises(ConflictError, match="`medusa stream alter` changes what can be changed"):
        await owner.create_stream(again)


async def test_the_error_names_a_leader_that_is_away(cluster: Cluster) -> None:
    home, other = await cluster.settle_all("mit.edu", "mit.edu")
    async with home.client() as near:
        stream = await make_stream(near, home, "s")
    home_id = home.id
    async with other.client(patience_s=0.5) as far:
        await far.stream_entry(stream)
        await cluster.stop(home)
        with pytest.raises(UnavailableError, match=f"its leader, peer {home_id[:8]}, cannot be"):
            await far.alter_stream(stream, Alteration(slack_us=1))
    await cluster.start(home)
    assert home.state("s").entry.stream.edition == 0


async def test_the_next_leader_follows_the_alteration(cluster: Cluster) -> None:
    """The journal has the alteration in its place among the posts: so at the next leader, too, it
    applies to the posts after it and not to those before it."""
    peers = await cluster.siblings(4)
    async with peers[0].client() as client:
        stream = await make_stream(client, peers[0], "s", k_safety=1, slack_us=100)
    voters = voter(peers[0], stream).election.ballot.voters
    places = [place for place in peers if place.id in voters]
    (side,) = [place for place in peers if place.id not in voters]
    client = await cluster.client(side)
    first = peers[0]
    await client.post_event(stream, rows([(50, 1), (60, 2)]))
    await client.alter_stream(stream, Alteration(slack_us=5, readers=("utah.edu",)))
    assert voter(first, stream).entry.stream.edition == 1
    await send_rows(client, stream, [(70, 3), (66, 4)])
    await cluster.stop(first)
    home = await new_leader(places, stream)
    now = voter(home, stream).entry.stream
    assert (now.slack_us, now.readers, now.edition) == (5, ("utah.edu",), 1)
    await until_defined(client, now)
    await send_rows(client, stream, [(64, 5), (80, 6), (76, 7)], boundary=80)
    await client.alter_stream(stream, Alteration(readers=("*",)))
    await cluster.start(first)
    await until(lambda: voter(first, stream).election.leader == home.id)
    await cluster.stop(home)
    again = await new_leader(places, stream, besides=home)
    assert voter(again, stream).entry.stream.edition == 2
    await until_defined(client, voter(again, stream).entry.stream)
    found = await received(client.subscribe(stream), 6)
    assert found == [(50, 1), (60, 2), (66, 4), (70, 3), (76, 7), (80, 6)], "64 was late"


async def until_defined(client: AsyncMedusaClient, definition: StreamDefinition) -> None:
    """Return once the catalog has the definition."""

    async def is_defined() -> bool:
        return await definition_at(client, definition.name) == definition

    await until(is_defined)


def test_an_output_changes_its_readers_and_has_no_slack() -> None:
    output = StreamDefinition(
        "medusa://mit.edu/o", "medusa://mit.edu/x", readers=("*",), query="medusa://mit.edu/q"
    )
    assert altered(output, Alteration(readers=("utah.edu",))).readers == ("utah.edu",)
    with pytest.raises(InvalidInputError, match="it has no slack"):
        altered(output, Alteration(slack_us=1))
    assert altered(output, Alteration(readers=("*",))) is output, "nothing changes"


def test_both_one_after_the_other() -> None:
    both = Alteration(readers=("a.b",), slack_us=1).then(Alteration(slack_us=2, max_ahead_us=None))
    assert both == Alteration(readers=("a.b",), slack_us=2, max_ahead_us=None)

"""Streams and schemas are deleted, and ended streams reopened, but never under a reader."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
import trio
from engine_peers import (
    DEADLINE_S,
    Cluster,
    Place,
    make_stream,
    passing,
    received,
    rows,
    schema_of,
    send_rows,
    to_the_end,
    until,
)

from medusa.engine.objects.alteration import Alteration
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.schema import END
from medusa.engine.objects.view import Last, View
from medusa.engine.streams.store.stream_state import LogKey
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = pytest.mark.usefixtures("interpreted")


def folders(place: Place) -> list[str]:
    store = place.up.engine.store
    return sorted(path.name for path in store.folders.of(LogKey("x")).parent.iterdir())


async def gone(client: AsyncMedusaClient, stream: str) -> None:
    for name in (stream, f"{stream}/late"):
        with pytest.raises(NotFoundError):
            await client.stream_entry(name)


async def refused_for(owner: AsyncMedusaClient, stream: str, readers: str) -> None:
    """Wait until the deletion of the stream is refused because of these readers."""

    async def is_refused() -> bool:
        with pytest.raises(ConflictError) as error:
            await owner.delete_stream(stream)
        return readers in str(error.value)

    await until(is_refused)


async def test_any_peer_of_the_owner_deletes_a_stream_for_good(cluster: Cluster) -> None:
    home, other = await cluster.settle_all("mit.edu", "mit.edu")
    async with home.client() as near, other.client() as far:
        stream = await make_stream(near, home, "s")
        state = await make_stream(near, home, "kept")
        await near.post_event(stream, rows([(5, 1), (9, 2)]), boundary=9)
        await send_rows(near, stream, [(1, 3)])
        await far.delete_stream(stream)
        await gone(far, stream)
        assert folders(home) == ["mit.edu,kept"]
    await cluster.restart(home)
    near = await cluster.client(home)
    await gone(near, stream)
    assert (await near.stream_entry(state)).stream.name == state
    assert await make_stream(near, home, "s", slack_us=3) == stream
    await send_rows(near, stream, [(1, 7)], boundary=9)
    assert await received(near.subscribe(stream), 1) == [(1, 7)]


async def test_a_reader_of_a_stream_is_named_and_prevents_its_deletion(cluster: Cluster) -> None:
    mit, _utah, owner, guest, stream = await cluster.owner_and_guest()
    await owner.create_query(passing(mit, "q", stream, mit.name("out")))
    await refused_for(owner, stream, f"{mit.name('q')} (`medusa query delete {mit.name('q')}`)")
    await owner.delete_query(mit.name("q"))
    await owner.create_view(View(mit.name("v"), stream, Last(5)))
    await refused_for(owner, stream, f"{mit.name('v')} (`medusa view delete {mit.name('v')}`)")
    await owner.delete_view(mit.name("v"))
    subscription = guest.subscribe(stream, subscriber="watch")
    await owner.post_event(stream, rows([(1, 1)]), boundary=1)
    await received(subscription, 1)
    strike = f"`medusa stream alter {stream} --readers ...` without utah.edu"
    await refused_for(owner, stream, f"subscriber watch of utah.edu ({strike})")
    subscription.close()
    mine = owner.subscribe(stream, subscriber="mine")
    await received(mine, 1)
    forget = f"`medusa subscribe {stream} --subscriber mine --forget`"
    there = "connected now: end it there, then"
    await refused_for(owner, stream, f"subscriber mine of mit.edu ({there} {forget})")
    mine.close()
    plain = owner.subscribe(stream)
    await received(plain, 1)
    await refused_for(owner, stream, "a subscriber of mit.edu (connected now: end it there)")
    plain.close()
    assert mit.state("s").log.files.rows == 1, "it is all there"
    stream = await make_stream(owner, mit, "t")
    late = owner.subscribe(f"{stream}/late", subscriber="late")
    with trio.move_on_after(0.2):
        await anext(late)
    await refused_for(owner, stream, f"{stream}/late is read, end that first: subscriber late")


async def test_a_subscriber_that_is_gone_can_be_forgotten(cluster: Cluster) -> None:
    mit, utah = await cluster.settle("mit.edu"), await cluster.settle("utah.edu")
    await cluster.acquainted(mit, utah)
    owner, guest = await cluster.clients(mit, utah)
    stream = await make_stream(owner, mit, "s")
    await owner.post_event(stream, rows([(1, 1)]), boundary=1)
    for client in (owner, guest):
        desk = client.subscribe(stream, subscriber="desk")
        await received(desk, 1)
        desk.close()
    await until(lambda: mit.state("s").subscribers == 0)
    with pytest.raises(ConflictError) as error:
        await owner.delete_stream(stream)
    away = r"subscriber desk of mit\.edu \(away, waited for until \d{4}-[^)]* UTC: `medusa"
    assert re.search(away, str(error.value))
    assert "without utah.edu" in str(error.value)
    for name, waits in (("disk", "desk"), ("desk", "")):
        if not waits:
            await owner.forget_subscriber(stream, name)
        told = f"{stream} waits for no subscriber {name} of mit.edu; for {waits or 'none'}"
        with pytest.raises(NotFoundError, match=re.escape(told)):
            await owner.forget_subscriber(stream, name)
    await owner.alter_stream(stream, Alteration(readers=()))
    await until(lambda: not mit.up.engine.subscriptions.readers(mit.state("s")))
    await owner.delete_stream(stream)


async def test_a_subscriber_that_has_left_is_no_reader(cluster: Cluster) -> None:
    """The reader is a peer whose query was deleted."""
    mit, utah, owner, guest, stream = await cluster.owner_and_guest()
    await guest.create_query(passing(utah, "q", stream, utah.name("out")))
    await refused_for(owner, stream, f"peer {utah.id[:8]} of utah.edu")
    await guest.delete_query(utah.name("q"))
    await until(lambda: not mit.up.engine.subscriptions.readers(mit.state("s")))
    await owner.delete_stream(stream)
    await gone(guest, stream)


async def test_only_source_streams_of_the_owner_can_be_deleted(cluster: Cluster) -> None:
    mit, _utah, owner, guest, stream = await cluster.owner_and_guest()
    await owner.create_query(passing(mit, "q", stream, mit.name("out")))
    await owner.create_view(View(mit.name("v"), stream, Last(5)))
    for delete in (guest.delete_stream, guest.reopen_stream):
        with pytest.raises(NotAuthorisedError, match=r"administered by mit\.edu"):
            await delete(stream)
    with pytest.raises(NotAuthorisedError, match=r"administered by mit\.edu"):
        await guest.delete_schema(schema_of("mit.edu").name)
    with pytest.raises(InvalidInputError, match=r"`medusa query delete .*/q` takes it"):
        await owner.delete_stream(mit.name("out"))
    with pytest.raises(InvalidInputError, match="`medusa view delete"):
        await owner.delete_stream(mit.name("v"))
    with pytest.raises(InvalidInputError, match="kept for tuples that come late"):
        await owner.delete_stream(f"{stream}/late")
    with pytest.raises(NotFoundError):
        await owner.delete_stream(mit.name("none"))


async def test_posts_under_way_are_refused(cluster: Cluster) -> None:
    mit = await cluster.settle("mit.edu")
    async with mit.client() as owner:
        stream = await make_stream(owner, mit, "s")
    async with mit.client(patience_s=1.0) as poster, mit.client() as owner:
        await send_rows(poster, stream, [(1, 1)], boundary=1)
        await owner.delete_stream(stream)
        await poster.post_event(stream, rows([(2, 2)]), boundary=2)
        with pytest.raises(MedusaError):
            await poster.flush()
    assert mit.errors() == []


async def test_an_alteration_and_a_deletion_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two run one after the other: the catalog receives no further record of a deleted
    stream."""
    mit = await cluster.settle("mit.edu")
    owner = await cluster.client(mit)
    stream = await make_stream(owner, mit, "s")
    engine = mit.up.engine
    announce = engine.announcements.announce_altered
    altering, deleted = trio.Event(), trio.Event()

    async def slowly(entries: Iterable[StreamEntry]) -> None:
        altering.set()
        with trio.move_on_after(0.3):
            await deleted.wait()
        await announce(entries)

    async def delete() -> None:
        await engine.sources.delete(stream)
        deleted.set()

    monkeypatch.setattr(engine.announcements, "announce_altered", slowly)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(engine.sources.alter, stream, Alteration(slack_us=7))
        await altering.wait()
        nursery.start_soon(delete)
    assert stream not in engine.catalog.own_names().get("stream", ())
    await gone(owner, stream)


async def test_a_schema_goes_once_no_stream_has_it(cluster: Cluster) -> None:
    first, second = await cluster.settle_all("mit.edu", "mit.edu")
    schema = schema_of("mit.edu")
    async with first.client() as near, second.client() as far:
        await near.create_schema(schema)
        stream = first.name("s")
        await far.create_stream(StreamDefinition(stream, schema.name))
        for client in (near, far):
            with pytest.raises(ConflictError, match=f"is the schema of {stream}: delete that"):
                await client.delete_schema(schema.name)
        await near.delete_stream(stream)
        await far.delete_schema(schema.name)
        with pytest.raises(NotFoundError):
            await near.lookup_object(schema.name)
    await cluster.restart(first)
    near = await cluster.client(first)
    with pytest.raises(NotFoundError):
        await near.lookup_object(schema.name)


async def ended(client: AsyncMedusaClient, place: Place, path: str) -> str:
    stream = await make_stream(client, place, path, slack_us=5)
    await client.post_event(stream, rows([(10, 1), (30, 2)]), boundary=12)
    await send_rows(client, stream, [(28, 3)], end=True)
    await until(lambda: place.state(path).log.boundary == END)
    return stream


async def test_an_ended_stream_goes_on_behind_all_that_it_had(cluster: Cluster) -> None:
    home, other = await cluster.settle_all("mit.edu", "mit.edu")
    async with home.client() as near, other.client() as far:
        stream = await ended(near, home, "s")
        await ended(near, home, "restarted")
        assert await far.reopen_stream(stream)
        assert not await far.reopen_stream(stream), "it has not ended by now"
        assert home.state("s").log.boundary == 30, "behind its last tuple, not behind 24 alone"
        await send_rows(near, stream, [(29, 4), (31, 5)], boundary=40)
    await cluster.restart(home)
    near = await cluster.client(home)
    await near.reopen_stream(home.name("restarted"))
    for path, found in (("s", [(31, 5)]), ("restarted", [])):
        stream = home.name(path)
        await send_rows(near, stream, [(41, 6)], end=True)
        expected = [(10, 1), (28, 3), (30, 2), *found, (41, 6)]
        assert await to_the_end(near.subscribe(stream)) == expected


async def test_a_promise_that_was_given_is_kept(cluster: Cluster) -> None:
    """The boundary before the end was behind the last tuple; it survives the merging of files."""
    mit = await cluster.settle("mit.edu")
    async with mit.client() as client:
        stream = await make_stream(client, mit, "s")
        for at in range(0, 60, 5):
            await send_rows(client, stream, [(at, at)], boundary=at + 3)
            await until(lambda at=at: mit.state("s").log.boundary == at + 3)
        await send_rows(client, stream, end=True)
        await until(lambda: mit.state("s").log.boundary == END)
        while await mit.state("s").log.upkeep.compact():
            pass
    await cluster.restart(mit)
    client = await cluster.client(mit)
    await client.reopen_stream(stream)
    assert mit.state("s").log.boundary == 58


async def test_a_reader_that_received_the_end_is_named_for_good(cluster: Cluster) -> None:
    mit, utah = await cluster.settle_all("mit.edu", "utah.edu")
    async with mit.client() as owner, utah.client() as guest:
        read = await ended(owner, mit, "read")
        assert len(await to_the_end(guest.subscribe(read))) == 3
        pulled = await ended(owner, mit, "pulled")
        epoch = await owner.receive_events(pulled, timeout_s=DEADLINE_S)
        assert epoch is not None
        assert epoch.upto == END
        queried = await make_stream(owner, mit, "queried")
        await owner.create_query(passing(mit, "q", queried, mit.name("out")))
        await send_rows(owner, queried, [(1, 5)], end=True)
        await until(lambda: mit.state("queried").log.boundary == END)
    await cluster.restart(mit)
    owner = await cluster.client(mit)
    for stream, who in (
        (read, "a subscriber of utah.edu"),
        (pulled, "a subscriber of mit.edu"),
        (queried, mit.name("q")),
    ):
        with pytest.raises(ConflictError, match=f"that was told {who}, whose answers"):
            await owner.reopen_stream(stream)
        assert mit.state(stream).log.boundary == END


async def test_a_reader_that_was_away_at_the_end_goes_on(cluster: Cluster) -> None:
    mit, client, stream = await cluster.founder_with_stream()
    await client.post_event(stream, rows([(1, 1)]), boundary=1)
    subscription = client.subscribe(stream, subscriber="me")
    assert await received(subscription, 1) == [(1, 1)]
    subscription.close()
    await until(lambda: mit.state("s").subscribers == 0)
    await send_rows(client, stream, [(2, 2)], end=True)
    await until(lambda: mit.state("s").log.boundary == END)
    await client.reopen_stream(stream)
    await send_rows(client, stream, [(3, 3)], boundary=3)
    again = client.subscribe(stream, after=1, subscriber="me")
    assert await received(again, 2) == [(2, 2), (3, 3)]

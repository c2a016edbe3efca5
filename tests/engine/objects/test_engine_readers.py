"""Complete peers (`engine_peers`) refuse and permit readers of derived streams, by every call that
reads a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from engine_peers import (
    DEADLINE_S,
    Cluster,
    Place,
    begin,
    make_stream,
    pairs_of,
    received,
    rows,
    send_rows,
    until,
)

from medusa.engine.objects.availability import Availability, Mode
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.objects.view import Last, View
from medusa.engine.replication.records.placements import Deal
from medusa.engine.replication.versions.choice import AskVersions, Versions
from medusa.engine.replication.views.messages import Locate, Located
from medusa.engine.streams.messages import Subscribe, Tuples
from medusa.engine.streams.store.stream_state import LogKey, StoredStream
from medusa.overlay.connection import Connection
from medusa.overlay.errors import InvalidInputError, NotAuthorisedError, NotFoundError
from medusa.overlay.files import load_json, save_json
from medusa.tools.client.async_client import AsyncMedusaClient

pytestmark = pytest.mark.usefixtures("interpreted")


def keep(query: str, source: str, output: str, **asked: Any) -> Query:
    box = Filter("some", source, (output,), ("value > 0",))
    return Query(query, (box,), **asked)


@dataclass
class Neighbourhood:
    """mit.edu, whose stream utah.edu may read; and evil.org, which is a member, too."""

    cluster: Cluster
    mit: Place
    utah: Place
    evil: Place
    clients: dict[str, AsyncMedusaClient]
    stream: str

    async def refused(self, name: str, at: Place) -> None:
        """Check that evil.org can read that stream neither at a peer, by any call that returns or
        describes tuples, nor at its own peer."""
        there = await self.evil.up.engine.overlay.connect(bytes.fromhex(at.id))
        await is_refused(there, name)
        with pytest.raises(NotAuthorisedError):
            await anext(self.clients["evil.org"].subscribe(name))


async def is_refused(there: Connection, name: str) -> None:
    """Check the refusal at a peer that has the stream, and at a peer that has passed the task on
    and keeps no rows."""
    refused = (NotAuthorisedError, NotFoundError)
    for request in (Subscribe(name), Subscribe(name, BEGINNING, "x", tentative=BEGINNING)):
        async with there.open("subscribe", request) as duplex:
            with pytest.raises(refused):
                await duplex.receive(Tuples)
    with pytest.raises(refused):  # a worker knows no history
        await there.call("locate", Locate(name, Last(1), False), Located)
    assert not (await there.call("versions", AskVersions((name,)), Versions)).versions


async def neighbourhood(cluster: Cluster, **options: object) -> Neighbourhood:
    mit, utah, evil = await cluster.settle_all("mit.edu", "utah.edu", "evil.org")
    clients = {place.participant: await cluster.client(place) for place in (mit, utah, evil)}
    client = clients["mit.edu"]
    options.setdefault("readers", ("utah.edu",))
    stream = await make_stream(client, mit, "s", **options)
    await send_rows(client, stream, [(1, 1), (2, 0), (3, 3)], boundary=3)
    return Neighbourhood(cluster, mit, utah, evil, clients, stream)


@pytest.fixture
async def here(cluster: Cluster) -> Neighbourhood:
    return await neighbourhood(cluster)


async def test_derived_streams_are_not_readable_by_others(here: Neighbourhood) -> None:
    """mit.edu and utah.edu derive streams: outputs of queries, a chain of them, views, copies. No
    other participant can derive anything from them."""
    for place in (here.mit, here.utah):
        client = here.clients[place.participant]
        await client.create_query(keep(place.name("q"), here.stream, place.name("out")))
        await client.create_query(keep(place.name("r"), place.name("out"), place.name("then")))
        await client.create_view(View(place.name("view"), here.stream, Last(9)))
        for query in ("q", "r"):
            await client.start_query(place.name(query))
        await client.copy_query(place.name("q"), place.name("copy"), BEGINNING, 3)
        await client.start_query(place.name("copy"))
        for path in ("out", "then", "copy/out", "view"):
            wanted = [(1, 1), (2, 0), (3, 3)] if path == "view" else [(1, 1), (3, 3)]
            for reader in ("mit.edu", "utah.edu"):
                found = here.clients[reader].subscribe(place.name(path))
                assert await received(found, len(wanted)) == wanted, (path, reader)
            await here.refused(place.name(path), place)
            with pytest.raises(NotAuthorisedError):
                await here.clients["evil.org"].create_query(
                    keep(here.evil.name("q"), place.name(path), here.evil.name("out"))
                )
            with pytest.raises(NotAuthorisedError):
                await here.clients["evil.org"].create_view(
                    View(here.evil.name("v"), place.name(path), Last(9))
                )
    await here.refused(here.stream, here.mit)
    await here.refused(f"{here.stream}/late", here.mit)


async def test_an_output_that_was_declared_keeps_its_readers(cluster: Cluster) -> None:
    here = await neighbourhood(cluster, readers=("*",))
    client, reader = here.clients["mit.edu"], here.clients["utah.edu"]
    out = await make_stream(client, here.mit, "out", readers=("utah.edu",))
    await client.create_query(keep(here.mit.name("q"), here.stream, out))
    named = here.mit.name("named")
    await client.create_query(
        keep(here.mit.name("n"), here.stream, named, readers=((named, ("utah.edu",)),))
    )
    for query, stream in (("q", out), ("n", named)):
        await client.start_query(here.mit.name(query))
        assert await received(reader.subscribe(stream), 2) == [(1, 1), (3, 3)]
        await here.refused(stream, here.mit)
        copy = here.mit.name(f"copy/{query}")
        (_, made) = await client.copy_query(here.mit.name(query), copy, BEGINNING, 3)
        await client.start_query(copy)
        assert await received(reader.subscribe(made), 2) == [(1, 1), (3, 3)]
        await here.refused(made, here.mit)
    with pytest.raises(InvalidInputError, match="does not make"):
        await client.create_query(
            keep(here.mit.name("z"), here.stream, here.mit.name("z/out"), readers=((out, ()),))
        )


async def test_only_the_inputs_owner_lets_others_read_what_utah_makes(cluster: Cluster) -> None:
    here = await neighbourhood(cluster, declassify=("utah.edu",))
    reader, evil = here.clients["utah.edu"], here.clients["evil.org"]
    counted, hidden = here.utah.name("counted"), here.utah.name("hidden")
    await reader.create_query(
        keep(here.utah.name("q"), here.stream, counted, readers=((counted, ("evil.org",)),))
    )
    await reader.create_query(keep(here.utah.name("h"), here.stream, hidden))
    for query in ("q", "h"):
        await reader.start_query(here.utah.name(query))
    assert await received(evil.subscribe(counted), 2) == [(1, 1), (3, 3)]
    await here.refused(hidden, here.utah)


async def test_a_worker_gives_the_output_only_to_its_owner(here: Neighbourhood) -> None:
    """A task of mit.edu has moved to utah.edu, and another one has a standby."""
    sibling = await here.cluster.settle("mit.edu", sibling=True)
    await here.cluster.acquainted(here.mit, here.utah, here.evil, sibling)
    client, out, held = here.clients["mit.edu"], here.mit.name("out"), here.mit.name("held")
    await client.create_query(keep(here.mit.name("q"), here.stream, out))
    active = Availability(mode=Mode.ACTIVE_STANDBY)
    await client.create_query(keep(here.mit.name("a"), here.stream, held, availability=active))
    for query in ("q", "a"):
        await client.start_query(here.mit.name(query))
    here.utah.up.engine.assignments.expect = lambda *_: None
    here.utah.up.engine.assignments.admit = lambda *_: None
    mover = here.mit.up.engine.mover
    await mover.move(out, here.utah.peer_id, Deal(giver=here.mit.id))
    assert here.utah.up.engine.copies.rendition(out) is not None
    for place in (here.mit, here.utah):
        await here.refused(out, place)
    await until(lambda: sibling.up.engine.standbys.rendition(held) is not None)
    for place in (here.mit, sibling):
        await here.refused(held, place)
    there = await here.utah.up.engine.overlay.connect(bytes.fromhex(sibling.id))
    await client.post_event(here.stream, rows([(9, 9)]), boundary=9)
    async with there.open("subscribe", Subscribe(held, 3)) as duplex:
        part, _ = await duplex.receive(Tuples)
        assert part.rows == 1


async def test_a_start_mends_an_output_whose_file_lets_every_member_read_it(
    here: Neighbourhood,
) -> None:
    client, out = here.clients["mit.edu"], here.mit.name("out")
    await begin(client, keep(here.mit.name("q"), here.stream, out))
    assert await received(client.subscribe(out), 2) == [(1, 1), (3, 3)]
    file = here.mit.up.engine.store.folders.of(LogKey(out)) / "stream.json"
    await here.cluster.stop(here.mit)
    known = load_json(file, StoredStream, mend="")
    old = msgspec.structs.replace(known.entry.stream, label=())
    entry = msgspec.structs.replace(known.entry, stream=old)
    save_json(file, msgspec.structs.replace(known, entry=entry))
    await here.cluster.start(here.mit)
    await here.cluster.acquainted(here.mit, here.evil)
    await here.refused(out, here.mit)


async def test_a_pull_is_refused_as_well(here: Neighbourhood) -> None:
    out = here.mit.name("out")
    await begin(here.clients["mit.edu"], keep(here.mit.name("q"), here.stream, out))
    for name in (here.stream, out):
        with pytest.raises(NotAuthorisedError):
            await here.clients["evil.org"].receive_events(name)
    epoch = await here.clients["utah.edu"].receive_events(out, timeout_s=DEADLINE_S)
    assert epoch is not None
    assert pairs_of(epoch.table)[0] == (1, 1)

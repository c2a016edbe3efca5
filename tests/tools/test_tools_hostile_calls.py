"""Random well-typed calls to a complete peer: from a participant without a contract, a partner, a
sibling peer, and the peer's own client."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engine_peers import Place, begin, make_stream, rows, send_rows, to_the_end, until
from hostile_calls import Call, Generator, drawn, make, methods_of
from msgspec import Struct
from tools_market_cluster import (
    CHEAP,
    COST_NS,
    QUICK,
    contracted,
    open_market_cluster,
    proposed,
    set_up,
    settle,
    trader,
    windows,
)

from medusa.contracts.market.messages import Item, Offer
from medusa.engine.api.messages import CreateDocument, CreateQuery
from medusa.engine.language.modification import BoxChange, ModifyQuery
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.view import Last, Range, Recent, View
from medusa.engine.replication.following.messages import ReadInput
from medusa.engine.replication.leaders.messages import Follow, Found, Inquire, VoterRequest
from medusa.engine.replication.moves.messages import Activate, Assignment, Confirm, MoveTask, PassOn
from medusa.engine.replication.records.placements import Deal
from medusa.engine.replication.records.stored_query import WrittenTerm
from medusa.engine.replication.replicas.messages import KeepUp, StandBy
from medusa.engine.replication.views.messages import Locate
from medusa.engine.streams.messages import (
    Acknowledge,
    Done,
    Post,
    PostEvent,
    ReceiveEvents,
    Subscribe,
)
from medusa.engine.tasks.query_editions import Edition
from medusa.overlay.connection import Connection
from medusa.overlay.encoding import encode
from medusa.overlay.errors import NotAuthorisedError
from medusa.overlay.rpc import MAX_STRUCT_BYTES
from medusa.tools.client.dialling import dial_to
from medusa.tools.market.passing import Passed
from medusa.tools.market.trader import MESSAGE, BrainMessage


@dataclass
class Stage:
    """mit.edu, to which all others speak. connections: by caller.

    Attributes:
        connections: the connections, by caller.
    """

    mit: Place
    connections: dict[str, Callable[[], Any]]
    names: list[str]
    blobs: list[bytes]
    samples: list[Struct]


PATIENT = dataclasses.replace(QUICK, reserve_s=1e6)
"""Intervals with which an accepted offer stays accepted for the whole test."""


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    async with open_market_cluster(folder) as cluster:
        mit = await settle(cluster, "mit.edu", 80, market=PATIENT)
        sibling = await settle(cluster, "mit.edu", 80, market=PATIENT, sibling=True)
        third = await settle(cluster, "mit.edu", 80, market=PATIENT, sibling=True)
        utah = await settle(cluster, "utah.edu", 80, market=PATIENT, trade=False)
        brown = await settle(cluster, "brown.edu", 80, market=PATIENT, trade=False)
        await cluster.acquainted(mit, sibling, third, utah, brown)
        contract = await contracted(mit, brown)
        async with mit.client() as client:
            source = await make_stream(client, mit, "s")
            safe = await make_stream(client, mit, "safe", k_safety=1)
            await begin(client, windows(mit, source, "out"))
            for stream in (source, safe):
                await client.post_event(stream, rows((at, at) for at in range(250)), boundary=249)
            await client.flush()
        await until(lambda: mit.state("out").log.boundary >= 199)
        async with brown.client() as client:
            theirs = await make_stream(client, brown, "s")
            await begin(client, windows(brown, theirs, "out"))
            await send_rows(client, theirs, [(at, at) for at in range(250)], boundary=249)
        item = Item(brown.name("out"), 5.0, brown.id, COST_NS, ("aggregate",), (theirs,))
        connection = await brown.up.engine.overlay.connect(bytes.fromhex(mit.id))
        await connection.call(MESSAGE, BrainMessage(Offer(1, contract, CHEAP, (item,))), Done)
        await until(lambda: item.task in trader(mit).brain.held.coming, "accepted")
        places = (mit, sibling, utah, brown)
        names = [source, safe, mit.name("out"), mit.name("q/out"), mit.name("event"), contract]
        names += [mit.name("new"), utah.name("x"), f"{source}/late"]
        names += [place.id for place in places]
        names += [place.participant for place in places]
        blobs = [bytes.fromhex(place.id) for place in places]
        blobs += [*proposed(mit, brown), *proposed(utah, brown)]
        blobs += list(mit.up.engine.overlay.membership.statements()[:2])

        def peer(place: Place) -> Callable[[], Any]:
            return lambda: place.up.engine.overlay.connect(bytes.fromhex(mit.id))

        async with dial_to(mit.home.folder, None)() as own:

            async def client_of_mit() -> Connection:
                return own

            connections = {
                "stranger": peer(utah),
                "partner": peer(brown),
                "sibling": peer(sibling),
                "client": client_of_mit,
            }
            yield Stage(mit, connections, names, blobs, samples_of(mit, sibling, brown, contract))


def samples_of(mit: Place, sibling: Place, brown: Place, contract: str) -> list[Struct]:
    """Return messages that mit.edu and its neighbours might send each other."""
    stored, placed = mit.up.engine.queries.find(mit.name("out"))
    voter = mit.up.engine.leaders.get(mit.name("safe"))
    assert voter is not None
    source, safe = mit.state("s").entry, voter.entry
    query = stored.entry.query
    deal = Deal(contract, brown.id, CHEAP, COST_NS)
    theirs, given = brown.up.engine.queries.find(brown.name("out"))
    term = WrittenTerm(7, sibling.id, mit.id)
    item = Item(brown.name("out"), 5.0, brown.id, COST_NS, ("aggregate",), (brown.name("s"),))
    availability = Availability(Mode.ACTIVE_STANDBY, Recovery.PRECISE)
    return [
        *(source, safe, source.schema, source.stream, safe.stream, query, *query.boxes),
        *(query.boxes[0].functions[0], source.schema.fields[0], availability, term),
        View(mit.name("view"), source.stream.name, Last(5)),
        *(Last(5), Recent(1_000), Range(0, 100)),
        msgspec.structs.replace(stored, written_term=term),
        Assignment(given.name, 9, theirs.entry.query, theirs.inputs, (), given.boundary, deal),
        deal,
        Edition(100, query.boxes),
        CreateQuery(msgspec.structs.replace(query, name=mit.name("q/new"))),
        CreateDocument(query_as_xml(msgspec.structs.replace(query, name=mit.name("q/xml")))),
        ModifyQuery(query.name, (BoxChange("sum", (("window-size", "0.0002"),)),)),
        *(Subscribe(source.stream.name), ReceiveEvents(source.stream.name, 7)),
        *(PostEvent(source.stream.name, "p"), PostEvent(safe.stream.name, "p")),
        *(Post(1), Post(2, boundary=300), Acknowledge(100)),
        MoveTask(placed.name, sibling.id),
        *(
            PassOn(placed.name, 1, brown.id, deal),
            Confirm(placed.name, 1),
            Activate(placed.name, 1, 5),
        ),
        ReadInput(placed.name, 1, source.stream.name, 7),
        *(Offer(1, contract, CHEAP, (item,)), item),
        VoterRequest(safe.stream.name, Inquire()),
        Found(safe, voter.election.ballot.voters),
        Follow(safe.stream.name, voter.election.ballot.promised),
        Locate(source.stream.name, Last(5), True),
        StandBy(msgspec.structs.replace(stored, written_term=term)),
        KeepUp(query.name, 7, {}, {}),
        Passed(placed.name, 1, 5),
    ]


def may_be_said(call: Call) -> bool:
    """Whether the caller may send this call: siblings are trusted with the numbers of terms, and
    could use up all of them; the sender itself refuses a request that is too long."""
    is_trusted = call.who == "sibling" and call.method.startswith("leader.")
    return not is_trusted and len(encode(call.request)) <= MAX_STRUCT_BYTES


async def check(stage: Stage, seed: int, count: int) -> None:
    """Check that random calls are answered, and that the peer continues as if there had been
    none."""
    rng = random.Random(seed)
    service = stage.mit.up.engine.overlay.service
    generator = Generator(rng, stage.names, stage.blobs, stage.samples)
    calls = drawn(rng, generator, methods_of(service), list(stage.connections), count)
    outcome = await make(filter(may_be_said, calls), lambda who: stage.connections[who]())
    notes = [event.text for event in stage.mit.up.engine.overlay.events.recent()]
    assert not outcome.faults, [note for note in notes if "failed:" in note]
    assert not outcome.late
    for who, method, answer in outcome.answers:
        if service._methods[method].own and who in {"stranger", "partner"}:
            assert answer == NotAuthorisedError.code, (who, method, answer)
    await until(lambda: not under_way(stage.mit), "calls end when their callers leave")
    async with stage.mit.client() as client:
        stream = await make_stream(client, stage.mit, "afterwards")
        await client.post_event(stream, rows([(1, 1), (2, 2)]), end=True)
        assert await to_the_end(client.subscribe(stream)) == [(1, 1), (2, 2)]


def under_way(place: Place) -> int:
    """Return the calls of other participants on which the peer works now."""
    connections = place.up.engine.overlay.transport.connections()
    others = [each for each in connections if each.remote.participant != place.participant]
    assert others
    return sum(each._handling for each in others)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch)


async def test_random_calls_are_answered(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        await check(stage, seed=1, count=500)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
async def test_ten_thousand_random_calls_are_answered(tmp_path: Path, seed: int) -> None:
    async with staged(tmp_path) as stage:
        await check(stage, seed, 10_000)

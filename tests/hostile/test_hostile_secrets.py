"""evil.org is a member with a modified peer, and may not read what mit.edu shares with utah.edu. It
makes every call that exists, at every peer that has a part in that stream, about everything that is
derived from it; it keeps all bytes that it receives, and all that the DHT and gossip leave with it.
Fields, values, expressions and boundaries of the stream are marked: it must not find a single mark.
It may learn only names, their owners, and the peers that serve them. A new method fails this test
until one of the lists below has it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pytest
import trio
from engine_interpreted import interpret
from engine_peers import DEADLINE_S, Cluster, Place, begin, open_cluster, send_rows, until
from hostile_calls import FOLLOWING, WAITING, Generator, methods_of
from msgspec import Struct

from medusa.dht.local_peer import BODY, BodyRequest
from medusa.dht.records import Pointer, read_record
from medusa.engine.api.messages import LookupObject
from medusa.engine.objects.availability import Availability, Mode
from medusa.engine.objects.definitions import ANY, StreamDefinition, StreamEntry
from medusa.engine.objects.query import Filter, Query
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.objects.view import Last, Range, Recent, View
from medusa.engine.replication.following.messages import ReadInput
from medusa.engine.replication.moves.messages import (
    Activate,
    Assignment,
    Confirm,
    GiveBackTask,
    PassOn,
    Release,
)
from medusa.engine.replication.records.placements import Deal
from medusa.engine.replication.records.status import Status
from medusa.engine.replication.repair import Lend
from medusa.engine.replication.versions.choice import AskVersions
from medusa.engine.replication.views.messages import CreateView, Locate
from medusa.engine.streams.messages import PostEvent, ReceiveEvents, Subscribe
from medusa.overlay.connection import Connection
from medusa.overlay.encoding import encode
from medusa.overlay.errors import (
    BrokenError,
    InternalError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    UnavailableError,
)
from medusa.overlay.rpc import EndOfCall
from medusa.tools.client.async_client import AsyncMedusaClient

FOR_OWN_PEERS: Final = frozenset(
    {
        *("create_schema", "delete_schema", "create_stream", "alter_stream", "reopen_stream"),
        *("delete_stream", "create_view", "delete_view"),
        *("create_query", "create_document", "modify_query", "set_query_status"),
        *("leader.follow", "leader.found", "leader.request"),
        *("replica.dismiss", "replica.incumbent", "replica.keep_up"),
        *("replica.read", "replica.stand_by"),
    }
)
"""Methods that no peer of another participant may call."""

FOR_OWN_CLIENTS: Final = frozenset(
    {
        *("admit", "leave", "list_objects", "lookup_object", "status", "market_status"),
        *("contract.balance", "move_task", "freeze"),
    }
)
"""Methods that no peer may call."""

ABOUT_STREAMS: Final = frozenset(
    {
        *("subscribe", "receive_events", "post_event", "locate", "versions", "log.lend"),
        *("task.assign", "task.activate", "task.release", "task.confirm", "task.pass_on"),
        *("task.give_back", "task.input", "content.begin", "content.over", "catalog.body"),
    }
)
"""Methods that any peer may call, and that must refuse or reveal nothing."""

ABOUT_OTHER_THINGS: Final = frozenset(
    {
        *("catalog.names", "peer_status", "gossip.ping", "gossip.sync"),
        *("overlay.exchange", "overlay.push", "contract.deliver", "contract.passed"),
        *("contract.settle", "market.message"),
    }
)
"""Methods that answer every peer, about public things."""

FIELD, VALUE, CONSTANT = "hiddenfield", "hiddenvalue", "hiddenconstant"
STIMES = (1_612_345_678_901_234, 1_612_345_678_905_678, 1_612_345_679_999_001)
"""Microseconds of the tuples, and so of the boundaries."""

DRAWN: Final = 6
"""The number of random calls of each method at each peer."""

LOOK_S: Final = 5.0
"""How long the test waits for an answer that may take long by design, in seconds."""

CONNECTIONS: Final = 3
"""The number of connections over which a call is tried: the call must not break all of them."""

RETRY_S: Final = 0.1


def marks() -> dict[str, bytes]:
    """Return the marks that the test must not find, by the secret that each would reveal."""
    found = {text: text.encode() for text in (FIELD, VALUE, CONSTANT)}
    for stime in STIMES:
        found[f"{stime} in MessagePack"] = b"\xcf" + stime.to_bytes(8, "big")
        found[f"{stime} in Arrow"] = stime.to_bytes(8, "little")
        found[f"{stime} in text"] = str(stime).encode()
    return found


@dataclass
class Scene:
    """
    Attributes:
        served: the peers of other participants that deal with the streams.
        names: the names of all secret objects.
        schemas, queries: the names of secret schemas and queries, which `names` has, too.
        heard: every byte that evil.org received, with its question.
    """

    cluster: Cluster
    mit: Place
    sibling: Place
    utah: Place
    evil: Place
    clients: dict[str, AsyncMedusaClient]
    names: list[str] = field(default_factory=list)
    heard: list[tuple[str, bytes]] = field(default_factory=list)
    answers: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def served(self) -> tuple[Place, ...]:
        return self.mit, self.sibling, self.utah

    def leaks(self) -> list[str]:
        known = marks().items()
        return [
            f"{what} by {asked}"
            for asked, data in self.heard
            for what, mark in known
            if mark in data
        ]


def schema(place: Place) -> Schema:
    fields = (Field("t", FieldType.LONG), Field(FIELD, FieldType.STRING, size=40))
    return Schema(place.name("form"), fields, time="t", key=("t",))


def table(*stimes: int) -> pa.Table:
    return pa.table({"t": pa.array(stimes, pa.int64()), FIELD: [VALUE] * len(stimes)})


def sieve(name: str, source: str, output: str, **asked: Any) -> Query:
    box = Filter("sieve", source, (output,), (f"{FIELD} <> '{CONSTANT}'",))
    return Query(name, (box,), **asked)


@asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Scene]:
    """Derive everything that can be derived from a stream: late tuples, revisions, outputs (one
    with a standby, one at a worker), views, copies, and streams of utah.edu; and create a source
    with replicas."""
    async with open_cluster(folder) as cluster, AsyncExitStack() as stack:
        mit = await cluster.settle("mit.edu")
        sibling = await cluster.settle("mit.edu", sibling=True)
        # a third peer for a source with replicas
        third = await cluster.settle("mit.edu", sibling=True)
        utah = await cluster.settle("utah.edu")
        evil = await cluster.settle("evil.org")
        await cluster.acquainted(mit, sibling, third, utah, evil)
        clients = {
            place.participant: await stack.enter_async_context(place.client())
            for place in (mit, utah, evil)
        }
        scene = Scene(cluster, mit, sibling, utah, evil, clients)
        await _define(scene)
        for place in scene.served:  # the peer has a contract for load with evil.org
            place.up.engine.assignments.expect = lambda *_: None
            place.up.engine.assignments.admit = lambda *_: None
        yield scene


async def _define(scene: Scene) -> None:
    mit, utah = scene.mit, scene.utah
    ours, theirs = scene.clients["mit.edu"], scene.clients["utah.edu"]
    await ours.create_schema(schema(mit))
    for path, k_safety in (("s", 0), ("safe", 1)):
        stream = mit.name(path)
        definition = StreamDefinition(
            stream, schema(mit).name, readers=("utah.edu",), max_ahead_us=None, k_safety=k_safety
        )
        await ours.create_stream(definition)
        await ours.post_event(stream, table(*STIMES[:2]), boundary=STIMES[1])
        await send_rows(ours, stream, table(STIMES[0]))
        scene.names += [stream, f"{stream}/late", f"{stream}/revisions"]
    scene.names.append(schema(mit).name)
    source = mit.name("s")
    active = Availability(mode=Mode.ACTIVE_STANDBY, secondary=scene.sibling.id)
    for client, place, path, asked in (
        (ours, mit, "out", {}),
        (ours, mit, "held", {"availability": active}),
        (ours, mit, "away", {}),
        (theirs, utah, "out", {}),
    ):
        output, query = place.name(path), place.name(f"q/{path}")
        await begin(client, sieve(query, source, output, **asked))
        scene.names += [output, f"{output}/revisions", query]
    for client, place in ((ours, mit), (theirs, utah)):
        view = place.name("view")
        await client.create_view(View(view, source, Last(9)))
        copied = place.name("copy")
        made = await client.copy_query(place.name("q/out"), copied, STIMES[0] - 1, STIMES[1])
        await client.start_query(copied)
        scene.names += [view, *made]
    everywhere = [mit.state("out"), mit.state("held"), mit.state("away"), utah.state("out")]
    await until(lambda: all(kept.log.boundary == STIMES[1] for kept in everywhere))
    utah.up.engine.assignments.expect = utah.up.engine.assignments.admit = lambda *_: None
    await mit.up.engine.mover.move(mit.name("away"), utah.peer_id, Deal(giver=mit.id))
    held = mit.name("held")
    await until(lambda: scene.sibling.up.engine.standbys.rendition(held) is not None)


# -- the questions of evil.org ---------------------------------------------------------------------


def asked_on_purpose(scene: Scene) -> Iterator[tuple[str, Struct]]:
    """Make calls that are likely to reveal something."""
    for name in scene.names:
        for after in (BEGINNING, STIMES[0], END):
            yield "subscribe", Subscribe(name, after)
            yield "subscribe", Subscribe(name, after, "me", tentative=after)
            yield "receive_events", ReceiveEvents(name, after)
            yield "task.input", ReadInput(name, 1, name, after)
        for shows in (Last(5), Recent(10**9), Range(STIMES[0] - 1, STIMES[1])):
            for fixed in (False, True):
                yield "locate", Locate(name, shows, fixed)
        yield "versions", AskVersions((name,))
        yield "post_event", PostEvent(name, "p")
        yield "log.lend", Lend(name, BEGINNING, STIMES[1])
        yield "catalog.body", BodyRequest(bytes(32))
        yield from (("task.confirm", Confirm(name, n)) for n in (0, 1))
        yield "task.activate", Activate(name, 1, BEGINNING)
        yield "task.release", Release(name, 1)
        yield "task.give_back", GiveBackTask(name, 1)
        yield "task.pass_on", PassOn(name, 1, scene.evil.id, Deal())
        yield "create_view", CreateView(View(scene.evil.name("v"), name, Last(9)))
        yield "lookup_object", LookupObject(name)
        yield from (("task.assign", each) for each in tasks_over(scene, name))
    yield "peer_status", Status()
    yield "status", Status()


def tasks_over(scene: Scene, stream: str) -> Iterator[Assignment]:
    """Create tasks of evil.org over that stream, which it declares to be readable by everybody."""
    claimed = StreamDefinition(stream, scene.evil.name("form"), readers=(ANY,))
    for fields in ((Field("t", FieldType.LONG),), schema(scene.mit).fields):
        form = Schema(scene.evil.name("form"), fields, time="t")
        out = scene.evil.name("stolen")
        query = Query(scene.evil.name("q"), (Filter("all", stream, (out,), ("t > 0",)),))
        inputs = {stream: StreamEntry(claimed, form)}
        yield Assignment(out, int(1e12), query, inputs, (), BEGINNING)


def drawn(scene: Scene, rng: random.Random, methods: Iterable[str]) -> Iterator[tuple[str, Struct]]:
    kinds = methods_of(scene.mit.up.engine.overlay.service)
    samples: list[Struct] = [each for _, each in asked_on_purpose(scene)]
    blobs = [bytes.fromhex(place.id) for place in scene.served]
    generator = Generator(rng, [*scene.names, "mit.edu", scene.evil.id], blobs, samples)
    for method in methods:
        for _ in range(DRAWN):
            yield method, generator.request(kinds[method])


def bodies_known(evil: Place) -> Iterator[tuple[str, BodyRequest]]:
    """Ask for the body of every record that the DHT has stored at evil.org's peer."""
    for _, data in evil.up.engine.catalog._store.everything():
        record, _ = read_record(data)
        if isinstance(record.body, Pointer):
            yield BODY, BodyRequest(record.body.digest)


async def ask(scene: Scene, at: Place, method: str, request: Struct) -> None:
    """Make one call and keep every received byte, with texts of errors. If the connection breaks,
    repeat the call over another connection: on a busy machine peers may declare a peer dead for a
    moment."""
    answer = BrokenError.code
    for _ in range(CONNECTIONS):
        answer = await answer_to(scene, at, method, request)
        if answer != BrokenError.code:
            break
    scene.answers[method, answer] += 1


async def answer_to(scene: Scene, at: Place, method: str, request: Struct) -> str:
    asked = f"{method} at {at.participant} {request!r}"[:300]
    waits = method in WAITING or method in FOLLOWING
    there = await connected(scene.evil, at)
    with trio.move_on_after(LOOK_S if waits else DEADLINE_S):
        try:
            async with there.open(method, request) as duplex:
                if method not in FOLLOWING:
                    duplex.finish_now()
                while True:
                    message, body = await duplex.receive_raw()
                    scene.heard.append((asked, bytes(message) + bytes(body)))
        except EndOfCall:
            return "answer"
        except MedusaError as error:
            scene.heard.append((asked, str(error).encode()))
            return error.code
    return "waits"


async def connected(evil: Place, at: Place) -> Connection:
    with trio.fail_after(DEADLINE_S):
        while True:
            with suppress(UnavailableError):
                return await evil.up.engine.overlay.connect(at.peer_id)
            await trio.sleep(RETRY_S)


async def ask_all(scene: Scene, calls: Iterable[tuple[str, Struct]]) -> None:
    left = iter([(place, *call) for call in calls for place in scene.served])

    async def work() -> None:
        for place, method, request in left:
            await ask(scene, place, method, request)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(work)


# -- the tests -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)


async def test_evil_learns_names_and_owners_alone(tmp_path: Path) -> None:
    async with staged(tmp_path) as scene:
        service = scene.mit.up.engine.overlay.service
        _check_lists(service._methods)
        await ask_all(scene, asked_on_purpose(scene))
        await ask_all(scene, drawn(scene, random.Random(7), methods_of(service)))
        await _use_its_own_client(scene)
        await ask_all(scene, bodies_known(scene.evil))
        assert scene.leaks() == []
        _check_answers(scene)
        assert all(_held_by(scene.evil, mark) == [] for mark in (FIELD, VALUE, CONSTANT))
        # nor does evil.org receive the objects that move meanwhile
        for path in ("s", "safe"):
            client = scene.clients["mit.edu"]
            await send_rows(client, scene.mit.name(path), table(STIMES[2]), boundary=STIMES[2])
        await until(lambda: scene.mit.state("held").log.boundary == STIMES[2])
        for peer, said in scene.evil.up.engine.overlay.gossip.digests.items():
            scene.heard.append((f"gossip of {peer.hex()[:8]}", said))
        await ask_all(scene, [("peer_status", Status()), ("versions", AskVersions(_all(scene)))])
        assert scene.leaks() == []
        names = {
            name
            for some in (await scene.clients["evil.org"].list_objects()).names.values()
            for name in some
        }
        assert {scene.mit.name("s"), scene.utah.name("out"), scene.mit.name("q/out")} <= names
        await _utah_finds_all_of_it(scene)


def _all(scene: Scene) -> tuple[str, ...]:
    return tuple(scene.names[:16])


def _check_lists(methods: Iterable[str]) -> None:
    lists = (FOR_OWN_PEERS, FOR_OWN_CLIENTS, ABOUT_STREAMS, ABOUT_OTHER_THINGS)
    assert sum(map(len, lists)) == len(frozenset().union(*lists)), "a method stands in two lists"
    assert set(methods) == set().union(*lists), "say of a new method whom it answers, and what"


def _check_answers(scene: Scene) -> None:
    for (method, answer), count in scene.answers.items():
        assert answer not in {InternalError.code, BrokenError.code}, (method, count)
        if method in FOR_OWN_PEERS | FOR_OWN_CLIENTS:
            too_long = InvalidInputError.code  # a drawn call that its own side does not send
            assert answer in {NotAuthorisedError.code, too_long}, (method, answer)
        if method in {"subscribe", "receive_events", "log.lend", "task.input", "catalog.body"}:
            assert answer not in {"answer", "waits"}, (method, answer)
    assert {method for method, _ in scene.answers} == {
        *FOR_OWN_PEERS,
        *FOR_OWN_CLIENTS,
        *ABOUT_STREAMS,
        *ABOUT_OTHER_THINGS,
    }
    for asked, data in scene.heard:
        if asked.startswith("peer_status"):  # a stream's rate would appear beside its name
            assert not [name for name in scene.names if name.encode() in data], asked


async def _use_its_own_client(scene: Scene) -> None:
    """Ask evil.org's own peer, which asks the other peers."""
    client, evil = scene.clients["evil.org"], scene.evil
    for name in scene.names:
        found = await client.lookup_object(name) if _is_object(name) else None
        if found is not None:
            scene.heard.append((f"lookup of {name}", encode(found)))
            assert found.private
            assert not found.entries
        refusals = [
            lambda name=name: anext(client.subscribe(name)),
            lambda name=name: client.receive_events(name),
            lambda name=name: client.create_view(View(evil.name("v"), name, Last(1))),
            lambda name=name: client.create_query(
                Query(evil.name("q"), (Filter("all", name, (evil.name("o"),), ("t > 0",)),))
            ),
            lambda name=name: client.copy_query(name, evil.name("c"), BEGINNING, END),
        ]
        for refuse in refusals:
            with pytest.raises(MedusaError) as refusal:
                await refuse()
            scene.heard.append((f"its client about {name}", str(refusal.value).encode()))
    for said in (await client.status(), await client.list_objects(), await client.market_status()):
        scene.heard.append((type(said).__name__, encode(said)))


def _is_object(name: str) -> bool:
    """Whether the catalog has the name: the catalog lacks a query's revisions where no revisions
    may arrive."""
    return not name.endswith(("/revisions", "/late"))


def _held_by(evil: Place, mark: str) -> list[Path]:
    """Return the files of its home that contain the mark."""
    files = [path for path in evil.home.folder.rglob("*") if path.is_file()]
    return [path for path in files if mark.encode() in path.read_bytes()]


async def _utah_finds_all_of_it(scene: Scene) -> None:
    """Check that the marks occur where the test looks for them: a permitted reader receives every
    mark."""
    friend = Scene(scene.cluster, scene.mit, scene.sibling, scene.utah, scene.utah, scene.clients)
    for method, request in (
        ("receive_events", ReceiveEvents(scene.mit.name("s"), BEGINNING)),
        ("peer_status", Status()),
        ("locate", Locate(scene.mit.name("s"), Last(5), True)),
        *bodies_known(scene.utah),
    ):
        await ask(friend, scene.mit, method, request)
    found = {what for what, mark in marks().items() for _, data in friend.heard if mark in data}
    assert {FIELD, VALUE, CONSTANT} <= found
    assert any("MessagePack" in what for what in found)
    assert any("Arrow" in what for what in found)
    entry = msgspec.json.encode(await scene.clients["utah.edu"].stream_entry(scene.mit.name("s")))
    assert FIELD.encode() in entry

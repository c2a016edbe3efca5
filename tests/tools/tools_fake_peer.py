"""A peer without an engine: the API's calls over real TLS and RPC, streams in lists."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa
import trio
from deadline import DEADLINE_S
from field_texts import fields_of
from owner import owner_clients

from medusa.engine.api.messages import (
    Created,
    CreateDocument,
    ListObjects,
    LookupObject,
    ObjectDescription,
    Objects,
    SetQueryStatus,
)
from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.definitions import QueryEntry, StreamDefinition, StreamEntry
from medusa.engine.objects.query import Filter, Query, QueryStatus
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.replication.records.status import PeerStatus, Snapshot, Status
from medusa.engine.streams.ipc import decode, encode
from medusa.engine.streams.messages import (
    Acknowledge,
    Done,
    Post,
    Posted,
    PostEvent,
    Subscribe,
    Tuples,
)
from medusa.overlay.clients import open_client_listener
from medusa.overlay.errors import InvalidInputError, MedusaError, NotFoundError
from medusa.overlay.events import Events
from medusa.overlay.files import read_secret
from medusa.overlay.identity import Identity
from medusa.overlay.rpc import Caller, Duplex, EndOfCall, Service
from medusa.overlay.streams import Buffer
from medusa.tools.home.folder import Home, Running
from medusa.tools.home.founding import make_peer
from medusa.tools.home.messages import (
    ADMIT,
    MARKET_STATUS,
    Admit,
    Admitted,
    AskMarket,
    MarketStatus,
)

STREAM = "medusa://mit.edu/conns"
SCHEMA = Schema("medusa://mit.edu/conn", fields_of("ts double, name string(20)"), "ts")
DERIVED = "medusa://mit.edu/answers"

QUERY = "medusa://mit.edu/q"
AVAILABILITY = Availability(
    Mode.PASSIVE_STANDBY, Recovery.PRECISE, bound_s=2.0, checkpoint_s=0.5, secondary="cd" * 20
)
QUERY_ENTRY = QueryEntry(
    Query(QUERY, (Filter("some", STREAM, (DERIVED,), ("ts > 1",)),), (), AVAILABILITY),
    QueryStatus.RUNNING,
    "ab" * 20,
    (DERIVED,),
)

ENTRIES = {
    STREAM: StreamEntry(StreamDefinition(STREAM, SCHEMA.name), SCHEMA),
    DERIVED: StreamEntry(
        StreamDefinition(DERIVED, SCHEMA.name, query="medusa://mit.edu/q"), SCHEMA
    ),
}


def rows(first: int, count: int) -> pa.Table:
    """Return payload rows with ts = first, first + 1, and so on."""
    numbers = range(first, first + count)
    return pa.table(
        [[float(n) for n in numbers], [f"n{n}" for n in numbers]], schema=SCHEMA.payload
    )


def derived(first: int, count: int) -> pa.Table:
    """Return the same rows as a log stores them; stime = ts in whole microseconds."""
    stime = pa.array(range(first, first + count), pa.int64())
    return rows(first, count).add_column(0, pa.field("stime", pa.int64(), nullable=False), stime)


@dataclass
class FakePeer:
    """
    Attributes:
        stored: (sequence, rows) by producer, once each. offsets: the offset of each producer.
        tables: all stored rows of all producers.
        moved: notified when `tables` or `acknowledged` has grown, for tests in another thread.
        refuse_at: errors to raise at posts of these numbers.
        silent: whether the peer stores posts without an answer.
        crash_at: sequences after which the peer crashes: it has stored them, and not answered.
        refuse: errors to raise at the next post_event calls.
        market: the answer of market_status; None: there is no such call.
        epochs: the epochs that `DERIVED` serves: (after, upto, parts).
        tentative: the numbers of the tentative epochs; only clients that ask for tentative tuples
            receive them.
        created: requests of create_document.
        crash_after: counts of Tuples messages after which the peer crashes.
    """

    home: Home
    market: MarketStatus | None = None
    stored: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    offsets: dict[str, bytes] = field(default_factory=dict)
    tables: list[pa.Table] = field(default_factory=list)
    moved: threading.Condition = field(default_factory=threading.Condition)
    refuse_at: dict[int, MedusaError] = field(default_factory=dict)
    silent: bool = False
    crash_at: list[int] = field(default_factory=list)
    refuse: list[MedusaError] = field(default_factory=list)
    epochs: list[tuple[int, int, list[pa.Table]]] = field(default_factory=list)
    tentative: set[int] = field(default_factory=set)
    crash_after: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    subscribed: list[int] = field(default_factory=list)
    created: list[CreateDocument] = field(default_factory=list)
    statuses: list[tuple[str, str]] = field(default_factory=list)
    admitted: list[bytes] = field(default_factory=list)
    starts: int = 0
    ended: bool = False
    _scope: trio.CancelScope | None = None

    def crash(self) -> None:
        """Break all connections, and listen again at another port."""
        assert self._scope is not None
        self._scope.cancel()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        identity = Identity.load(self.home.folder)
        token = read_secret(self.home.token)
        with self.home.lock():
            while True:
                with trio.CancelScope() as self._scope:
                    async with open_client_listener(
                        identity, owner_clients(token), self._service(), ("127.0.0.1", 0), Events()
                    ) as address:
                        self.home.write_run(
                            Running(
                                os.getpid(), "mit.edu", identity.peer_id.hex(), address, address
                            )
                        )
                        self.starts += 1
                        if self.starts == 1:
                            task_status.started()
                        await trio.sleep_forever()

    def _service(self) -> Service:
        service = Service()
        unary = [
            ("create_document", CreateDocument, self._create),
            ("set_query_status", SetQueryStatus, self._set_status),
            ("lookup_object", LookupObject, self._lookup),
            ("list_objects", ListObjects, self._list),
            ("status", Status, self._status),
            (ADMIT, Admit, self._admit),
        ]
        for method, kind, handler in unary:
            service.unary(method, kind, handler, clients=True)  # type: ignore[arg-type]
        if self.market is not None:
            service.unary(MARKET_STATUS, AskMarket, self._market, clients=True)
        service.streaming("post_event", PostEvent, self._post, clients=True)
        service.streaming("subscribe", Subscribe, self._subscribe, clients=True)
        return service

    async def _create(self, _c: Caller, request: CreateDocument, _b: Buffer) -> Created:
        if "<" not in request.text:
            raise InvalidInputError("line 1: no XML")
        self.created.append(request)
        return Created(("medusa://mit.edu/made",))

    async def _set_status(self, _c: Caller, request: SetQueryStatus, _b: Buffer) -> Done:
        self.statuses.append((request.query, request.status))
        return Done()

    async def _lookup(self, _c: Caller, request: LookupObject, _b: Buffer) -> ObjectDescription:
        if request.name == SCHEMA.name:
            return ObjectDescription(request.name, {"schema": msgspec.json.encode(SCHEMA).decode()})
        if request.name == QUERY:
            entry = msgspec.json.encode(QUERY_ENTRY).decode()
            return ObjectDescription(request.name, {"query": entry})
        if request.name not in ENTRIES:
            raise NotFoundError(f"nothing is known under {request.name}")
        entry = msgspec.json.encode(ENTRIES[request.name]).decode()
        return ObjectDescription(request.name, {"stream": entry})

    async def _list(self, _c: Caller, _r: ListObjects, _b: Buffer) -> Objects:
        names = {"stream": tuple(ENTRIES), "query": (QUERY, f"{QUERY}2")}
        return Objects(names, ("ab" * 20,), {QUERY: AVAILABILITY})

    async def _status(self, _c: Caller, _r: Status, _b: Buffer) -> Snapshot:
        peer = PeerStatus("mit.edu", "ab" * 20, "127.0.0.1:1", "running", capacity=2.0)
        return Snapshot(1.0, "ab" * 20, "fed", (peer,))

    async def _market(self, _c: Caller, _r: AskMarket, _b: Buffer) -> MarketStatus:
        assert self.market is not None
        return self.market

    async def _admit(self, _c: Caller, request: Admit, _b: Buffer) -> Admitted:
        self.admitted += request.statements
        return Admitted(("new",))

    async def _post(self, _c: Caller, request: PostEvent, duplex: Duplex) -> None:
        if self.refuse:
            raise self.refuse.pop(0)
        stored = self.stored.setdefault(request.producer, [])
        while True:
            try:
                post, body = await duplex.receive(Post)
            except EndOfCall:
                return
            last = stored[-1][0] if stored else 0
            offset = self.offsets.get(request.producer, b"")
            if post.sequence == 0:
                reached = END if self.ended else BEGINNING
                await duplex.send(Posted(0, 0, 0, reached, last=last, offset=offset))
                continue
            assert post.sequence <= last + 1, f"a gap: {post.sequence} after {last}"
            if post.sequence in self.refuse_at:
                raise self.refuse_at.pop(post.sequence)
            table = decode(body, SCHEMA.payload) if len(body) else SCHEMA.payload.empty_table()
            count = table.num_rows
            duplicate = post.sequence <= last
            if not duplicate:
                stored.append((post.sequence, count))
                with self.moved:
                    self.tables.append(table)
                    self.moved.notify_all()
                if post.offsets is not None:
                    assert post.offsets[0] == offset
                    self.offsets[request.producer] = post.offsets[1]
            self.ended |= post.end
            if post.sequence in self.crash_at:
                self.crash_at.remove(post.sequence)
                self.crash()
                await trio.sleep_forever()
            if self.silent:
                continue
            boundary = END if post.end else (post.boundary or BEGINNING)
            accepted = 0 if duplicate else count
            await duplex.send(Posted(post.sequence, accepted, 0, boundary, duplicate))

    async def _subscribe(self, _c: Caller, request: Subscribe, duplex: Duplex) -> None:
        if self.refuse:
            raise self.refuse.pop(0)
        self.subscribed.append(request.after)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._acknowledgements, duplex)
            sent = 0
            for place, (after, upto, parts) in enumerate(self.epochs):
                tentative = place in self.tentative
                seen = request.tentative if tentative else request.after
                if seen is None or upto <= seen:
                    continue
                for number, part in enumerate(parts, 1):
                    body = encode(part) if part.num_rows else b""
                    last = upto if number == len(parts) else None
                    message = Tuples(after, last, part.num_rows, tentative)
                    await duplex.send(message, body)
                    sent += 1
                    if self.crash_after and sent == self.crash_after[0]:
                        self.crash_after.pop(0)
                        self.crash()
            if self.epochs and self.epochs[-1][1] != END:
                await trio.sleep_forever()

    async def _acknowledgements(self, duplex: Duplex) -> None:
        while True:
            try:
                message, _ = await duplex.receive(Acknowledge)
            except (EndOfCall, MedusaError):
                return
            with self.moved:
                self.acknowledged.append(message.upto)
                self.moved.notify_all()


def make_home(folder: Path) -> Home:
    home = Home(folder)
    make_peer(home, "mit.edu", "test")
    return home


@asynccontextmanager
async def open_fake_peer(folder: Path) -> AsyncIterator[FakePeer]:
    peer = FakePeer(make_home(folder))
    async with trio.open_nursery() as nursery:
        await nursery.start(peer.run)
        yield peer
        nursery.cancel_scope.cancel()


@contextmanager
def fake_peer_in_thread(folder: Path, market: MarketStatus | None = None) -> Iterator[FakePeer]:
    """Give a fake peer in a thread, for tests that run an event loop of their own."""
    peer = FakePeer(make_home(folder), market)
    up = threading.Event()
    stops: list[tuple[trio.lowlevel.TrioToken, trio.Event]] = []

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(peer.run)
            stops.append((trio.lowlevel.current_trio_token(), trio.Event()))
            up.set()
            await stops[0][1].wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert up.wait(DEADLINE_S)
    try:
        yield peer
    finally:
        token, stop = stops[0]
        token.run_sync_soon(stop.set)
        thread.join()

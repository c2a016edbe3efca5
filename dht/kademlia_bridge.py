"""The `kademlia` package as a `Directory`: the only file that knows asyncio.

The package provides the routing table and the shortlist of nearest nodes. This file replaces its
messages, trust, counting and storage (docs/adr/0002-asyncio-bridge.md lists why, tests/dht shows
it). The package's tasks run in a trio-asyncio loop of their own. Their errors are noted and never
raised: otherwise one bad datagram would end the program.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio
import trio_asyncio
from kademlia.crawling import SpiderCrawl
from kademlia.node import Node
from kademlia.protocol import KademliaProtocol

from medusa.dht import wire
from medusa.dht.config import DhtConfig
from medusa.dht.directory import Address, Collected, Contacts, Placed, Replicas, Wire
from medusa.dht.routing import Router, Shortlist
from medusa.dht.shares import (
    HAND_OVER_BURST,
    HAND_OVERS_PER_S,
    STORE_BURST,
    STORES_PER_S,
    Allowances,
    chosen,
)
from medusa.overlay.concurrency import Bell
from medusa.overlay.errors import BusyError, ClosedError, DecodeError, MedusaError
from medusa.overlay.events import Events
from medusa.overlay.names import PeerId

T = TypeVar("T")

MAX_HAND_OVER: Final = 1000
"""Records tried for one new node; the rest reaches it with the next renewals."""

Ask = Callable[[Node], Awaitable[wire.Reply | None]]


LOOKUP_S: Final = 10.0
"""Seconds for one lookup: as long as three silent nodes, one after the other. A node that is slow
on purpose and names ever nearer ones cannot prolong it; the answers received by then count."""


class _Crawl(SpiderCrawl):  # type: ignore[misc]
    """One lookup: asks ever nearer nodes, `parallel` at a time. It does not wait for stragglers
    that it does not need (the package's crawl proceeds in lock step)."""

    def __init__(self, protocol: _Protocol, key: bytes, ask: Ask, enough: int | None) -> None:
        self.own = protocol.source_node.id
        self.me = protocol
        self.ask = ask
        self.enough = enough
        self.values: set[bytes] = set()
        self.asked = 0
        target = Node(key)
        start = protocol.router.find_neighbors(target)
        config = protocol.config
        super().__init__(protocol, target, start, config.copies, config.parallel)
        self.nearest = Shortlist(target, config.copies, protocol.participant_of)
        self.nearest.push(start)

    async def find(self) -> list[Node]:
        """The nearest nodes that answered; `values` then has their values."""
        under_way: dict[asyncio.Task[wire.Reply | None], Node] = {}
        loop = asyncio.get_running_loop()
        until = loop.time() + LOOKUP_S
        try:
            while not self._done() and (left_s := until - loop.time()) > 0:
                for node in self.nearest.ask(self.alpha - len(under_way)):
                    self.asked += 1
                    under_way[asyncio.ensure_future(self.ask(node))] = node
                if not under_way:
                    break
                first = asyncio.FIRST_COMPLETED
                await asyncio.wait(under_way, timeout=left_s, return_when=first)
                for task in [task for task in under_way if task.done()]:
                    self._received(under_way.pop(task), task.result())
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
        return self.nearest.found()

    @property
    def answered(self) -> int:
        return self.nearest.answered

    def _done(self) -> bool:
        return self.enough is not None and bool(self.values) and self.nearest.speaks(self.enough)

    def _received(self, node: Node, reply: wire.Reply | None) -> None:
        if not isinstance(reply, wire.Found):
            self.nearest.lost(node)
            return
        self.nearest.note_answer(node)
        self.values.update(reply.values)
        strangers = [n for n in reply.nodes if n != self.own and self.me.reachable(n)]
        self.nearest.push([Node(n) for n in strangers])


class _Protocol(KademliaProtocol):  # type: ignore[misc]
    """A Kademlia node. Coroutines here run in the asyncio loop; datagrams are processed, and
    requests answered, at once when they arrive."""

    def __init__(
        self,
        node_id: PeerId,
        out: Wire,
        contacts: Contacts,
        replicas: Replicas,
        *,
        config: DhtConfig,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(Node(node_id), replicas, config.copies)
        self._contacts = contacts
        self.router = Router(self, config.copies, self.source_node, self.participant_of)
        self.config, self.counts = config, Counter[str]()
        self.met = Bell()
        self._loop = loop
        self._wire = out
        self._calls: dict[bytes, tuple[bytes, asyncio.Future[wire.Reply | None]]] = {}
        self._shunned: dict[PeerId, float] = {}
        self._stores = Allowances(STORES_PER_S, STORE_BURST)
        self._hand_overs = Allowances(HAND_OVERS_PER_S, HAND_OVER_BURST)
        self._tasks: set[asyncio.Task[None]] = set()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            # rpcudp would turn any missing attribute, even a typo, into a remote call
            raise AttributeError(name)

    # -- datagrams in -------------------------------------------------------------------------

    def receive(self, peer_id: PeerId, address: Address, payload: bytes) -> None:
        """Process a datagram that `peer_id` has signed."""
        try:
            frame = wire.decode_frame(payload)
        except DecodeError:
            self.counts["malformed"] += 1
            return
        match frame.message:
            case wire.Ping() | wire.Store() | wire.FindNode() | wire.FindValue() as question:
                self._note_alive(peer_id)
                reply = self._answer(peer_id, question)
                self._wire.send(address, wire.encode_reply(frame.call, reply))
            case wire.Pong() | wire.Stored() | wire.Found() as reply:
                self._settle(peer_id, frame.call, reply)

    def _settle(self, peer_id: PeerId, call: bytes, reply: wire.Reply) -> None:
        asked, future = self._calls.get(call, (None, None))
        if future is None or asked != peer_id or future.done():
            self.counts["unexpected"] += 1
            return
        future.set_result(reply)

    def _answer(self, peer_id: PeerId, question: wire.Request) -> wire.Reply:
        match question:
            case wire.Ping():
                return wire.Pong()
            case wire.Store(key, value):
                return self._take_in(peer_id, key, value)
            case wire.FindNode(key):
                return wire.Found(self._nearest(key, peer_id))
            case wire.FindValue(key):
                values = self.storage.held(key)[: wire.MAX_VALUES]
                return wire.Found(self._nearest(key, peer_id), values)

    def _take_in(self, peer_id: PeerId, key: bytes, value: bytes) -> wire.Stored:
        if self._stores.take(peer_id, self._loop.time()):
            return self._keep(key, value)
        self.counts["too many stores"] += 1
        return wire.Stored(BusyError.code, "too many records from this peer; try again later")

    def _keep(self, key: bytes, value: bytes) -> wire.Stored:
        try:
            self.storage.accept(key, value)
        except MedusaError as error:
            self.counts["refused"] += 1
            return wire.Stored(error.code, str(error)[:1024])
        return wire.Stored()

    def _nearest(self, key: bytes, asker: PeerId) -> list[PeerId]:
        nodes = self.router.find_neighbors(Node(key), exclude=Node(asker))
        return [node.id for node in nodes]

    # -- requests out -------------------------------------------------------------------------

    def participant_of(self, node: Node) -> str:
        return self._contacts.participant_of(node.id)

    def reachable(self, peer_id: PeerId) -> bool:
        return self._contacts.address_of(peer_id) is not None

    async def ask(self, node: Node, message: wire.Request) -> wire.Reply | None:
        """The node's answer, after several tries if needed; None: the node stays silent, or did
        lately."""
        if self._shunned.get(node.id, 0.0) > self._loop.time():
            return None
        return await self._try(node, message)

    async def _try(self, node: Node, message: wire.Request) -> wire.Reply | None:
        call = os.urandom(wire.CALL_BYTES)
        question = wire.encode_request(call, message)
        future: asyncio.Future[wire.Reply | None] = self._loop.create_future()
        timer: asyncio.TimerHandle | None = None

        def attempt(left: int) -> None:
            # timers, because each wait costs several passes through the loop
            nonlocal timer
            if future.done():
                return
            # the address is None once the node is known to be dead
            address = self._contacts.address_of(node.id)
            if left == 0 or address is None:
                future.set_result(None)
                return
            self._wire.send(address, question)
            timer = self._loop.call_later(self.config.attempt_s, attempt, left - 1)

        self._calls[call] = (node.id, future)
        try:
            attempt(self.config.attempts)
            reply = await future
        finally:
            del self._calls[call]
            if timer is not None:
                timer.cancel()
        if reply is not None:
            self._note_alive(node.id)
            return reply
        self._shunned[node.id] = self._loop.time() + self.config.shun_s
        self.router.remove_contact(node)
        return None

    async def call_ping(self, node: Node) -> None:
        """Ping the oldest node of a full bucket; the package's table calls this."""
        await self.ask(node, wire.Ping())

    async def greet(self, peer_ids: list[PeerId]) -> None:
        """Ping these peers, shunned or not; those that answer become neighbours."""
        await asyncio.gather(*(self._try(Node(peer_id), wire.Ping()) for peer_id in peer_ids))

    async def crawl(self, key: bytes) -> list[Node]:
        """The live nodes nearest to the key."""
        return await _Crawl(self, key, lambda n: self.ask(n, wire.FindNode(key)), None).find()

    async def collect(self, key: bytes) -> _Crawl:
        """A finished search for values."""
        ask: Ask = lambda node: self.ask(node, wire.FindValue(key))  # noqa: E731
        search = _Crawl(self, key, ask, self.config.quorum)
        await search.find()
        return search

    async def place(
        self, key: bytes, value: bytes
    ) -> tuple[list[wire.Stored], list[wire.Reply | None]]:
        """Store a value: the answers of this node (if it is among the nearest to the key) and of
        the others."""
        nodes = [self.source_node, *await self.crawl(key)]
        nearest = self._nearest_of(nodes, Node(key))
        own = [self._keep(key, value)] if self.source_node in nearest else []
        others = [node for node in nearest if node is not self.source_node]
        message = wire.Store(key, value)
        return own, list(await asyncio.gather(*(self.ask(node, message) for node in others)))

    # -- neighbours ---------------------------------------------------------------------------

    def _note_alive(self, peer_id: PeerId) -> None:
        """Note a sign of life, signed by that peer."""
        self._shunned.pop(peer_id, None)
        node = Node(peer_id)
        bucket = self.router.buckets[self.router.get_bucket_for(node)]
        if peer_id in bucket.nodes:
            bucket.add_node(node)  # this moves the node to the end of the order of eviction
        elif peer_id not in bucket.replacement_nodes:
            # starts tasks, which the package can do only in its own loop
            self._loop.call_soon(self._welcome, node)

    def _welcome(self, newcomer: Node) -> None:
        if self.router.is_new_node(newcomer):
            others = self.router.nodes()
            self.router.add_contact(newcomer)
            self.met.ring()
            owner = self.participant_of(newcomer).encode()
            # a node that only waits for room in the table may come back again and again
            known = not self.router.is_new_node(newcomer)
            if known and self._hand_overs.take(owner, self._loop.time()):
                self._start(self._hand_over(newcomer, others))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        # asyncio keeps only weak references to tasks; the loop cancels what is left when it closes
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _hand_over(self, newcomer: Node, others: list[Node]) -> None:
        """Give a new node the records that it should hold, if this node is the nearest of the
        others."""
        own = self.source_node.long_id
        # Take the highest bit in which a node's id differs from ours: a key is nearer to us than to
        # that node if and only if the key has our value of that bit. So one comparison covers all
        # nodes.
        decisive = 0
        for other in others:
            decisive |= 1 << (own ^ other.long_id).bit_length() >> 1
        for key, value in islice(self.storage.everything(), MAX_HAND_OVER):
            target = Node(key)
            mine = not (target.long_id ^ own) & decisive
            if mine and self._falls_to(newcomer, target, others):
                if await self.ask(newcomer, wire.Store(key, value)) is None:
                    break
                self.counts["handed over"] += 1
            else:
                await asyncio.sleep(0)

    def _falls_to(self, newcomer: Node, target: Node, others: list[Node]) -> bool:
        return newcomer in self._nearest_of([self.source_node, *others, newcomer], target)

    def _nearest_of(self, nodes: list[Node], target: Node) -> list[Node]:
        """The nodes that should hold the records under a key."""
        ordered = sorted(nodes, key=target.distance_to)
        return chosen(ordered, self.participant_of, self.config.copies)


class Bridge:
    """The trio side: the protocol's actions as trio calls. Made by `open_bridge`."""

    def __init__(self, protocol: _Protocol, loop: trio_asyncio.TrioEventLoop) -> None:
        self._protocol = protocol
        self._loop = loop
        self.closed = False

    @property
    def counts(self) -> Counter[str]:
        """Datagrams dropped and records refused or handed over, by reason."""
        return self._protocol.counts

    def neighbours(self) -> list[PeerId]:
        """Ids of the nodes in the routing table."""
        return [node.id for node in self._protocol.router.nodes()]

    async def greet(self, peer_ids: list[PeerId]) -> None:
        """Ping these peers; those that answer become neighbours."""
        await self._run(self._protocol.greet(peer_ids))

    async def crawl(self, key: bytes) -> None:
        """Look for the nodes nearest to the key, to learn of them."""
        await self._run(self._protocol.crawl(key))

    async def collect(self, key: bytes) -> Collected:
        """Search for the values under the key at the nodes nearest to it."""
        search = await self._run(self._protocol.collect(key))
        return Collected(frozenset(search.values), search.asked, search.answered)

    async def place(self, key: bytes, value: bytes) -> Placed:
        """Store the value on the nodes nearest to the key."""
        own, others = await self._run(self._protocol.place(key, value))
        answers = [reply for reply in others if isinstance(reply, wire.Stored)]
        return Placed(own, answers, len(others))

    async def met(self) -> None:
        """Wait for a node's next sign of life."""
        self._protocol.met.clear()
        await self._protocol.met.wait()

    def receive(self, peer_id: PeerId, address: Address, payload: bytes) -> None:
        """A datagram for this node; called from any trio task, it never blocks."""
        if not self.closed:
            self._protocol.receive(peer_id, address, payload)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self.closed:
            work.close()
            raise ClosedError("the DHT is closed")
        try:
            result: T = await self._loop.run_aio_coroutine(work)
        except asyncio.CancelledError:
            raise ClosedError("the DHT was closed meanwhile") from None
        return result


@asynccontextmanager
async def open_bridge(
    node_id: PeerId,
    out: Wire,
    contacts: Contacts,
    replicas: Replicas,
    *,
    config: DhtConfig,
    events: Events,
) -> AsyncIterator[Bridge]:
    """Run a node of the package's protocol in a loop of its own; nothing of it is left on exit."""

    def note(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = context.get("exception") or context.get("message")
        if isinstance(problem, Exception):
            events.fault("failed in the DHT", problem)
        else:
            events.note("error", f"failed in the DHT: {problem!r}")

    async with trio.open_nursery() as nursery:
        loop, scope = await nursery.start(_run_loop, note)
        protocol = _Protocol(node_id, out, contacts, replicas, config=config, loop=loop)
        bridge = Bridge(protocol, loop)
        out.on(bridge.receive)
        try:
            yield bridge
        finally:
            bridge.closed = True
            scope.cancel()


async def _run_loop(
    note: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None],
    task_status: trio.TaskStatus[tuple[trio_asyncio.TrioEventLoop, trio.CancelScope]],
) -> None:
    # In a task of its own, so that the loop does not become "current" for the caller's tasks; and
    # shielded, so that it outlives its users when all are cancelled at once.
    with trio.CancelScope(shield=True) as scope:
        async with trio_asyncio.open_loop() as loop:
            loop.set_exception_handler(note)
            task_status.started((loop, scope))
            await trio.sleep_forever()

"""A network in memory for DHT nodes, of Medusa and of the bare package, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import trio
import trio_asyncio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kademlia.network import Server
from kademlia.utils import digest

from medusa.dht.catalog import Catalog, open_catalog_in
from medusa.dht.config import DhtConfig
from medusa.dht.directory import Address, Handler
from medusa.dht.local_peer import LocalPeer, Names
from medusa.dht.node import Node, open_node
from medusa.dht.records import Publisher
from medusa.overlay.errors import MedusaError, UnavailableError, UntrustedError
from medusa.overlay.events import Events
from medusa.overlay.identity import peer_id_of

EPOCH = 1_800_000_000.0
"""The wall clock's time, seconds, when a test's virtual clock is at 0."""


FEDERATION = "the federation of these tests"


def wall_clock() -> float:
    return EPOCH + trio.current_time()


class Network:
    """Delivers datagrams after a delay, or loses them."""

    def __init__(self, nursery: trio.Nursery, seed: int = 1, loss: float = 0.0) -> None:
        self.rng = Random(seed)
        self.loss = loss
        self.down: set[Address] = set()
        self.sent = 0
        self._nursery = nursery
        self._handlers: dict[Address, Callable[[bytes, Address, bytes], None]] = {}

    def attach(self, address: Address, handler: Callable[[bytes, Address, bytes], None]) -> None:
        self._handlers[address] = handler

    def send(self, sender: bytes, source: Address, target: Address, payload: bytes) -> None:
        self.sent += 1
        if self.rng.random() >= self.loss and not {source, target} & self.down:
            delay = self.rng.uniform(0.005, 0.05)
            self._nursery.start_soon(self._deliver, delay, sender, source, target, payload)

    def inject(self, sender: bytes, target: Address, payload: bytes) -> None:
        """Deliver at once, as from a member at an odd address."""
        self._handlers[target](sender, ("192.0.2.1", 9), payload)

    async def _deliver(
        self, delay: float, sender: bytes, source: Address, target: Address, payload: bytes
    ) -> None:
        await trio.sleep(delay)
        if target in self._handlers and not {source, target} & self.down:
            self._handlers[target](sender, source, payload)


@asynccontextmanager
async def open_network(seed: int = 1, loss: float = 0.0) -> AsyncIterator[Network]:
    async with trio.open_nursery() as nursery:
        yield Network(nursery, seed, loss)
        nursery.cancel_scope.cancel()


@dataclass
class FakeWire:
    """Imitates the overlay's datagrams: the receiver gets the signer's id."""

    network: Network
    peer_id: bytes
    address: Address

    def on(self, handler: Handler) -> None:
        self.network.attach(self.address, handler)

    def send(self, address: Address, payload: bytes) -> None:
        self.network.send(self.peer_id, self.address, address, payload)


@dataclass
class FakeContacts:
    """Imitates the peer table. All nodes share one dict, which the test fills; `owners` names the
    participant of a peer, and a peer without an entry is a participant of its own."""

    own: bytes
    table: dict[bytes, Address]
    owners: dict[bytes, str] = field(default_factory=dict)

    def known(self) -> Iterable[bytes]:
        return [peer_id for peer_id in self.table if peer_id != self.own]

    def address_of(self, peer_id: bytes) -> Address | None:
        return self.table.get(peer_id)

    def participant_of(self, peer_id: bytes) -> str:
        return self.owners.get(peer_id, peer_id.hex())

    def are_expected(self) -> bool:
        return any(self.known())


@dataclass
class Shelf:
    """A store that accepts any bytes under any key."""

    values: dict[bytes, list[bytes]] = field(default_factory=dict)
    refusal: MedusaError | None = None

    def accept(self, key: bytes, value: bytes) -> None:
        if self.refusal is not None:
            raise self.refusal
        if value not in self.values.setdefault(key, []):
            self.values[key].append(value)

    def held(self, key: bytes) -> list[bytes]:
        return self.values.get(key, [])

    def everything(self) -> Iterator[tuple[bytes, bytes]]:
        return iter([(k, v) for k, values in self.values.items() for v in values])


@dataclass
class Member:
    """A DHT node of ours with a shelf."""

    peer_id: bytes
    address: Address
    shelf: Shelf
    node: Node
    events: Events


def address_of(number: int) -> Address:
    return (f"10.0.{number // 250}.{number % 250 + 1}", 7000)


@asynccontextmanager
async def open_members(
    network: Network, count: int, config: DhtConfig | None = None, *, first: int = 0
) -> AsyncIterator[list[Member]]:
    """Give `count` running nodes that know each other."""
    rng = Random(network.rng.random())
    table = {rng.randbytes(20): address_of(first + n) for n in range(count)}
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(open_member(network, peer_id, table, config))
            for peer_id in table
        ]
        await settle()
        yield members


@asynccontextmanager
async def open_member(
    network: Network,
    peer_id: bytes,
    table: dict[bytes, Address],
    config: DhtConfig | None = None,
    owners: dict[bytes, str] | None = None,
) -> AsyncIterator[Member]:
    shelf, events, address = Shelf(), Events(lambda: 0.0), table[peer_id]
    wire = FakeWire(network, peer_id, address)
    contacts = FakeContacts(peer_id, table, {} if owners is None else owners)
    config = config or DhtConfig()
    rng = Random(network.rng.random())
    async with open_node(
        peer_id, wire, contacts, shelf, config=config, events=events, rng=rng
    ) as node:
        yield Member(peer_id, address, shelf, node, events)


async def settle(seconds: float = 30.0) -> None:
    """Let virtual time pass (the tests run on an autojump clock: it costs nothing)."""
    await trio.sleep(seconds)


# -- catalogs: nodes with keys and names ----------------------------------------------------------


@dataclass
class Home:
    """A peer with a catalog, which can be stopped and started."""

    world: World
    participant: str
    key: Ed25519PrivateKey
    peer_id: bytes
    address: Address
    folder: Path
    config: DhtConfig = field(default_factory=DhtConfig)
    events: Events = field(default_factory=lambda: Events(lambda: 0.0))
    catalog: Catalog | None = None
    body_filter: Callable[[bytes], bytes] = lambda body: body
    clock: Callable[[], float] = wall_clock

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Catalog]:
        local = LocalPeer(
            federation=FEDERATION,
            participant=self.participant,
            peer_id=self.peer_id,
            private_key=self.key,
            wire=FakeWire(self.world.network, self.peer_id, self.address),
            contacts=FakeContacts(self.peer_id, self.world.table, self.world.owners),
            publisher_of=self.world.publisher_of,
            fetch_body=partial(self.world.fetch_body, self.participant),
            fetch_names=self.world.fetch_names,
            events=self.events,
            clock=self.clock,
            rng=Random(self.world.network.rng.random()),
        )
        async with open_catalog_in(local, self.folder, self.config) as catalog:
            self.catalog = catalog
            try:
                yield catalog
            finally:
                self.catalog = None


@dataclass
class World:
    """All homes, their membership and the calls between them."""

    network: Network
    folder: Path
    homes: dict[bytes, Home] = field(default_factory=dict)
    table: dict[bytes, Address] = field(default_factory=dict)
    revoked: set[bytes] = field(default_factory=set)
    owners: dict[bytes, str] = field(default_factory=dict)

    def home(self, participant: str, config: DhtConfig | None = None) -> Home:
        key = Ed25519PrivateKey.generate()
        peer_id = peer_id_of(key.public_key())
        folder = self.folder / peer_id.hex()
        folder.mkdir()
        address = address_of(len(self.homes))
        home = Home(self, participant, key, peer_id, address, folder, config or DhtConfig())
        self.homes[peer_id] = home
        self.table[peer_id] = address
        self.owners[peer_id] = participant
        return home

    def publisher_of(self, peer_id: bytes) -> Publisher:
        home = self.homes.get(peer_id)
        if home is None or peer_id in self.revoked:
            raise UntrustedError(f"peer {peer_id.hex()} is no member")
        return Publisher(home.participant, home.key.public_key())

    async def fetch_body(self, asking: str, peer_id: bytes, wanted: bytes) -> bytes:
        home = self._reached(peer_id)
        assert home.catalog is not None
        return home.body_filter(home.catalog.body(wanted, asking))

    async def fetch_names(self, peer_id: bytes) -> Names:
        catalog = self._reached(peer_id).catalog
        assert catalog is not None
        return Names(catalog.own_names())

    def _reached(self, peer_id: bytes) -> Home:
        home = self.homes[peer_id]
        if home.catalog is None or home.address in self.network.down:
            raise UnavailableError(f"peer {peer_id.hex()} cannot be reached")
        return home


# -- the bare package -----------------------------------------------------------------------------


class BareTransport(asyncio.DatagramTransport):
    def __init__(self, network: Network, address: Address) -> None:
        super().__init__()
        self._network = network
        self._address = address

    def sendto(self, data: bytes, addr: Address | None = None) -> None:
        assert addr is not None
        self._network.send(b"", self._address, tuple(addr), data)

    def close(self) -> None:
        pass


class BareServer(Server):
    """`kademlia.network.Server` on the network in memory; nothing else is changed."""

    address: Address

    def attach(self, network: Network, address: Address) -> None:
        loop = asyncio.get_running_loop()
        self.address = address
        self.protocol = self._create_protocol()
        self.transport = BareTransport(network, address)
        self.protocol.connection_made(self.transport)
        network.attach(
            address,
            lambda _peer, source, data: loop.call_soon(
                self.protocol.datagram_received, data, source
            ),
        )


@asynccontextmanager
async def open_bare(
    network: Network, count: int, *, guarded: bool = True
) -> AsyncIterator[list[BareServer]]:
    """Give running nodes of the package, bootstrapped from the first. guarded: the loop survives
    its errors."""
    async with trio_asyncio.open_loop() as loop:
        if guarded:
            loop.set_exception_handler(lambda _loop, _context: None)
        servers = []
        for number in range(count):
            server = BareServer(node_id=digest(network.rng.randbytes(20)))
            server.attach(network, address_of(number))
            servers.append(server)
        for server in servers[1:]:
            await aio(server.bootstrap, [servers[0].address])
        yield servers


async def aio(function: Callable[..., object], *arguments: object) -> object:
    """Await a coroutine function of the package from trio."""
    return await trio_asyncio.aio_as_trio(function)(*arguments)

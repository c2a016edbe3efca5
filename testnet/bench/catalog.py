"""The catalog with 50 nodes in one process: the time of a lookup, and the effect of loss.

* Times are over real UDP on loopback, with every datagram signed and verified, from `lookup` to the
  typed object. The reference is the bare package's `get` on asyncio, which signs and verifies
  nothing, and stops at the first value (most of its lookups by a node that holds a copy ask no
  other node).
* Loss is measured in virtual time on a network in memory (the package: on loopback, datagrams
  dropped before they are sent).
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio
import trio.testing

from medusa.dht.catalog import Catalog, Kind, open_catalog_in
from medusa.dht.config import DhtConfig
from medusa.dht.directory import Address, Handler
from medusa.dht.local_peer import LocalPeer, Names
from medusa.dht.node import Node, open_node
from medusa.dht.records import Publisher
from medusa.overlay.certificates import public_key_of
from medusa.overlay.datagrams import Channel, Datagrams, open_datagrams
from medusa.overlay.errors import UnavailableError, UntrustedError
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.names import ObjectName, PeerId
from medusa.overlay.peers import PeerTable
from medusa.testnet.bench import Entry, entry

NODES: Final = 50
KEYS: Final = 100
LOOKUPS: Final = 300
BODY: Final = "x" * 300
LOSS: Final = 0.10
LOSSY_KEYS: Final = 200
ANYTHING: Final = Kind("thing", str)


def measure() -> Iterator[Entry]:
    """Entries of bench.json."""
    ours = statistics.median(trio.run(_lookups_ms))
    sizes = (NODES, KEYS, LOOKUPS, LOSSY_KEYS, LOSS)
    command = [sys.executable, "-m", "medusa.testnet.bench.bare_kademlia", *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, check=True)
    bare: dict[str, Any] = json.loads(done.stdout)
    yield entry(
        f"catalog lookup, {NODES} nodes in one process, against bare kademlia unsigned",
        ours,
        "ms",
        reference=statistics.median(bare["lookups_ms"]),
    )
    for tries, words, goal in ((3, "three tries", "> 1.0"), (1, "one try", None)):
        name = f"catalog keys found at {LOSS:.0%} loss, {words}, against bare kademlia"
        yield entry(name, _found_share(tries), "share", goal, bare["found_share"])


# -- time: real datagrams -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wire:
    datagrams: Datagrams

    def on(self, handler: Handler) -> None:
        self.datagrams.on(Channel.DHT, handler)

    def send(self, address: Address, payload: bytes) -> None:
        self.datagrams.send(Channel.DHT, address, payload)


@dataclass(frozen=True)
class _Table:
    own: PeerId
    addresses: dict[PeerId, Address]

    def known(self) -> Iterable[PeerId]:
        return [peer_id for peer_id in self.addresses if peer_id != self.own]

    def address_of(self, peer_id: PeerId) -> Address | None:
        return self.addresses.get(peer_id)

    def participant_of(self, peer_id: PeerId) -> str:
        return peer_id.hex()

    def are_expected(self) -> bool:
        return True


async def _lookups_ms() -> list[float]:
    rng = random.Random(1)
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        async with _catalogs(Path(folder)) as catalogs:
            for catalog in catalogs:
                await catalog.joined(8)
            names = []
            for number in range(KEYS):
                names.append(ObjectName.parse(f"medusa://bench.edu/{number}"))
                await rng.choice(catalogs).publish(ANYTHING, names[-1], BODY)
            for _ in range(LOOKUPS):
                catalog, name = rng.choice(catalogs), rng.choice(names)
                start = time.perf_counter()
                found = await catalog.lookup(ANYTHING, name)
                taken.append((time.perf_counter() - start) * 1e3)
                assert found.value == BODY
    return taken


@asynccontextmanager
async def _catalogs(folder: Path) -> AsyncIterator[list[Catalog]]:
    now = wall_clock()
    root = Root.create("bench.edu", now)
    membership = Membership.found(root, now)
    tables = [PeerTable(Identity.issue(root, now), membership) for _ in range(NODES)]
    async with AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(
                open_datagrams(table.identity, table, ("127.0.0.1", 0), Events())
            )
            for table in tables
        ]
        pairs = list(zip(tables, sockets, strict=True))
        records = [table.announce([udp.address], now).data for table, udp in pairs]
        addresses = {table.identity.peer_id: udp.address for table, udp in pairs}
        catalogs = []
        for number, (table, udp) in enumerate(pairs):
            table.merge(records, now)
            local = _local_peer(table, _Wire(udp), addresses)
            home = folder / str(number)
            catalogs.append(
                await stack.enter_async_context(open_catalog_in(local, home, DhtConfig()))
            )
        yield catalogs


def _local_peer(table: PeerTable, wire: _Wire, addresses: dict[PeerId, Address]) -> LocalPeer:
    def publisher_of(peer_id: PeerId) -> Publisher:
        record = table.get(peer_id)
        if record is None:
            raise UntrustedError(peer_id.hex())
        return Publisher(record.participant, public_key_of(record.certificate))

    async def no_body(_peer_id: PeerId, _digest: bytes) -> bytes:
        raise UnavailableError("all bodies here fit their records")

    async def no_names(_peer_id: PeerId) -> Names:
        raise UnavailableError("nobody lists names here")

    own = table.identity
    return LocalPeer(
        federation=table.federation,
        participant=own.participant,
        peer_id=own.peer_id,
        private_key=own.private_key,
        wire=wire,
        contacts=_Table(own.peer_id, addresses),
        publisher_of=publisher_of,
        fetch_body=no_body,
        fetch_names=no_names,
        events=Events(),
    )


# -- loss: a network in memory --------------------------------------------------------------------


@dataclass
class _Lossy:
    """Delivers after a few milliseconds, or not at all."""

    nursery: trio.Nursery
    rng: random.Random
    handlers: dict[Address, Handler] = field(default_factory=dict)

    def send(self, sender: PeerId, source: Address, target: Address, payload: bytes) -> None:
        if self.rng.random() >= LOSS:
            delay = self.rng.uniform(0.005, 0.05)
            self.nursery.start_soon(self._deliver, delay, sender, source, target, payload)

    async def _deliver(
        self, delay: float, sender: PeerId, source: Address, target: Address, payload: bytes
    ) -> None:
        await trio.sleep(delay)
        self.handlers[target](sender, source, payload)


@dataclass(frozen=True)
class _LossyWire:
    network: _Lossy
    peer_id: PeerId
    address: Address

    def on(self, handler: Handler) -> None:
        self.network.handlers[self.address] = handler

    def send(self, address: Address, payload: bytes) -> None:
        self.network.send(self.peer_id, self.address, address, payload)


@dataclass
class _Shelf:
    values: dict[bytes, bytes] = field(default_factory=dict)

    def accept(self, key: bytes, value: bytes) -> None:
        self.values[key] = value

    def held(self, key: bytes) -> list[bytes]:
        return [self.values[key]] if key in self.values else []

    def everything(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(list(self.values.items()))


def _found_share(attempts: int) -> float:
    clock = trio.testing.MockClock(autojump_threshold=0)
    run: Callable[[int], Any] = _found
    return float(trio.run(run, attempts, clock=clock)) / LOSSY_KEYS


async def _found(attempts: int) -> int:
    rng = random.Random(2)
    config = DhtConfig(attempts=attempts)
    addresses = {PeerId(rng.randbytes(20)): ("10.0.0.1", port) for port in range(1, NODES + 1)}
    found = 0
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        network = _Lossy(nursery, rng)
        nodes: list[Node] = [
            await stack.enter_async_context(
                open_node(
                    peer_id,
                    _LossyWire(network, peer_id, address),
                    _Table(peer_id, addresses),
                    _Shelf(),
                    config=config,
                    events=Events(),
                    rng=rng,
                )
            )
            for peer_id, address in addresses.items()
        ]
        for node in nodes:
            await node.joined(8)
        for number in range(LOSSY_KEYS):
            key, value = rng.randbytes(20), str(number).encode()
            writer, reader = rng.sample(nodes, 2)
            try:
                await writer.put(key, value)
                found += value in await reader.get(key)
            except UnavailableError:
                continue
        nursery.cancel_scope.cancel()
    return found

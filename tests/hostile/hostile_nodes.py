"""Nodes of a hostile participant in the DHT: as many identities as it likes, all of them lying.

They run on the network in memory of `dht_network`, speak the DHT's datagrams, and know everything
that an honest node may learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from random import Random

import trio
from dht_network import FakeWire, Network

from medusa.dht import wire
from medusa.dht.directory import Address
from medusa.overlay.errors import ConflictError

ID_BITS = 160


class Lie(Enum):
    """How a hostile node answers a question."""

    NOTHING = "there are no neighbours and no values; what is stored is thrown away"
    EACH_OTHER = "the nearest are all of us, and there are no values"
    CLOSER = "there is one of us who is nearer yet, after a while, again and again"
    OLD = "as EACH_OTHER, with what was stored first: an old version, well signed"
    NEWER = "as EACH_OTHER, and whatever is stored is refused: a newer one is here"
    RUBBISH = "as EACH_OTHER, with values that are none"
    SILENCE = "no answer at all"


def ids_near(point: bytes, count: int, rng: Random, *, shared_bits: int = 40) -> list[bytes]:
    """Return ids that begin like `point`, a key or another node's id. In a real federation each id
    costs some 2**shared_bits tries; this function takes them without any."""
    free = ID_BITS - shared_bits
    prefix = int.from_bytes(point) >> free << free
    return [(prefix | rng.getrandbits(free)).to_bytes(ID_BITS // 8) for _ in range(count)]


def ids_anywhere(count: int, rng: Random) -> list[bytes]:
    return [rng.randbytes(ID_BITS // 8) for _ in range(count)]


@dataclass
class Gang:
    """All nodes of one hostile participant. slow_s: how long each answer takes.

    Attributes:
        asked: questions for nodes and values that reached any of them.
    """

    network: Network
    lie: Lie
    slow_s: float = 0.0
    members: dict[bytes, Address] = field(default_factory=dict)
    loot: dict[bytes, bytes] = field(default_factory=dict)
    asked: int = 0
    _wires: dict[bytes, FakeWire] = field(default_factory=dict)

    def join(self, peer_ids: Iterable[bytes], first_address: int) -> dict[bytes, Address]:
        """Start nodes with these ids; return the peer table's entries for them."""
        for number, peer_id in enumerate(peer_ids):
            address = (f"10.66.{(first_address + number) // 250}.{number % 250 + 1}", 7000)
            self.members[peer_id] = address
            self._wires[peer_id] = wired = FakeWire(self.network, peer_id, address)
            wired.on(self._handler(peer_id))
        return self.members

    async def crowd(self, victims: Iterable[Address], every_s: float = 15.0) -> None:
        """Ping these nodes for ever: each ping introduces one more node of the gang."""
        victims = list(victims)
        while True:
            for peer_id, wired in self._wires.items():
                for victim in victims:
                    wired.send(victim, wire.encode_request(peer_id, wire.Ping()))
            await trio.sleep(every_s)

    def _handler(self, me: bytes) -> Callable[[bytes, Address, bytes], None]:
        def handle(_sender: bytes, address: Address, payload: bytes) -> None:
            frame = wire.decode_frame(payload)
            if isinstance(frame.message, wire.Ping | wire.Store | wire.FindNode | wire.FindValue):
                self.asked += isinstance(frame.message, wire.FindNode | wire.FindValue)
                reply = self._reply(frame.message)
                if reply is not None:
                    self._send(me, address, wire.encode_reply(frame.call, reply))

        return handle

    def _send(self, me: bytes, address: Address, data: bytes) -> None:
        async def later() -> None:
            await trio.sleep(self.slow_s)
            self._wires[me].send(address, data)

        self.network._nursery.start_soon(later)

    def _reply(self, question: wire.Request) -> wire.Reply | None:
        match question:
            case wire.Ping():
                return wire.Pong()  # a node that does not answer pings is dropped
            case _ if self.lie is Lie.SILENCE:
                return None
            case wire.Store(key, value):
                self.loot.setdefault(key, value)
                if self.lie is Lie.NEWER:
                    return wire.Stored(ConflictError.code, "a newer one is here")
                return wire.Stored()
            case wire.FindNode(key):
                return wire.Found(self._nodes(key))
            case wire.FindValue(key):
                return wire.Found(self._nodes(key), self._values(key))

    def _nodes(self, key: bytes) -> list[bytes]:
        if self.lie is Lie.NOTHING:
            return []
        target = int.from_bytes(key)
        nearest = sorted(self.members, key=lambda peer: int.from_bytes(peer) ^ target)
        if self.lie is Lie.CLOSER:  # closer to the key, from the far end on
            return nearest[max(0, len(nearest) - self.asked) :][: wire.MAX_NODES]
        return nearest[: wire.MAX_NODES]

    def _values(self, key: bytes) -> list[bytes]:
        match self.lie:
            case Lie.OLD:
                return [self.loot[key]] if key in self.loot else []
            case Lie.RUBBISH:
                return [bytes([number]) * 100 for number in range(wire.MAX_VALUES)]
            case _:
                return []

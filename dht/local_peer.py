"""The parts of the overlay that the catalog uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random, SystemRandom  # noqa: TID251 -- this is the driver that passes one in
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from medusa.dht.bodies import Fetch
from medusa.dht.directory import Address, Contacts, Handler, Wire
from medusa.dht.records import Publisher, PublisherOf
from medusa.overlay.datagrams import Channel, Datagrams
from medusa.overlay.errors import UntrustedError
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.gossip.events import Health
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay

BODY: Final = "catalog.body"
NAMES: Final = "catalog.names"

NAMES_S: Final = 5.0
"""Seconds for a peer to list its names: a listing of the federation waits for the slowest."""


class BodyRequest(Struct, frozen=True):
    """RPC catalog.body: the body with that SHA-256, as the response's body."""

    digest: bytes


class BodyFollows(Struct, frozen=True):
    """The answer to `BodyRequest`: the body of the message is the object."""


class NamesRequest(Struct, frozen=True):
    """RPC catalog.names: asks for the names that this peer publishes."""


class Names(Struct, frozen=True):
    """Names of objects by the label of their kind."""

    names: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class LocalPeer:
    """The catalog's view of its own peer.

    Attributes:
        federation: its id.
        participant, peer_id, private_key: this peer's identity.
        wire: the overlay's datagrams for the DHT.
        contacts: the peer table.
        publisher_of: the participant of a peer id, if that is a member now.
        fetch_body, fetch_names: the two RPCs, to the peer with that id.
        exclusion: why this peer is cut off from the others, which refuse it; else "".
        clock: seconds since the epoch. clock_is_contradicted: most others' clocks differ from it.
        returning: while it is open, calls a function whenever a peer is back that seemed dead, or
            our clock is set: peers on the other side have received nothing from us meanwhile.
        rng: for jitter and for the order of greetings; no secret depends on it.
    """

    federation: str
    participant: str
    peer_id: PeerId
    private_key: Ed25519PrivateKey
    wire: Wire
    contacts: Contacts
    publisher_of: PublisherOf
    fetch_body: Fetch
    fetch_names: Callable[[PeerId], Awaitable[Names]]
    events: Events
    exclusion: Callable[[], str] = str
    clock: Callable[[], float] = wall_clock
    clock_is_contradicted: Callable[[], bool] = bool
    rng: Random = field(default_factory=SystemRandom)
    returning: Callable[[Callable[[], None]], AbstractContextManager[None]] = lambda _: (
        nullcontext()
    )


@dataclass(frozen=True)
class _OverlayWire:
    datagrams: Datagrams

    def on(self, handler: Handler) -> None:
        self.datagrams.on(Channel.DHT, handler)

    def send(self, address: Address, payload: bytes) -> None:
        self.datagrams.send(Channel.DHT, address, payload)


@dataclass(frozen=True)
class _PeerContacts:
    overlay: Overlay

    def known(self) -> Iterable[PeerId]:
        own, peers = self.overlay.identity.peer_id, self.overlay.peers
        present = [record.peer_id for record in peers.all() if record.peer_id != own]
        return [*present, *peers.missed()]

    def address_of(self, peer_id: PeerId) -> Address | None:
        if self.overlay.gossip.health(peer_id).gone:
            return None
        addresses = self.overlay.peers.addresses_of(peer_id)
        return addresses[0] if addresses else None

    def participant_of(self, peer_id: PeerId) -> str:
        return self.overlay.peers.participant_of(peer_id, self.overlay.clock())

    def are_expected(self) -> bool:
        # a participant that another one admitted has a sponsor, even before it has met anybody
        participant = self.overlay.identity.participant
        return any(self.known()) or bool(self.overlay.membership.chain_of(participant))


def local_peer_of(overlay: Overlay, rng: Random | None = None) -> LocalPeer:
    """The parts of a running overlay."""

    def publisher_of(peer_id: PeerId) -> Publisher:
        record = overlay.peers.get(peer_id)
        if record is None:
            raise UntrustedError(f"peer {peer_id.hex()} is unknown or revoked")
        if overlay.clock() >= record.expires:
            raise UntrustedError(f"peer {record.name}: its certificate has expired")
        return Publisher(record.participant, record.public_key)

    async def fetch_body(peer_id: PeerId, digest: bytes) -> bytes:
        connection = await overlay.connect(peer_id)
        _, body = await connection.call_with_body(BODY, BodyRequest(digest), BodyFollows)
        return body

    async def fetch_names(peer_id: PeerId) -> Names:
        connection = await overlay.connect(peer_id)
        return await connection.call(NAMES, NamesRequest(), Names, timeout_s=NAMES_S)

    @contextmanager
    def returning(listener: Callable[[], None]) -> Iterator[None]:
        dead: set[PeerId] = set()

        def changed(peer_id: PeerId, health: Health) -> None:
            if health is Health.DEAD:
                dead.add(peer_id)
            elif health is Health.ALIVE and peer_id in dead:
                dead.discard(peer_id)
                listener()

        with overlay.gossip.changed.listening(changed), overlay.clock.set.listening(listener):
            yield

    own = overlay.identity
    return LocalPeer(
        federation=overlay.membership.federation,
        participant=own.participant,
        peer_id=own.peer_id,
        private_key=own.private_key,
        wire=_OverlayWire(overlay.datagrams),
        contacts=_PeerContacts(overlay),
        publisher_of=publisher_of,
        fetch_body=fetch_body,
        fetch_names=fetch_names,
        events=overlay.events,
        exclusion=overlay.exclusion,
        clock=overlay.clock,
        clock_is_contradicted=lambda: overlay.clock.is_contradicted,
        rng=rng or SystemRandom(),
        returning=returning,
    )

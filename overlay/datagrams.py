"""Signed UDP datagrams: small, unreliable, and always from a peer of this federation.

A datagram can be replayed within the time window, and its signature does not cover the receiver. So
everything sent in datagrams must tolerate repetition: Kademlia's calls carry random ids, gossip
incarnations. Answers go to the sender's announced address, never to the source address of the
packet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import trio
from msgspec import Struct

from medusa.overlay.addresses import Address, cannot_listen, is_ipv6, is_numeric
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError, InvalidInputError, MedusaError, UntrustedError
from medusa.overlay.events import Events, wall_clock
from medusa.overlay.identity import Identity
from medusa.overlay.names import PEER_ID_BYTES, PeerId
from medusa.overlay.peer_records import PeerRecord
from medusa.overlay.peers import PeerTable
from medusa.overlay.signing import Signed, signed, verify

MAX_PAYLOAD: Final = 8192
"""Bytes of a payload: the most that the Kademlia package sends."""

MAX_DATAGRAM: Final = 9000
"""Bytes of a datagram: a payload and its envelope (about 120 bytes)."""

MAX_AGE_US: Final = 60 * 1_000_000
"""Microseconds by which a datagram's time may differ from ours. Clocks are not that wrong, and
older datagrams are replays."""

QUEUE: Final = 1024
"""Datagrams waiting for the socket, at most 9 MB. A full queue means that the network is too slow.
"""

RECEIVE_BUFFER: Final = 1 << 20
"""Bytes of datagrams that the kernel may buffer while this peer is busy: a hundred of the
largest."""

PAUSE_AFTER_FAULT_S: Final = 0.1
"""Seconds to wait after a socket error, so that repeated errors do not spin."""

DOMAIN: Final = "medusa datagram of "


class Channel(IntEnum):
    """The part of the receiver that handles a datagram."""

    DHT = 1
    GOSSIP = 2


class _Body(Struct, frozen=True, array_like=True):
    """The signed content of a datagram.

    Attributes:
        sent_us: microseconds since the epoch by the sender's clock.
    """

    sender: PeerId
    sent_us: int
    channel: int
    payload: bytes


Handler = Callable[[PeerId, Address, bytes], None]
"""Takes the sender's peer id, the address to answer to, and the payload.

The sender has signed that address in its peer record. The source address of the packet is not used:
with a forged or replayed packet answers could be directed at a third machine.
"""


@dataclass(slots=True)
class Counters:
    """Datagrams by outcome; all but the sent and the received were dropped.

    Attributes:
        sent_bytes, received_bytes: bytes that the socket sent, and received of any kind.
        full: the queue was full.
        malformed: the bytes are no datagram.
        stale: too old, or from the future.
        unknown: the sender is an unknown peer, or one that is revoked or expired.
        forged: not signed by the named sender.
        unhandled: the channel has no handler.
        rejected: the handler refused it.
        faults: the socket reported an error.
    """

    sent: int = 0
    received: int = 0
    full: int = 0
    malformed: int = 0
    stale: int = 0
    unknown: int = 0
    forged: int = 0
    unhandled: int = 0
    rejected: int = 0
    faults: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class StaleError(UntrustedError, code="stale"):
    """A datagram from another time: replayed, or from a peer whose clock is wrong."""


class UnknownSenderError(UntrustedError, code="unknown_sender"):
    """A datagram from no known peer in good standing."""


class Envelope:
    """Seals and opens datagrams. Sans-IO."""

    def __init__(self, identity: Identity, peers: PeerTable) -> None:
        self._identity = identity
        self._peers = peers
        self._domain = DOMAIN + peers.federation

    def seal(self, channel: Channel, payload: bytes, now: float) -> bytes:
        """Sign and encode a datagram. now: seconds since the epoch.

        Raises:
            InvalidInputError: the payload is too long.
        """
        if len(payload) > MAX_PAYLOAD:
            raise InvalidInputError(f"datagram: {len(payload)} bytes, at most {MAX_PAYLOAD} fit")
        body = _Body(self._identity.peer_id, int(now * 1e6), channel, payload)
        return encode(signed(self._identity.private_key, self._domain, encode(body)))

    def open(self, data: bytes, now: float) -> tuple[PeerRecord, Channel, bytes]:
        """Decode and verify a datagram: (sender, channel, payload).

        Raises:
            DecodeError: no datagram.
            StaleError: too old, or from the future.
            UnknownSenderError: from no peer in good standing.
            UntrustedError: not signed by the named sender.
        """
        envelope = decode(data, Signed, limit=MAX_DATAGRAM, what="datagram")
        body = decode(envelope.payload, _Body, limit=MAX_DATAGRAM, what="datagram")
        if len(body.sender) != PEER_ID_BYTES or len(body.payload) > MAX_PAYLOAD:
            raise DecodeError("datagram: a field of a wrong length")
        if body.channel not in Channel.__members__.values():
            raise DecodeError("datagram: unknown channel")
        if abs(body.sent_us - now * 1e6) > MAX_AGE_US:
            raise StaleError(f"datagram of {body.sender.hex()}: not of the last minute")
        record = self._peers.get(body.sender)
        if record is None or now >= record.expires:
            raise UnknownSenderError(f"datagram of {body.sender.hex()}: no peer that we know")
        verify(record.public_key, self._domain, envelope.payload, envelope.signature)
        return record, Channel(body.channel), body.payload


class Datagrams:
    """The peer's one UDP socket.

    Attributes:
        address: where it is bound.
        counters: datagrams by outcome.
    """

    def __init__(
        self,
        socket: trio.socket.SocketType,
        address: Address,
        envelope: Envelope,
        events: Events,
        clock: Callable[[], float],
    ) -> None:
        self.address = address
        self.counters = Counters()
        self._socket = socket
        self._envelope = envelope
        self._events = events
        self._clock = clock
        self._handlers: dict[Channel, Handler] = {}
        self._put, self._take = trio.open_memory_channel[tuple[bytes, Address]](QUEUE)

    def on(self, channel: Channel, handler: Handler) -> None:
        """Set the one handler of a channel. It must not block, and may raise `MedusaError`."""
        assert channel not in self._handlers, f"two handlers for {channel}"
        self._handlers[channel] = handler

    def send(self, channel: Channel, address: Address, payload: bytes) -> None:
        """Queue a datagram, or drop and count it: never waits.

        Raises:
            InvalidInputError: the payload is too long, or the address is no IP.
        """
        if not is_numeric(address):
            raise InvalidInputError(f"datagram: {address[0][:80]!a} is no IP to send to")
        data = self._envelope.seal(channel, payload, self._clock())
        try:
            self._put.send_nowait((data, address))
        except (trio.WouldBlock, trio.BrokenResourceError):
            self.counters.full += 1

    def receive(self, data: bytes, source: Address) -> None:
        """Handle one datagram, or drop and count it; no content makes this raise."""
        try:
            sender, channel, payload = self._envelope.open(data, self._clock())
        except DecodeError:
            self.counters.malformed += 1
        except StaleError:
            self.counters.stale += 1
        except UnknownSenderError:
            self.counters.unknown += 1
        except UntrustedError:
            self.counters.forged += 1
        else:
            address = source if source in sender.addresses else sender.addresses[0]
            self._dispatch(sender.peer_id, channel, address, payload)

    def _dispatch(self, sender: PeerId, channel: Channel, address: Address, payload: bytes) -> None:
        handler = self._handlers.get(channel)
        if handler is None:
            self.counters.unhandled += 1
            return
        self.counters.received += 1
        try:
            handler(sender, address, payload)
        except MedusaError as error:
            self.counters.rejected += 1
            self._events.note("warning", f"refused a datagram of {sender.hex()}: {error}")

    async def send_queued(self) -> None:
        """Driver: moves datagrams from the queue to the socket."""
        async for data, address in self._take:
            try:
                await self._socket.sendto(data, address)
            except OSError:  # unreachable, no buffer, wrong family: datagrams may get lost
                self.counters.faults += 1
            else:
                self.counters.sent += 1
                self.counters.sent_bytes += len(data)

    async def receive_all(self) -> None:
        """Driver: reads the socket."""
        while True:
            try:
                data, source = await self._socket.recvfrom(MAX_DATAGRAM + 1)
            except OSError:
                self.counters.faults += 1
                await trio.sleep(PAUSE_AFTER_FAULT_S)
            else:
                self.counters.received_bytes += len(data)
                self.receive(data, (source[0], source[1]))


@asynccontextmanager
async def open_datagrams(
    identity: Identity,
    peers: PeerTable,
    listen: Address,
    events: Events,
    clock: Callable[[], float] = wall_clock,
) -> AsyncIterator[Datagrams]:
    """Open the UDP socket at `listen` (port 0: any), and send and receive during the block.

    Raises:
        ConflictError: the port is in use.
        InvalidInputError: this machine has no such address.
    """
    family = trio.socket.AF_INET6 if is_ipv6(listen[0]) else trio.socket.AF_INET
    with trio.socket.socket(family, trio.socket.SOCK_DGRAM) as socket:
        socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, RECEIVE_BUFFER)
        try:
            await socket.bind(listen)
        except OSError as error:
            raise cannot_listen(listen, error) from None
        host, port = socket.getsockname()[:2]
        envelope = Envelope(identity, peers)
        datagrams = Datagrams(socket, (host, port), envelope, events, clock)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(datagrams.send_queued)
            nursery.start_soon(datagrams.receive_all)
            try:
                yield datagrams
            finally:
                nursery.cancel_scope.cancel()

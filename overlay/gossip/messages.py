"""Messages of gossip: packets over UDP, whole states over RPC."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from msgspec import Struct

from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError
from medusa.overlay.names import NO_PEER, PEER_ID_BYTES, PeerId

MAX_PACKET: Final = 1280
"""Bytes of a packet: with the datagram's envelope (some 110) at most 1400, which every path carries
without fragmentation."""

MAX_STATE: Final = 256 * 2**10
"""Bytes of claims and digests in one message of a push-pull; the rest comes next time."""

MAX_NUMBER: Final = 2**32 - 1
"""The greatest number of a probe: numbers count up from a random one, and wrap around."""

HEADER: Final = 40
"""Bytes of a packet without claims and digests, at most."""

PER_ITEM: Final = 3
"""Bytes of an item's encoding beside its content, at most."""

PING_METHOD: Final = "gossip.ping"
SYNC_METHOD: Final = "gossip.sync"


class Kind(IntEnum):
    """The request or answer in a packet, beside the claims that ride on it."""

    GOSSIP = 0
    PING = 1
    ACK = 2
    PING_REQUEST = 3
    """Ping `peer` for the sender, and pass on its answer."""
    NACK = 4
    """The helper is alive and receives the asker's packets, but has no answer from the peer yet."""


class Packet(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One datagram of gossip: a probe or its answer, with claims and digests that ride on it.

    Attributes:
        number: the number of the probe that it belongs to, as the asker counts.
        peer: the peer that a PING_REQUEST is about, otherwise empty.
        claims: see `medusa.overlay.gossip.claims`. digests: see `medusa.overlay.gossip.digests`.
    """

    kind: Kind
    number: int = 0
    peer: PeerId = NO_PEER
    claims: tuple[bytes, ...] = ()
    digests: tuple[bytes, ...] = ()

    @property
    def size(self) -> int:
        """The greatest possible size of the encoded packet in bytes."""
        return HEADER + sum(PER_ITEM + len(item) for item in (*self.claims, *self.digests))


class State(Struct, frozen=True, array_like=True):
    """One side's half of a push-pull: claims and digests, as many as fit."""

    claims: tuple[bytes, ...]
    digests: tuple[bytes, ...]


class Knock(Struct, frozen=True):
    """A ping over the stream, for networks that lose datagrams."""


class Here(Struct, frozen=True):
    """The answer to `Knock`."""


def encode_packet(packet: Packet) -> bytes:
    """The payload of a datagram."""
    return encode(packet)


def decode_packet(data: bytes) -> Packet:
    """
    Raises:
        DecodeError: no packet, or one with a field out of its bounds.
    """
    packet = decode(data, Packet, limit=MAX_PACKET, what="gossip packet")
    if not 0 <= packet.number <= MAX_NUMBER:
        raise DecodeError("gossip packet: a number out of its bounds")
    if len(packet.peer) != (PEER_ID_BYTES if packet.kind is Kind.PING_REQUEST else 0):
        raise DecodeError("gossip packet: a peer id of a wrong length")
    return packet

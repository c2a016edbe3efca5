"""A peer's signed record about itself: its certificate and its addresses (sans-IO)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Struct

from medusa.overlay.addresses import Address, is_numeric, is_one_machine
from medusa.overlay.certificates import (
    MAX_CERTIFICATE,
    PeerName,
    der,
    load_certificate,
    public_key_of,
)
from medusa.overlay.clock import MICROS, latest_number
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError, InvalidInputError, UntrustedError
from medusa.overlay.identity import Identity
from medusa.overlay.membership import Membership
from medusa.overlay.names import PeerId
from medusa.overlay.signing import Signed, signed, verify

MAX_RECORD: Final = MAX_CERTIFICATE + 1024
"""Bytes of a record: a certificate and a few addresses."""

MAX_ADDRESSES: Final = 4
"""Addresses of one peer: bounds what dialling it may try."""

MAX_VERSION: Final = 2**62
"""Greatest version of a record: messages can hold no greater one."""

DOMAIN: Final = "medusa peer record"


class _Body(Struct, frozen=True, array_like=True):
    """A peer's own description: its certificate and its addresses.

    Attributes:
        federation: the federation's id: in another federation the record is invalid. certificate:
            the certificate of the peer, DER; it names the peer.
        incarnation: microseconds since the epoch at the peer's start. It grows over restarts
            without a file, because clocks go on. Of two records of one peer the later counts.
        version: orders the records of one incarnation, after a renewal of the certificate.
    """

    federation: str
    certificate: bytes
    addresses: tuple[Address, ...]
    incarnation: int
    version: int


class Stamp(Struct, frozen=True, array_like=True, order=True):
    """The incarnation and version of a peer's record, by which records are compared."""

    peer_id: PeerId
    incarnation: int
    version: int


@dataclass(frozen=True)
class PeerRecord:
    """One peer's description. `data`: the signed bytes, passed on unchanged."""

    name: PeerName
    certificate: x509.Certificate
    addresses: tuple[Address, ...]
    incarnation: int
    version: int
    data: bytes

    @property
    def participant(self) -> str:
        return self.name.participant

    @property
    def peer_id(self) -> PeerId:
        return self.name.peer_id

    @cached_property
    def expires(self) -> float:
        """Return when the certificate ends, seconds since the epoch."""
        return self.certificate.not_valid_after_utc.timestamp()

    @cached_property
    def public_key(self) -> Ed25519PublicKey:
        """The key that verifies the peer's signatures."""
        return public_key_of(self.certificate)

    @cached_property
    def stamp(self) -> Stamp:
        return Stamp(self.peer_id, self.incarnation, self.version)


def checked_addresses(addresses: Iterable[Address]) -> tuple[Address, ...]:
    """The addresses among these that a record may have.

    Raises:
        InvalidInputError: an address is not an IP and a port that others can dial.
    """
    where = tuple(addresses)[:MAX_ADDRESSES]
    if not where or not all(_can_be_announced(a) for a in where):
        raise InvalidInputError(f"cannot announce {where}: must be IP addresses with ports")
    return where


def signed_record(
    own: Identity,
    federation: str,
    addresses: tuple[Address, ...],
    incarnation: int,
    version: int = 0,
) -> PeerRecord:
    """A record of our own."""
    body = _Body(federation, der(own.certificate), addresses, incarnation, version)
    data = encode(signed(own.private_key, DOMAIN, encode(body)))
    return PeerRecord(own.name, own.certificate, addresses, incarnation, version, data)


def opened_record(data: bytes, membership: Membership, now: float) -> PeerRecord:
    """A peer's record, verified. now: seconds since the epoch.

    Raises:
        MedusaError: the record is invalid; the message says why.
    """
    envelope, body = _read(data)
    if body.federation != membership.federation:
        raise UntrustedError(f"it is of another federation, {body.federation[:32]!a}")
    name = membership.authenticate(body.certificate, now)
    certificate = load_certificate(body.certificate)
    verify(public_key_of(certificate), DOMAIN, envelope.payload, envelope.signature)
    if not 0 < len(body.addresses) <= MAX_ADDRESSES:
        raise DecodeError(f"{name}: must have 1 to {MAX_ADDRESSES} addresses")
    if not all(_can_be_announced(address) for address in body.addresses):
        raise DecodeError(f"{name}: an address is not an IP with a port")
    if not 0 <= body.incarnation <= latest_number(now, MICROS):
        raise DecodeError(f"{name}: its incarnation lies in the future; check its clock, or ours")
    if not 0 <= body.version <= MAX_VERSION:
        raise DecodeError(f"{name}: version {body.version} is not within 0 to {MAX_VERSION}")
    return PeerRecord(name, certificate, body.addresses, body.incarnation, body.version, data)


def made_at(data: bytes) -> float:
    """The moment of a record, seconds since the epoch, as it says. Raises: DecodeError."""
    return _read(data)[1].incarnation / MICROS


def _read(data: bytes) -> tuple[Signed, _Body]:
    envelope = decode(data, Signed, limit=MAX_RECORD, what="peer record")
    return envelope, decode(envelope.payload, _Body, limit=MAX_RECORD, what="peer record")


def _can_be_announced(address: Address) -> bool:
    """Whether the address is one machine's: all machines answer a packet to a broadcast address."""
    return is_numeric(address) and is_one_machine(address[0])

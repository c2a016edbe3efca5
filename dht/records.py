"""The signed record of the catalog, and its verification.

A record says: publisher P of the participant that owns the name N declares, since version V and
until E, that the object of this kind under N is this body (or has this hash, or is withdrawn).
Bytes in, verified object out; no other module of this package reads unverified content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from medusa.dht.config import MAX_LIFETIME_S
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError, InvalidInputError, UntrustedError
from medusa.overlay.names import PEER_ID_BYTES, ObjectName, PeerId
from medusa.overlay.signing import Signed, sign, verify

MAX_RECORD_BYTES: Final = 1024
"""Bytes of an encoded, signed record: six of them and their envelope fit one 8-KiB datagram."""

MAX_INLINE_BYTES: Final = 512
"""Bytes of a body inside its record: with the longest name the record is still under 1 KiB."""

MAX_BODY_BYTES: Final = 4 * 2**20
"""Bytes of an object: four times the largest document the peer accepts; bounds one fetch."""

MAX_SKEW_US: Final = 60_000_000
"""Microseconds by which a publisher's clock may be ahead: the error allowed for the overlay's
datagrams. A record further ahead is ignored, and any plausible record replaces it: otherwise its
owner, whose clock is right again, could publish no later version."""

MAX_KIND: Final = 32
"""Characters of a kind's label, which is part of every record."""

KEY_BYTES: Final = 20
"""Bytes of a key: Kademlia's 160 bits, the length of a peer id."""

DIGEST_BYTES: Final = 32

DOMAIN: Final = "catalog record of "
"""The signature's domain; the federation's id follows it. A signature for one federation is invalid
in another, even for a participant that is a member of both."""

_KIND = re.compile(r"[a-z][a-z0-9_-]*")
_MAX_LIFETIME_US: Final = int(MAX_LIFETIME_S * 1e6)


class Pointer(Struct, frozen=True, array_like=True):
    """A body too large for the record. digest: SHA-256. size: bytes."""

    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of records: an object of a kind under a name.

    Attributes:
        many: several publishers may each have a record about it.
    """

    kind: str
    many: bool
    name: str

    @property
    def key(self) -> bytes:
        """The DHT key of its records. `many` is part of it, so that no record can claim another
        merge rule."""
        text = f"medusa catalog\0{self.kind}\0{'many' if self.many else 'one'}\0{self.name}"
        return hashlib.sha256(text.encode()).digest()[:KEY_BYTES]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Record(Struct, frozen=True, array_like=True):
    """One entry of the catalog, as its publisher signed it.

    Attributes:
        kind: the label of the kind of object.
        many: several publishers may each have a record under this kind and name.
        name: the object's name.
        publisher: peer id of the signer.
        version: microseconds UTC of the declaration, greater than any before; renewals keep it.
        issued_at, expires_at: microseconds UTC of this renewal and of its end.
        body: the object, its hash and size, or None: withdrawn.
    """

    kind: str
    many: bool
    name: str
    publisher: PeerId
    version: int
    issued_at: int
    expires_at: int
    body: bytes | Pointer | None

    @property
    def subject(self) -> Subject:
        return Subject(self.kind, self.many, self.name)


@dataclass(frozen=True, slots=True)
class Publisher:
    """A peer that is a member now."""

    participant: str
    public_key: Ed25519PublicKey


PublisherOf = Callable[[PeerId], Publisher]
"""The member with this peer id; raises UntrustedError where it is unknown, revoked or expired."""


def digest_of(body: bytes) -> bytes:
    """SHA-256, the identity of a body."""
    return hashlib.sha256(body).digest()


def check_kind(label: str) -> str:
    """
    Raises:
        InvalidInputError: not a kind's label.
    """
    if len(label) > MAX_KIND or _KIND.fullmatch(label) is None:
        raise InvalidInputError(
            f"kind {label[:MAX_KIND]!a}: use up to {MAX_KIND} of a-z, 0-9, '_' and '-', "
            "a letter first"
        )
    return label


def seal(record: Record, federation: str, key: Ed25519PrivateKey) -> bytes:
    """Sign and encode the record for that federation (its id).

    Raises:
        InvalidInputError: it is larger than MAX_RECORD_BYTES.
    """
    payload = encode(record)
    data = encode(Signed(payload, sign(key, DOMAIN + federation, payload)))
    if len(data) > MAX_RECORD_BYTES:
        raise InvalidInputError(
            f"record of {record.name}: {len(data)} bytes, at most {MAX_RECORD_BYTES} allowed"
        )
    return data


def read_record(data: bytes) -> tuple[Record, Signed]:
    """The record in these bytes, well formed but not verified.

    Raises:
        DecodeError: too large, malformed, not canonical, or with impossible content.
    """
    signed = decode(data, Signed, limit=MAX_RECORD_BYTES, what="record")
    record = decode(signed.payload, Record, limit=MAX_RECORD_BYTES, what="record")
    # one record has one encoding; otherwise a declaration could be stored many times
    if encode(signed) != data or encode(record) != signed.payload:
        raise DecodeError("record: not in canonical form")
    try:
        check_kind(record.kind)
        ObjectName.parse(record.name)
    except InvalidInputError as error:
        raise DecodeError(f"record: {error}") from None
    _check_content(record)
    return record, signed


def verify_record(
    data: bytes,
    federation: str,
    publisher_of: PublisherOf,
    now: float,
    *,
    expired_ok: bool = False,
) -> Record:
    """Decode and verify a record for that federation (its id). now: seconds since the epoch.

    Raises:
        DecodeError: see `read_record`.
        UntrustedError: not signed by the publisher, by a member or for this federation; of another
            participant's name, from the future, or expired (unless expired_ok).
    """
    record, signed = read_record(data)
    publisher = publisher_of(record.publisher)
    verify(publisher.public_key, DOMAIN + federation, signed.payload, signed.signature)
    owner = ObjectName.parse(record.name).participant
    if publisher.participant != owner:
        raise UntrustedError(
            f"record of {record.name}: published by {publisher.participant}, "
            f"and only {owner} may do that"
        )
    now_us = int(now * 1e6)
    if is_of_future(record, now_us):
        raise UntrustedError(f"record of {record.name}: from the future; check the clocks")
    if record.expires_at <= now_us and not expired_ok:
        raise UntrustedError(f"record of {record.name}: expired")
    return record


def is_of_future(record: Record, now_us: int) -> bool:
    """Whether no correct clock can have made the record."""
    return max(record.issued_at, record.version) > now_us + MAX_SKEW_US


def newer(record: Record, than: Record) -> bool:
    """Whether `record` replaces `than`. The order is total, so that all peers keep the same
    record."""
    return _rank(record) > _rank(than)


def _rank(record: Record) -> tuple[int, int, bytes]:
    return record.version, record.issued_at, encode(record)


def _check_content(record: Record) -> None:
    if len(record.publisher) != PEER_ID_BYTES:
        raise DecodeError(f"record: publisher is not {PEER_ID_BYTES} bytes")
    if not 0 < record.version < 2**63 or not 0 < record.issued_at < record.expires_at < 2**63:
        raise DecodeError("record: version and times must be positive, expiry after issue")
    if record.expires_at - record.issued_at > _MAX_LIFETIME_US:
        raise DecodeError(f"record: lives longer than {MAX_LIFETIME_S:.0f} s")
    if isinstance(record.body, Pointer):
        if len(record.body.digest) != DIGEST_BYTES:
            raise DecodeError(f"record: digest is not {DIGEST_BYTES} bytes")
        if not 0 < record.body.size <= MAX_BODY_BYTES:
            raise DecodeError(f"record: body of {record.body.size} bytes, at most {MAX_BODY_BYTES}")

"""What members say about membership, as signed bytes: charter, admission, revocation."""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from overlay.encoding import decode, encode
from overlay.errors import DecodeError
from overlay.signing import Signed, signed, verify

MAX_STATEMENT: Final = 16 * 2**10
"""Bytes of one statement: a certificate, or the list of admissions that a revocation keeps."""

MAX_KEPT: Final = 400
"""Admissions a revocation can keep (32 bytes each, within MAX_STATEMENT), hence also how many one
member may sign."""

CHARTER_DOMAIN: Final = "medusa charter"
STATEMENT_DOMAIN: Final = "medusa membership statement"


class Charter(Struct, frozen=True, array_like=True, tag="charter"):
    """How a federation starts; signed by the founder's root.

    Attributes:
        name: what people call it. founder: a participant. root: its certificate, DER.
        founded_at: seconds since the epoch.
    """

    name: str
    founder: str
    root: bytes
    founded_at: float


class Admission(Struct, frozen=True, array_like=True, tag="admission"):
    """A participant enters; signed by its sponsor's root.

    Attributes:
        federation: the federation's id: an admission to one is worth nothing in another.
        participant: its name. root: its certificate, DER.
        sponsor: digest of the sponsor's own admission (or of the charter): the verification chain.
        admitted_at: seconds since the epoch, as the sponsor says.
    """

    federation: str
    participant: str
    root: bytes
    sponsor: bytes
    admitted_at: float


class Revocation(Struct, frozen=True, array_like=True, tag="revocation"):
    """A participant, or one of its peers, is out; signed by it, its sponsor or an ancestor.

    Attributes:
        member: digest of the admission (or charter) of the participant that is meant.
        peer_id: of the one peer that is meant; empty: the participant with all its peers.
        signer: digest of the signer's own admission (or of the charter).
        kept: digests of the member's admissions that stay good. All others it signed are void,
            however old they say they are: a stolen root cannot date its admissions back.
        revoked_at: seconds since the epoch, as the signer says.
    """

    federation: str
    member: bytes
    peer_id: bytes
    signer: bytes
    kept: tuple[bytes, ...]
    revoked_at: float


Statement = Admission | Revocation


def digest_of(statement: bytes) -> bytes:
    """SHA-256 of a statement's bytes: its identity in the set."""
    return hashlib.sha256(statement).digest()


def federation_id(charter: bytes) -> str:
    """The federation's id, from its charter's bytes: nobody can found a second one with this id.

    Raises:
        DecodeError: that is no charter.
    """
    return digest_of(charter)[:16].hex()


def seal_charter(key: Ed25519PrivateKey, charter: Charter) -> bytes:
    """The charter's signed bytes."""
    return encode(signed(key, CHARTER_DOMAIN, encode(charter)))


def seal_statement(key: Ed25519PrivateKey, statement: Statement) -> bytes:
    """The statement's signed bytes."""
    return encode(signed(key, STATEMENT_DOMAIN, encode(statement)))


def open_charter(data: bytes) -> tuple[Charter, Signed]:
    """The charter, its signature not yet verified.

    Raises:
        DecodeError: that is no charter.
    """
    envelope = _open(data, "charter")
    return decode(envelope.payload, Charter, limit=MAX_STATEMENT, what="charter"), envelope


def open_statement(data: bytes) -> tuple[Statement, Signed]:
    """The statement, its signature not yet verified.

    Raises:
        DecodeError: that is no statement.
    """
    envelope = _open(data, "membership statement")
    kind: type[Statement] = Statement  # type: ignore[assignment]  # msgspec takes tagged unions
    body = decode(envelope.payload, kind, limit=MAX_STATEMENT, what="membership statement")
    return body, envelope


def _open(data: bytes, what: str) -> Signed:
    envelope = decode(data, Signed, limit=MAX_STATEMENT, what=what)
    # its digest is its identity, so nobody may give the same statement a second one
    if encode(envelope) != data:
        raise DecodeError(f"{what}: not in the canonical encoding")
    return envelope


def verify_charter(key: Ed25519PublicKey, envelope: Signed) -> None:
    """
    Raises:
        UntrustedError: the founder did not sign it.
    """
    verify(key, CHARTER_DOMAIN, envelope.payload, envelope.signature)


def verify_statement(key: Ed25519PublicKey, envelope: Signed) -> None:
    """
    Raises:
        UntrustedError: the member said to have signed it did not.
    """
    verify(key, STATEMENT_DOMAIN, envelope.payload, envelope.signature)

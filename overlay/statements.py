"""The signed statements about membership: the charter, and five kinds of statement."""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError
from medusa.overlay.names import PeerId
from medusa.overlay.signing import Signed, signed, verify

MAX_STATEMENT: Final = 64 * 2**10
"""Bytes of one statement: a certificate, or the list of admissions that a revocation keeps."""

MAX_KEPT: Final = 1_900
"""Statements that a revocation or a new policy can keep (34 bytes each, within MAX_STATEMENT).
Hence also how many one member may sign, and how many members there may be when a policy changes."""

CHARTER_DOMAIN: Final = "medusa charter"
STATEMENT_DOMAIN: Final = "medusa membership statement"


class Charter(Struct, frozen=True, array_like=True, tag="charter"):
    """The founding of a federation; signed by the founder's root.

    Attributes:
        name: the federation's name for people. founder: a participant. root: its certificate, DER.
        founded_at: seconds since the epoch.
        admission: the policy, as `AdmissionPolicy` writes it.
    """

    name: str
    founder: str
    root: bytes
    founded_at: float
    admission: str


class Admission(Struct, frozen=True, array_like=True, tag="admission"):
    """The admission of a participant; signed by its sponsor's root.

    Attributes:
        federation: the federation's id: in another one the admission counts for nothing.
        participant: its name. root: its certificate, DER.
        sponsor: digest of the sponsor's own admission (or of the charter): the verification chain.
        admitted_at: seconds since the epoch, by the sponsor's clock.
        policy: digest of the policy change under which it was made; empty: the charter's policy.
        expires_at: until when the participant must have met a member, seconds since the epoch; 0:
            it need not.
    """

    federation: str
    participant: str
    root: bytes
    sponsor: bytes
    admitted_at: float
    policy: bytes = b""
    expires_at: float = 0.0


class Approval(Struct, frozen=True, array_like=True, tag="approval"):
    """Another sponsor's signature under an admission, or under a policy change.

    Attributes:
        subject: digest of the signed statement. signer: digest of the sponsor's own admission.
        approved_at: seconds since the epoch, by the signer's clock.
    """

    federation: str
    subject: bytes
    signer: bytes
    approved_at: float


class Entry(Struct, frozen=True, array_like=True, tag="entry"):
    """The entry of an invited participant: a member's peer has met it in time; signed by that
    peer's key.

    The participant itself could backdate a statement, so a member's peer confirms that the
    invitation was taken up before its end.

    Attributes:
        member: digest of the admission that was taken up.
        witness: digest of the admission of the peer's participant. certificate: the certificate of
            the peer, DER.
        entered_at: seconds since the epoch, by the witness's clock.
    """

    federation: str
    member: bytes
    witness: bytes
    certificate: bytes
    entered_at: float


class PolicyChange(Struct, frozen=True, array_like=True, tag="policy_change"):
    """A new admission policy; signed by the members that may change the policy before.

    Attributes:
        number: one more than that of the policy before; the charter has 0. The policy with the
            highest number counts.
        before: digest of the policy change before, or of the charter.
        admission: the policy, as `AdmissionPolicy` writes it.
        kept: digests of the admissions under earlier policies that stay good, so that former
            sponsors cannot backdate an admission.
        signer: digest of the signer's own admission (or of the charter).
        changed_at: seconds since the epoch, by the signer's clock.
    """

    federation: str
    number: int
    before: bytes
    admission: str
    kept: tuple[bytes, ...]
    signer: bytes
    changed_at: float


class Revocation(Struct, frozen=True, array_like=True, tag="revocation"):
    """The end of a participant's membership, or of one of its peers'; signed by the participant,
    its sponsor or an ancestor.

    Attributes:
        member: digest of the admission (or charter) of the participant.
        peer_id: the id of the revoked peer; empty: the participant is revoked, with all its peers.
        signer: digest of the signer's own admission (or of the charter).
        kept: digests of the statements of the member, or the peer, that stay good: admissions,
            policy changes, and the entries that it witnessed. All its other statements are void,
            whatever their date: the thief of a root cannot backdate admissions.
        revoked_at: seconds since the epoch, by the signer's clock.
        withdrawn: the invitation is withdrawn: its name is free again. With peer_id: the peer
            leaves.
    """

    federation: str
    member: bytes
    peer_id: PeerId
    signer: bytes
    kept: tuple[bytes, ...]
    revoked_at: float
    withdrawn: bool = False


Statement = Admission | Approval | Entry | PolicyChange | Revocation


def digest_of(statement: bytes) -> bytes:
    """SHA-256 of a statement's bytes: its identity in the set."""
    return hashlib.sha256(statement).digest()


def federation_id(charter: bytes) -> str:
    """The federation's id, from its charter's bytes; no second federation can have it.

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
    # the digest is the statement's identity, so one statement must have one encoding
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
        UntrustedError: the named signer did not sign it.
    """
    verify(key, STATEMENT_DOMAIN, envelope.payload, envelope.signature)

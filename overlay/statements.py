"""What members say about membership, as signed bytes: the charter, and five kinds of statement.

A field that was added later has a default, and comes last: peers of the version before read the
rest, and do not take in kinds of statement that they do not know.
"""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from overlay.admission_policy import ANY
from overlay.encoding import decode, encode
from overlay.errors import DecodeError
from overlay.names import PeerId
from overlay.signing import Signed, signed, verify

MAX_STATEMENT: Final = 64 * 2**10
"""Bytes of one statement: a certificate, or the list of admissions that a revocation keeps."""

MAX_KEPT: Final = 1_900
"""Statements that a revocation, or a new policy, can keep (34 bytes each, within MAX_STATEMENT),
hence also how many one member may sign, and how many members there are when a policy changes."""

CHARTER_DOMAIN: Final = "medusa charter"
STATEMENT_DOMAIN: Final = "medusa membership statement"


class Charter(Struct, frozen=True, array_like=True, tag="charter"):
    """How a federation starts; signed by the founder's root.

    Attributes:
        name: what people call it. founder: a participant. root: its certificate, DER.
        founded_at: seconds since the epoch.
        admission: the policy, as `AdmissionPolicy` writes it; charters from before there was one
            let any member admit.
    """

    name: str
    founder: str
    root: bytes
    founded_at: float
    admission: str = ANY


class Admission(Struct, frozen=True, array_like=True, tag="admission"):
    """A participant enters; signed by its sponsor's root.

    Attributes:
        federation: the federation's id: an admission to one is worth nothing in another.
        participant: its name. root: its certificate, DER.
        sponsor: digest of the sponsor's own admission (or of the charter): the verification chain.
        admitted_at: seconds since the epoch, as the sponsor says.
        policy: digest of the policy change under which it was made; empty: the charter's policy.
        expires_at: until when the participant must have met a member, seconds since the epoch; 0:
            it need not, as in admissions from before invitations ended.
    """

    federation: str
    participant: str
    root: bytes
    sponsor: bytes
    admitted_at: float
    policy: bytes = b""
    expires_at: float = 0.0


class Approval(Struct, frozen=True, array_like=True, tag="approval"):
    """A further sponsor signs an admission, or a policy change.

    Attributes:
        subject: digest of what is signed. signer: digest of the sponsor's own admission.
        approved_at: seconds since the epoch, as the signer says.
    """

    federation: str
    subject: bytes
    signer: bytes
    approved_at: float


class Entry(Struct, frozen=True, array_like=True, tag="entry"):
    """A peer of a member has met the invited participant in time; signed by that peer's key.

    The invited could date a word of its own back; so it is another's that ends the invitation's
    term.

    Attributes:
        member: digest of the admission that was taken up.
        witness: digest of the admission of the peer's participant. certificate: the peer's, DER.
        entered_at: seconds since the epoch, as the witness says.
    """

    federation: str
    member: bytes
    witness: bytes
    certificate: bytes
    entered_at: float


class PolicyChange(Struct, frozen=True, array_like=True, tag="policy"):
    """Another admission policy; signed by those whom the policy before lets change it.

    Attributes:
        number: one more than that of the policy before; the charter's is 0. The highest counts.
        before: digest of the policy change before, or of the charter.
        admission: the policy, as `AdmissionPolicy` writes it.
        kept: digests of the admissions under earlier policies that stay good: whoever could admit
            before cannot date an admission back.
        signer: digest of the signer's own admission (or of the charter).
        changed_at: seconds since the epoch, as the signer says.
    """

    federation: str
    number: int
    before: bytes
    admission: str
    kept: tuple[bytes, ...]
    signer: bytes
    changed_at: float


class Revocation(Struct, frozen=True, array_like=True, tag="revocation"):
    """A participant, or one of its peers, is out; signed by it, its sponsor or an ancestor.

    Attributes:
        member: digest of the admission (or charter) of the participant that is meant.
        peer_id: of the one peer that is meant; empty: the participant with all its peers.
        signer: digest of the signer's own admission (or of the charter).
        kept: digests of what the member, or the peer, signed that stays good: admissions, policy
            changes, and the admissions to which it was witness. All else it signed is void, however
            old it says it is: a stolen root cannot date its admissions back.
        revoked_at: seconds since the epoch, as the signer says.
        withdrawn: the invitation is taken back: its name is free again. Of one peer: it leaves.
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
        UntrustedError: who is said to have signed it did not.
    """
    verify(key, STATEMENT_DOMAIN, envelope.payload, envelope.signature)

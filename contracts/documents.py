"""The signed documents of a contract: proposal, acceptance, revocation.

* The proposer's root signs a proposal.
* The accepter's root signs an acceptance, which contains the signed proposal: this is the contract
  (NSDI 2004, section 3: pairwise, private, negotiated offline).
* Either root signs a revocation, which ends the contract.

Every document has exactly one encoding. Its signature is bound to the federation and is invalid in
another.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from medusa.contracts.terms import MAX_CLAUSE_S, Terms, check_terms
from medusa.overlay.certificates import public_key_of
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError, InvalidInputError, UntrustedError
from medusa.overlay.identity import Root
from medusa.overlay.membership import Membership
from medusa.overlay.names import check_participant
from medusa.overlay.signing import Signed, signed, verify

MAX_DOCUMENT: Final = 16 * 2**10
"""Bytes of a document: the longest menus twice over."""

MAX_PROPOSAL: Final = MAX_DOCUMENT - 256
"""Bytes of a signed proposal: its acceptance, which contains it, must fit in a document too."""

MAX_VALID_S: Final = MAX_CLAUSE_S
"""Seconds from valid_from to valid_until: roots are valid for ten years."""

MAX_TIME_S: Final = 2.0**33
"""Seconds since the epoch in a document: the year 2242; later times are mistakes."""

NONCE_BYTES: Final = 16
"""Random bytes of a proposal: two proposals with the same terms are two contracts."""

ID_BYTES: Final = 16
"""Bytes of a contract's id, as of a federation's: two proposals with one id cannot be found."""

DOMAIN: Final = "medusa contract"


class Proposal(Struct, frozen=True, array_like=True, tag="proposal"):
    """One party's offer of terms to the other.

    Attributes:
        federation: its id. proposer, accepter: the two participants.
        valid_from, valid_until: the contract is in force from the first to just before the second;
            like proposed_at seconds since the epoch.
        nonce: NONCE_BYTES random bytes.
    """

    federation: str
    proposer: str
    accepter: str
    terms: Terms
    valid_from: float
    valid_until: float
    proposed_at: float
    nonce: bytes

    @property
    def parties(self) -> tuple[str, str]:
        return self.proposer, self.accepter


class Acceptance(Struct, frozen=True, array_like=True, tag="acceptance"):
    """The accepter agrees. proposal: the signed bytes."""

    proposal: bytes


class Revocation(Struct, frozen=True, array_like=True, tag="revocation"):
    """A party ends the contract, or withdraws or declines the proposal. It is final.

    Attributes:
        federation, contract: their ids. by: the party that signs.
        at: seconds since the epoch, by its clock.
    """

    federation: str
    contract: str
    by: str
    at: float


Body = Proposal | Acceptance | Revocation


@dataclass(frozen=True)
class Document:
    """A well-formed document, not verified; see `verify_document`.

    Attributes:
        data: its bytes. envelope: the signed bytes and the signature.
        signer: the participant that must have signed.
        contract: the id of its contract.
        proposal: in an acceptance, the accepted document; else None. See `proposal_of`.
    """

    data: bytes
    envelope: Signed
    body: Body
    federation: str
    signer: str
    contract: str
    proposal: Document | None


def contract_id(proposal: bytes) -> str:
    """The id of a contract, from the bytes of its signed proposal."""
    return hashlib.sha256(proposal).digest()[:ID_BYTES].hex()


def propose(root: Root, proposal: Proposal) -> bytes:
    """Sign a proposal.

    Raises:
        InvalidInputError: no peer would accept it, see `open_document`; or the root is not the
            proposer's.
    """
    if root.participant != proposal.proposer:
        raise InvalidInputError(
            f"{proposal.proposer} proposes, but {root.participant}'s root signs"
        )
    times = {name: float(getattr(proposal, name)) for name in _TIMES}
    return _seal(root, proposal.federation, replace(proposal, **times))


def accept(root: Root, proposal: bytes) -> bytes:
    """Sign the acceptance of a signed proposal, which makes the contract.

    Raises:
        DecodeError: these bytes are no proposal.
        InvalidInputError: it was made to another participant than the root's.
    """
    document = open_document(proposal)
    if not isinstance(document.body, Proposal):
        raise DecodeError("contract document: this is no proposal")
    if document.body.accepter != root.participant:
        raise InvalidInputError(
            f"contract {document.contract} is proposed to {document.body.accepter}, "
            f"not to {root.participant}"
        )
    return _seal(root, document.federation, Acceptance(proposal))


def revoke(root: Root, federation: str, contract: str, now: float) -> bytes:
    """A signed revocation of that contract. now: seconds since the epoch."""
    return _seal(root, federation, Revocation(federation, contract, root.participant, float(now)))


def open_document(data: bytes) -> Document:
    """Decode a document; its signatures are not yet verified.

    Raises:
        DecodeError: too long, malformed, not in the one canonical encoding, or with content that no
            contract may have (terms, names, times).
    """
    return _open(data, Body)  # type: ignore[arg-type]  # msgspec takes tagged unions


def _open(data: bytes, kind: type[Body]) -> Document:
    envelope = decode(data, Signed, limit=MAX_DOCUMENT, what="contract document")
    body = decode(envelope.payload, kind, limit=MAX_DOCUMENT, what="contract document")
    # the id is a digest of the bytes, so one proposal must have one encoding
    if encode(envelope) != data or encode(body) != envelope.payload:
        raise DecodeError("contract document: not in the canonical encoding")
    match body:
        case Proposal():
            _check_proposal(body, data)
            own = contract_id(data)
            return Document(data, envelope, body, body.federation, body.proposer, own, None)
        case Acceptance():
            inner = _open(body.proposal, Proposal)
            assert isinstance(inner.body, Proposal)
            signer = inner.body.accepter
            return Document(data, envelope, body, inner.federation, signer, inner.contract, inner)
        case Revocation():
            _check_revocation(body)
            return Document(data, envelope, body, body.federation, body.by, body.contract, None)


def proposal_of(document: Document) -> Proposal | None:
    """The proposal in this document; None for a revocation."""
    body = document.body if document.proposal is None else document.proposal.body
    return body if isinstance(body, Proposal) else None


def verify_document(document: Document, membership: Membership) -> None:
    """
    Raises:
        UntrustedError: it is of another federation, a party is no member in good standing, or a
            signature is not the named signer's.
    """
    if document.federation != membership.federation:
        raise UntrustedError(
            f"contract {document.contract} is of another federation, {document.federation[:32]!a}"
        )
    if document.proposal is not None:
        verify_document(document.proposal, membership)
    root = membership.root_of(document.signer)
    if root is None:
        raise UntrustedError(
            f"contract {document.contract}: {document.signer} is no member in good standing"
        )
    domain, envelope = _domain(document.federation), document.envelope
    verify(public_key_of(root), domain, envelope.payload, envelope.signature)


def _seal(root: Root, federation: str, body: Body) -> bytes:
    data = encode(signed(root.private_key, _domain(federation), encode(body)))
    try:
        open_document(data)
    except DecodeError as error:
        raise InvalidInputError(str(error)) from None
    return data


def _domain(federation: str) -> str:
    return f"{DOMAIN} {federation}"


def _check_proposal(proposal: Proposal, data: bytes) -> None:
    if len(data) > MAX_PROPOSAL:
        raise DecodeError(f"proposal: {len(data)} bytes, at most {MAX_PROPOSAL} are accepted")
    try:
        for party in proposal.parties:
            check_participant(party)
        check_terms(proposal.terms, *proposal.parties)
    except InvalidInputError as error:
        raise DecodeError(f"proposal: {error}") from None
    if proposal.proposer == proposal.accepter:
        raise DecodeError(f"proposal: {proposal.proposer} proposes to itself")
    if len(proposal.nonce) != NONCE_BYTES:
        raise DecodeError(f"proposal: a nonce has {NONCE_BYTES} bytes, not {len(proposal.nonce)}")
    _check_time("proposed_at", proposal.proposed_at)
    _check_time("valid_from", proposal.valid_from)
    _check_time("valid_until", proposal.valid_until)
    if not 0 < proposal.valid_until - proposal.valid_from <= MAX_VALID_S:
        days = MAX_VALID_S // 86_400
        raise DecodeError(f"proposal: must end after it begins, and within {days} days of that")


def _check_revocation(revocation: Revocation) -> None:
    if len(revocation.contract) != 2 * ID_BYTES or not set(revocation.contract) <= _HEX:
        raise DecodeError(f"revocation: {revocation.contract[:80]!a} is no contract id")
    try:
        check_participant(revocation.by)
    except InvalidInputError as error:
        raise DecodeError(f"revocation: {error}") from None
    _check_time("at", revocation.at)


_TIMES: Final = ("valid_from", "valid_until", "proposed_at")

_HEX: Final = frozenset("0123456789abcdef")


def _check_time(what: str, seconds: float) -> None:
    # written so that NaN is refused
    if not 0 <= seconds <= MAX_TIME_S:
        raise DecodeError(f"contract document: {what} {seconds} is no time of this age")

"""Receipts, and the messages by which two peers sign one.

The payee signs a `Receipt` with its peer key: a `Proposal`. The payer counts the same tuples
itself. It countersigns (`Settled`), or states its own count, signed (`Dispute`), or refuses for now
with a reason (`Refusal`, unsigned: it proves nothing to third parties).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Meta, Struct

from medusa.contracts.deals import (
    MAX_TIME,
    Account,
    ContractId,
    Deal,
    DealKey,
    PartyId,
    Rate,
    Rows,
    TaskName,
    TermNumber,
    Time,
)
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import DecodeError, InvalidInputError, UntrustedError
from medusa.overlay.names import PeerId
from medusa.overlay.signing import sign, verify

MAX_RECEIPT: Final = 2 * 2**10
"""Bytes of a receipt: names of 64 and 256 characters in UTF-8, two ids, a digest, integers."""

MAX_ENTRY: Final = 3 * MAX_RECEIPT
"""Bytes of one entry of the ledger: a receipt, signatures, a second statement."""

MAX_AMOUNT: Final = 2**53
"""Micros of one receipt: nine thousand million; exact in every program that reads JSON."""

MAX_NUMBER: Final = 2**53
"""Receipts of one account: exact in every program that reads JSON."""

SIGNATURE_BYTES: Final = 64
DIGEST_BYTES: Final = 32

RECEIPT_DOMAIN: Final = "medusa receipt"
COUNTERSIGN_DOMAIN: Final = "medusa receipt countersigned"
DISPUTE_DOMAIN: Final = "medusa receipt disputed"

Number = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
Signature = Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
Payload = Annotated[bytes, Meta(max_length=MAX_RECEIPT)]

KeyOf = Callable[[PeerId], Ed25519PublicKey]
"""The public key of the peer of that id; raises UntrustedError if it is not known."""


class Receipt(Struct, frozen=True, array_like=True):
    """The payer owes the payee that amount for these tuples.

    Attributes:
        federation: its id: in another one the receipt counts for nothing.
        payer, payee: ids of the two peers.
        task, term_number: the placement, see `medusa.contracts.deals.Deal`.
        number: 1, 2, 3... within the account (contract, payer, payee).
        after, upto: the interval (after, upto] of stime, microseconds.
        rows: input tuples in it (of content contracts: tuples of the stream).
        amount: micros, by the rate for interval and rows.
        at: when it was made, or the placement ended, microseconds UTC.
        previous: SHA-256 of the account's previous receipt, empty in the first.
    """

    federation: Annotated[str, Meta(max_length=64)]
    contract: ContractId
    payer: PartyId
    payee: PartyId
    task: TaskName
    term_number: TermNumber
    number: Number
    after: Time
    upto: Time
    rows: Rows
    rate: Rate
    amount: Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
    at: Time
    previous: Annotated[bytes, Meta(max_length=DIGEST_BYTES)]

    @property
    def account(self) -> Account:
        return Account(self.contract, self.payer, self.payee)

    @property
    def key(self) -> DealKey:
        return DealKey(self.account, self.task, self.term_number)


class Proposal(Struct, frozen=True, array_like=True, tag="proposal"):
    """A receipt's bytes and the payee's signature over them."""

    payload: Payload
    signature: Signature


class Settled(Struct, frozen=True, array_like=True, tag="settled"):
    """A receipt's bytes, signed by both sides: the payment."""

    payload: Payload
    payee_signature: Signature
    payer_signature: Signature


class Objection(Struct, frozen=True, array_like=True):
    """The signed content of a dispute. rows: the payer's own count. at: microseconds UTC."""

    proposal: Proposal
    rows: Rows
    at: Time


class Dispute(Struct, frozen=True, array_like=True, tag="dispute"):
    """An `Objection`'s bytes and the payer's signature over them."""

    payload: Annotated[bytes, Meta(max_length=MAX_ENTRY)]
    signature: Signature


class Refusal(Struct, frozen=True, array_like=True, tag="refusal"):
    """The payer does not countersign for now. A refusal binds nobody.

    Attributes:
        have: number of the account's last receipt that the payer knows.
        upto: bill up to that boundary instead. None: try again later.
        final: the placement ended there.
        rows: the payer's count up to there, if it is known already.
    """

    contract: ContractId
    task: TaskName
    term_number: TermNumber
    have: Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
    reason: Annotated[str, Meta(max_length=500)]
    upto: Annotated[int, Meta(ge=-MAX_TIME, le=MAX_TIME)] | None = None
    final: bool = False
    rows: Rows | None = None


Message = Proposal | Settled | Dispute | Refusal
Entry = Settled | Dispute
"""An entry of a ledger."""


class Letter(Struct, frozen=True):
    """A message as the RPC carries it: the request of "contract.settle", whose answer is empty."""

    message: Message


def make_receipt(
    deal: Deal,
    federation: str,
    last: tuple[int, bytes],
    upto: int,
    rows: int,
    *,
    after: int,
    at: int,
) -> Receipt:
    """The next receipt of a deal's account.

    Args:
        last: number and digest of the account's last receipt, (0, b"") if there is none.

    Raises:
        InvalidInputError: a count or an amount is beyond all limits.
    """
    number, previous = last
    amount = deal.rate.amount(after, upto, rows)
    if amount > MAX_AMOUNT:
        raise InvalidInputError(f"{deal.task}: {amount} micros at once, no receipt holds that much")
    receipt = Receipt(
        federation=federation,
        contract=deal.contract,
        payer=deal.payer,
        payee=deal.payee,
        task=deal.task,
        term_number=deal.term_number,
        number=number + 1,
        after=after,
        upto=upto,
        rows=rows,
        rate=deal.rate,
        amount=amount,
        at=at,
        previous=previous,
    )
    return read_receipt(encode(receipt))


def digest_of(payload: bytes) -> bytes:
    """SHA-256 of a receipt's bytes, the next receipt's `previous`."""
    return hashlib.sha256(payload).digest()


def propose(key: Ed25519PrivateKey, receipt: Receipt) -> Proposal:
    """Sign a receipt as its payee."""
    payload = encode(receipt)
    return Proposal(payload, sign(key, RECEIPT_DOMAIN, payload))


def countersign(key: Ed25519PrivateKey, proposal: Proposal) -> Settled:
    """Sign a proposal as its payer."""
    signature = sign(key, COUNTERSIGN_DOMAIN, proposal.payload)
    return Settled(proposal.payload, proposal.signature, signature)


def dispute(key: Ed25519PrivateKey, proposal: Proposal, rows: int, at: int) -> Dispute:
    """Sign the payer's own count. at: microseconds UTC."""
    payload = encode(Objection(proposal, rows, at))
    return Dispute(payload, sign(key, DISPUTE_DOMAIN, payload))


def read_receipt(payload: bytes) -> Receipt:
    """Decode a receipt and check its consistency; no signature is verified.

    Raises:
        DecodeError: the payload is no receipt, is not in the canonical encoding, or contradicts
            itself.
    """
    receipt = decode(payload, Receipt, limit=MAX_RECEIPT, what="receipt")
    # the digest is its identity, so one receipt must have one encoding
    if encode(receipt) != payload:
        raise DecodeError("receipt: not in the canonical encoding")
    where = f"receipt {receipt.number} of {receipt.task!a}"
    if receipt.payer == receipt.payee:
        raise DecodeError(f"{where}: a peer does not pay itself")
    if receipt.after >= receipt.upto:
        raise DecodeError(f"{where}: an interval ({receipt.after}, {receipt.upto}] is empty")
    if len(receipt.previous) != (0 if receipt.number == 1 else DIGEST_BYTES):
        raise DecodeError(f"{where}: {len(receipt.previous)} bytes of the previous one's digest")
    owed = receipt.rate.amount(receipt.after, receipt.upto, receipt.rows)
    if receipt.amount != owed:
        raise DecodeError(f"{where}: the amount is {receipt.amount}, by its rate it is {owed}")
    return receipt


def open_proposal(proposal: Proposal, federation: str, key_of: KeyOf) -> Receipt:
    """The receipt of a proposal that its payee signed.

    Raises:
        DecodeError: see `read_receipt`.
        UntrustedError: of another federation, or the payee did not sign it.
    """
    receipt = read_receipt(proposal.payload)
    if receipt.federation != federation:
        raise UntrustedError(f"receipt: of another federation, {receipt.federation!a}")
    verify(key_of(receipt.payee), RECEIPT_DOMAIN, proposal.payload, proposal.signature)
    return receipt


def open_settled(settled: Settled, federation: str, key_of: KeyOf) -> Receipt:
    """The receipt that both sides signed.

    Raises:
        DecodeError: see `read_receipt`.
        UntrustedError: of another federation, or one of them did not sign it.
    """
    proposal = Proposal(settled.payload, settled.payee_signature)
    receipt = open_proposal(proposal, federation, key_of)
    verify(key_of(receipt.payer), COUNTERSIGN_DOMAIN, settled.payload, settled.payer_signature)
    return receipt


def read_dispute(given: Dispute) -> tuple[Receipt, Objection]:
    """Decode a dispute: the payee's receipt, and the payer's own count. No signature is verified.

    Raises:
        DecodeError: malformed, or the two agree.
    """
    objection = decode(given.payload, Objection, limit=MAX_ENTRY, what="dispute")
    if encode(objection) != given.payload:
        raise DecodeError("dispute: not in the canonical encoding")
    receipt = read_receipt(objection.proposal.payload)
    if receipt.rows == objection.rows:
        raise DecodeError("dispute: both sides counted the same")
    return receipt, objection


def open_dispute(given: Dispute, federation: str, key_of: KeyOf) -> tuple[Receipt, Objection]:
    """Decode a dispute, and verify the signatures of payee and payer.

    Raises:
        DecodeError: see `read_dispute`.
        UntrustedError: of another federation, or one of them did not sign its part.
    """
    receipt, objection = read_dispute(given)
    open_proposal(objection.proposal, federation, key_of)
    verify(key_of(receipt.payer), DISPUTE_DOMAIN, given.payload, given.signature)
    return receipt, objection


def decode_entry(data: bytes) -> Entry:
    """
    Raises:
        DecodeError: that is no entry of a ledger.
    """
    kind: type[Entry] = Entry  # type: ignore[assignment]  # msgspec takes tagged unions
    return decode(data, kind, limit=MAX_ENTRY, what="ledger entry")

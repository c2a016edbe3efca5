"""Ledgers in files, and the receipts that two parties sign for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contracts_settling import FEDERATION, NOW, PEERS, A, S, deal_of, key_of

from medusa.contracts.deals import Deal
from medusa.contracts.ledger import Ledger, open_ledger
from medusa.contracts.receipts import (
    Dispute,
    Proposal,
    Settled,
    countersign,
    dispute,
    make_receipt,
    propose,
)

AT = int(NOW * S)
NAMES = {peer.peer_id: name for name, peer in PEERS.items()}


@contextmanager
def opened(path: Path, own: bytes = A) -> Iterator[Ledger]:
    with open_ledger(path, own, FEDERATION, key_of) as ledger:
        yield ledger


def next_receipt(
    ledger: Ledger, deal: Deal, rows: int = 1_000, after: int | None = None, seconds: int = 30
) -> Settled:
    """Return the next receipt of that deal, signed by both."""
    billed = ledger.billed(deal.key)
    start = after if after is not None else deal.start if billed is None else billed
    last = ledger.last(deal.account)
    receipt = make_receipt(deal, FEDERATION, last, start + seconds * S, rows, after=start, at=AT)
    proposal = propose(PEERS[NAMES[deal.payee]].private_key, receipt)
    return countersign(PEERS[NAMES[deal.payer]].private_key, proposal)


def disputed(ledger: Ledger, deal: Deal, claimed: int = 2_000, counted: int = 1_000) -> Dispute:
    settled = next_receipt(ledger, deal, claimed)
    proposal = Proposal(settled.payload, settled.payee_signature)
    return dispute(PEERS[NAMES[deal.payer]].private_key, proposal, counted, AT)


def filled(path: Path, receipts: int = 5) -> None:
    with opened(path) as ledger:
        for _ in range(receipts):
            ledger.append(next_receipt(ledger, deal_of()))

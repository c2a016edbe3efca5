"""What the book says about a payment of some time: a revocation counts from when it came here."""

from __future__ import annotations

from pathlib import Path

import pytest
from contracts_parties import DAY, MIT, NOW, UTAH, federation, proposed

from contracts.book import Book
from contracts.desk import BookAgreements
from contracts.documents import accept, contract_id, revoke
from contracts.terms import ContentTerms
from overlay.errors import NotFoundError, UntrustedError

OF_MIT, OF_UTAH, OF_BROWN = b"m" * 20, b"u" * 20, b"b" * 20
WHOSE = {OF_MIT: "mit.edu", OF_UTAH: "utah.edu", OF_BROWN: "brown.edu"}


def participant_of(peer: bytes) -> str:
    return WHOSE[peer]


@pytest.mark.parametrize("claimed", [NOW - DAY, NOW + DAY, NOW + 20 * DAY])
def test_a_revocation_counts_from_when_it_came(tmp_path: Path, claimed: float) -> None:
    membership = federation()
    book = Book(tmp_path, membership, "mit.edu")
    proposal = proposed(membership)
    contract = contract_id(proposal)
    book.merge(accept(UTAH, proposal), NOW)
    agreements = BookAgreements(book, participant_of)
    came = NOW + 2 * DAY
    book.merge(revoke(UTAH, membership.federation, contract, claimed), came)
    book.reload()  # the time is kept with it
    terms = book.get(contract).proposal.terms
    assert agreements.terms(contract, OF_MIT, OF_UTAH, came - 1) == terms
    assert agreements.terms(contract, OF_UTAH, OF_MIT, came - 1) == terms
    for at in (came, came + DAY):
        with pytest.raises(UntrustedError, match="revoked"):
            agreements.terms(contract, OF_MIT, OF_UTAH, at)


def test_other_times_parties_and_contracts(tmp_path: Path) -> None:
    membership = federation()
    book = Book(tmp_path, membership, "mit.edu")
    proposal = proposed(membership)
    contract = contract_id(proposal)
    agreements = BookAgreements(book, participant_of)
    with pytest.raises(NotFoundError):
        agreements.terms(contract, OF_MIT, OF_UTAH, NOW)
    book.merge(proposal, NOW)
    with pytest.raises(UntrustedError, match="only proposed"):
        agreements.terms(contract, OF_MIT, OF_UTAH, NOW)
    book.merge(accept(UTAH, proposal), NOW)
    for at in (NOW - 1, NOW + 30 * DAY):
        with pytest.raises(UntrustedError, match="not valid at that time"):
            agreements.terms(contract, OF_MIT, OF_UTAH, at)
    for payer, payee in ((OF_MIT, OF_BROWN), (OF_BROWN, OF_UTAH), (OF_MIT, OF_MIT)):
        with pytest.raises(UntrustedError, match="not between"):
            agreements.terms(contract, payer, payee, NOW)


def test_only_the_sender_of_a_stream_is_paid(tmp_path: Path) -> None:
    membership = federation()
    book = Book(tmp_path, membership, "mit.edu")
    terms = ContentTerms("medusa://mit.edu/s", "mit.edu", per_message=1)
    proposal = proposed(membership, MIT, terms=terms)
    book.merge(accept(UTAH, proposal), NOW)
    agreements, contract = BookAgreements(book, participant_of), contract_id(proposal)
    assert agreements.terms(contract, OF_UTAH, OF_MIT, NOW) == terms
    with pytest.raises(UntrustedError, match=r"mit\.edu is paid"):
        agreements.terms(contract, OF_MIT, OF_UTAH, NOW)

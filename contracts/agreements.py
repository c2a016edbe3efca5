"""The contract book as settlements ask for it: `contracts.desk.Agreements`."""

from __future__ import annotations

from collections.abc import Callable

from contracts.book import Book
from contracts.contract import Contract
from contracts.terms import ContentTerms, Terms
from overlay.errors import UntrustedError

ParticipantOf = Callable[[bytes], str]
"""Whose peer that is; raises UntrustedError where the peer is not known."""


class BookAgreements:
    """What the book said at any time, not only what is in force now: what ran under a contract
    that was revoked or expired since is owed all the same."""

    def __init__(self, book: Book, participant_of: ParticipantOf) -> None:
        self._book = book
        self._participant_of = participant_of

    def terms(self, contract: str, payer: bytes, payee: bytes, at: float) -> Terms:
        """See `Agreements.terms`."""
        found = self._book.get(contract)
        _check_in_force(found, at)
        terms = found.proposal.terms
        parties = self._participant_of(payer), self._participant_of(payee)
        if set(parties) != set(found.proposal.parties):
            raise UntrustedError(f"contract {contract[:8]}: not between {' and '.join(parties)}")
        if isinstance(terms, ContentTerms) and terms.sender != parties[1]:
            raise UntrustedError(f"contract {contract[:8]}: {terms.sender} is paid, nobody else")
        return terms


def _check_in_force(contract: Contract, at: float) -> None:
    """
    Raises:
        UntrustedError: it was not in force then.
    """
    name, proposal = f"contract {contract.id[:8]}", contract.proposal
    if not contract.accepted:
        raise UntrustedError(f"{name}: only proposed, not accepted")
    if not proposal.valid_from <= at < proposal.valid_until:
        raise UntrustedError(f"{name}: was not valid at that time")
    # when it came to this home: the date in it is what its signer says
    if contract.revocation and at >= contract.revoked_at:
        raise UntrustedError(f"{name}: was revoked by then")

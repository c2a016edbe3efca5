"""The parts that both sides of a settlement share: identity, ledger, contracts, events and
effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random  # noqa: TID251 - the type only: the generator is passed in
from typing import Final, Protocol

from medusa.contracts.book import Book
from medusa.contracts.contract import Contract
from medusa.contracts.deals import Account, Deal, LoadRate
from medusa.contracts.ledger import Ledger, Standing
from medusa.contracts.receipts import KeyOf, Message, Receipt
from medusa.contracts.terms import ContentTerms, Terms
from medusa.overlay.errors import UntrustedError
from medusa.overlay.identity import Identity
from medusa.overlay.names import PeerId

MICROS: Final = 1_000_000
"""Microseconds in a second."""


class Agreements(Protocol):
    """The contracts, as settlements query them."""

    def terms(self, contract: str, payer: PeerId, payee: PeerId, at: float) -> Terms:
        """The terms of a contract under which that payer pays that payee. at: seconds since the
        epoch.

        Raises:
            NotFoundError, UntrustedError: the contract was not in force then, or is not between
            these two peers.
        """
        ...


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. The driver sends this event at `Settlement.wake_at` at the latest."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message, untrusted, from a peer whose identity the connection has proved."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True)
class Ended:
    """A placement is over. Each side gets the event when it learns this (the owner: when the next
    placement is committed; the worker: when it stops), before the inputs are deleted.

    Attributes:
        upto: the boundary from which another peer runs the task.
    """

    task: str
    term_number: int
    upto: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The answer to a `Count`.

    Attributes:
        upto: the requested boundary, or this peer's present boundary if none was requested.
        rows: input tuples of (after, upto]. None: they cannot be counted (yet), because inputs, or
            (at the payer) the output, are not here up to there.
    """

    number: int
    upto: int
    rows: int | None


Event = Tick | Received | Ended | Counted

# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message if possible; a lost message does no harm."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True)
class Count:
    """Count this task's input tuples (of content deals: the stream's tuples) of (after, upto].

    Attributes:
        number: the number of the request, for the answer. upto: None: this peer's present output
            boundary.
    """

    number: int
    deal: Deal
    after: int
    upto: int | None


@dataclass(frozen=True, slots=True)
class Disputed:
    """The two sides counted differently; both ledgers have the dispute now.

    Attributes:
        receipt: `rows` is the payee's count. counted: the payer's count.
    """

    receipt: Receipt
    counted: int


@dataclass(frozen=True, slots=True)
class Note:
    """An event for people (events.note). level: info or warning."""

    level: str
    text: str


Effect = Send | Count | Disputed | Note


@dataclass(frozen=True)
class Desk:
    """One peer's identity, ledger and contracts.

    Attributes:
        rng: spreads the waits between tries.
        numbers: gives the numbers of counts. They start again after a restart, which drops all
            counts.
    """

    identity: Identity
    ledger: Ledger
    agreements: Agreements
    key_of: KeyOf
    rng: Random
    numbers: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    @property
    def own(self) -> PeerId:
        return self.identity.peer_id

    @property
    def federation(self) -> str:
        return self.ledger.federation

    def resold(self, standing: Standing) -> Standing | None:
        """The other deal of a placement that this peer passed on: the earning one for the paying
        one, and the reverse; None if it was not passed on."""
        if not isinstance(standing.deal.rate, LoadRate):
            return None
        for other in self.ledger.deals_of(standing.deal.task, standing.deal.term_number):
            if other is not standing and isinstance(other.deal.rate, LoadRate):
                return other
        return None


def described(account: Account, task: str) -> str:
    """A task and its contract, for people."""
    return f"{task[:80]} (contract {account.contract[:8]})"


ParticipantOf = Callable[[PeerId], str]
"""The participant of a peer; raises UntrustedError if the peer is not known."""


class BookAgreements:
    """The contracts of the book at any time, not only now: work done before a contract was revoked
    or expired is still owed."""

    def __init__(self, book: Book, participant_of: ParticipantOf) -> None:
        self._book = book
        self._participant_of = participant_of

    def terms(self, contract: str, payer: PeerId, payee: PeerId, at: float) -> Terms:
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
        UntrustedError: the contract was not in force then.
    """
    name, proposal = f"contract {contract.id[:8]}", contract.proposal
    if not contract.accepted:
        raise UntrustedError(f"{name}: only proposed, not accepted")
    if not proposal.valid_from <= at < proposal.valid_until:
        raise UntrustedError(f"{name}: was not valid at that time")
    # a revocation counts from its arrival at this peer; its date is only the signer's claim
    if contract.revocation and at >= contract.revoked_at:
        raise UntrustedError(f"{name}: was revoked by then")

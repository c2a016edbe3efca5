"""What both sides of a settlement work with: who we are, the ledger, the contracts, the events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol

from contracts.book import Book
from contracts.contract import Contract
from contracts.deals import Account, Deal, LoadRate
from contracts.ledger import Ledger, Standing
from contracts.receipts import KeyOf, Message, Receipt
from contracts.terms import ContentTerms, Terms
from overlay.errors import UntrustedError
from overlay.identity import Identity
from overlay.names import PeerId

MICROS: Final = 1_000_000
"""Microseconds of a second."""


class Agreements(Protocol):
    """The contracts, as settlements ask for them."""

    def terms(self, contract: str, payer: PeerId, payee: PeerId, at: float) -> Terms:
        """What it says, where under it that peer pays that one. at: seconds since the epoch.

        Raises:
            NotFoundError, UntrustedError: it was not in force then, or is not between these two.
        """
        ...


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Wanted no later than `Settlement.wake_at`."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message from a peer whose identity the connection has proved; else hostile."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True)
class Ended:
    """A placement is over. Told on the side that learns it (the owner: when the next placement is
    committed; the worker: when it stops), before the inputs go.

    Attributes:
        upto: the boundary from which another one runs the task.
    """

    task: str
    term_number: int
    upto: int


@dataclass(frozen=True, slots=True)
class Counted:
    """The answer to a `Count`.

    Attributes:
        upto: the boundary asked for, or, where none was, how far this peer has got.
        rows: input tuples of (after, upto]; None: that cannot be counted (yet): inputs, or (on the
            payer's side) the output paid for, are not here up to there.
    """

    number: int
    upto: int
    rows: int | None


Event = Tick | Received | Ended | Counted

# -- effects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver it if you can; nothing is lost where you cannot."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True)
class Count:
    """Count this task's input tuples (of content deals: the stream's tuples) of (after, upto].

    Attributes:
        number: to answer with. upto: None: as far as this peer's output has got.
    """

    number: int
    deal: Deal
    after: int
    upto: int | None


@dataclass(frozen=True, slots=True)
class Disputed:
    """The two sides counted differently; both have it in their ledgers now.

    Attributes:
        receipt: its `rows` are what the payee claims. counted: by the payer.
    """

    receipt: Receipt
    counted: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a person's notice (events.note). level: info or warning."""

    level: str
    text: str


Effect = Send | Count | Disputed | Note


@dataclass(frozen=True)
class Desk:
    """One peer's.

    Attributes:
        numbers: of counts; they do not outlive a restart, as counts do not.
    """

    identity: Identity
    ledger: Ledger
    agreements: Agreements
    key_of: KeyOf
    numbers: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    @property
    def own(self) -> PeerId:
        return self.identity.peer_id

    @property
    def federation(self) -> str:
        return self.ledger.federation

    def resold(self, standing: Standing) -> Standing | None:
        """The deal by which we earn for the placement that we pay for by this one, or the other
        way round: there is one where we passed a task on."""
        if not isinstance(standing.deal.rate, LoadRate):
            return None
        for other in self.ledger.deals_of(standing.deal.task, standing.deal.term_number):
            if other is not standing and isinstance(other.deal.rate, LoadRate):
                return other
        return None


def described(account: Account, task: str) -> str:
    """For people: which task, under which contract."""
    return f"{task[:80]} (contract {account.contract[:8]})"


ParticipantOf = Callable[[PeerId], str]
"""Whose peer that is; raises UntrustedError where the peer is not known."""


class BookAgreements:
    """What the book said at any time, not only what is in force now: what ran under a contract
    that was revoked or expired since is owed all the same."""

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

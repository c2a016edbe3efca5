"""Contracts at a home: signs them, keeps them in its book, passes them to its running peer."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from medusa.contracts.balances import BalanceQuery, Balances
from medusa.contracts.book import Book
from medusa.contracts.contract import Contract, State
from medusa.contracts.delivery import DELIVER, MAX_DOCUMENTS, Deliver, Delivered
from medusa.contracts.documents import NONCE_BYTES, Proposal, accept, open_document, propose, revoke
from medusa.contracts.ledger import LEDGER_FILE, read_balances
from medusa.contracts.terms import Terms
from medusa.overlay.errors import (
    InvalidInputError,
    MedusaError,
    NotFoundError,
    UnavailableError,
    UntrustedError,
)
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.tools.client.at_prompt import call_daemon
from medusa.tools.commands.peer.contract_papers import read_papers, write_papers
from medusa.tools.home.federation import load_federation
from medusa.tools.home.folder import Home
from medusa.tools.home.messages import BALANCE
from medusa.tools.home.root_key import SAY_WHERE, load_root

HAND_OVER_S: Final = 15.0
"""Seconds for the peer to take documents and to try to reach the other party's peers."""


@dataclass(frozen=True)
class Office:
    """A home, its identity and its book of contracts. now: seconds since the epoch."""

    home: Home
    identity: Identity
    membership: Membership
    book: Book
    now: float

    @property
    def participant(self) -> str:
        return self.identity.participant

    def root(self, root_home: str | None) -> Root:
        """Our participant's root.

        Raises:
            NotFoundError: neither this home nor `root_home` has the root's key. InvalidInputError:
                `root_home` has the root of another participant.
        """
        place = self.home if root_home is None else Home.locate(root_home)
        return load_root(place, of=self.identity, mend=SAY_WHERE)


@dataclass(frozen=True)
class Outcome:
    """The result of a command about a contract.

    Attributes:
        contract: its present state. state: the state in a word.
        signed: whether we signed a document now, which the other party must get.
        delivered: the running peer's answer; None: none runs, or `trouble` has the reason.
    """

    contract: Contract
    state: State
    signed: bool
    delivered: Delivered | None
    trouble: str = ""


def open_office(home: str | None) -> Office:
    """The office of a home.

    Raises:
        NotFoundError: the home has no peer, or is in no federation.
        MedusaError: its files are damaged.
    """
    place = Home.locate(home)
    place.require()
    identity = Identity.load(place.folder)
    membership = load_federation(place)
    book = Book(place.folder, membership, identity.participant)
    return Office(place, identity, membership, book, time.time())


def make_proposal(
    office: Office,
    root: Root,
    counterparty: str,
    terms: Terms,
    *,
    valid_from: float | None,
    valid_for: int,
) -> Outcome:
    """Sign and keep a proposal, and have it delivered.

    Args:
        valid_from: seconds since the epoch; None: now. valid_for: seconds.

    Raises:
        NotFoundError: the counterparty is no member.
        InvalidInputError: the terms are out of bounds.
    """
    if office.membership.root_of(counterparty) is None:
        raise NotFoundError(
            f"{counterparty} is no member of federation {office.membership.name} known here"
        )
    begin = office.now if valid_from is None else valid_from
    proposal = Proposal(
        federation=office.membership.federation,
        proposer=office.participant,
        accepter=counterparty,
        terms=terms,
        valid_from=begin,
        valid_until=begin + valid_for,
        proposed_at=office.now,
        nonce=secrets.token_bytes(NONCE_BYTES),
    )
    return _keep(office, (propose(root, proposal),))[0]


def accept_proposal(office: Office, root: Root, contract: Contract) -> Outcome:
    """Countersign a proposal made to us.

    Raises:
        InvalidInputError: it is our own, or no longer a proposal.
    """
    state = office.book.state(contract, office.now)
    if state is not State.THEIR_PROPOSAL:
        hint = {
            State.OUR_PROPOSAL: f"{contract.proposal.accepter} accepts it",
            State.BARRED: "a party is no member of the federation",
        }.get(state, "there is nothing to accept")
        raise InvalidInputError(f"contract {contract.id} is {state}: {hint}")
    return _keep(office, (accept(root, contract.document),))[0]


def take_in(office: Office, file: str) -> list[Outcome]:
    """Keep the documents of a file; returns their contracts.

    Raises:
        MedusaError: there are none, or one is refused.
    """
    documents = read_papers(file)
    if len(documents) > MAX_DOCUMENTS:
        raise InvalidInputError(f"{file}: {len(documents)} documents; at most {MAX_DOCUMENTS}")
    return _keep(office, documents, signed=False)


def revoke_contract(office: Office, root: Root, contract: Contract) -> Outcome:
    """End a contract, withdraw our proposal or decline theirs.

    Raises:
        InvalidInputError: it is revoked already.
    """
    if contract.revocation:
        raise InvalidInputError(f"contract {contract.id} is revoked already")
    revocation = revoke(root, office.membership.federation, contract.id, office.now)
    return _keep(office, (revocation,))[0]


def balances(office: Office, contract: str) -> Balances:
    """The balances of this peer, from the running peer or from its ledger.

    Args:
        contract: one id; "" for all.

    Raises:
        InvalidInputError: the ledger is damaged.
    """
    if office.home.is_locked():
        try:
            return call_daemon(office.home, BALANCE, BalanceQuery(contract), Balances, HAND_OVER_S)
        except (UnavailableError, NotFoundError):
            # the peer is starting or stopping, or does not trade: the ledger file can be read at
            # any time
            pass
    own = office.identity.peer_id
    try:
        found = read_balances(
            office.home.folder / LEDGER_FILE, own, office.membership.federation, contract
        )
    except NotFoundError:
        found = Balances(own.hex())
    return found


def save_papers(path: Path, contract: Contract) -> None:
    """Write all documents of a contract to a file for the other party."""
    write_papers(path, contract.documents)


def _keep(office: Office, documents: Iterable[bytes], *, signed: bool = True) -> list[Outcome]:
    """Put documents into the book, then give them to the peer, which delivers them."""
    taken = tuple(documents)
    opened = [open_document(data) for data in taken]
    for data, document in zip(taken, opened, strict=True):
        if office.participant not in office.book.parties_of(document):
            raise UntrustedError(
                f"contract {document.contract}: it is not known here that {office.participant} "
                "is a party to it"
            )
        office.book.merge(data, office.now)
    delivered, trouble = _hand_over(office.home, taken)
    ids = dict.fromkeys(document.contract for document in opened)
    found = [office.book.get(id_) for id_ in ids]
    return [Outcome(c, office.book.state(c, office.now), signed, delivered, trouble) for c in found]


def _hand_over(home: Home, documents: tuple[bytes, ...]) -> tuple[Delivered | None, str]:
    if not home.is_locked():
        return None, ""
    try:
        answer = call_daemon(home, DELIVER, Deliver(documents), Delivered, HAND_OVER_S)
    except MedusaError as error:
        return None, str(error)
    return answer, next(filter(None, answer.reasons), "")

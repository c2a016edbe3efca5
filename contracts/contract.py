"""One contract as one party sees it: its state, and the tasks that each party may run for the
other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from medusa.contracts.documents import Proposal
from medusa.contracts.market.events import Partner
from medusa.contracts.market.messages import Item
from medusa.contracts.terms import EVERY_KIND, LoadTerms, Menu

SHORT_ID: Final = 8
"""Hex digits of a contract's id on screens; commands take any unambiguous beginning."""


class State(StrEnum):
    """The state of a contract. BARRED: a party is not (or no longer) a member in good standing."""

    OUR_PROPOSAL = "proposed by us"
    THEIR_PROPOSAL = "proposed to us"
    LATER = "not yet valid"
    IN_FORCE = "in force"
    EXPIRED = "expired"
    REVOKED = "revoked"
    BARRED = "barred"

    @property
    def ended(self) -> bool:
        return self in {State.EXPIRED, State.REVOKED}


@dataclass(frozen=True, slots=True)
class OnMenu:
    """A predicate: whether a menu covers a task. Two predicates of one menu are equal, so that
    partners with the same menu compare equal."""

    menu: Menu

    def __call__(self, item: Item) -> bool:
        return not covers(self.menu, item)


@dataclass(frozen=True)
class Contract:
    """A contract with its signed documents.

    Attributes:
        id: the contract's id, hex. proposal: the terms that both sign.
        document: the signed acceptance, or the signed proposal before that.
        accepted: whether it is the acceptance.
        revocation: the signed bytes; empty: none.
        revoked_at: when the revocation arrived at this home, seconds since the epoch. It decides
            which work is still paid; the time inside the document is only its signer's.
    """

    id: str
    proposal: Proposal
    document: bytes
    accepted: bool
    revocation: bytes = b""
    revoked_at: float = 0.0

    @property
    def short_id(self) -> str:
        """The beginning of the id, for people."""
        return self.id[:SHORT_ID]

    @property
    def documents(self) -> tuple[bytes, ...]:
        """All signed documents to be delivered."""
        return (self.document, self.revocation) if self.revocation else (self.document,)

    def counterparty(self, participant: str) -> str:
        """The other party."""
        proposer, accepter = self.proposal.parties
        return accepter if participant == proposer else proposer

    def menu_of(self, participant: str) -> Menu:
        """The menu of tasks that this party runs for the other; empty unless the terms are load
        terms."""
        terms = self.proposal.terms
        if not isinstance(terms, LoadTerms):
            return Menu()
        return terms.proposer_runs if participant == self.proposal.proposer else terms.accepter_runs

    def partner(self, participant: str, peer: str) -> Partner | None:
        """The terms under which `participant` trades load with that peer (hex) of the other party;
        None: the contract is not about load."""
        terms = self.proposal.terms
        if not isinstance(terms, LoadTerms):
            return None
        ours, theirs = self.menu_of(participant), self.menu_of(self.counterparty(participant))
        return Partner(
            peer=peer,
            contract=self.id,
            min_price=terms.min_price,
            max_price=terms.max_price,
            gives=OnMenu(theirs),
            takes=OnMenu(ours),
            most_given=float(theirs.most_load),
            most_taken=float(ours.most_load),
            sublet=terms.sublet,
            migration_cost=terms.migration_cost,
        )


def covers(menu: Menu, item: Item) -> str:
    """Why the menu does not cover a task; "" if it does."""
    # written so that NaN is refused
    if not 0 <= item.load <= menu.most_load:
        return f"{item.task[:80]}: load {item.load:g} is not within 0 to {menu.most_load} units"
    if not item.kinds or not item.inputs:
        return f"{item.task[:80]}: does not say of which boxes it is made, or what it reads"
    for kind in item.kinds:
        if kind not in menu.kinds and EVERY_KIND not in menu.kinds:
            return f"{item.task[:80]}: box kind {kind[:40]!a} is not on the menu"
    for stream in item.inputs:
        if not any(fnmatchcase(stream, pattern) for pattern in menu.streams):
            return f"{item.task[:80]}: stream {stream[:80]!a} is not on the menu"
    return ""

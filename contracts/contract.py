"""One contract as a party sees it: how far it has come, and what it lets whom run for whom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from contracts.documents import Proposal
from contracts.market.events import Partner
from contracts.market.messages import Item
from contracts.terms import LoadTerms, Menu

SHORT_ID: Final = 8
"""Hex digits of a contract's id on screens; commands take any unambiguous beginning."""


class State(StrEnum):
    """How far a contract has come. BARRED: a party is no member in good standing (any more)."""

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
    """Whether a task is on that menu. Two of one menu are equal, and so are partners with them."""

    menu: Menu

    def __call__(self, item: Item) -> bool:
        return not covers(self.menu, item)


@dataclass(frozen=True)
class Contract:
    """A contract, as far as it has come.

    Attributes:
        id: hex. proposal: what both sign. document: the signed acceptance, or the signed proposal.
        accepted: which of them. revocation: the signed bytes; empty: none.
        revoked_at: when the revocation came to this home, seconds since the epoch: what counts for
            what was run until then; the time in it is what its signer says.
    """

    id: str
    proposal: Proposal
    document: bytes
    accepted: bool
    revocation: bytes = b""
    revoked_at: float = 0.0

    @property
    def short_id(self) -> str:
        """For people."""
        return self.id[:SHORT_ID]

    @property
    def documents(self) -> tuple[bytes, ...]:
        """All that there is to hand over."""
        return (self.document, self.revocation) if self.revocation else (self.document,)

    def counterparty(self, participant: str) -> str:
        """The other party."""
        proposer, accepter = self.proposal.parties
        return accepter if participant == proposer else proposer

    def menu_of(self, participant: str) -> Menu:
        """What that party runs for the other; nothing under other than load terms."""
        terms = self.proposal.terms
        if not isinstance(terms, LoadTerms):
            return Menu()
        return terms.proposer_runs if participant == self.proposal.proposer else terms.accepter_runs

    def partner(self, participant: str, peer: str) -> Partner | None:
        """How `participant` trades under it with that peer (hex) of the other; None: no load."""
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
    """Why a task is not on that menu; "" if it is."""
    # written so that NaN fails
    if not 0 <= item.load <= menu.most_load:
        return f"{item.task[:80]}: load {item.load:g} is not within 0 to {menu.most_load} units"
    if not item.kinds or not item.inputs:
        return f"{item.task[:80]}: does not say of which boxes it is made, or what it reads"
    for kind in item.kinds:
        if kind not in menu.kinds:
            return f"{item.task[:80]}: box kind {kind[:40]!a} is not on the menu"
    for stream in item.inputs:
        if not any(fnmatchcase(stream, pattern) for pattern in menu.streams):
            return f"{item.task[:80]}: stream {stream[:80]!a} is not on the menu"
    return ""

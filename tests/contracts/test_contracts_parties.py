"""Two parties that propose, accept and revoke while documents get lost, repeated and reordered."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from contracts_parties import DAY, MIT, NOW, UTAH, federation, proposed
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from medusa.contracts.book import Book
from medusa.contracts.contract import State
from medusa.contracts.documents import accept, contract_id, revoke
from medusa.overlay.errors import NotFoundError

ROOTS = {"mit.edu": MIT, "utah.edu": UTAH}
PARTY = st.sampled_from(sorted(ROOTS))


class Parties(RuleBasedStateMachine):
    """Two parties; the oracle is the set of documents that each root has signed: nothing else makes
    or ends a contract."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.members = federation()
        self.books = {name: self.open(name) for name in ROOTS}
        self.sent: list[bytes] = []
        self.signed_by: dict[str, set[str]] = {}
        self.revoked: set[str] = set()
        self.now = NOW

    def open(self, name: str) -> Book:
        return Book(self.folder / name, self.members, name)

    def teardown(self) -> None:
        self.exchange_everything()
        for id_, signers in self.signed_by.items():
            states = {book.state(book.get(id_), self.now) for book in self.books.values()}
            if id_ in self.revoked:
                assert states == {State.REVOKED}
            elif self.now >= NOW + 30 * DAY:
                assert states == {State.EXPIRED}
            elif len(signers) == 2:
                assert states == {State.IN_FORCE}
            else:
                assert states == {State.OUR_PROPOSAL, State.THEIR_PROPOSAL}
        shutil.rmtree(self.folder)

    def exchange_everything(self) -> None:
        for name, book in self.books.items():
            held = [c for other in self.books.values() for c in other.all()]
            for document in [document for contract in held for document in contract.documents]:
                self.merge(name, document)
            assert book.problems == ()

    def merge(self, name: str, document: bytes) -> None:
        with suppress(NotFoundError):  # the revocation came before its contract
            self.books[name].merge(document, self.now)

    def say(self, name: str, document: bytes) -> None:
        self.merge(name, document)
        self.sent.append(document)

    @precondition(lambda self: len(self.signed_by) < 6)
    @rule(name=PARTY)
    def propose(self, name: str) -> None:
        other = "utah.edu" if name == "mit.edu" else "mit.edu"
        data = proposed(self.members, ROOTS[name], accepter=other)
        self.signed_by[contract_id(data)] = {name}
        self.say(name, data)

    @rule(name=PARTY, at=st.integers(0, 5))
    def accept(self, name: str, at: int) -> None:
        for contract in self.books[name].all()[at : at + 1]:
            if self.books[name].state(contract, self.now) is State.THEIR_PROPOSAL:
                self.signed_by[contract.id].add(name)
                self.say(name, accept(ROOTS[name], contract.document))

    @rule(name=PARTY, at=st.integers(0, 5))
    def revoke(self, name: str, at: int) -> None:
        for contract in self.books[name].all()[at : at + 1]:
            self.revoked.add(contract.id)
            federation_id = self.members.federation
            self.say(name, revoke(ROOTS[name], federation_id, contract.id, self.now))

    @rule(name=PARTY, at=st.integers(0, 100), lost=st.booleans())
    def arrive(self, name: str, at: int, lost: bool) -> None:
        if at < len(self.sent) and not lost:
            self.merge(name, self.sent[at])

    @rule(name=PARTY)
    def restart(self, name: str) -> None:
        before = self.books[name].all()
        self.books[name] = self.open(name)
        assert self.books[name].all() == before

    @rule()
    def a_week_passes(self) -> None:
        self.now += 7 * DAY

    @invariant()
    def in_force_is_signed_by_both_and_not_known_to_be_revoked(self) -> None:
        for book in self.books.values():
            for contract in book.in_force(self.now):
                assert self.signed_by[contract.id] == {"mit.edu", "utah.edu"}
                assert self.now < NOW + 30 * DAY
                assert not contract.revocation


Parties.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestParties = Parties.TestCase

"""The book merges contracts in any order, keeps its bounds, survives damaged files, knows what a
menu covers, and decides whether a contract counts for a payment: a revocation counts from its
arrival."""

from __future__ import annotations

import itertools
import stat
from pathlib import Path

import pytest
from contracts_parties import BROWN, DAY, EVIL, LOAD, MIT, NOW, UTAH, federation, proposed
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.contracts.book import FOLDER, MAX_WAITING, SUFFIX, Book
from medusa.contracts.contract import Contract, State, covers
from medusa.contracts.desk import BookAgreements
from medusa.contracts.documents import accept, contract_id, open_document, revoke
from medusa.contracts.market.messages import Item
from medusa.contracts.terms import ContentTerms, Menu
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    DecodeError,
    InvalidInputError,
    NotFoundError,
    UntrustedError,
)
from medusa.overlay.membership import Membership


@pytest.fixture
def members() -> Membership:
    return federation()


@pytest.fixture
def mit(tmp_path: Path, members: Membership) -> Book:
    return Book(tmp_path / "mit", members, "mit.edu")


@pytest.fixture
def utah(tmp_path: Path, members: Membership) -> Book:
    return Book(tmp_path / "utah", members, "utah.edu")


def files(book: Book) -> dict[str, bytes]:
    folder = book._folder
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name.endswith(SUFFIX)}


def test_the_life_of_a_contract(mit: Book, utah: Book, members: Membership) -> None:
    data = proposed(members, valid_from=NOW + DAY, valid_until=NOW + 2 * DAY)
    id_ = contract_id(data)
    assert mit.merge(data, NOW) == f"proposed contract {id_[:8]} with utah.edu, by mit.edu"
    assert utah.merge(data, NOW) == f"proposed contract {id_[:8]} with mit.edu, by mit.edu"
    assert mit.state(mit.get(id_), NOW) is State.OUR_PROPOSAL
    assert utah.state(utah.get(id_), NOW) is State.THEIR_PROPOSAL
    assert mit.in_force(NOW + DAY) == ()  # the other party has not signed: it binds nobody
    contract = accept(UTAH, data)
    for book in (mit, utah):
        assert book.merge(contract, NOW).startswith("accepted contract")
        agreed = book.get(id_)
        assert book.state(agreed, NOW) is State.LATER
        assert book.next_change(NOW) == NOW + DAY
        assert book.in_force(NOW) == ()
        assert book.in_force(NOW + DAY) == (agreed,)
        assert book.next_change(NOW + DAY) == NOW + 2 * DAY
        assert book.in_force(NOW + 2 * DAY) == ()
        assert book.state(agreed, NOW + 2 * DAY) is State.EXPIRED
        assert book.next_change(NOW + 2 * DAY) == float("inf")
    end = revoke(MIT, members.federation, id_, NOW)
    for book in (mit, utah):
        assert book.merge(end, NOW + 5).startswith("revoked contract")
        # the revocation counts from its arrival: its signer may have dated it back
        assert book.get(id_).revoked_at == NOW + 5
        assert book.merge(end, NOW + 9) == ""
        book.reload()
        assert book.get(id_).revoked_at == NOW + 5
        assert book.state(book.get(id_), NOW + DAY) is State.REVOKED
        assert book.in_force(NOW + DAY) == ()
        assert book.next_change(NOW) == float("inf")
        # the record stays, and no document revives it
        assert book.merge(data, NOW) == ""
        assert book.merge(contract, NOW) == ""
        assert book.state(book.get(id_), NOW) is State.REVOKED


def test_stored_documents_exist_after_a_restart(
    mit: Book, members: Membership, tmp_path: Path
) -> None:
    datas = [proposed(members, proposed_at=NOW + at) for at in range(3)]
    mit.merge(accept(UTAH, datas[0]), NOW)
    mit.merge(datas[1], NOW)
    mit.merge(datas[2], NOW)
    mit.merge(revoke(UTAH, members.federation, contract_id(datas[2]), NOW), NOW)
    again = Book(tmp_path / "mit", members, "mit.edu")
    assert again.all() == mit.all()
    assert [again.state(c, NOW) for c in again.all()] == [
        State.IN_FORCE,
        State.OUR_PROPOSAL,
        State.REVOKED,
    ]
    assert again.problems == ()
    for name in files(mit):
        assert stat.S_IMODE((tmp_path / "mit" / FOLDER / name).stat().st_mode) == 0o600


DOCUMENT_KINDS = ("proposal", "contract", "by mit", "by utah")


@settings(max_examples=40)
@given(st.lists(st.sampled_from(DOCUMENT_KINDS), max_size=8))
def test_any_order_and_any_repetition(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str]
) -> None:
    members = federation()
    data = proposed(members)
    id_ = contract_id(data)
    documents = {
        "proposal": data,
        "contract": accept(UTAH, data),
        "by mit": revoke(MIT, members.federation, id_, NOW),
        "by utah": revoke(UTAH, members.federation, id_, NOW + 1),
    }
    book = Book(tmp_path_factory.mktemp("book"), members, "utah.edu")
    # the oracle: a revocation counts once the contract is known, an acceptance counts at any time
    known = accepted = revoked = False
    for kind in kinds:
        news = kind.startswith("by") and known and not revoked
        news |= (kind == "proposal" and not known) or (kind == "contract" and not accepted)
        if kind.startswith("by") and not known:
            with pytest.raises(NotFoundError):
                book.merge(documents[kind], NOW)
        else:
            assert bool(book.merge(documents[kind], NOW)) == news
        known |= kind in {"proposal", "contract"}
        accepted |= kind == "contract"
        revoked |= kind.startswith("by") and known
    assert [c.id for c in book.in_force(NOW)] == ([id_] if accepted and not revoked else [])
    assert [c.id for c in book.all()] == ([id_] if known else [])


def test_the_first_acceptance_stays(utah: Book, members: Membership) -> None:
    data = proposed(members)
    first = accept(UTAH, data)
    utah.merge(first, NOW)
    before = files(utah)
    assert utah.merge(data, NOW) == ""
    assert utah.merge(first, NOW) == ""
    assert files(utah) == before


def test_the_book_refuses_foreign_and_unsigned_contracts(utah: Book, members: Membership) -> None:
    elsewhere = federation("other")
    for data, told in [
        (proposed(members, BROWN, accepter="mit.edu"), "it is not ours to keep"),
        (proposed(elsewhere), "another federation"),
        (proposed(members, EVIL), "no member in good standing"),
        (accept(UTAH, proposed(elsewhere)), "another federation"),
    ]:
        with pytest.raises(UntrustedError, match=told):
            utah.merge(data, NOW)
    with pytest.raises(DecodeError):
        utah.merge(b"junk", NOW)
    data = proposed(members)
    utah.merge(data, NOW)
    with pytest.raises(UntrustedError, match=r"brown\.edu is no party and cannot revoke it"):
        utah.merge(revoke(BROWN, members.federation, contract_id(data), NOW), NOW)
    with pytest.raises(NotFoundError, match="not known here"):
        utah.merge(revoke(MIT, members.federation, "ab" * 16, NOW), NOW)
    assert utah.state(utah.get(contract_id(data)), NOW) is State.THEIR_PROPOSAL
    assert len(files(utah)) == 1


def test_a_party_leaves_the_federation(
    mit: Book, utah: Book, members: Membership, tmp_path: Path
) -> None:
    contract = accept(UTAH, proposed(members))
    mit.merge(contract, NOW)
    assert len(mit.in_force(NOW)) == 1
    members.revoke(UTAH, "utah.edu", now=NOW)
    (kept,) = mit.all()
    assert mit.in_force(NOW) == ()
    assert mit.state(kept, NOW) is State.BARRED
    again = Book(tmp_path / "mit", members, "mit.edu")
    assert again.problems == ()
    assert again.state(again.get(kept.id), NOW) is State.BARRED


def test_a_stranger_cannot_fill_the_disk(utah: Book, members: Membership) -> None:
    for _ in range(MAX_WAITING):
        utah.merge(proposed(members), NOW)
    with pytest.raises(BusyError, match=r"mit\.edu: too many proposals wait for utah\.edu"):
        utah.merge(proposed(members), NOW)
    # others still have room, and so do our own proposals and the contracts that we accept
    utah.merge(proposed(members, BROWN), NOW)
    utah.merge(proposed(members, UTAH, accepter="mit.edu"), NOW)
    utah.merge(accept(UTAH, proposed(members)), NOW)
    assert len(files(utah)) == MAX_WAITING + 3
    # withdrawn and expired proposals make room; contracts never do
    gone = next(c for c in utah.all() if c.proposal.proposer == "mit.edu" and not c.accepted)
    utah.merge(revoke(MIT, members.federation, gone.id, NOW), NOW)
    fresh = proposed(members, valid_until=NOW + 90 * DAY)
    assert utah.merge(fresh, NOW)
    assert gone.id not in {c.id for c in utah.all()}
    assert gone.id + SUFFIX not in files(utah)
    late = NOW + 60 * DAY
    assert utah.merge(proposed(members, valid_until=NOW + 90 * DAY), late)
    assert sum(c.accepted for c in utah.all()) == 1
    waiting = [c for c in utah.all() if utah.state(c, late) is State.THEIR_PROPOSAL]
    assert len(waiting) == 2


def test_damaged_files_are_named_and_not_fatal(
    mit: Book, members: Membership, tmp_path: Path
) -> None:
    good, bad = accept(UTAH, proposed(members)), accept(UTAH, proposed(members))
    for contract in (good, bad):
        mit.merge(contract, NOW)
    path = tmp_path / "mit" / FOLDER / (open_document(bad).contract + SUFFIX)
    whole = path.read_bytes()
    for content, told in [
        (whole[:-10], "not well formed"),
        (whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:], "bad signature"),
        (b"", "not well formed"),
        (b"x" * 100_000, "at most"),
    ]:
        path.write_bytes(content)
        book = Book(tmp_path / "mit", members, "mit.edu")
        assert [c.id for c in book.in_force(NOW)] == [open_document(good).contract]
        (problem,) = book.problems
        assert told in problem
        assert str(path) in problem
        # the damaged file may have held a revocation, so it is not overwritten
        with pytest.raises(ConflictError, match="remove it first"):
            book.merge(bad, NOW)
        assert path.read_bytes() == content
    path.rename(path.with_name("ab" * 16 + SUFFIX))
    (tmp_path / "mit" / FOLDER / ("cd" * 16 + SUFFIX)).write_bytes(whole)
    book = Book(tmp_path / "mit", members, "mit.edu")
    assert len(book.problems) == 3, "and one is missing"
    path.write_bytes(whole)
    path.chmod(0o644)
    book.reload()
    assert any("chmod 600" in problem for problem in book.problems)


def test_two_processes_have_the_book_open(mit: Book, members: Membership, tmp_path: Path) -> None:
    other = Book(tmp_path / "mit", members, "mit.edu")
    data = proposed(members)
    id_ = contract_id(data)
    mit.merge(data, NOW)
    other.merge(accept(UTAH, data), NOW)
    # neither book loses the other's writes
    assert mit.merge(revoke(MIT, members.federation, id_, NOW), NOW)
    assert mit.get(id_).accepted
    other.reload()
    assert other.get(id_).revocation
    assert other.all() == mit.all()
    # a book also reads a document that another book wrote, if a merge brings no news
    third = Book(tmp_path / "mit", members, "mit.edu")
    fresh = proposed(members)
    other.merge(fresh, NOW)
    assert third.merge(fresh, NOW) == ""
    assert third.get(contract_id(fresh))


def test_finding_by_the_beginning_of_an_id(mit: Book, members: Membership) -> None:
    ids = []
    for at in range(17):  # more than the hex digits, so that two ids begin alike
        data = proposed(members, UTAH, accepter="mit.edu", proposed_at=NOW + at)
        contract = accept(MIT, data)
        mit.merge(contract, NOW)
        ids.append(contract_id(data))
    assert [c.id for c in mit.all()] == ids
    assert mit.find(ids[3]).id == ids[3]
    firsts = [id_[0] for id_ in ids]
    twice = next(digit for digit in firsts if firsts.count(digit) > 1)
    meant = next(id_ for id_ in ids if id_[0] == twice)
    with pytest.raises(InvalidInputError, match=f"ids begin so.*{meant[:16]} with utah.edu"):
        mit.find(twice)
    for unknown in ("", "zz", "ab" * 17):
        with pytest.raises(NotFoundError, match="not known here"):
            mit.find(unknown)
    with pytest.raises(NotFoundError):
        mit.get(ids[0][:8])


def contract_of(members: Membership, **changes: object) -> Contract:
    document = open_document(proposed(members, **changes))
    body = document.body
    assert hasattr(body, "terms")
    return Contract(document.contract, body, document.data, accepted=False)  # type: ignore[arg-type]


def test_a_contract_gives_each_side_its_partner_and_limits(members: Membership) -> None:
    contract = contract_of(members)
    peer = "ab" * 20
    item = Item("medusa://mit.edu/q/out", 30.0, peer, 5, ("filter",), ("medusa://mit.edu/in",))
    ours, theirs = contract.partner("mit.edu", peer), contract.partner("utah.edu", peer)
    assert ours is not None
    assert theirs is not None
    assert (ours.contract, ours.peer) == (contract.id, peer)
    assert (ours.min_price, ours.max_price) == (LOAD.min_price, LOAD.max_price)
    # mit.edu runs 40 units for utah.edu, which runs 20 for it
    assert (ours.most_taken, ours.most_given) == (40, 20)
    assert (theirs.most_taken, theirs.most_given) == (20, 40)
    assert ours.takes(item)
    assert theirs.gives(item)
    assert not ours.gives(item)
    assert not theirs.takes(item)
    assert contract.partner("mit.edu", peer) == ours  # equal for comparisons
    content = contract_of(members, terms=ContentTerms("medusa://mit.edu/in", "mit.edu", 1))
    assert content.partner("mit.edu", peer) is None
    assert content.menu_of("mit.edu").most_load == 0


def test_a_menu_covers_listed_boxes_and_inputs_up_to_its_load() -> None:
    menu = Menu(("filter", "map"), ("medusa://mit.edu/*", "medusa://utah.edu/conns"), 10)
    stream = "medusa://mit.edu/a/b"

    def asked(
        load: float = 10.0, kinds: tuple[str, ...] = ("map",), inputs: tuple[str, ...] = (stream,)
    ) -> str:
        return covers(menu, Item("medusa://x.y/out", load, "ab" * 20, 0, kinds, inputs))

    assert asked() == ""
    assert asked(0.0, ("map", "filter", "map"), (stream, "medusa://utah.edu/conns")) == ""
    for load in (10.01, -1.0, float("nan"), float("inf")):
        assert "load" in asked(load)
    assert "'aggregate' is not on the menu" in asked(kinds=("map", "aggregate"))
    assert "'medusa://utah.edu/conns2'" in asked(inputs=(stream, "medusa://utah.edu/conns2"))
    assert asked(kinds=()) != ""
    assert asked(inputs=()) != ""
    assert covers(Menu(), Item("t", 0.1, "", 0, ("map",), (stream,))) != ""
    # matching must take linear time: a naive matcher would take far too long for 5,000 characters
    # and 100 stars
    starry = Menu(streams=tuple("*" + "a*" * n + "z" for n in range(100, 116)), most_load=10)
    assert covers(starry, Item("t", 1.0, "", 0, ("map",), ("a" * 5000,))) != ""
    assert covers(starry, Item("t", 1.0, "", 0, ("map",), ("a" * 5000 + "z",))) == ""


def test_every_state_has_an_end_or_not() -> None:
    assert {state for state in State if state.ended} == {State.EXPIRED, State.REVOKED}
    assert len(set(itertools.chain(State))) == 7


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
    book.reload()  # the time of arrival is stored with it
    terms = book.get(contract).proposal.terms
    assert agreements.terms(contract, OF_MIT, OF_UTAH, came - 1) == terms
    assert agreements.terms(contract, OF_UTAH, OF_MIT, came - 1) == terms
    for at in (came, came + DAY):
        with pytest.raises(UntrustedError, match="revoked"):
            agreements.terms(contract, OF_MIT, OF_UTAH, at)


def test_agreements_refuse_other_times_parties_and_contracts(tmp_path: Path) -> None:
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

"""Terms and their numbers: one order for all peers, and no number that cannot be outdone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.objects.schema import BEGINNING
from engine.replication.leaders.ballot import Ballot, SourceTerm
from engine.replication.leaders.messages import Install, Installed, Tell, View, Vote
from engine.replication.replicas.messages import KeptUp
from engine.replication.stored_query import WrittenTerm, written
from engine.replication.term import QUERIES, TASKS, Mint, Term, next_number
from overlay.encoding import decode, encode
from overlay.errors import InvalidInputError

NOWS = st.floats(0, 4e9)
TAKERS = st.binary(min_size=20, max_size=20).map(bytes.hex)
MINTS = st.sampled_from([QUERIES, TASKS])
QUERY = "medusa://mit.edu/q"
STREAM = "medusa://mit.edu/s"


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "b"])), min_size=2))
def test_of_two_terms_all_believe_the_same(ranks: list[tuple[int, str]]) -> None:
    terms = [Term(QUERY, number, holder) for number, holder in ranks]
    best = terms[0]
    for term in terms:
        best = term if term.succeeds(best) else best
    assert best.rank == max(ranks)


@given(st.data(), MINTS, NOWS, TAKERS)
def test_a_number_only_grows(data: st.DataObject, mint: Mint, now: float, taker: str) -> None:
    known = data.draw(st.lists(st.integers(0, mint.latest(now)), max_size=3))
    assert mint.next(known, now, taker) > max(known, default=0)


@given(st.lists(st.integers(0, 2**62), max_size=3), MINTS, NOWS, TAKERS)
def test_a_number_that_is_taken_is_believed_whatever_was_claimed_before(
    claimed: list[int], mint: Mint, now: float, taker: str
) -> None:
    """By the time that others hear of it: two milliseconds, and their clocks may be behind."""
    taken = mint.next(claimed, now, taker)
    mint.check("q", taken, now + 0.002)
    for number in claimed:
        assert mint.believes(number, now) is (number <= mint.latest(now))
        if not mint.believes(number, now):
            with pytest.raises(InvalidInputError, match="of the future: check the clock"):
                mint.check("q", number, now)


@given(MINTS, NOWS, st.floats(0, 600), TAKERS)
def test_what_a_clock_makes_within_the_margin_is_believed(
    mint: Mint, now: float, ahead_s: float, taker: str
) -> None:
    assert mint.believes(mint.next([], now + ahead_s, taker), now)


@given(st.lists(TAKERS, min_size=2, max_size=8, unique_by=lambda peer: int(peer, 16) % 1024))
def test_peers_that_take_over_in_one_moment_have_numbers_of_their_own(takers: list[str]) -> None:
    now = 1767225608.026
    numbers = [QUERIES.next([7], now, taker) for taker in takers]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) <= QUERIES.latest(now)


@given(st.integers(0, 2**62))
def test_without_a_clock_numbers_count_up_by_one(known: int) -> None:
    assert next_number(known) == known + 1


def test_a_query_of_a_name_that_was_deleted_has_a_greater_number_than_any_before() -> None:
    before, now = 1767225608.0, 1767225609.0
    number = 0
    for _ in range(100):  # all within that second
        number = QUERIES.next([number], before, "ff" * 20)
    assert QUERIES.next([], now) > number


@given(st.integers(0, 2**62), st.sampled_from(["", "a" * 40]), st.sampled_from(["", "b" * 40]))
def test_files_and_messages_hold_a_term_in_the_form_of_the_first_release(
    number: int, primary: str, secondary: str
) -> None:
    members = (secondary,) if secondary else ()
    term = Term(QUERY, number, primary, members, BEGINNING)
    assert term.secondary == secondary
    plain = {"fence": number, "primary": primary, "secondary": secondary}
    assert decode(encode(written(term)), dict, limit=1024, what="term") == plain
    kept_up = decode(
        encode({"tenure": plain, "boundaries": {}}), KeptUp, limit=1024, what="an answer"
    )
    assert kept_up.written_term.of(QUERY) == term
    assert decode(encode(kept_up), dict, limit=1024, what="an answer")["tenure"] == plain
    assert decode(encode({}), WrittenTerm, limit=1024, what="term").of(QUERY) == Term(QUERY)


@given(st.integers(1, 2**62), st.booleans())
def test_ballots_and_votes_hold_a_term_in_the_form_of_the_first_release(
    number: int, deleted: bool
) -> None:
    term = SourceTerm(number, "a", ("b", "c"), deleted)
    plain = {"fence": number, "home": "a", "replicas": ["b", "c"], "deleted": deleted}
    assert term.of(STREAM) == Term(STREAM, number, "a", ("b", "c"))
    for message, tag in (
        (View(number, term, True), "view"),
        (Vote(number, True, number, term), "vote"),
        (Install(term), "install"),
        (Installed(number, True, number, term), "installed"),
    ):
        told = decode(encode(Tell(STREAM, message)), dict, limit=1024, what="a message")
        assert (told["message"]["type"], told["message"]["tenure"]) == (tag, plain)
        assert told["message"].get("fence", number) == number
        assert decode(encode(told), Tell, limit=1024, what="a message").message == message
    ballot = Ballot(("a", "b", "c", "d", "e"), number, "a", term)
    state = decode(encode(ballot), dict, limit=1024, what="a ballot")
    assert list(state) == [
        *("electors", "promised", "voted", "tenure", "joined", "journal", "deleted", "told")
    ]
    assert state["tenure"] == plain
    assert decode(encode(state), Ballot, limit=1024, what="a ballot") == ballot

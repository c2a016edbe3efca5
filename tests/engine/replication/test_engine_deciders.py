"""Terms and their deciders: all peers order terms the same way, numbers only grow, every claim can
be exceeded, and one holder counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.leaders.ballot import Ballot, SourceTerm
from medusa.engine.replication.leaders.messages import Install, Installed, View, Vote, VoterRequest
from medusa.engine.replication.records.stored_query import WrittenTerm, written
from medusa.engine.replication.records.term import (
    HIGHEST_NUMBER,
    MAJORITY,
    OWNERS_WORD,
    Decider,
    Term,
)
from medusa.engine.replication.replicas.messages import KeptUp
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import NO_PEER, PeerId

QUERY = "medusa://mit.edu/q"
TASK = "medusa://mit.edu/t"
NOWS = st.floats(0, 4e9)
PEERS = st.binary(min_size=20, max_size=20).map(PeerId)
HOLDERS = st.sampled_from([PeerId(b"a"), PeerId(b"b")])
BOUNDARIES = st.integers(BEGINNING, END)

Next = Callable[[Sequence[int], PeerId, float], Term]


def next_of_a_query(known: Sequence[int], taker: PeerId, now: float) -> Term:
    return HIGHEST_NUMBER.next(QUERY, known, taker, now)


def next_of_a_task(known: Sequence[int], taker: PeerId, now: float) -> Term:
    current, tried = ([*known, 0, 0])[:2]
    return OWNERS_WORD.next(Term(TASK, current), taker, now, tried=tried)


CLOCKED = pytest.mark.parametrize(
    ("decider", "next_term"),
    [(HIGHEST_NUMBER, next_of_a_query), (OWNERS_WORD, next_of_a_task)],
    ids=["query", "task"],
)


@CLOCKED
@given(st.data(), NOWS, PEERS)
def test_a_number_only_grows(
    decider: Decider, next_term: Next, data: st.DataObject, now: float, taker: PeerId
) -> None:
    known = data.draw(st.lists(st.integers(0, decider.latest(now)), max_size=2))
    term = next_term(known, taker, now)
    assert term.holder == taker
    assert term.number > max(known, default=0)


@CLOCKED
@given(st.lists(st.integers(0, 2**62), max_size=2), NOWS, PEERS)
def test_a_number_that_is_taken_is_believed_whatever_was_claimed_before(
    decider: Decider, next_term: Next, claimed: list[int], now: float, taker: PeerId
) -> None:
    """Others receive it two milliseconds later, and their clocks may be behind."""
    decider.check("q", next_term(claimed, taker, now).number, now + 0.002)
    for number in claimed:
        assert decider.believes(number, now) is (number <= decider.latest(now))
        if not decider.believes(number, now):
            with pytest.raises(InvalidInputError, match="of the future: check the clock"):
                decider.check("q", number, now)


@CLOCKED
@given(NOWS, st.floats(0, 600), PEERS)
def test_numbers_of_a_clock_within_the_margin_are_believed(
    decider: Decider, next_term: Next, now: float, ahead_s: float, taker: PeerId
) -> None:
    assert decider.believes(next_term([], taker, now + ahead_s).number, now)


@given(st.lists(PEERS, min_size=2, max_size=8, unique_by=lambda peer: int.from_bytes(peer) % 1024))
def test_peers_that_take_over_in_one_moment_have_numbers_of_their_own(takers: list[PeerId]) -> None:
    now = 1767225608.026
    numbers = [next_of_a_query([7], taker, now).number for taker in takers]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) <= HIGHEST_NUMBER.latest(now)


@given(st.lists(st.tuples(PEERS, st.floats(0, 10)), min_size=1, max_size=8))
def test_all_peers_believe_one_of_several_takeovers(
    takeovers: list[tuple[PeerId, float]],
) -> None:
    """On each side of a split a peer takes the query over, from the first term that all know."""
    terms = [next_of_a_query([5], taker, 1767225608.0 + at) for taker, at in takeovers]
    best = terms[0]
    for term in terms:
        best = term if term.succeeds(best) else best
    assert best.rank == max(term.rank for term in terms)


@given(st.integers(0, 3), st.integers(0, 3), HOLDERS, HOLDERS)
def test_a_secondary_lets_go_by_the_word_of_its_primary_or_of_a_later_one(
    number: int, own: int, holder: PeerId, primary: PeerId
) -> None:
    released = HIGHEST_NUMBER.releases(Term(QUERY, number, holder), Term(QUERY, own, primary))
    assert released is (number > own or (number == own and holder == primary))


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_a_candidate_stands_under_the_next_number_after_all_promises(promised: list[int]) -> None:
    assert MAJORITY.next_number(promised) == max(promised) + 1


def test_a_query_of_a_name_that_was_deleted_has_a_greater_number_than_any_before() -> None:
    before, now = 1767225608.0, 1767225609.0
    number = 0
    for _ in range(100):  # all queries within that second
        number = next_of_a_query([number], PeerId(b"\xff" * 20), before).number
    assert next_of_a_query([], PeerId(bytes(20)), now).number > number


@given(st.lists(st.tuples(PEERS | st.just(NO_PEER), NOWS, BOUNDARIES, st.booleans()), max_size=8))
def test_no_two_workers_hear_of_one_term_of_a_task(
    moves: list[tuple[PeerId, float, int, bool]],
) -> None:
    """Some moves fail after their worker has received the term; the owner's clock may go back."""
    current, tried, heard = Term(TASK), 0, [0]
    for worker, now, since, counts in moves:
        if not OWNERS_WORD.believes(max(current.number, tried), now):
            continue  # its clock is behind by more than peers tolerate
        term = OWNERS_WORD.next(current, worker, now, since=since, tried=tried)
        assert (term.subject, term.holder, term.since) == (TASK, worker, since)
        assert term.number > max(heard)
        heard.append(term.number)
        tried = term.number
        current = term if counts else current


STREAM = "medusa://mit.edu/s"
ONE, TWO, THREE = (PeerId(20 * letter) for letter in (b"a", b"b", b"c"))


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([NO_PEER, ONE, TWO])), min_size=2))
def test_all_peers_believe_the_term_of_highest_rank(ranks: list[tuple[int, PeerId]]) -> None:
    terms = [Term(QUERY, number, holder) for number, holder in ranks]
    best = terms[0]
    for term in terms:
        best = term if term.succeeds(best) else best
    assert best.rank == max(ranks)


@given(st.integers(0, 2**62), st.sampled_from([NO_PEER, ONE]), st.sampled_from([NO_PEER, TWO]))
def test_a_term_is_read_from_files_and_messages_as_it_was_written(
    number: int, primary: PeerId, secondary: PeerId
) -> None:
    members = (secondary,) if secondary else ()
    term = Term(QUERY, number, primary, members, BEGINNING)
    assert term.secondary == secondary
    stored = decode(encode(written(term)), WrittenTerm, limit=1024, what="term")
    assert stored.of(QUERY) == term
    kept_up = decode(encode(KeptUp(stored, {})), KeptUp, limit=1024, what="an answer")
    assert kept_up.written_term.of(QUERY) == term
    assert decode(encode({}), WrittenTerm, limit=1024, what="term").of(QUERY) == Term(QUERY)


@given(st.integers(1, 2**62), st.booleans())
def test_a_term_is_read_from_ballots_and_votes_as_it_was_written(
    number: int, deleted: bool
) -> None:
    one, two, three = (peer.hex() for peer in (ONE, TWO, THREE))
    term = SourceTerm(number, one, (two, three), deleted)
    assert term.of(STREAM) == Term(STREAM, number, ONE, (TWO, THREE))
    for message in (
        View(number, term, True),
        Vote(number, True, number, term, ()),
        Install(term),
        Installed(number, True, number, term),
    ):
        sent = encode(VoterRequest(STREAM, message))
        assert decode(sent, VoterRequest, limit=1024, what="a message").message == message
    ballot = Ballot(("a", "b", "c", "d", "e"), number, "a", term)
    assert decode(encode(ballot), Ballot, limit=1024, what="a ballot") == ballot

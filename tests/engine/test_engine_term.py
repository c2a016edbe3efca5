"""Terms: one order for all peers; files and messages hold them in the form of the first release."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.objects.schema import BEGINNING
from engine.replication.leaders.ballot import Ballot, SourceTerm
from engine.replication.leaders.messages import Install, Installed, Tell, View, Vote
from engine.replication.replicas.messages import KeptUp
from engine.replication.stored_query import WrittenTerm, written
from engine.replication.term import Term
from overlay.encoding import decode, encode
from overlay.names import NO_PEER, PeerId

QUERY = "medusa://mit.edu/q"
STREAM = "medusa://mit.edu/s"
ONE, TWO, THREE = (PeerId(20 * letter) for letter in (b"a", b"b", b"c"))


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([NO_PEER, ONE, TWO])), min_size=2))
def test_of_two_terms_all_believe_the_same(ranks: list[tuple[int, PeerId]]) -> None:
    terms = [Term(QUERY, number, holder) for number, holder in ranks]
    best = terms[0]
    for term in terms:
        best = term if term.succeeds(best) else best
    assert best.rank == max(ranks)


@given(st.integers(0, 2**62), st.sampled_from([NO_PEER, ONE]), st.sampled_from([NO_PEER, TWO]))
def test_files_and_messages_hold_a_term_in_the_form_of_the_first_release(
    number: int, primary: PeerId, secondary: PeerId
) -> None:
    members = (secondary,) if secondary else ()
    term = Term(QUERY, number, primary, members, BEGINNING)
    assert term.secondary == secondary
    plain = {"fence": number, "primary": primary.hex(), "secondary": secondary.hex()}
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
    one, two, three = (peer.hex() for peer in (ONE, TWO, THREE))
    term = SourceTerm(number, one, (two, three), deleted)
    plain = {"fence": number, "home": one, "replicas": [two, three], "deleted": deleted}
    assert term.of(STREAM) == Term(STREAM, number, ONE, (TWO, THREE))
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

"""An owner records who worked on a task: from which boundary to which, and on what terms."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.moves.messages import PlacementStatus
from medusa.engine.replication.moves.workers import status_of
from medusa.engine.replication.records.placements import (
    REMEMBERED,
    Deal,
    Placement,
    WrittenPlacement,
    at_owner,
    replaced,
    written,
)
from medusa.engine.replication.records.term import Term
from medusa.overlay.encoding import decode, encode
from medusa.overlay.names import NO_PEER, PeerId

TASK = "medusa://mit.edu/out"
ONE, TWO, THREE = (PeerId(20 * letter) for letter in (b"a", b"b", b"c"))
DEALS = st.builds(Deal, st.sampled_from(["", "c1"]), st.sampled_from(["", "aa"]), st.integers(0, 9))
PLACEMENTS = st.builds(
    Placement,
    st.builds(
        Term,
        st.just(TASK),
        st.integers(0, 2**62),
        st.sampled_from([NO_PEER, ONE, TWO]),
        since=st.integers(BEGINNING, 2**62),
    ),
    st.none() | st.integers(BEGINNING, 2**62),
    DEALS,
    st.sampled_from([NO_PEER, ONE]),
    DEALS,
    st.floats(0, 9),
    st.floats(0, 9),
)


@given(st.lists(st.tuples(st.sampled_from([NO_PEER, ONE, TWO]), st.integers(0, 50)), max_size=40))
def test_each_worker_is_paid_from_its_first_boundary_to_the_next_ones(
    moves: list[tuple[PeerId, int]],
) -> None:
    record, boundary = at_owner(TASK), 0
    paid: dict[int, list[int]] = {}
    for number, (worker, made) in enumerate(moves, 1):
        paid.setdefault(number - 1, []).extend(range(boundary, boundary + made))
        boundary += made
        record = replaced(record, Placement(Term(TASK, number, worker, since=boundary)))
        now = status_of(record, worker, number)
        assert (now.status, now.since) == (PlacementStatus.ACTIVE, boundary)
    assert len(record) == min(len(moves) + 1, REMEMBERED)
    assert record[-1].until is None
    for before, after in pairwise(record):
        term = before.term
        assert before.until == after.term.since
        over = status_of(record, term.holder, term.number)
        assert (over.status, over.since, over.until) == (
            PlacementStatus.RELEASED,
            term.since,
            before.until,
        )
        first = 0 if term.since == BEGINNING else term.since
        assert list(range(first, before.until)) == paid[term.number]
    assert status_of(record, THREE, record[-1].term.number).since is None


@given(PLACEMENTS)
def test_a_placement_is_read_from_the_file_of_a_query_as_it_was_written(
    placement: Placement,
) -> None:
    form = written(placement)
    assert form.of(TASK) == placement
    assert decode(encode(form), WrittenPlacement, limit=4096, what="a placement") == form

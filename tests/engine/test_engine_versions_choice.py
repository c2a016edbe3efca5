"""Which version of a stream is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.replication.versions.choice import MISSED, Choice, Rank, Version
from engine.streams.suffix import State

KEEP_ALIVE = 0.1
STANDING = 2.0
A, B, C = b"a", b"b", b"c"


def version(state: State = State.STABLE, at: int = 0) -> Version:
    return Version("s", state, at, at, 0)


def choice(**states: State) -> Choice:
    made = Choice(KEEP_ALIVE, STANDING)
    made.known([name.encode() for name in states])
    for name, state in states.items():
        made.heard(name.encode(), version(state), 0.0)
    return made


@pytest.mark.parametrize(
    ("current", "states", "chosen"),
    [
        (A, {"a": State.STABLE, "b": State.STABLE}, A),
        (B, {"a": State.STABLE, "b": State.STABLE}, B),
        (A, {"a": State.UP_FAILURE, "b": State.STABLE}, B),
        (A, {"a": State.STABILIZATION, "b": State.STABLE}, B),
        (A, {"a": State.UP_FAILURE, "b": State.STABILIZATION}, B),
        (A, {"a": State.UP_FAILURE, "b": State.UP_FAILURE}, A),
        (A, {"a": State.STABILIZATION, "b": State.UP_FAILURE}, A),
        (None, {"a": State.UP_FAILURE, "b": State.STABLE}, B),
        (C, {"a": State.STABLE, "b": State.STABLE}, A),
    ],
)
def test_whoever_is_read_stays_unless_another_is_better(
    current: bytes | None, states: dict[str, State], chosen: bytes
) -> None:
    assert choice(**states).choose(current, 0.1) == chosen


def test_a_producer_that_misses_its_keep_alives_is_left_and_not_gone_back_to() -> None:
    made = choice(a=State.STABLE, b=State.STABLE)
    gone = (MISSED + 1) * KEEP_ALIVE
    made.heard(B, version(), gone)
    assert made.choose(A, gone) == A
    assert made.choose(A, gone + 0.01) == B
    made.heard(A, version(), gone + 0.2)
    assert made.choose(B, gone + 0.2) == B, "it is as good"


def test_without_anybody_better_whoever_is_read_stays() -> None:
    made = choice(a=State.STABLE, b=State.STABLE)
    assert made.choose(A, 100.0) == A
    assert Choice(KEEP_ALIVE, STANDING).choose(None, 0.0) is None


def test_a_producer_that_has_not_answered_yet_is_not_chosen() -> None:
    made = Choice(KEEP_ALIVE, STANDING)
    made.known([A, B])
    assert made.choose(None, 0.0) is None
    made.heard(B, version(), 0.0)
    assert made.choose(None, 0.0) == B
    made.heard(B, None, 0.1)
    assert made.rank(B, 0.1) is Rank.FAILURE, "it says that it does not produce the stream"


def test_one_that_stands_while_another_goes_on_is_missing_something() -> None:
    made = choice(a=State.STABLE, b=State.STABLE)
    now = 0.0
    for step in range(1, 40):
        now = step * KEEP_ALIVE
        made.heard(A, version(at=0), now)
        made.heard(B, version(at=step), now)
        if now <= STANDING:
            assert made.choose(A, now) == A
    assert made.rank(A, now) is Rank.STANDING
    assert made.choose(A, now) == B


@given(
    st.lists(
        st.tuples(
            st.sampled_from([A, B, C]),
            st.none() | st.sampled_from(list(State)),
            st.integers(0, 5),
            st.floats(0.0, 0.6),
        )
    )
)
def test_it_never_changes_for_one_that_is_no_better(
    steps: list[tuple[bytes, State | None, int, float]],
) -> None:
    made, current, now = Choice(KEEP_ALIVE, STANDING), A, 0.0
    made.known([A, B, C])
    for peer, state, at, wait in steps:
        now += wait
        made.heard(peer, None if state is None else version(state, at), now)
        chosen = made.choose(current, now)
        assert chosen is not None
        if chosen != current:
            assert made.rank(chosen, now) < made.rank(current, now)
        best = min(made.rank(each, now) for each in (A, B, C))
        assert made.rank(chosen, now) == best or best is Rank.FAILURE
        current = chosen

"""Which version of a stream is read."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.replication.versions.choice import (
    MISSED,
    MOST_RETURNS,
    RETURN,
    Choice,
    Rank,
    Version,
)
from medusa.engine.streams.log.suffix import State

KEEP_ALIVE = 0.1
STANDING = 2.0
A, B, C = b"a", b"b", b"c"


def version(state: State = State.STABLE, at: int = 0) -> Version:
    return Version("s", state, at, at, 0)


def choice(**states: State) -> Choice:
    made = Choice(KEEP_ALIVE, STANDING, Random(1))
    made.known([name.encode() for name in states])
    for name, state in states.items():
        made.receive(name.encode(), version(state), 0.0)
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
def test_the_chosen_producer_stays_unless_another_is_better(
    current: bytes | None, states: dict[str, State], chosen: bytes
) -> None:
    assert choice(**states).choose(current, 0.1) == chosen


RETURN_S = RETURN * KEEP_ALIVE


def followed(
    made: Choice, current: bytes, well: set[bytes], *, began: float, seconds: float
) -> list[tuple[float, bytes]]:
    """Yield the producer that the reader chooses, with the time, while these producers answer every
    keep-alive."""
    changes = [(began, current)]
    for step in range(1, round(seconds / KEEP_ALIVE)):
        now = began + step * KEEP_ALIVE
        for peer in well:
            made.receive(peer, version(), now)
        if (chosen := made.choose(changes[-1][1], now)) != changes[-1][1]:
            assert chosen is not None
            changes.append((now, chosen))
    return changes


def test_the_preferred_producer_is_read_again_when_it_has_been_well_for_a_while() -> None:
    made = choice(a=State.STABLE, b=State.STABLE)
    (_, _), (left_at, left_to) = followed(made, A, {B}, began=0.0, seconds=10 * KEEP_ALIVE)
    assert (left_to, left_at < 6 * KEEP_ALIVE) == (B, True)
    (back_at, _), (at, back_to) = followed(made, B, {A, B}, began=1.0, seconds=2 * RETURN_S)
    assert back_to == A
    assert 0.5 * RETURN_S < at - back_at < RETURN_S + 2 * KEEP_ALIVE


def test_a_version_whose_subscriptions_fail_is_tried_ever_more_seldom() -> None:
    """The version answers, but each subscription to it fails: the reader returns to the other
    version."""
    made, tried = choice(a=State.STABLE, b=State.STABLE), [0.0]
    for step in range(1, 20_000):
        now = step * KEEP_ALIVE
        for peer in (A, B):
            made.receive(peer, version(), now)
        if made.choose(B, now) == A:
            tried.append(now)
    waits = [after - before for before, after in itertools.pairwise(tried)]
    longest = MOST_RETURNS * RETURN_S
    for number, wait in enumerate(waits):
        expected = min(2**number * RETURN_S, longest)
        assert 0.5 * expected <= wait <= expected + 2 * KEEP_ALIVE
    assert len(waits) > 6


def test_a_return_that_lasted_is_no_reason_to_wait_longer() -> None:
    made = choice(a=State.STABLE, b=State.STABLE)
    for began in (0.0, 100.0, 200.0):
        (_, _), (at, back_to) = followed(made, B, {A, B}, began=began, seconds=2 * RETURN_S)
        assert (back_to, at - began < RETURN_S + 2 * KEEP_ALIVE) == (A, True)


def test_a_producer_that_misses_its_keep_alives_is_left_and_not_gone_back_to_at_once() -> None:
    made = choice(a=State.STABLE, b=State.STABLE)
    gone = (MISSED + 1) * KEEP_ALIVE
    made.receive(B, version(), gone)
    assert made.choose(A, gone) == A
    assert made.choose(A, gone + 0.01) == B
    made.receive(A, version(), gone + 0.2)
    assert made.choose(B, gone + 0.2) == B, "it is as good"


def test_a_reader_keeps_its_version_without_a_better_one() -> None:
    made = choice(a=State.STABLE, b=State.STABLE)
    assert made.choose(A, 100.0) == A
    assert Choice(KEEP_ALIVE, STANDING, Random(1)).choose(None, 0.0) is None


def test_a_producer_that_has_not_answered_yet_is_not_chosen() -> None:
    made = Choice(KEEP_ALIVE, STANDING, Random(1))
    made.known([A, B])
    assert made.choose(None, 0.0) is None
    made.receive(B, version(), 0.0)
    assert made.choose(None, 0.0) == B
    made.receive(B, None, 0.1)
    assert made.rank(B, 0.1) is Rank.FAILURE, "it says that it does not produce the stream"


def test_a_version_that_stands_while_another_advances_is_left() -> None:
    made = choice(a=State.STABLE, b=State.STABLE)
    now = 0.0
    for step in range(1, 40):
        now = step * KEEP_ALIVE
        made.receive(A, version(at=0), now)
        made.receive(B, version(at=step), now)
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
def test_a_reader_changes_only_to_a_better_or_preferred_version(
    steps: list[tuple[bytes, State | None, int, float]],
) -> None:
    made, current, now = Choice(KEEP_ALIVE, STANDING, Random(1)), A, 0.0
    made.known([A, B, C])
    for peer, state, at, wait in steps:
        now += wait
        made.receive(peer, None if state is None else version(state, at), now)
        chosen = made.choose(current, now)
        assert chosen is not None
        if chosen != current:
            is_preferred = [A, B, C].index(chosen) < [A, B, C].index(current)
            better = made.rank(chosen, now) - made.rank(current, now)
            assert better < 0 or (better == 0 and is_preferred)
        best = min(made.rank(each, now) for each in (A, B, C))
        assert made.rank(chosen, now) == best or best is Rank.FAILURE
        current = chosen

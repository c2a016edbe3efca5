"""Dynamic thresholds: no holder takes all, room for one more remains, and each has a least
share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.errors import InvalidInputError
from medusa.overlay.memory import LEAST_BYTES, MESSAGES_LEAST, Budgets, Memory

LIMIT, LEAST = 10_000, 300


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 500), st.booleans()), min_size=1, max_size=300
    )
)
def test_holders_that_ask_first_stay_within_the_limit_and_leave_room_for_another(
    steps: list[tuple[int, int, bool]],
) -> None:
    memory = Memory(LIMIT, LEAST)
    shares = [memory.share(f"p{number}") for number in range(10)]
    for number, size, more in steps:
        share = shares[number]
        if more and share.fits(size):
            share.hold(size)
        elif not more:
            share.hold(-min(size, share.held))
        assert memory.held == sum(each.held for each in shares)
        assert memory.held <= LIMIT + len(shares) * LEAST
        greedy = [each for each in shares if each.held > LEAST]
        for each in greedy:
            assert each.held <= LIMIT // 2
        assert memory.share("newcomer").fits(LEAST)


def test_greedy_holders_have_equal_shares() -> None:
    memory = Memory(LIMIT)
    shares = [memory.share(f"p{number}") for number in range(4)]
    while any(share.fits(10) for share in shares):
        for share in shares:
            if share.fits(10):
                share.hold(10)
    assert all(abs(share.held - LIMIT // 5) <= 20 for share in shares)


def test_a_share_lasts_as_long_as_somebody_keeps_it() -> None:
    memory = Memory(LIMIT)
    one = memory.share("utah.edu")
    one.hold(7)
    assert memory.share("utah.edu") is one
    with one.holding(5):
        assert memory.held == 12
    one.set(0)
    assert memory.held == 0


def test_a_caller_that_waits_for_room_is_notified() -> None:
    memory, told = Memory(LIMIT), []
    memory.freed.add(lambda: told.append(memory.held))
    share = memory.share("utah.edu")
    share.hold(10)
    assert not told
    share.hold(-4)
    assert told == [6]


@given(st.integers(LEAST_BYTES, 2**40))
def test_the_budgets_are_less_than_the_memory_of_the_process(memory_bytes: int) -> None:
    budgets = Budgets.of_process(memory_bytes)
    shared = budgets.messages.limit + budgets.streams.limit + budgets.recent_bytes
    assert shared < memory_bytes
    assert budgets.messages.limit > 8 * MESSAGES_LEAST


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least 402653184 are needed"):
        Budgets.of_process(LEAST_BYTES - 1)

"""Places: no holder takes all, one more always fits, and each waiting one gets a place in the
end."""

from __future__ import annotations

from collections import Counter

import trio
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.places import Places


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=300))
def test_each_holder_has_at_most_as_many_as_are_free(
    limit: int, steps: list[tuple[int, bool]]
) -> None:
    places, held = Places(limit), Counter[str]()
    for number, more in steps:
        holder = f"p{number}"
        if more:
            free = limit - held.total()
            assert places.take(holder) is (held[holder] < free)
            held[holder] += held[holder] < free
        elif held[holder]:
            places.give_back(holder)
            held[holder] -= 1
        assert held.total() <= limit
        assert all(places.held(each) == held[each] for each in held)


@given(st.integers(1, 6), st.integers(16, 200))
def test_greedy_holders_leave_room_for_another(greedy: int, limit: int) -> None:
    places = Places(limit)
    for _ in range(limit):
        for number in range(greedy):
            places.take(f"p{number}")
    for number in range(greedy):
        assert places.held(f"p{number}") <= -(-limit // 2)
    assert places.take("newcomer")


def test_a_holder_has_no_more_than_the_most() -> None:
    places = Places(100, 3)
    assert [places.take("one") for _ in range(4)] == [True, True, True, False]
    assert places.take("other")


async def test_a_waiting_caller_gets_a_place_and_others_do_not_wait_for_it(
    autojump_clock: object,
) -> None:
    places, order = Places(4), list[str]()

    async def hold(name: str, seconds: float) -> None:
        async with places.place(name):
            order.append(name)
            await trio.sleep(seconds)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(hold, "greedy", 10.0)
        await trio.testing.wait_all_tasks_blocked()
        assert order == ["greedy", "greedy"]
        with trio.fail_after(0.1):
            await hold("other", 0.0)
        with trio.move_on_after(1.0) as waiting:
            await hold("greedy", 0.0)
        assert waiting.cancelled_caught
    assert order.count("greedy") == 5
    assert places.held("greedy") == 0

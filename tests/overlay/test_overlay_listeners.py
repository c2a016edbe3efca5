"""Listeners and decisions: several listen, one decides. Values for which tasks wait, and bells."""

from contextlib import suppress

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.concurrency import Bell, Watched
from medusa.overlay.listeners import Decision, Listeners


def test_all_listeners_hear_in_the_order_in_which_they_came() -> None:
    heard: list[tuple[str, int]] = []
    news: Listeners[[int]] = Listeners()
    news.add(lambda number: heard.append(("first", number)))
    news.add(lambda number: heard.append(("second", number)))
    news.notify(7)
    assert heard == [("first", 7), ("second", 7)]


def test_a_listener_of_a_block_is_not_called_after_it() -> None:
    heard: list[int] = []
    news: Listeners[[int]] = Listeners()
    with news.listening(heard.append):
        news.notify(1)
    news.notify(2)
    with suppress(ValueError), news.listening(heard.append):
        raise ValueError("of the block")
    news.notify(3)
    assert heard == [1]
    assert len(news) == 0


def test_a_listener_that_leaves_within_the_news_does_not_hide_it_from_the_next() -> None:
    heard: list[str] = []
    news: Listeners[[]] = Listeners()

    def leave() -> None:
        block.__exit__(None, None, None)

    block = news.listening(leave)
    block.__enter__()
    news.add(lambda: heard.append("next"))
    news.notify()
    assert heard == ["next"]
    assert len(news) == 1


def test_an_error_of_a_listener_goes_to_the_one_with_the_news() -> None:
    def fail() -> None:
        raise OSError("disk")

    news: Listeners[[]] = Listeners()
    news.add(fail)
    with pytest.raises(OSError, match="disk"):
        news.notify()


def test_a_decision_is_the_default_until_one_part_makes_it_and_no_other_part_can() -> None:
    admits: Decision[[str], bool] = Decision(lambda _: False)
    assert not admits("mit.edu")
    admits.made_by(lambda name: name == "mit.edu")
    assert admits("mit.edu")
    assert not admits("eth.ch")
    with pytest.raises(RuntimeError, match="decides this already"):
        admits.made_by(lambda _: True)
    assert not admits("eth.ch")


@given(
    begins=st.integers(0, 5),
    turns=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=8),
    thresholds=st.lists(st.integers(0, 6), max_size=4),
)
def test_a_task_waits_until_a_value_fits_that_stands_when_it_looks(
    begins: int, turns: list[list[int]], thresholds: list[int]
) -> None:
    """The values of a turn are set while no waiting task runs; each task sees only the last of
    them."""
    seen: dict[int, int] = {}
    left = {n: [begins, *(turn[-1] for turn in turns if turn)] for n in range(len(thresholds))}

    async def wait(number: int, watched: Watched[int]) -> None:
        seen[number] = await watched.until(lambda value: value >= thresholds[number])

    async def run() -> None:
        watched = Watched(begins)
        async with trio.open_nursery() as nursery:
            for number in range(len(thresholds)):
                nursery.start_soon(wait, number, watched)
            await trio.testing.wait_all_tasks_blocked()
            for turn in turns:
                for value in turn:
                    watched.set(value)
                assert watched.value == (turn[-1] if turn else watched.value)
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(run)
    for number, threshold in enumerate(thresholds):
        fitting = [value for value in left[number] if value >= threshold]
        assert seen.get(number) == (fitting[0] if fitting else None)


async def test_every_task_that_waits_is_woken_by_a_set_also_to_an_equal_value(
    nursery: trio.Nursery,
) -> None:
    watched, woken = Watched("same"), list[str]()

    async def wait() -> None:
        woken.append(await watched.changed())

    nursery.start_soon(wait)
    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert woken == []
    watched.set("same")
    await trio.testing.wait_all_tasks_blocked()
    assert woken == ["same", "same"]


async def test_a_change_before_the_wait_does_not_end_the_wait(
    autojump_clock: trio.abc.Clock,
) -> None:
    watched = Watched(0)
    watched.set(1)
    with trio.move_on_after(1) as waited:
        await watched.changed()
    assert waited.cancelled_caught


async def test_a_ring_is_kept_until_the_bell_is_cleared(autojump_clock: trio.abc.Clock) -> None:
    bell = Bell()
    bell.ring()
    bell.ring()
    assert bell.is_rung
    await bell.wait()
    await bell.wait()
    bell.clear()
    assert not bell.is_rung
    with trio.move_on_after(1) as waited:
        await bell.wait()
    assert waited.cancelled_caught
    assert Bell(rung=True).is_rung


async def test_a_ring_wakes_a_task_that_waits_whatever_follows(nursery: trio.Nursery) -> None:
    bell, woken = Bell(), trio.Event()

    async def wait() -> None:
        await bell.wait()
        woken.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    bell.ring()
    bell.clear()
    await trio.testing.wait_all_tasks_blocked()
    assert woken.is_set()

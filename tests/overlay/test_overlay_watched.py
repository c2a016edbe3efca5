"""Values that tasks wait for, and bells."""

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from overlay.concurrency import Bell, Watched


@given(
    begins=st.integers(0, 5),
    turns=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=8),
    thresholds=st.lists(st.integers(0, 6), max_size=4),
)
def test_a_task_waits_until_a_value_fits_that_stands_when_it_looks(
    begins: int, turns: list[list[int]], thresholds: list[int]
) -> None:
    """turns: the values set while no waiting task runs; each looks at the last of them only."""
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


async def test_a_change_before_the_wait_does_not_end_it(autojump_clock: trio.abc.Clock) -> None:
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

"""Long work runs in threads, in turn between participants, and bounded; one participant's messages
may take a share of the time in the long run, and a burst."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing
from deadline import DEADLINE_S
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.errors import BusyError
from medusa.overlay.pace import BURST_S, SHARE, Pace
from medusa.overlay.threads import AT_ONCE, MAX_WAITING, Threads


class Work:
    """Pieces of work that last until the test ends them."""

    def __init__(self, threads: Threads, nursery: trio.Nursery) -> None:
        self._threads = threads
        self._nursery = nursery
        self._ends: dict[str, threading.Event] = {}
        self.begun: list[str] = []
        self.done: list[str] = []

    def give(self, participant: str, name: str) -> None:
        end = self._ends[name] = threading.Event()

        def work() -> str:
            trio.from_thread.run_sync(self.begun.append, name)
            assert end.wait(DEADLINE_S)
            return name

        async def run() -> None:
            self.done.append(await self._threads.run(participant, work))

        self._nursery.start_soon(run)

    def allow(self, name: str) -> None:
        self._ends[name].set()

    async def end(self, name: str) -> None:
        self.allow(name)
        await self.until(self.done, name)

    async def until(self, names: list[str], name: str) -> None:
        with trio.fail_after(DEADLINE_S):
            while name not in names:  # noqa: ASYNC110 - told by a thread
                await trio.sleep(0.001)


async def test_one_participant_has_one_thread_and_others_go_on() -> None:
    async with trio.open_nursery() as nursery:
        work = Work(Threads(), nursery)
        for name in ("evil 1", "evil 2", "evil 3"):
            work.give("evil.edu", name)
            await trio.testing.wait_all_tasks_blocked()
        await work.until(work.begun, "evil 1")
        work.give("utah.edu", "utah")
        await work.until(work.begun, "utah")
        assert work.begun == ["evil 1", "utah"]
        assert len(work.begun) == AT_ONCE
        await work.end("utah")
        await work.end("evil 1")
        await work.until(work.begun, "evil 2")
        work.give("mit.edu", "mit")
        await work.until(work.begun, "mit")  # before the pieces that evil.edu asked for long ago
        await work.end("evil 2")
        await work.end("mit")
        await work.end("evil 3")


async def test_a_flood_is_refused_and_what_waits_is_done() -> None:
    threads = Threads()
    async with trio.open_nursery() as nursery:
        work = Work(threads, nursery)
        names = [str(number) for number in range(MAX_WAITING)]
        for name in names:
            work.give("evil.edu", name)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(BusyError, match=r"32 pieces of work for evil\.edu wait here"):
            await threads.run("evil.edu", lambda: None)
        assert await threads.run("utah.edu", lambda: 7) == 7
        for name in names:
            work.allow(name)
    assert sorted(work.done) == sorted(names)
    assert await threads.run("evil.edu", lambda: 8) == 8


async def test_a_call_raises_the_error_of_its_work_and_can_be_cancelled() -> None:
    threads = Threads()

    def fail() -> None:
        raise BusyError("mine")

    with pytest.raises(BusyError, match="mine"):
        await threads.run("mit.edu", fail)
    async with trio.open_nursery() as nursery:
        work = Work(threads, nursery)
        work.give("mit.edu", "first")
        await work.until(work.begun, "first")
        with trio.move_on_after(0.01) as left:
            await threads.run("mit.edu", fail)  # its turn does not come
        assert left.cancelled_caught
        await work.end("first")
    assert await threads.run("mit.edu", lambda: 9) == 9


@given(st.lists(st.tuples(st.floats(0, 0.5), st.floats(0, 2)), max_size=50))
def test_work_that_pauses_as_asked_takes_no_more_than_its_share(
    steps: list[tuple[float, float]],
) -> None:
    """Each step uses some time and then pauses."""
    pace, now, spent, largest = Pace(), 100.0, 0.0, 0.0
    for cost_s, idle_s in steps:
        now += pace.pause_s(now)
        assert pace.pause_s(now) < 1e-6
        assert spent <= (now - 100.0 + BURST_S) * SHARE + largest + 1e-6
        pace.spend(cost_s, now)
        spent += cost_s
        largest = max(largest, cost_s)
        now += idle_s


def test_a_participant_that_sends_little_never_waits() -> None:
    pace = Pace()
    for step in range(1000):
        assert pace.pause_s(step / 10) == 0
        pace.spend(0.04, step / 10)

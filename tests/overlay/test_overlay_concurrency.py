"""If one task ends, all end, and one error results."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from medusa.overlay.concurrency import Job, next_beat, one_error, until_one_ends
from medusa.overlay.errors import BrokenError, NotFoundError


async def test_the_first_to_return_ends_the_others(autojump_clock: trio.testing.MockClock) -> None:
    async def soon() -> None:
        await trio.sleep(1)

    with trio.fail_after(2):
        await until_one_ends(trio.sleep_forever, soon)


async def test_loops_wake_together_whenever_they_began(
    autojump_clock: trio.testing.MockClock,
) -> None:
    woken: list[float] = []

    async def look(begins_s: float, period_s: float) -> None:
        await trio.sleep(begins_s)
        while True:
            await trio.sleep_until(next_beat(period_s))
            woken.append(trio.current_time())

    began = trio.current_time()
    with trio.move_on_at(next_beat(1.0) + 9.75):
        async with trio.open_nursery() as nursery:
            for begins_s, period_s in ((0.3, 1.0), (0.7, 1.0), (0.1, 2.0), (0.2, 0.5)):
                nursery.start_soon(look, begins_s, period_s)
    took_s = trio.current_time() - began
    assert all(2 * moment == round(2 * moment) for moment in woken)
    assert len(set(woken)) <= 2 * took_s + 1
    assert len(woken) >= (2 + 1 + 1 + 0.5) * (took_s - 2)


async def test_a_beat_is_never_the_present(autojump_clock: trio.testing.MockClock) -> None:
    """Even if a multiple of the period is rounded down the beat is later: otherwise a loop would
    spin."""
    for period_s in (0.1, 0.25, 0.3, 1.0, 7.0):
        for _ in range(100):
            now, beat = trio.current_time(), next_beat(period_s)
            assert now < beat <= now + 1.000001 * period_s
            await trio.sleep_until(beat)


async def test_an_error_comes_out_as_itself() -> None:
    async def fail() -> None:
        raise NotFoundError("gone")

    with pytest.raises(NotFoundError, match="gone"):
        await until_one_ends(trio.sleep_forever, fail)


async def test_the_end_of_a_channel_comes_out_as_itself() -> None:
    async def end() -> None:
        raise trio.EndOfChannel

    with pytest.raises(trio.EndOfChannel):
        await until_one_ends(trio.sleep_forever, end)


async def test_a_fault_of_ours_is_not_swallowed() -> None:
    async def fault() -> None:
        raise ZeroDivisionError

    with pytest.raises(BaseExceptionGroup) as caught:
        await until_one_ends(trio.sleep_forever, fault)
    assert caught.group_contains(ZeroDivisionError)


def test_a_nested_group_of_our_errors_becomes_the_first() -> None:
    group = ExceptionGroup("", [ExceptionGroup("", [BrokenError("a")]), NotFoundError("b")])
    with pytest.raises(BrokenError, match="a"), one_error():
        raise group


def test_a_group_with_anything_else_goes_out_whole() -> None:
    group = ExceptionGroup("", [BrokenError("a"), ValueError("b")])
    with pytest.raises(ExceptionGroup), one_error():
        raise group


async def test_a_job_is_stopped_and_started_again(autojump_clock: trio.testing.MockClock) -> None:
    runs: list[str] = []

    async def work() -> None:
        runs.append("began")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            runs.append("ended")

    job = Job()
    await job.stop()
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            job.start(nursery, work)
            job.start(nursery, work)
            await trio.testing.wait_all_tasks_blocked()
            assert job.started
            assert job.going_on
            await job.stop()
            assert not job.started
    assert runs == ["began", "ended"] * 2


async def test_a_caller_that_stops_a_job_cannot_leave_before_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def slow() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)

    job = Job()
    async with trio.open_nursery() as nursery:
        job.start(nursery, slow)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await job.stop()
        assert not job.started
        assert trio.current_time() >= 2


async def test_a_job_that_is_over_is_started_but_does_not_go_on() -> None:
    job = Job()
    async with trio.open_nursery() as nursery:
        job.start(nursery, trio.lowlevel.checkpoint)
        await trio.testing.wait_all_tasks_blocked()
        assert (job.started, job.going_on) == (True, False)

"""One ends, all end; and what comes out is one error."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from overlay.concurrency import Job, one_error, until_one_ends
from overlay.errors import BrokenError, NotFoundError


async def test_the_first_to_return_ends_the_others(autojump_clock: trio.testing.MockClock) -> None:
    async def soon() -> None:
        await trio.sleep(1)

    with trio.fail_after(2):
        await until_one_ends(trio.sleep_forever, soon)


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


async def test_who_stops_a_job_cannot_leave_before_it_is_over(
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

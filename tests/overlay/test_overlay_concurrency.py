"""One ends, all end; and what comes out is one error."""

from __future__ import annotations

import pytest
import trio

from overlay.concurrency import one_error, until_one_ends
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

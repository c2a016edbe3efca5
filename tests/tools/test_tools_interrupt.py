"""Ctrl-C in a command: a task that fails because another one was stopped prints nothing."""

from __future__ import annotations

import os
import signal

import pytest
import trio

from medusa.overlay.errors import ClosedError, NotFoundError
from medusa.tools.client.interrupt import run_interruptible


def test_ctrl_c_is_the_outcome_even_if_a_task_fails_meanwhile() -> None:
    tidied: list[str] = []

    async def background() -> None:
        os.kill(os.getpid(), signal.SIGINT)  # trio would raise KeyboardInterrupt here
        try:
            await trio.sleep_forever()
        finally:
            tidied.append("background")

    async def main() -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(background)
                await trio.sleep_forever()
        finally:
            tidied.append("main")
            raise ClosedError("the connection is closed")

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(main)
    assert tidied == ["background", "main"]


def test_a_result_and_an_error_come_out_as_they_are() -> None:
    async def seven() -> int:
        await trio.lowlevel.checkpoint()
        return 7

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise NotFoundError("no such stream")

    assert run_interruptible(seven) == 7
    with pytest.raises(NotFoundError, match="no such stream"):
        run_interruptible(fail)


def test_an_error_before_ctrl_c_counts() -> None:
    async def main() -> None:
        await trio.lowlevel.checkpoint()
        raise ClosedError("the peer has gone")

    with pytest.raises(ClosedError):
        run_interruptible(main)


def test_sigterm_tidies_up_as_well() -> None:
    tidied: list[str] = []

    async def main() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await trio.sleep_forever()
        finally:
            tidied.append("main")

    with pytest.raises(SystemExit) as left:
        run_interruptible(main)
    assert left.value.code == 128 + signal.SIGTERM
    assert tidied == ["main"]


def test_a_command_runs_in_any_thread() -> None:
    async def seven() -> int:
        await trio.lowlevel.checkpoint()
        return 7

    async def beside() -> int:
        return await trio.to_thread.run_sync(run_interruptible, seven)

    assert trio.run(beside) == 7

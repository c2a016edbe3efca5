"""Ctrl-C in a command: all that runs is cancelled, and tidies up behind itself."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from tools.link import open_background

T = TypeVar("T")


def run_interruptible(main: Callable[[], Awaitable[T]]) -> T:
    """`trio.run`, which Ctrl-C cancels.

    Left to itself, trio raises KeyboardInterrupt in whichever task runs just then, and the others
    take what that one held for broken: the command would end with their error.

    Raises:
        KeyboardInterrupt: once everything has ended.
    """
    interrupted = False

    async def cancel_on_interrupt(
        scope: trio.CancelScope, task_status: trio.TaskStatus[None]
    ) -> None:
        nonlocal interrupted
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                interrupted = True
                scope.cancel()

    async def run() -> T:
        async with open_background() as nursery:
            await nursery.start(cancel_on_interrupt, nursery.cancel_scope)
            return await main()
        raise KeyboardInterrupt

    try:
        return trio.run(run)
    except Exception:
        if interrupted:  # what fails while it is torn down is no failure of the command
            raise KeyboardInterrupt from None
        raise

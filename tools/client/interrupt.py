"""Ctrl-C and SIGTERM in a command: all its tasks are cancelled, and clean up."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, TypeVar

import trio

from medusa.tools.client.link import open_background

T = TypeVar("T")

EXIT_SIGNAL: Final = 128
"""Plus the signal's number: the exit code of a process that a signal ended, as in shells."""


def run_interruptible(main: Callable[[], Awaitable[T]]) -> T:
    """`trio.run`, which Ctrl-C and SIGTERM cancel.

    By itself trio raises KeyboardInterrupt in any one task. The other tasks then find the resources
    of that task broken, and the command would end with their error.

    Raises:
        KeyboardInterrupt, SystemExit: once everything has ended, by the one or the other.
    """
    if threading.current_thread() is not threading.main_thread():
        return trio.run(main)  # only the main thread receives signals
    interrupted: signal.Signals | None = None

    async def cancel_on_interrupt(
        scope: trio.CancelScope, task_status: trio.TaskStatus[None]
    ) -> None:
        nonlocal interrupted
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                interrupted = signal.Signals(number)
                scope.cancel()

    async def run() -> T:
        async with open_background() as nursery:
            await nursery.start(cancel_on_interrupt, nursery.cancel_scope)
            return await main()
        _end_by(interrupted)

    try:
        return trio.run(run)
    except Exception:
        # a failure during the cancellation is no failure of the command
        if interrupted is not None:
            _end_by(interrupted)
        raise


def _end_by(interrupted: signal.Signals | None) -> NoReturn:
    if interrupted is signal.SIGTERM:
        sys.exit(EXIT_SIGNAL + interrupted)
    raise KeyboardInterrupt from None

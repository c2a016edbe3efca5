"""What a killed peer leaves running: its JVM, which has to notice and to end by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import trio

from overlay.errors import DeadlineError
from testnet.patience import while_moving

AFTERLIFE_S: Final = 90.0
"""Longest that a JVM may go on once its peer is dead, seconds of the machine's time: one that was
just starting looks at its standard input only when it is up."""
LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Remains:
    """
    Attributes:
        longest_s: how long the process that went on longest did, seconds.
        orphans: those that had not ended by themselves within `AFTERLIFE_S`.
    """

    longest_s: float = 0.0
    orphans: tuple[str, ...] = ()

    def __or__(self, other: Remains) -> Remains:
        return Remains(max(self.longest_s, other.longest_s), self.orphans + other.orphans)


async def left_by(home: Path) -> list[psutil.Process]:
    """Whatever runs for the peer in that home: every program it starts has the folder among its
    arguments, also those that are in a session of their own."""
    return await trio.to_thread.run_sync(_processes_of, home)


def _processes_of(home: Path) -> list[psutil.Process]:
    mine = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(_is_in(home, argument) for argument in process.cmdline()):
                mine.append(process)
    return mine


def _is_in(home: Path, argument: str) -> bool:
    return f"{home}/" in argument or argument.endswith(str(home))


async def watch(processes: Iterable[psutil.Process], limit_s: float = AFTERLIFE_S) -> Remains:
    """Wait until the processes of a dead peer have ended; those that do not are killed."""
    began = trio.current_time()
    left = [process for process in processes if _goes_on(process)]
    longest = 0.0
    with contextlib.suppress(DeadlineError):
        async with while_moving("until they end", still_s=limit_s):
            while left:
                await trio.sleep(LOOK_S)
                longest = trio.current_time() - began
                left = [process for process in left if _goes_on(process)]
    orphans = []
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            orphans.append(f"{process.name()} ({process.pid})")
            process.kill()
    return Remains(longest, tuple(orphans))


def _goes_on(process: psutil.Process) -> bool:
    """Dead and not reaped is dead: nobody may be there to reap an orphan."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

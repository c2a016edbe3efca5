"""Frozen folders of a home: second names of data as it was at one moment, for a backup or a reader.

The peer makes them. It removes a folder after its time, or later, once no program holds it: the
kernel releases the locks of a dead process. So a killed command leaves no folder for longer.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, TypeVar

import trio

from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import BusyError, NotFoundError
from medusa.tools.home.folder import Home

T = TypeVar("T")

MAX_FROZEN: Final = 1_000
"""Frozen folders at once: a program that reads each second makes 900 in the time that they stay. A
file that a log has replaced takes disk only once, however many folders have it."""

MAX_FROZEN_NAMES: Final = 500_000
"""The number of files in all folders above which no further folder is made: names cost some 60
bytes each."""

MAX_FROZEN_S: Final = 86_400.0
"""Seconds that a folder stays at most unless it is held: a day of reading."""

LOOK_S: Final = 5.0
"""Seconds between two looks for folders whose time is over."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a frozen folder during the block, and no longer than this process lives.

    Raises:
        NotFoundError: it is gone.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise NotFoundError(f"{folder} is gone: try again") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def is_held(folder: Path) -> bool:
    """Whether a process holds that folder."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


class FrozenFolders:
    """The frozen folders of a running peer."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._until: dict[Path, float] = {}
        self._names: dict[Path, int] = {}
        self._making = trio.Lock()

    async def make(self, fill: Callable[[Path], Awaitable[T]], seconds: float) -> tuple[Path, T]:
        """Make a folder; returns its path, and the result of `fill`, which makes it.

        Args:
            seconds: how long it stays at least.

        Raises:
            BusyError: too many are there.
        """
        async with self._making:
            await self._sweep()
            self._check_room()
            folder = self._home.frozen(secrets.token_hex(4))
            try:
                found = await fill(folder)
            except BaseException:
                _remove(folder)
                raise
            self._until[folder] = trio.current_time() + seconds
            self._names[folder] = await trio.to_thread.run_sync(_count, folder)
            return folder, found

    def _check_room(self) -> None:
        """
        Raises:
            BusyError: too many are there.
        """
        names = sum(self._names.values())
        if len(self._until) >= MAX_FROZEN or names >= MAX_FROZEN_NAMES:
            raise BusyError(
                f"{len(self._until)} frozen folders with {names} files are in use: wait until a "
                f"backup ends, or remove folders of `medusa stream files` in {self._home.folder} "
                "that nobody reads"
            )

    async def maintain(self) -> None:
        """Remove folders whose time is over, for ever."""
        while True:
            await trio.sleep_until(next_beat(LOOK_S))
            await self._sweep()

    async def _sweep(self) -> None:
        now = trio.current_time()
        over = [
            folder
            for folder, until in self._until.items()
            if not folder.exists() or (until <= now and not is_held(folder))
        ]
        for folder in over:
            await trio.to_thread.run_sync(_remove, folder)
            self._until.pop(folder, None)
            self._names.pop(folder, None)


@asynccontextmanager
async def frozen_folders(home: Home) -> AsyncIterator[FrozenFolders]:
    """The frozen folders of a peer that runs during the block. `Home.lock` removed those that an
    earlier run left."""
    folders = FrozenFolders(home)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(folders.maintain)
        yield folders
        nursery.cancel_scope.cancel()


def _count(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)

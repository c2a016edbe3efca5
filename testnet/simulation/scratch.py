"""The folder that a simulation's homes live in, and what killed workers have left of theirs."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

MEMORY_DISK: Final = Path("/dev/shm")  # noqa: S108 - folders of our own are made in it
"""Where there is one, homes live in memory: what a real disk costs is no part of a simulation."""

PREFIX: Final = "medusa-simulation-"

YOUNG_S: Final = 60.0
"""Seconds for which a folder without a lock is left alone: its owner may be about to take it."""


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder, gone with the block. It is locked: however its owner ends, the lock ends too."""
    within = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=within))
    try:
        with _opened(folder) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(within: Path = MEMORY_DISK) -> list[Path]:
    """Remove the folders of simulations whose process is gone; returns which."""
    swept = []
    for folder in sorted(within.glob(f"{PREFIX}*")):
        with suppress(OSError), _opened(folder) as descriptor:
            status = os.fstat(descriptor)
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < YOUNG_S:
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder)
    return swept


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

"""What every file of a stream shares: temporary names, and what makes names and bytes durable."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

TEMPORARY: Final = ".tmp-"
"""How the name of a file that is being written begins; Spark ignores such names, and so do we."""

WRITTEN_BACK_S: Final = 60.0
"""By then the kernel has written what was not synced to the disk (Linux: 30 s and a little more);
a file that had not changed for longer, and is damaged, was damaged by something else."""


def keep_aside(path: Path) -> Path:
    """Another name for a damaged file, which keeps it for a person to look at once the file is
    written anew; gives that name."""
    for number in count():
        aside = path.with_suffix(f".damaged-{number}" if number else ".damaged")
        with suppress(FileExistsError):
            os.link(path, aside)
            return aside
    raise AssertionError("numbers do not end")


def sync_folder(folder: Path) -> None:
    """Makes the folder's names survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Makes the file's content survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Makes the folder if need be, and removes what a crash left half-written in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"{TEMPORARY}*"):
        path.unlink()

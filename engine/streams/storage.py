"""Files of streams: temporary names, and names and bytes that survive a loss of power."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

TEMPORARY: Final = ".tmp-"
"""The prefix of a file that is being written; Spark ignores such names, and so does this
program."""

WRITTEN_BACK_S: Final = 60.0
"""The time in which the kernel writes unsynced bytes to the disk (Linux: 30 s and a little more).
A damaged file that had not changed for longer was damaged by something else."""


def keep_aside(path: Path) -> Path:
    """Link a damaged file to another name, which keeps it for a person when the file is written
    anew; returns that name."""
    for number in count():
        aside = path.with_suffix(f".damaged-{number}" if number else ".damaged")
        with suppress(FileExistsError):
            os.link(path, aside)
            return aside
    raise AssertionError("numbers do not end")


def sync_folder(folder: Path) -> None:
    """Make the folder's names survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the file's content survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Make the folder if need be, and remove files that a crash left half-written."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"{TEMPORARY}*"):
        path.unlink()

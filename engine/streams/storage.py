"""What every file of a stream shares: temporary names, and what makes names and bytes durable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

TEMPORARY: Final = ".tmp-"
"""How the name of a file that is being written begins; Spark ignores such names, and so do we."""

WRITTEN_BACK_S: Final = 60.0
"""By then the kernel has written what was not synced to the disk (Linux: 30 s and a little more);
a file that had not changed for longer, and is damaged, was damaged by something else."""


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

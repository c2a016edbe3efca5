"""What every file of a stream shares: a full disk told from other faults, names made durable."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from overlay.errors import InternalError, StorageFullError

TEMPORARY: Final = ".tmp-"
"""How the name of a file that is being written begins; Spark ignores such names, and so do we."""

WRITTEN_BACK_S: Final = 60.0
"""By then the kernel has written what was not synced to the disk (Linux: 30 s and a little more);
a file that had not changed for longer, and is damaged, was damaged by something else."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def storing(what: Path) -> Iterator[None]:
    """Turns an OSError inside into the documented one.

    Raises:
        StorageFullError: no room is left. InternalError: any other fault of the disk.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFullError(
                f"no room for {what.name}: free space on the disk of {what.parent}"
            ) from error
        raise InternalError(f"{what}: {error}") from error


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

"""Files of a home folder: secrets that nobody else may read, and writes that happen or do not."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from overlay.errors import InvalidInputError, NotAuthorisedError, NotFoundError, StorageFullError

SECRET_MODE: Final = 0o600
"""Read and written by the owner, by nobody else."""

PUBLIC_MODE: Final = 0o644


def read_secret(path: Path) -> bytes:
    """The content of a file that only its owner may read.

    Raises:
        NotFoundError: there is no such file.
        NotAuthorisedError: its mode lets others in (the message has the chmod that mends it), or
            we may not read it.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & ~SECRET_MODE:
                raise NotAuthorisedError(
                    f"{path}: mode {mode:04o} lets others use this secret; run: chmod 600 {path}"
                )
            return file.read()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise NotAuthorisedError(f"{path}: cannot be read: {error.strerror}") from None


def read_public(path: Path, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: it is too large or cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > limit:
        raise InvalidInputError(
            f"{path}: more than {limit} bytes; this is not the file it should be"
        )
    return data


def write_secret(path: Path, data: bytes) -> None:
    """Write a secret atomically, mode 0600 from its first byte on.

    Raises:
        StorageFullError: the disk is full; the old content is untouched.
        InvalidInputError: the folder does not take it (missing, not ours, read-only).
    """
    _replace(path, data, SECRET_MODE)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves either the old content or the new one.

    Raises:
        StorageFullError: the disk is full; the old content is untouched.
        InvalidInputError: the folder does not take it (missing, not ours, read-only).
    """
    _replace(path, data, PUBLIC_MODE)


def _replace(path: Path, data: bytes, mode: int) -> None:
    try:
        _write_and_rename(path, data, mode)
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        kind = StorageFullError if full else InvalidInputError
        raise kind(f"{path}: cannot be written: {error.strerror}") from None


def _write_and_rename(path: Path, data: bytes, mode: int) -> None:
    # mkstemp makes the file 0600, so a secret is never readable by others, not even for a moment
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Makes the rename itself survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

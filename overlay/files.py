"""Files of a home folder: JSON and MessagePack with checksums, secrets, and atomic writes."""

from __future__ import annotations

import errno
import glob
import os
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from medusa.overlay.encoding import decode, decode_json, encode_json
from medusa.overlay.errors import (
    DamagedError,
    DecodeError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    StorageError,
    StorageFullError,
    UntrustedError,
)

T = TypeVar("T")

SECRET_MODE: Final = 0o600
"""The owner may read and write; nobody else may."""

PUBLIC_MODE: Final = 0o644

MAX_SECRET: Final = 64 * 2**10
"""Bytes of a secret: a key takes some hundreds."""

MAX_JSON: Final = 64 * 2**20
"""Bytes of a JSON file of a home. 10,000 leases take under 8 MiB, a query with all its editions
less; no longer file is ours."""

_CHECKSUM: Final = b"\n# crc32 "
"""The beginning of the last line of a JSON file."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def load_json(
    path: Path, kind: type[T], *, mend: str, limit: int = MAX_JSON, secret: bool = False
) -> T:
    """Load a JSON file of a home; see `save_json`.

    Args:
        mend: how a person mends a damaged file, for the error.
        secret: whether nobody but the owner may read the file.

    Raises:
        NotFoundError: there is no such file.
        NotAuthorisedError: it is secret, and open to others.
        DamagedError: it cannot be read, its checksum is wrong, or it does not hold a `kind`.
    """
    with mended_by(path, mend):
        data = read_secret(path, limit) if secret else read_public(path, limit)
        content, mark, checksum = data.rpartition(_CHECKSUM)
        if not mark:
            content = checksum
        elif checksum != _checksum(content):
            raise DecodeError("its checksum is wrong; if you have edited it, remove its last line")
        return decode_json(content, kind, limit=limit, what=str(path))


def save_json(path: Path, value: object, *, secret: bool = False) -> None:
    """Write a JSON file of a home, with its checksum in a last line: a wrong digit would still be
    valid JSON. A file without that line, written by a person, is read as it is.

    Raises:
        As `write_atomically`.
    """
    content = encode_json(value)
    write = write_secret if secret else write_atomically
    write(path, content + _CHECKSUM + _checksum(content))


def _checksum(content: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(content)


def load_packed(path: Path, kind: type[T], *, mend: str, limit: int) -> T:
    """Load a MessagePack file of a home; arguments and errors as of `load_json`."""
    with mended_by(path, mend):
        return decode(read_public(path, limit), kind, limit=limit, what=str(path))


@contextmanager
def mended_by(path: Path, mend: str) -> Iterator[None]:
    """Turn errors about a file's content into `DamagedError`, with the mend.

    Raises:
        DamagedError: in place of the block's error about malformed or untrustworthy content.
    """
    try:
        yield
    except (InvalidInputError, UntrustedError) as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise DamagedError(f"{path} is damaged ({reason}); {mend}") from None


def read_secret(path: Path, limit: int = MAX_SECRET) -> bytes:
    """The content of a file of at most `limit` bytes that only its owner may read.

    Raises:
        NotFoundError: there is no such file.
        NotAuthorisedError: its mode lets others read it (the message has the chmod that mends it),
            or this process may not read it.
        InvalidInputError: it is too large.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & ~SECRET_MODE:
                raise NotAuthorisedError(
                    f"{path}: mode {mode:04o} lets others use this secret; run: chmod 600 {path}"
                )
            return _at_most(file.read(limit + 1), limit, path)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise NotAuthorisedError(
            f"{path}: cannot be read: {error.strerror}; it must be a file of mode 0600 of ours"
        ) from None


def read_public(path: Path, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: it is too large or cannot be read.
    """
    try:
        with path.open("rb") as file:
            return _at_most(file.read(limit + 1), limit, path)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise InvalidInputError(
            f"{path}: cannot be read: {error.strerror}; it must be a file of ours"
        ) from None


def _at_most(data: bytes, limit: int, path: Path) -> bytes:
    if len(data) > limit:
        raise InvalidInputError(
            f"{path}: at most {limit} bytes are read, and it has more: restore it from a copy"
        )
    return data


def write_secret(path: Path, data: bytes) -> None:
    """Write a secret atomically, mode 0600 from its first byte on.

    Raises:
        StorageFullError: the disk is full; the old content is untouched.
        StorageError: the disk fails, or the folder does not take it (missing, not ours, read-only);
            there is the old content, or the new.
    """
    _replace(path, data, SECRET_MODE)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a crash leaves either the old content or the new one.

    Raises:
        StorageFullError: the disk is full; the old content is untouched.
        StorageError: the disk fails, or the folder does not take it (missing, not ours, read-only);
            there is the old content, or the new.
    """
    _replace(path, data, PUBLIC_MODE)


def sweep_parts(path: Path) -> None:
    """Remove what writers of that file left that were killed; nobody may be writing it.

    Raises:
        StorageError: the folder does not let it go.
    """
    with storing(path):
        for part in path.parent.glob(f".{glob.escape(path.name)}.*"):
            part.unlink(missing_ok=True)


@contextmanager
def storing(what: Path) -> Iterator[None]:
    """Turn an `OSError` of the block into a `StorageError`.

    Raises:
        StorageFullError: no room is left. StorageError: any other fault of the disk.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFullError(
                f"no room for {what.name}: free space on the disk of {what.parent}"
            ) from error
        if error.errno == errno.ENOENT and not what.parent.exists():
            raise StorageError(
                f"{what.parent}: there is no such folder: make it, or put it back"
            ) from error
        raise StorageError(
            f"{what}: {error.strerror or error}: look at its disk, and who may write there"
        ) from error


def _replace(path: Path, data: bytes, mode: int) -> None:
    with storing(path):
        _write_and_rename(path, data, mode)


def _write_and_rename(path: Path, data: bytes, mode: int) -> None:
    # mkstemp creates the file with mode 0600, so a secret is never readable by others
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
    """Sync the folder, so that the rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

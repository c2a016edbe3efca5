"""The `federation` file of a home: charter and statements, shared by the daemon and commands."""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from medusa.overlay.encoding import encode
from medusa.overlay.errors import ConflictError, DamagedError
from medusa.overlay.events import Change
from medusa.overlay.files import load_packed, mended_by, storing, write_atomically
from medusa.overlay.membership import Membership
from medusa.overlay.words import MAX_KIB

FILE: Final = "federation"
LOCK: Final = "federation.lock"

MAX_FILE: Final = 2 * MAX_KIB * 1024
"""Bytes of the file: all possible statements, and as many again, which commands write beside the
daemon's."""

_MEND: Final = "restore it from a copy, or remove it and join again with a fresh invitation"


class _Stored(Struct, frozen=True, array_like=True):
    """The content of the file.

    Attributes:
        checksum: the checksum of the other fields. Without it a damaged statement would be ignored
            as untrusted, and its member would silently be gone.
    """

    charter: bytes
    statements: tuple[bytes, ...]
    checksum: int


def load_membership(folder: Path) -> Membership:
    """
    Raises:
        NotFoundError: this home has not entered a federation.
        DamagedError: the file is damaged.
    """
    stored = _read(folder)
    with mended_by(folder / FILE, _MEND):
        return Membership(stored.charter, stored.statements)


def save_membership(folder: Path, membership: Membership, now: float) -> list[Change]:
    """Write the known statements, and take in the file's others; returns those that were new.

    Raises:
        As `store_statements`.
    """
    stored = store_statements(folder, membership.charter, membership.statements())
    return membership.merge(stored, now)


def store_statements(
    folder: Path, charter: bytes, statements: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    """Add these statements to the file; returns all that it then holds.

    A command may have added statements while the daemon ran, so none is removed.

    Raises:
        ConflictError: the home is already in another federation.
        StorageError, DamagedError: see `medusa.overlay.files`; the file is damaged.
    """
    with _locked(folder):
        union = statements
        if (folder / FILE).exists():
            stored = _read(folder)
            if stored.charter != charter:
                raise ConflictError(f"{folder / FILE}: this home is in another federation already")
            union = tuple(dict.fromkeys((*statements, *stored.statements)))
            if len(union) == len(stored.statements):
                return union
        write_atomically(folder / FILE, encode(_Stored(charter, union, _checksum(charter, union))))
        return union


def _read(folder: Path) -> _Stored:
    path = folder / FILE
    stored = load_packed(path, _Stored, mend=_MEND, limit=MAX_FILE)
    if stored.checksum != _checksum(stored.charter, stored.statements):
        raise DamagedError(f"{path} is damaged (its checksum is wrong); {_MEND}")
    return stored


def _checksum(charter: bytes, statements: tuple[bytes, ...]) -> int:
    return zlib.crc32(b"".join(statements), zlib.crc32(charter))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with storing(folder / LOCK):
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

"""The `federation` file of a home: charter and statements, shared by daemon and commands."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

from overlay.encoding import encode
from overlay.errors import ConflictError
from overlay.events import Change
from overlay.files import load_packed, mended_by, storing, write_atomically
from overlay.membership import MAX_KIB, Membership

FILE: Final = "federation"
LOCK: Final = "federation.lock"

MAX_FILE: Final = 2 * MAX_KIB * 1024
"""Bytes: all statements there can be, and room for others that commands put beside the daemon's."""

_MEND: Final = "remove it and join again with a fresh invitation"


class _Stored(Struct, frozen=True, array_like=True):
    charter: bytes
    statements: tuple[bytes, ...]


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
    """Write what is known, and take in what the file knows more; what was new in the file.

    Raises:
        As `store_statements`.
    """
    stored = store_statements(folder, membership.charter, membership.statements())
    return membership.merge(stored, now)


def store_statements(
    folder: Path, charter: bytes, statements: tuple[bytes, ...]
) -> tuple[bytes, ...]:
    """Add these to the file; all that it then holds. A command may have added some of its own while
    the daemon ran: nothing is taken away.

    Raises:
        ConflictError: the home is already in another federation.
        StorageError, DamagedError: see `overlay.files`; the file is damaged.
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
        write_atomically(folder / FILE, encode(_Stored(charter, union)))
        return union


def _read(folder: Path) -> _Stored:
    return load_packed(folder / FILE, _Stored, mend=_MEND, limit=MAX_FILE)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with storing(folder / LOCK):
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

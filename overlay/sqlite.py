"""SQLite files: opened in one way, with this project's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

from medusa.overlay.errors import InvalidInputError, StorageError, StorageFullError

BUSY_S: Final = 10.0
"""Seconds to wait until another process has read or written, such as `medusa-peer contract
balance`."""

BESIDE: Final = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database, and that belong to it."""


class Survives(StrEnum):
    """The faults that a commit survives; the value is that of SQLite's `synchronous`."""

    KILL = "NORMAL"
    """Commits survive `kill -9`; a loss of power may undo the last commits."""
    LOSS_OF_POWER = "FULL"


@contextmanager
def open_file(path: Path, survives: Survives, mend: str) -> Iterator[sqlite3.Connection]:
    """Open or create a file, with a write-ahead log.

    Args:
        mend: what people do about a damaged file.

    Raises:
        InvalidInputError: it is damaged.
        StorageError: it cannot be opened, or the disk does not take it.
    """
    with translated(path, mend):
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level="IMMEDIATE")
    with closing(connection):
        with translated(path, mend):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {survives}")
        yield connection


@contextmanager
def open_for_reading(path: Path, mend: str) -> Iterator[sqlite3.Connection]:
    """Open an existing file, even while another process writes to it, to read one state of it.

    Raises: as `open_file`.
    """
    with translated(path, mend):
        uri = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    with closing(connection):
        yield connection


def copy_file(path: Path, copy: Path, mend: str) -> None:
    """Copy a file to which another process may write meanwhile. Raises: as `open_file`."""
    with (
        open_for_reading(path, mend) as source,
        translated(path, mend),
        closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)


def damage_of(path: Path) -> str:
    """The damage of the file as text; "" if there is none, or no file. Reads all of it (some 0.3 s
    for 100 MB)."""
    if path.is_dir():
        return "it is a folder"
    if not path.exists():
        return ""  # SQLite removes a write-ahead log without its database
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        return ""  # the file cannot be opened: the caller's open raises the reason
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if found == "ok" else " ".join(str(found).split())  # SQLite's text has several lines


@contextmanager
def translated(path: Path, mend: str) -> Iterator[None]:
    """Turn SQLite's errors into ours.

    Raises:
        StorageFullError: the disk is full; nothing was changed.
        StorageError: it cannot be opened, read or written. InvalidInputError: it is damaged.
    """
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise StorageFullError(f"{path}: the disk is full") from None
        if isinstance(error, sqlite3.OperationalError):
            raise StorageError(
                f"{path}: {error}: look at its disk, and who may write there"
            ) from None
        raise InvalidInputError(f"{path}: damaged ({error}); {mend}") from None

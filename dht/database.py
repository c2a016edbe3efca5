"""The catalog's SQLite file, with this project's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from medusa.overlay.errors import InvalidInputError, StorageError, StorageFullError

SCHEMA_VERSION: Final = 1

BESIDE: Final = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database, and that belong to it."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    key BLOB, publisher BLOB, participant TEXT, withdrawn INTEGER, version INTEGER,
    issued_at INTEGER, expires_at INTEGER, data BLOB NOT NULL,
    PRIMARY KEY (key, publisher)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_expire ON records (expires_at);
CREATE TABLE IF NOT EXISTS publications (
    kind TEXT, many INTEGER, name TEXT, version INTEGER, body BLOB, until INTEGER,
    PRIMARY KEY (kind, many, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bodies (
    digest BLOB PRIMARY KEY, body BLOB NOT NULL, used_at REAL) WITHOUT ROWID;
"""


class Database:
    """SQL statements and transactions. Calls are short (microseconds) and block."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def rows(self, sql: str, *arguments: object) -> list[tuple[object, ...]]:
        """All rows of a query.

        Raises:
            StorageFullError, InvalidInputError: see `open_database`.
        """
        with _translated(self._path):
            return self._connection.execute(sql, arguments).fetchall()

    def change(self, *statements: tuple[str, tuple[object, ...]]) -> int:
        """Run all statements or none; committed on return. Returns the number of rows changed.

        Raises:
            StorageFullError: the disk is full; nothing was changed.
        """
        with _translated(self._path), self._connection:
            return sum(
                self._connection.execute(sql, arguments).rowcount for sql, arguments in statements
            )


@contextmanager
def open_database(path: Path, damaged: Callable[[str], None]) -> Iterator[Database]:
    """Open or create the file. With its write-ahead log, a commit survives `kill -9`.

    A damaged file is put aside and a new one is made: its users can find the content again.

    Args:
        damaged: called with a text for people when a file was put aside.

    Raises:
        InvalidInputError: the file cannot be opened, or is of another version.
        StorageFullError: the disk is full.
    """
    if damage := _damage(path):
        damaged(f"{path}: damaged ({damage}); it is put aside as {_put_aside(path)}")
    with _translated(path):
        connection = sqlite3.connect(path, isolation_level="IMMEDIATE")
    try:
        with _translated(path):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in {0, SCHEMA_VERSION}:  # 0: a new file
                raise InvalidInputError(
                    f"{path}: version {version}, this program reads {SCHEMA_VERSION}; start the "
                    "program that wrote it, or move the file away: another one is made"
                )
            done = f"PRAGMA user_version = {SCHEMA_VERSION};"
            connection.executescript(f"BEGIN; {_SCHEMA} {done} COMMIT;")
        yield Database(connection, path)
    finally:
        connection.close()


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise StorageFullError(f"{path}: the disk is full") from None
        if isinstance(error, sqlite3.OperationalError):
            raise StorageError(
                f"{path}: {error}: look at its disk, and who may write there"
            ) from None
        raise InvalidInputError(
            f"{path}: damaged ({error}); start the peer again: it puts the file aside then, and "
            "makes another"
        ) from None


def _damage(path: Path) -> str:
    """The damage of the file as text; "" if there is none, or no file. Reads all of it (some 0.3 s
    for 100 MB)."""
    if path.is_dir():
        return "it is a folder"
    if not path.exists():
        return ""  # SQLite removes a write-ahead log without its database
    try:
        with closing(sqlite3.connect(path)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        return ""  # it cannot be opened: the caller's open raises the reason
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if found == "ok" else " ".join(str(found).split())  # SQLite's text has several lines


def _put_aside(path: Path) -> Path:
    """Rename the file and those beside it to free names; returns the database's.

    Raises:
        InvalidInputError: the folder does not allow it.
    """
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    try:
        path.rename(aside)
        for suffix in BESIDE:
            beside = path.with_name(path.name + suffix)
            if beside.exists():
                beside.rename(aside.with_name(aside.name + suffix))
    except OSError as error:
        raise InvalidInputError(
            f"{path}: damaged, and cannot be put aside: {error.strerror}; move it away"
        ) from None
    return aside

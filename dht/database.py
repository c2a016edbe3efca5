"""The catalog's SQLite file, with this project's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from medusa.overlay.errors import InvalidInputError
from medusa.overlay.sqlite import BESIDE, Survives, damage_of, open_file, translated

SCHEMA_VERSION: Final = 1

_MEND: Final = "start the peer again: it puts the file aside then, and makes another"

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
        with translated(self._path, _MEND):
            return self._connection.execute(sql, arguments).fetchall()

    def change(self, *statements: tuple[str, tuple[object, ...]]) -> int:
        """Run all statements or none; committed on return. Returns the number of rows changed.

        Raises:
            StorageFullError: the disk is full; nothing was changed.
        """
        with translated(self._path, _MEND), self._connection:
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
    if damage := damage_of(path):
        damaged(f"{path}: damaged ({damage}); it is put aside as {_put_aside(path)}")
    with open_file(path, Survives.KILL, _MEND) as connection:
        with translated(path, _MEND):
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in {0, SCHEMA_VERSION}:  # 0: a new file
                raise InvalidInputError(
                    f"{path}: version {version}, this program reads {SCHEMA_VERSION}; start the "
                    "program that wrote it, or move the file away: another one is made"
                )
            done = f"PRAGMA user_version = {SCHEMA_VERSION};"
            connection.executescript(f"BEGIN; {_SCHEMA} {done} COMMIT;")
        yield Database(connection, path)


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

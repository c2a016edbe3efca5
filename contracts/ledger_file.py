"""The SQLite file of a ledger: its schema, opening it, and its errors as this project's.

The content cannot be computed again, so a lost or damaged file is never silently replaced: an
inventory beside it says that the file must exist.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from medusa.overlay import sqlite
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.overlay.inventory import Inventory
from medusa.overlay.sqlite import Survives, copy_file, damage_of, open_file, open_for_reading

SCHEMA_VERSION: Final = 1

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    position INTEGER PRIMARY KEY, kind TEXT NOT NULL,
    contract TEXT NOT NULL, payer BLOB NOT NULL, payee BLOB NOT NULL, number INTEGER NOT NULL,
    task TEXT NOT NULL, term_number INTEGER NOT NULL, after INTEGER NOT NULL, upto INTEGER NOT NULL,
    rows INTEGER NOT NULL, amount INTEGER NOT NULL, at INTEGER NOT NULL,
    data BLOB NOT NULL, digest BLOB NOT NULL,
    UNIQUE (task, term_number, kind, contract, payer, payee, after)) STRICT;
CREATE INDEX IF NOT EXISTS entries_of_accounts ON entries (contract, payer, payee, kind, number);
CREATE TABLE IF NOT EXISTS head (
    one INTEGER PRIMARY KEY CHECK (one = 1), entries INTEGER NOT NULL, digest BLOB NOT NULL) STRICT;
INSERT OR IGNORE INTO head VALUES (1, 0, x'');
CREATE TABLE IF NOT EXISTS keys (peer BLOB PRIMARY KEY, key BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS deals (
    contract TEXT, payer BLOB, payee BLOB, task TEXT, term_number INTEGER,
    data BLOB NOT NULL, ending INTEGER, ended_at INTEGER, tail_after INTEGER, tail_rows INTEGER,
    PRIMARY KEY (contract, payer, payee, task, term_number)) STRICT, WITHOUT ROWID;
"""


@contextmanager
def connect(path: Path) -> Iterator[sqlite3.Connection]:
    """Open or create the file. A commit is on disk when it returns.

    Raises:
        InvalidInputError: the file is lost, damaged, or of another version.
        StorageError: it cannot be opened, or the disk does not take it.
    """
    _check_there(path)
    if damage := damage_of(path):
        raise InvalidInputError(f"{path}: damaged ({damage}); {_mend(path)}")
    # money: a receipt on which the other side has our signature must survive a power cut too
    with open_file(path, Survives.LOSS_OF_POWER, _mend(path)) as connection:
        with translated(path):
            prepare(connection, path)
        Inventory(path).add(path.name)
        yield connection


@contextmanager
def connect_for_reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing file, even while a peer has it open, to read one state of it.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: it is lost, damaged, or of another version.
    """
    _check_there(path)
    if not path.is_file():
        raise NotFoundError(f"{path}: no such file")
    with open_for_reading(path, _mend(path)) as connection:
        with translated(path):
            _check_version(connection, path)
        yield connection


def copy_ledger(path: Path, copy: Path) -> None:
    """Copy the file, while a peer may write to it. Raises: as `connect_for_reading`."""
    copy_file(path, copy, _mend(path))


def _check_there(path: Path) -> None:
    """
    Raises:
        InvalidInputError: a ledger was begun, and its file is missing.
    """
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder; move it away and {_mend(path)}")
    present = [path.name] if path.exists() and path.stat().st_size else []
    if Inventory(path).missing(present):
        raise InvalidInputError(f"{path}: is lost; {_mend(path)}")


def _mend(path: Path) -> str:
    return (
        "put a copy in its place: your partners heal its end; if there is none, remove it and "
        f"{Inventory(path).path.name}: another ledger is begun, without what was earned and spent"
    )


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the missing tables.

    Raises:
        InvalidInputError: the file is of another version.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        done = f"PRAGMA user_version = {SCHEMA_VERSION};"
        connection.executescript(f"BEGIN; {_SCHEMA} {done} COMMIT;")
    _check_version(connection, path)


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        raise InvalidInputError(f"{path}: version {version}, this program reads {SCHEMA_VERSION}")


def translated(path: Path) -> AbstractContextManager[None]:
    """Turn SQLite's errors into ours; see `medusa.overlay.sqlite.translated`."""
    return sqlite.translated(path, _mend(path))

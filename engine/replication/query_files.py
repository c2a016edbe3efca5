"""The queries that a peer keeps, as files: one JSON file each. A query exists if its file does.

Of a query that it gave up, the peer remembers how far it has given out the streams: the query's new
peer must not make other results there (ADR 13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from engine.objects.files import file_name
from engine.objects.schema import BEGINNING
from engine.replication.stored_query import StoredQuery
from overlay.errors import DamagedError, NotFoundError, StorageError
from overlay.files import load_folder, load_json, refuse, save_json, storing

MAX_LEFT: Final = 1_000
"""Queries given up that are remembered: the latest."""


class QueryFiles:
    """The query files of one folder. All calls block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, damaged: Callable[[DamagedError], None] = refuse) -> Iterator[StoredQuery]:
        """As `load_folder`."""
        mend = "restore it from a copy, or remove it and create the query again"
        return load_folder(self._folder, StoredQuery, mend=mend, damaged=damaged)

    def save(self, stored: StoredQuery) -> None:
        """Save a query. Raises: StorageError: the disk does not take it; the old file stays."""
        save_json(self._path(stored.name), stored)

    def remove(self, query: str) -> None:
        """Remove the file of a deleted query. Raises: StorageError: the disk does not let it go."""
        with storing(self._folder):
            self._path(query).unlink(missing_ok=True)
            self._left(query).unlink(missing_ok=True)

    def leave(self, query: str, given: Mapping[str, int]) -> None:
        """Remove the file of a query that another peer has.

        Args:
            given: by stream, the boundary up to which it was given out here, microseconds.

        Raises:
            StorageError: the disk does not let it go.
        """
        # This makes room, and must not fail; a damaged file stays, for `given` to name.
        with suppress(StorageError, DamagedError):
            self._remember(query, given)
        with storing(self._folder):
            self._path(query).unlink(missing_ok=True)
            left = sorted(self._folder.glob("*.left"), key=lambda path: path.stat().st_mtime)
            for path in left[:-MAX_LEFT]:
                path.unlink(missing_ok=True)

    def _remember(self, query: str, given: Mapping[str, int]) -> None:
        before = self.given(query)
        furthest = {
            name: max(given.get(name, BEGINNING), before.get(name, BEGINNING))
            for name in given.keys() | before.keys()
        }
        save_json(self._left(query), furthest)

    def given(self, query: str) -> dict[str, int]:
        """By stream, the boundary up to which this peer gave out a query that it gave up; other
        streams were not given out.

        Raises:
            DamagedError: that is not known any more.
        """
        mend = "remove it, if no subscriber has read the query's streams from this peer"
        try:
            return load_json(self._left(query), dict[str, int], mend=mend)
        except NotFoundError:
            return {}

    def _left(self, query: str) -> Path:
        return self._folder / file_name(query, ".left")

    def _path(self, query: str) -> Path:
        return self._folder / file_name(query, ".json")

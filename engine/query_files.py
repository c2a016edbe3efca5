"""The queries that a peer keeps, as files: one JSON file each, which says that the query is.

Of those that it has let go of it remembers how far it has given out their streams: whoever has them
now must not make those results otherwise (ADR 13).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from engine.kept import file_name
from engine.network import StoredQuery
from engine.schema import BEGINNING
from overlay.errors import InternalError, StorageFullError
from overlay.files import write_atomically

MAX_LEFT: Final = 1_000
"""Queries let go of that are remembered: the latest."""


class QueryFiles:
    """Those in one folder. All calls block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> Iterator[StoredQuery]:
        """
        Raises:
            InternalError: one is damaged.
        """
        for path in sorted(self._folder.glob("*.json")):
            try:
                yield msgspec.json.decode(path.read_bytes(), type=StoredQuery)
            except msgspec.DecodeError as error:
                raise InternalError(f"{path} is damaged ({error}); remove it") from None

    def save(self, stored: StoredQuery) -> None:
        """
        Raises:
            StorageFullError: no room; what was there is untouched.
        """
        write_atomically(self._path(stored.name), msgspec.json.encode(stored))

    def remove(self, query: str) -> None:
        """It is not any more."""
        self._path(query).unlink(missing_ok=True)
        self._left(query).unlink(missing_ok=True)

    def leave(self, query: str, given: Mapping[str, int]) -> None:
        """It is another peer's.

        Args:
            given: by stream, how far it was given out here, microseconds.
        """
        before = self.given(query)
        furthest = {
            name: max(given.get(name, BEGINNING), before.get(name, BEGINNING))
            for name in given.keys() | before.keys()
        }
        with suppress(StorageFullError):  # letting go makes room, and must not fail
            write_atomically(self._left(query), msgspec.json.encode(furthest))
        self._path(query).unlink(missing_ok=True)
        left = sorted(self._folder.glob("*.left"), key=lambda path: path.stat().st_mtime)
        for path in left[:-MAX_LEFT]:
            path.unlink(missing_ok=True)

    def given(self, query: str) -> dict[str, int]:
        """By stream, how far a query that this peer has let go of was given out here; those that
        are not in it were not."""
        try:
            return msgspec.json.decode(self._left(query).read_bytes(), type=dict[str, int])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    def _left(self, query: str) -> Path:
        return self._folder / file_name(query, ".left")

    def _path(self, query: str) -> Path:
        return self._folder / file_name(query, ".json")

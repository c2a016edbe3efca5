"""The queries that a peer keeps, as files: one JSON file each, which says that the query is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from engine.kept import file_name
from engine.network import StoredQuery
from overlay.errors import InternalError
from overlay.files import write_atomically


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
        self._path(query).unlink(missing_ok=True)

    def _path(self, query: str) -> Path:
        return self._folder / file_name(query, ".json")

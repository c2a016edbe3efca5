"""The schemas that a peer was asked to create, as files: one JSON file each.

The catalog is how others find them, and may be lost; streams carry their own copies, but a schema
that no stream uses is here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from engine.kept import file_name
from engine.schema import Schema
from overlay.errors import InternalError
from overlay.files import write_atomically


class SchemaFiles:
    """Those in one folder. All calls block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> Iterator[Schema]:
        """
        Raises:
            InternalError: one is damaged.
        """
        for path in sorted(self._folder.glob("*.json")):
            try:
                yield msgspec.json.decode(path.read_bytes(), type=Schema)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InternalError(
                    f"{path} is damaged ({error}); remove it, and create the schema again"
                ) from None

    def save(self, schema: Schema) -> None:
        """
        Raises:
            StorageFullError: no room; what was there is untouched.
        """
        write_atomically(self._path(schema.name), msgspec.json.encode(schema))

    def remove(self, name: str) -> None:
        """It is another peer's."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / file_name(name, ".json")

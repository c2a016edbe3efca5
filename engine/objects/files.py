"""The schemas that a peer was asked to create, as files: one JSON file each.

The catalog is how others find them, and may be lost; streams carry their own copies, but a schema
that no stream uses is here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from engine.objects.schema import Schema
from overlay.errors import DamagedError
from overlay.files import load_folder, refuse, save_json, storing


class SchemaFiles:
    """Those in one folder. All calls block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, damaged: Callable[[DamagedError], None] = refuse) -> Iterator[Schema]:
        """As `load_folder`."""
        mend = "remove it, and create the schema again"
        return load_folder(self._folder, Schema, mend=mend, damaged=damaged)

    def save(self, schema: Schema) -> None:
        """
        Raises:
            StorageError: the disk does not take it; what was there is untouched.
        """
        save_json(self._path(schema.name), schema)

    def remove(self, name: str) -> None:
        """It is another peer's."""
        path = self._path(name)
        with storing(path):
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / file_name(name, ".json")


def file_name(name: str, suffix: str = "") -> str:
    """An object name as a file's: reversible, since no name has a comma, and no longer."""
    return name.removeprefix("medusa://").replace("/", ",") + suffix

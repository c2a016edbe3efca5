"""The schemas that a peer was asked to create: one JSON file each.

Other peers find them in the catalog, which may be lost. A stream has a copy of its schema, but a
schema that no stream uses is in these files alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from medusa.engine.objects.schema import Schema
from medusa.overlay.errors import DamagedError
from medusa.overlay.json_folder import JsonFolder, refuse


class SchemaFiles:
    """The schema files of one folder. All calls block."""

    def __init__(self, folder: Path) -> None:
        self._files = JsonFolder(folder, Schema, "remove it, and create the schema again")

    def load(self, damaged: Callable[[DamagedError], None] = refuse) -> Iterator[Schema]:
        """Load the files, as `JsonFolder.load`."""
        return self._files.load(damaged)

    def save(self, schema: Schema) -> None:
        """Save a schema. Raises: StorageError: the disk does not take it; the old file stays."""
        self._files.save(file_name(schema.name, ".json"), schema)

    def remove(self, name: str) -> None:
        """Remove a schema that another peer has defined."""
        self._files.remove(file_name(name, ".json"))


def file_name(name: str, suffix: str = "") -> str:
    """An object name as the name of a file. It is no longer, and can be turned back, because no
    name has a comma."""
    return name.removeprefix("medusa://").replace("/", ",") + suffix

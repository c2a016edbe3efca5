"""A folder of a home with a JSON file for each thing of one kind, and its inventory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from medusa.overlay.errors import DamagedError
from medusa.overlay.files import load_json, save_json, storing
from medusa.overlay.inventory import Inventory, is_missing

T = TypeVar("T")


def refuse(error: DamagedError) -> None:
    """Raise the error: the default for damaged files."""
    raise error


class JsonFolder(Generic[T]):
    """The files `*.json` of a folder, which hold a `kind` each. All calls block.

    Args:
        mend: how a person mends a damaged file.
        gone: how a person mends a missing file; "": as any that may be forgotten.
    """

    def __init__(self, folder: Path, kind: type[T], mend: str, gone: str = "") -> None:
        self.path = folder
        self._kind = kind
        self._mend = mend
        self._gone = gone
        self._inventory = Inventory(folder)

    def load(self, damaged: Callable[[DamagedError], None] = refuse) -> Iterator[T]:
        """Load the files, in the order of their names; changes nothing.

        Args:
            damaged: called with the error of each file that is damaged or missing, which is left
                out. By default the first such file ends the loading.

        Raises:
            DamagedError: as `damaged` raises it.
        """
        paths = sorted(self.path.glob("*.json"))
        for name in self._missing(damaged, paths):
            damaged(DamagedError(is_missing(self.path / name, self._inventory, self._gone)))
        for path in paths:
            try:
                yield load_json(path, self._kind, mend=self._mend)
            except DamagedError as error:
                damaged(error)

    def _missing(self, damaged: Callable[[DamagedError], None], paths: list[Path]) -> list[str]:
        try:
            return self._inventory.missing(path.name for path in paths)
        except DamagedError as error:
            damaged(error)
            return []

    def save(self, name: str, value: T) -> None:
        """Save a file. Raises: StorageError: the disk does not take it; the old file stays."""
        save_json(self.path / name, value)
        self._inventory.add(name)

    def remove(self, name: str) -> None:
        """Remove a file. Raises: StorageError: the disk does not allow it."""
        self._inventory.remove(name)
        with storing(self.path / name):
            (self.path / name).unlink(missing_ok=True)

"""The inventory of a folder: the names that must be in it, in a file beside it.

A file that was lost looks like one that never was. So the inventory of `data/queries` is
`data/queries.inventory`: a name is added once its file is there, and removed before the file is.
Between the two, a crash leaves a file that is not in the inventory, and never a name without its
file.

    +NAME or -NAME, a line each; the last one of a name counts
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from medusa.overlay.errors import NotFoundError
from medusa.overlay.files import mended_by, read_public, storing, write_atomically

SUFFIX: Final = ".inventory"

MAX_INVENTORY: Final = 64 * 2**20
"""Bytes of an inventory: a hundred thousand names, and as many lines again."""

_SPARE_LINES: Final = 256
"""Lines that an inventory may have beyond its names before it is written anew."""


class Inventory:
    """The inventory of one folder. Blocking; any thread. One at a time changes it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder.with_name(folder.name + SUFFIX)
        self._names: set[str] | None = None
        self._lines = 0
        self._lock = threading.Lock()

    @property
    def names(self) -> frozenset[str]:
        """
        Raises:
            DamagedError: the file cannot be read.
        """
        with self._lock:
            return frozenset(self._read())

    def missing(self, present: Iterable[str]) -> list[str]:
        """Return the names of the inventory that are not among the existing files.

        Raises:
            DamagedError: the file cannot be read.
        """
        return sorted(self.names.difference(present))

    def add(self, name: str) -> None:
        """Note that a name must be there from now on. Raises: StorageError: no room."""
        with self._lock:
            if name not in self._read():
                self._append(f"+{name}")
                self._read().add(name)

    def remove(self, *names: str) -> None:
        """Note, before it is removed, that a name need not be there any more.

        Raises:
            StorageError: the disk does not take it.
        """
        with self._lock:
            for name in self._read().intersection(names):
                self._append(f"-{name}")
                self._read().discard(name)

    def _read(self) -> set[str]:
        if self._names is None:
            with mended_by(self.path, "remove it: what is there now is all then"):
                try:
                    text = read_public(self.path, MAX_INVENTORY).decode(errors="replace")
                except NotFoundError:
                    text = ""
            whole, _, torn = text.rpartition("\n")
            names: set[str] = set()
            lines = whole.split("\n") if whole else []
            for line in lines:
                if line.startswith("+"):
                    names.add(line[1:])
                elif line.startswith("-"):
                    names.discard(line[1:])
            self._names = names
            self._lines = MAX_INVENTORY if torn else len(lines)  # a torn line: written anew
        return self._names

    def _append(self, line: str) -> None:
        names = self._read()
        if self._lines > 2 * len(names) + _SPARE_LINES:
            write_atomically(self.path, "".join(f"+{name}\n" for name in sorted(names)).encode())
            self._lines = len(names)
        with storing(self.path):
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.write(file, f"{line}\n".encode())
                os.fdatasync(file)
            finally:
                os.close(file)
        self._lines += 1


def is_missing(path: Path, inventory: Inventory, mend: str = "") -> str:
    """The text about a file of the inventory that is not there. mend: see `forgotten`."""
    return f"{path} is missing, and this peer did not remove it: {mend or forgotten(inventory)}"


def forgotten(inventory: Inventory) -> str:
    """Say how a person mends a missing file that may be forgotten."""
    return f"restore it from a copy; if it is gone for good, remove {inventory.path}"

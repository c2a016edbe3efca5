"""The disk of a killed peer: it has all written bytes, or after a power cut only the synced ones.

A snapshot of the folder is taken at the moment of death; the peer's next life begins with that.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar
from unittest import mock

import psutil

from medusa.testnet.virtual.hosts import Process, running_process

T = TypeVar("T")

IMMUTABLE: Final = (".parquet",)
"""Suffixes of files that never change under this name: a copy may be a link."""

SYNCED_BELOW_PYTHON: Final = (".sqlite", ".sqlite-journal", ".sqlite-wal", ".sqlite-shm")
"""Suffixes of SQLite's files: SQLite syncs them without Python, so they count as synced."""

_OPERATIONS: Final = ("replace", "rename", "unlink", "truncate", "ftruncate")


class Disk:
    """Tracks the files, and their lengths, that survive a power cut.

    Args:
        rng: draws how much unsynced data survives all the same.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._synced: dict[int, int] = {}
        self._due: dict[Process, tuple[int, Callable[[], None]]] = {}

    def patches(self) -> list[Any]:
        """Patches of all operations that make data durable or remove it."""
        real = {name: getattr(os, name) for name in _OPERATIONS}
        operations = {**real, "fsync": self.sync, "fdatasync": self.sync}
        told = [
            mock.patch.object(os, name, self._counted(each)) for name, each in operations.items()
        ]
        # a reader of a torn file cannot know whether the power was lost, so it must assume that
        return [*told, mock.patch.object(psutil, "boot_time", return_value=float("inf"))]

    def before_operation(self, process: Process, number: int, action: Callable[[], None]) -> None:
        """Call the action just before the process makes data durable, or removes data, for the time
        `number` from now."""
        self._due[process] = number, action

    def forget(self, process: Process) -> None:
        """Cancel `before_operation` of the process."""
        self._due.pop(process, None)

    def _counted(self, real: Callable[..., T]) -> Callable[..., T]:
        def operation(*arguments: object, **options: object) -> T:
            process = running_process()
            if process in self._due:
                number, action = self._due.pop(process)
                if number > 1:
                    self._due[process] = number - 1, action
                else:
                    action()
            return real(*arguments, **options)

        return operation

    def sync(self, descriptor: int) -> None:
        """Replaces `os.fsync` and `os.fdatasync`, which would cost real time."""
        status = os.fstat(descriptor)
        self._synced[status.st_ino] = status.st_size

    def sync_all(self, folder: Path) -> None:
        """Count all present data as synced."""
        for path in folder.rglob("*"):
            if path.is_file():
                status = path.stat()
                self._synced[status.st_ino] = status.st_size

    def snapshot(self, home: Path, copy: Path, *, power: bool) -> None:
        """Copy a folder as a kill, or a power cut, leaves it."""

        def keep(source: str, target: str) -> str:
            name, lost = Path(source), 0
            if power and not source.endswith(SYNCED_BELOW_PYTHON):
                lost = self._lost(name)
            if source.endswith(IMMUTABLE) and not lost:
                Path(target).hardlink_to(source)
            else:
                shutil.copy2(source, target)
                os.truncate(target, name.stat().st_size - lost)
            return target

        shutil.copytree(home, copy, copy_function=keep, symlinks=True)
        self.sync_all(copy)

    def _lost(self, path: Path) -> int:
        status = path.stat()
        doubtful = status.st_size - self._synced.get(status.st_ino, 0)
        return self._rng.randint(0, doubtful) if doubtful > 0 else 0


class _SortedScan:
    """`os.scandir`, in the order of names."""

    _real: Any = staticmethod(os.scandir)

    def __init__(self, path: str | Path = ".") -> None:
        with self._real(path) as found:
            self._entries = iter(sorted(found, key=lambda entry: entry.name))

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def __enter__(self) -> _SortedScan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def folder_patches(rng: random.Random) -> list[Any]:
    """Patches by which folders list their files in order, and temporary files have seeded names."""
    listdir = os.listdir

    def names_in(path: str | Path = ".") -> list[str]:
        return sorted(listdir(path))

    def names() -> Iterator[str]:
        while True:
            yield f"{rng.getrandbits(48):012x}"

    return [
        mock.patch.object(os, "listdir", names_in),
        mock.patch.object(os, "scandir", _SortedScan),
        mock.patch.object(tempfile, "_name_sequence", names()),
    ]

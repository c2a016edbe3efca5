"""The folders of a peer's streams: one for each log, with the definition of its stream."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from medusa.engine.objects.files import file_name
from medusa.engine.streams.store.stream_state import LogKey, StoredStream
from medusa.overlay.errors import NotFoundError, StorageError
from medusa.overlay.events import Events
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.files import load_json, save_json, storing
from medusa.overlay.inventory import Inventory, forgotten, is_missing
from medusa.overlay.troubles import Reason, Trouble

GONE: Final = "~"
"""The prefix of the folder of a dropped stream; no stream's name begins so."""

MAX_FILE_NAME: Final = 255
"""Bytes of a file's name that every common file system allows."""

_FILE: Final = "stream.json"
"""The file with the definition of the folder's stream."""

_SET_ASIDE: Final = "stream.aside.json"

_MEND: Final = (
    "restore it from a copy, or move its folder away: what this peer keeps of that stream is in it"
)


def read_entry(folder: Path) -> StoredStream:
    """Read a stream's definition from its folder. Blocking.

    Raises:
        NotFoundError: there is none. DamagedError: the file is damaged.
    """
    return load_json(folder / _FILE, StoredStream, mend=_MEND)


class StreamFolders:
    """The folders of streams; knows which are missing, or belong to no stream. Args: path: the
    folder that has them all.
    """

    def __init__(self, path: Path, events: Events) -> None:
        self._path = path
        self._events = events
        self._unknown: list[Path] = []
        self._missing: list[str] = []
        self._inventory = Inventory(path)

    def of(self, key: LogKey) -> Path:
        """The folder of a log's files."""
        name = file_name(str(key))
        if len(name) > MAX_FILE_NAME:  # a variant's folder: the file within has the whole name
            name = hashlib.sha256(str(key).encode()).hexdigest()
        return self._path / name

    async def stored(self) -> AsyncGenerator[StoredStream, None]:
        """The streams of the last run; notes folders that are missing, or that belong to no
        stream."""
        with storing(self._path):
            folders = sorted(path for path in self._path.iterdir() if path.is_dir())
        self._missing = self._inventory.missing(path.name for path in folders)
        for name in self._missing:
            text = is_missing(self._path / name, self._inventory)
            self._events.note("error", f"misses a stream with all its rows: {text}")
        for folder in folders:
            if folder.name.startswith(GONE):
                await trio.to_thread.run_sync(_remove, folder)
                continue
            try:
                stored = read_entry(folder)
            except NotFoundError:
                self._note_unknown(folder)
                continue
            yield stored

    def _note_unknown(self, folder: Path) -> None:
        if any(folder.glob("*/*")) and not (folder / _SET_ASIDE).exists():
            self._unknown.append(folder)
            text = f"what it keeps is of no stream that this peer knows; {_MEND}"
            self._events.note("error", f"found {folder} without {_FILE}: {text}")

    def make(self, stored: StoredStream) -> Path:
        """The folder of a log, made if it is new. Blocking."""
        folder = self.of(LogKey(stored.entry.stream.name, stored.variant))
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.save(stored)
        self._inventory.add(folder.name)
        return folder

    def save(self, stored: StoredStream) -> None:
        """Save a stream's definition. Blocking. Raises: StorageError: the disk does not take it."""
        save_json(self.of(LogKey(stored.entry.stream.name, stored.variant)) / _FILE, stored)

    async def remove(self, key: LogKey) -> None:
        """Delete a log's files; note it as a trouble if they stay."""
        folder = self.of(key)
        gone = folder.with_name(GONE + hashlib.sha256(str(key).encode()).hexdigest())
        try:
            self._inventory.remove(folder.name)
            with storing(folder), suppress(FileNotFoundError):
                folder.rename(gone)  # otherwise a crash might leave a part of the folder
        except StorageError as error:
            self._events.note("error", f"dropped {key}, but its files stay: {error}")
            return
        await trio.to_thread.run_sync(_remove, gone)

    async def put_aside(self, key: LogKey, aside: LogKey) -> Path:
        """Keep the files of a closed log under another key, which no restart opens; returns their
        folder."""
        folder = self.of(aside)
        self._inventory.remove(self.of(key).name)
        await trio.to_thread.run_sync(_put_aside, self.of(key), folder)
        return folder

    def troubles(self) -> Iterator[Trouble]:
        """The troubles with folders: they are missing, or belong to no stream."""
        for folder in self._unknown:
            yield Trouble(Reason.ROWS_LOST, str(folder), f"has no {_FILE}", _MEND)
        for name in self._missing:
            folder, mend = self._path / name, forgotten(self._inventory)
            yield Trouble(Reason.ROWS_LOST, str(folder), "is missing, with all its rows", mend)


@failpoint(Failpoint.STREAM_REMOVE_FILES)
def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _put_aside(folder: Path, aside: Path) -> None:
    with storing(folder):
        folder.rename(aside)
        # a restart opens no such folder
        (aside / _FILE).rename(aside / _SET_ASIDE)

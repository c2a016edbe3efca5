"""The ballots of an elector, one file a stream: a vote is on disk before anybody hears of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from engine.definitions import StreamEntry
from engine.homes.ballot import Ballot
from overlay.files import load_json, save_json, storing


class StoredBallot(Struct, frozen=True):
    """entry: the stream as published."""

    entry: StreamEntry
    ballot: Ballot


class BallotFiles:
    """Those in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> Iterator[StoredBallot]:
        """
        Raises:
            DamagedError: one is damaged. It must not be removed: an elector that forgot whom it
                voted for may let two peers believe that they are home.
        """
        for path in sorted(self._folder.glob("*.json")):
            yield load_json(path, StoredBallot, mend="restore it from a copy; do not remove it")

    def save(self, stored: StoredBallot) -> None:
        """
        Raises:
            StorageError: the disk does not take it; what was there is untouched.
        """
        with storing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        save_json(self._path(stored.entry.stream.name), stored)

    def _path(self, stream: str) -> Path:  # a name may be as long as a file's
        return self._folder / f"{hashlib.sha256(stream.encode()).hexdigest()[:32]}.json"

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from engine.objects.definitions import StreamEntry
from engine.replication.leaders.ballot import Ballot
from overlay.errors import DamagedError, NotFoundError
from overlay.files import load_folder, load_json, refuse, save_json, storing
from overlay.killpoints import KillPoint, kill_point

ABSTAINS: Final = "abstains"
"""The file that names the streams on which this peer has no vote; no ballot has that name."""

_MEND: Final = "restore it from a copy; do not remove it"


class StoredBallot(Struct, frozen=True):
    """A ballot on disk. entry: the stream as published."""

    entry: StreamEntry
    ballot: Ballot


class BallotFiles:
    """The ballots of a voter, a file per stream: a vote is on disk before any peer hears of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, damaged: Callable[[DamagedError], None] = refuse) -> Iterator[StoredBallot]:
        """As `load_folder`. A damaged ballot must not be removed: a voter that forgot its vote may
        let two peers believe that they are leader."""
        return load_folder(self._folder, StoredBallot, mend=_MEND, damaged=damaged)

    def abstaining(self) -> frozenset[str]:
        """The streams on which this peer may not vote any more: it voted in a home that was lost,
        and its votes are not known."""
        try:
            return load_json(self._folder / ABSTAINS, frozenset[str], mend=_MEND)
        except NotFoundError:
            return frozenset()

    def abstain(self, streams: Iterable[str]) -> None:
        """Never vote on those streams. Raises: StorageError: the disk does not take it."""
        with storing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        save_json(self._folder / ABSTAINS, sorted(streams))

    @kill_point(KillPoint.BALLOT_SAVE)
    def save(self, stored: StoredBallot) -> None:
        """Save a ballot. Raises: StorageError: the disk does not take it; the old one stays."""
        with storing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        save_json(self._path(stored.entry.stream.name), stored)

    def _path(self, stream: str) -> Path:  # a name may be as long as a file's
        return self._folder / f"{hashlib.sha256(stream.encode()).hexdigest()[:32]}.json"

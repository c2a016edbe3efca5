from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.replication.moves.guest import StoredAssignment
from overlay.errors import DamagedError
from overlay.files import load_folder, refuse, save_json, storing
from overlay.killpoints import KillPoint, kill_point


class AssignmentFiles:
    """The assignments of a worker, one file each, so that a restart goes on with them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, damaged: Callable[[DamagedError], None] = refuse) -> Iterator[StoredAssignment]:
        """As `load_folder`."""
        mend = "remove it: the task's owner takes it home"
        return load_folder(self._folder, StoredAssignment, mend=mend, damaged=damaged)

    @kill_point(KillPoint.ASSIGNMENT_SAVE)
    def save(self, stored: StoredAssignment) -> None:
        """Save it. Raises: StorageError: the disk does not take it; the old file stays."""
        save_json(self._path(stored), stored)

    def remove(self, stored: StoredAssignment) -> None:
        path = self._path(stored)
        with storing(path):
            path.unlink(missing_ok=True)

    def _path(self, stored: StoredAssignment) -> Path:
        task, term_number = stored.key  # a name may be as long as a file's
        return self._folder / f"{hashlib.sha256(task.encode()).hexdigest()[:32]}-{term_number}.json"

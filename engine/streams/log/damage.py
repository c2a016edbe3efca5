"""The lost files of a log: how they are found, and fetched again."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

import pyarrow as pa
import trio

from medusa.engine.streams.log.epochs import EpochDamagedError, EpochFile, EpochWriter, pinned
from medusa.engine.streams.log.folder import EpochFolder
from medusa.engine.streams.log.reached import Reached
from medusa.engine.streams.log.retention import Retention
from medusa.engine.streams.log.scanning import lost_in_words, read_all
from medusa.overlay.listeners import Decision, Listeners


class Damage:
    """The damage of one log.

    Attributes:
        found: called with a text for people for every file that is found damaged. mend: fetches a
            lost file again, if any peer has it; returns after the try.
    """

    def __init__(
        self, folder: EpochFolder, schema: pa.Schema, retention: Retention, reached: Reached
    ) -> None:
        self._retention = retention
        self._folder = folder
        self._schema = schema
        self._reached = reached
        self.found: Listeners[[str]] = Listeners()
        self.mend: Decision[[EpochFile], Awaitable[None]] = Decision(_nobody_has_it)

    def find(self, path: Path) -> None:
        """Note that a file of the log is damaged: it counts as lost from now on, and people get an
        event."""
        for file in self._folder.files:
            if file.path == path and not file.lost:
                file.lost = True
                self.found.notify(lost_in_words(file))

    async def verify(self, after: int, upto: int) -> None:
        """Read the files with rows in (after, upto] as a whole, to find damage.

        Raises:
            StorageError: a file cannot be read for now.
        """
        files = self._folder.files
        for file in [file for file in files if file.holds(after, upto) and not file.lost]:
            try:
                with pinned([file]):
                    await trio.to_thread.run_sync(read_all, file.path, self._schema)
            except EpochDamagedError as error:
                self._reached.check_open()
                self.find(error.path)

    async def fetch(self, after: int) -> None:
        """Fetch the file behind a boundary again, if it is lost and a peer has it."""
        following = next((file for file in self._folder.files if file.upto > after), None)
        if following is not None and following.lost:
            await self.mend(following)

    async def fetch_all(self) -> None:
        """Fetch all lost files that any peer has, for a reader from the log's beginning."""
        for lost in self._folder.files.lost:
            await self.mend(lost)

    def put_back(self, lost: EpochFile, found: EpochFile, writer: EpochWriter | None) -> None:
        """Put back a lost file; see `EpochFolder.put_back`."""
        self._folder.put_back(lost, found, writer)
        self._retention.stir()


async def _nobody_has_it(_: EpochFile) -> None:
    await trio.lowlevel.checkpoint()

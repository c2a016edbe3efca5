"""A stream's log: its epochs as files, the recent ones in memory as well.

A restart reads the directory and nothing else: `folder.py` says what a crash leaves in it.

A file that is damaged, or missing between others, is *lost*. Its interval stays a part of the log,
and the tuples before and behind it can be read. A reader of the interval gets an error, unless the
file can be fetched again (`mend`).

State changes in the trio thread only: worker threads write and read files. A commit (a rename) and
the view of the readers change together, without an `await` between. The synchronous methods do the
same in the calling thread; use them where no task waits on this log.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.definitions import DEFAULT_HISTORY_US
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.load import metered
from medusa.engine.streams.log.damage import Damage
from medusa.engine.streams.log.epochs import EpochWriter, check_rows
from medusa.engine.streams.log.folder import EpochFolder
from medusa.engine.streams.log.log_reader import LogReader
from medusa.engine.streams.log.reached import Reached
from medusa.engine.streams.log.recent import RECENT_BYTES, Epoch, Recent, SharedMemory
from medusa.engine.streams.log.retention import Retention
from medusa.engine.streams.log.scanning import lost_in_words, scan
from medusa.engine.streams.log.upkeep import Upkeep
from medusa.engine.streams.ordering import tidy
from medusa.overlay.errors import BusyError, InternalError, StorageFullError, UnavailableError
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.listeners import Decision

DISK_BYTES: Final = 256 * 2**30
"""The most bytes of a log's files; beyond it appending is refused until retention drops some."""


class StreamLog:
    """The log of one stream, in epoch files.

    Attributes:
        files: the present files. reader: reads it. damage: its lost files. retention: the holds of
            its consumers.
        upkeep: drops and merges files. shared: bounds recent epochs, with other logs.
        appended_rows: the number of rows since it was opened. shown_from: the boundary before which
            no rows are shown, though they may be kept. lost: the loss of rows by a loss of power,
            in words for people.
    """

    def __init__(
        self,
        folder: EpochFolder,
        schema: pa.Schema,
        recent: Recent,
        retention: Retention,
        *,
        disk_bytes: int,
        durable: bool,
    ) -> None:
        self._folder = folder
        self._schema = schema
        self._recent = recent
        self._disk_bytes = disk_bytes
        self._durable = durable
        self._appending = trio.Lock()
        self._reached = Reached(folder.path.name, folder.files.boundary)
        self.files = folder.files
        self.retention = retention
        self.damage = Damage(folder, schema, retention, self._reached)
        self.reader = LogReader(folder.files, schema, recent, self._reached, self.damage)
        self.upkeep = Upkeep(folder, schema, retention, self._reached, self.damage)
        self.shared = recent.shared
        self.lost: tuple[str, ...] = ()
        self.shown_from: Decision[[], int] = Decision(lambda: BEGINNING)
        self.appended_rows = 0

    @classmethod
    def open(
        cls,
        folder: Path,
        schema: pa.Schema,
        *,
        history_us: int = DEFAULT_HISTORY_US,
        recent_bytes: int = RECENT_BYTES,
        shared: SharedMemory | None = None,
        disk_bytes: int = DISK_BYTES,
        durable: bool = False,
    ) -> StreamLog:
        """Open the log in `folder`, which is made if it is missing. Blocking.

        Raises:
            DamagedError: two of its files overlap. StorageError: its folder cannot be read.
        """
        assert schema.names[0] == "stime", "the log of a stream begins with stime"
        files, lost = scan(folder, schema, durable=durable)
        epochs = EpochFolder(folder, files, durable=durable)
        recent = Recent(schema, epochs.files.boundary, recent_bytes, shared or SharedMemory())
        retention = Retention(history_us)
        log = cls(epochs, schema, recent, retention, disk_bytes=disk_bytes, durable=durable)
        log.lost = tuple(lost)
        return log

    @property
    def boundary(self) -> int:
        """The boundary, microseconds: every row with stime up to it is in the log."""
        return self._reached.boundary

    @property
    def moved_at(self) -> float:
        """When the boundary last moved, on the monotonic clock, seconds."""
        return self._reached.moved_at

    @property
    def folder(self) -> Path:
        return self._folder.path

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def start(self) -> int:
        """The boundary after which rows are kept: earlier ones were dropped, or never existed."""
        return self.files.start

    @property
    def oldest(self) -> int:
        """The boundary after which all rows are kept and undamaged. Blocking and cheap, as
        `tail`."""
        return max(self.files.whole_from, self.shown_from())

    @property
    def oldest_kept(self) -> int:
        """The boundary from which on rows are kept; some may be lost. Blocking and cheap."""
        return max(self.files.start, self.shown_from())

    @failpoint(Failpoint.LOG_BEGIN)
    def begin(self, boundary: int) -> None:
        """Start a new log at a boundary: earlier tuples are not known. Blocking.

        Raises:
            StorageFullError: no room.
        """
        assert not self.files, "the log has begun already"
        writer = EpochWriter(self.folder, self._schema, compress=False, durable=self._durable)
        writer.finish()
        self._folder.commit(writer, boundary, boundary, None)
        self._recent.start = boundary
        self._move_to(boundary)

    @failpoint(Failpoint.LOG_REOPEN)
    def reopen(self, boundary: int) -> None:
        """Remove the end from the log of an ended stream, which continues from that boundary, after
        its last tuple. Blocking.

        Raises:
            UnavailableError: its last file is read at the moment.
            StorageError: the disk does not take it; nothing was changed.
        """
        assert self.boundary == END, "it has not ended"
        if self.files[-1].pins:
            raise UnavailableError(f"the end of the log in {self.folder} is being read: try again")
        self._folder.shorten(boundary)
        self._recent.begin(boundary)
        self._move_to(boundary)

    def reaches(self, boundary: int) -> None:
        """Note that the log had reached that boundary: the missing part at its end is lost.
        Blocking, before the log has readers."""
        if self.boundary < boundary:
            self._folder.lose(self.boundary, boundary)
            self._recent.begin(boundary)
            self._move_to(boundary)

    def miss(self, upto: int) -> None:
        """As `reaches`, and report the loss. Blocking."""
        if self.boundary < upto:
            self.reaches(upto)
            self.damage.found.notify(lost_in_words(self.files[-1]))

    def append(self, upto: int, table: pa.Table | None) -> None:
        """Commit the epoch (boundary, upto] with these rows. Blocking.

        Raises:
            StorageError: the disk does not take it; nothing was changed: it may be tried again.
            InternalError: the rows do not belong there.
        """
        self._install(upto, table, self._stage(upto, table))

    @failpoint(Failpoint.LOG_COMMIT)
    async def commit(self, upto: int, table: pa.Table | None) -> float:
        """`append`, with the file written in a worker thread; returns the CPU seconds it took."""
        async with self._appending:
            if table is None or not table.num_rows:
                return metered(self.append, upto, table)[1]
            stage = partial(metered, self._stage, upto, table)
            writer, stage_s = await trio.to_thread.run_sync(stage)
            return stage_s + metered(self._install, upto, table, writer)[1]

    async def wait_beyond(self, boundary: int) -> None:
        """Return once the log's boundary is later. Raises: ClosedError: the log was closed."""
        await self._reached.beyond(boundary)

    def link_into(self, folder: Path, after: int = BEGINNING) -> int:
        """See `EpochFolder.link_into`."""
        return self._folder.link_into(folder, after)

    def forget(self, after: int) -> None:
        """Drop all rows, so that the log is like a new one. Blocking. Args: after: the boundary
        from which it may have to continue. Even after a crash midway, it must neither begin later
        nor end earlier. Raises: BusyError: a file is being read. StorageError: the disk does not
        allow it; some files may be gone.
        """
        if any(file.pins for file in self.files):
            raise BusyError(f"the log in {self.folder} is being read: try again")
        try:
            while self.files and self.files[0].upto <= after:
                self._folder.drop_oldest()
            while self.files:
                self._folder.drop_newest()
        finally:
            self._recent.begin(self.files.boundary)
            self._move_to(self.files.boundary)

    def close(self) -> None:
        """Wake all waiters with a ClosedError; the files stay."""
        self._recent.clear()
        self._reached.close()

    def _stage(self, upto: int, table: pa.Table | None) -> EpochWriter | None:
        """Write the epoch under a temporary name; None: the epoch is empty, and needs no file."""
        if upto <= self.boundary:
            raise InternalError(f"epoch up to {upto}, but the log is at {self.boundary}")
        rows = table if table is not None else self._schema.empty_table()
        if rows.num_rows:
            check_rows(rows, self._schema, self.boundary, upto)
        elif self.files and not self.files[-1].lost:
            return None
        if self.files.bytes + rows.nbytes > self._disk_bytes:
            raise StorageFullError(
                f"the log in {self.folder} has {self.files.bytes} bytes, at most "
                f"{self._disk_bytes} are allowed: let its consumers catch up, or declare less "
                "history"
            )
        writer = EpochWriter(self.folder, self._schema, compress=False, durable=self._durable)
        try:
            writer.write(rows)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        return writer

    def _install(self, upto: int, table: pa.Table | None, writer: EpochWriter | None) -> None:
        """Commit the epoch, and show it to readers."""
        if writer is None:
            self._folder.extend(upto)
        else:
            self._folder.commit(writer, self.boundary, upto, table)
        rows = tidy(table) if table is not None else self._schema.empty_table()
        self._recent.add(Epoch(self.boundary, upto, rows))
        self.appended_rows += rows.num_rows
        self._move_to(upto)

    def _move_to(self, boundary: int) -> None:
        self.retention.stir()
        self._reached.move(boundary)

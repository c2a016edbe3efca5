"""A stream's log: its epochs as files, the recent ones in memory as well.

What a crash leaves, step by step:

* an epoch: written to `.tmp-*`, renamed. Before the rename it never was; after it, it is committed.
* an empty epoch: the newest file gets a second name (hard link) with the later boundary, then loses
  the old one. Between the two, both names are there: the shorter interval is dropped.
* compaction: the merged file is written, renamed, and only then its parts are deleted. In between
  they lie within its interval, and are dropped.
* retention: deletes from the oldest on. A file that a reader still pins goes later, so a crash may
  leave a gap: what lies before a gap is dropped.

So a restart reads the directory and nothing else. Without `durable` this holds for the death of the
process, not for a loss of power.

State changes in one thread, the trio thread: files are written and read in worker threads, and what
commits (a rename) and what readers see change together, without an `await` between. The synchronous
methods do the same in the calling thread; use them where no task waits on this log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from engine.definitions import DEFAULT_HISTORY_US
from engine.load import metered
from engine.schema import BEGINNING
from engine.streams import compaction
from engine.streams.epochs import (
    EpochFile,
    EpochWriter,
    check_rows,
    count_rows,
    path_of,
    pinned,
    reach_of,
    read_from,
    scan,
    tail_of,
)
from engine.streams.ordering import tidy
from engine.streams.recent import RECENT_BYTES, Epoch, Recent, SharedMemory
from engine.streams.retention import Retention
from engine.streams.storage import storing, sync_folder
from overlay.errors import ClosedError, InternalError, NotRetainedError, StorageFullError

READ_ROWS: Final = 2**17
"""Rows given to a reader at once where several small epochs, or a large file, are read."""

DISK_BYTES: Final = 256 * 2**30
"""A log's files at most; past it appending is refused until retention lets something go."""


class StreamLog:
    """
    Attributes:
        boundary: every row with stime <= it is in the log; microseconds.
        appended_rows: since it was opened.
        moved_at: when the boundary last moved, on the monotonic clock, seconds.
        retention: who needs what.
        shown_from: tells the boundary before which nothing is shown, though it may be kept.
        lost: what a loss of power took, for people.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        files: list[EpochFile],
        recent: Recent,
        retention: Retention,
        *,
        disk_bytes: int,
        durable: bool,
    ) -> None:
        self._folder = folder
        self._schema = schema
        self._files = files
        self._recent = recent
        self._disk_bytes = disk_bytes
        self._durable = durable
        self._appending = trio.Lock()
        self._compacting = False
        self._moved = trio.Event()
        self._closed = False
        self.retention = retention
        self.lost: tuple[str, ...] = ()
        self.shown_from: Callable[[], int] = lambda: BEGINNING
        self.boundary = files[-1].upto if files else BEGINNING
        self.appended_rows = 0
        self.moved_at = time.monotonic()

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
        """The log in `folder`, which is made if need be. Blocking.

        Raises:
            InternalError: its files are damaged.
        """
        assert schema.names[0] == "stime", "the log of a stream begins with stime"
        files, lost = scan(folder, durable=durable)
        boundary = files[-1].upto if files else BEGINNING
        parts = (
            Recent(schema, boundary, recent_bytes, shared or SharedMemory()),
            Retention(history_us),
        )
        log = cls(folder, schema, files, *parts, disk_bytes=disk_bytes, durable=durable)
        log.lost = tuple(lost)
        return log

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def start(self) -> int:
        """Readable from here: rows with stime <= start are gone, or never were."""
        return self._files[0].after if self._files else self.boundary

    @property
    def oldest(self) -> int:
        """What who asks for the beginning is given begins here. Blocking and cheap, as `tail`."""
        return max(self.start, self.shown_from())

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self._files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self._files)

    @property
    def first_stime(self) -> int | None:
        """The least stime in the log; None without rows."""
        return next((file.low for file in self._files if file.low is not None), None)

    @property
    def last_stime(self) -> int | None:
        """The greatest stime in the log; None without rows."""
        return next((file.high for file in reversed(self._files) if file.high is not None), None)

    def reach(self, after: int, limit_rows: int) -> int:
        """The latest boundary up to which `after` is followed by no more than about that many rows.

        At least one epoch file is included, however many rows it has.
        """
        return reach_of(self._files, after, limit_rows)

    def count(self, after: int, upto: int) -> int:
        """How many rows the log has with after < stime <= upto. Blocking, and cheap: a file is read
        only where an end of the interval lies within it, and of it the stimes around that end.

        Raises:
            NotRetainedError: rows after `after` are gone already.
        """
        self._check_retained(after)
        return sum(count_rows(file, after, upto) for file in self._files)

    def tail(self, rows: int, *, whole_files: bool = False) -> int:
        """The latest boundary that at least so many rows follow, and `start` where there are fewer:
        never a part of the rows of one stime. Blocking, and cheap. whole_files: see `tail_of`."""
        found = tail_of(self._files, rows, whole_files=whole_files)
        return self.start if found is None else found

    def begin(self, boundary: int) -> None:
        """Let a new log start here: what was before is not known. Blocking.

        Raises:
            StorageFullError: no room.
        """
        assert not self._files, "the log has begun already"
        writer = EpochWriter(self._folder, self._schema, compress=False, durable=self._durable)
        writer.finish()
        self._files.append(self._commit(writer, boundary, boundary, None))
        self._recent.start = self.boundary = boundary
        self._notify()

    def append(self, upto: int, table: pa.Table | None) -> None:
        """Commits the epoch (boundary, upto] with these rows. Blocking.

        Raises:
            StorageFullError: no room; nothing was changed, and the same may be tried again.
            InternalError: the rows do not belong there.
        """
        self._install(upto, table, self._stage(upto, table))

    async def commit(self, upto: int, table: pa.Table | None) -> float:
        """`append`, with the file written in a worker thread; the CPU seconds it took."""
        async with self._appending:
            if table is None or not table.num_rows:
                return metered(self.append, upto, table)[1]
            stage = partial(metered, self._stage, upto, table)
            writer, stage_s = await trio.to_thread.run_sync(stage)
            return stage_s + metered(self._install, upto, table, writer)[1]

    @contextmanager
    def files(self, after: int, upto: int) -> Iterator[list[Path]]:
        """The files with rows in (after, upto], oldest first; they stay while the context lasts.

        A file may hold rows outside of the interval as well: select by stime.

        Raises:
            NotRetainedError: rows after `after` are gone already.
        """
        self._check_retained(after)
        with pinned([file for file in self._files if file.holds(after, upto)]) as files:
            yield [file.path for file in files]

    def read(self, after: int, limit_rows: int = READ_ROWS) -> Epoch | None:
        """The next rows after a boundary, up to a later boundary; None if there is no later one.

        About `limit_rows` rows at most, but never a part of the rows of one stime. Blocking.

        Raises:
            NotRetainedError: rows after `after` are gone already.
        """
        if (epoch := self._read_recent(after, limit_rows)) is not None or after >= self.boundary:
            return epoch
        files = self._files_after(after)
        with pinned(files):
            return read_from(files, self._schema, after, limit_rows)

    async def next(self, after: int, limit_rows: int = READ_ROWS) -> Epoch:
        """`read`, waiting for a later boundary, with files read in a worker thread."""
        await self.wait_beyond(after)
        if (epoch := self._read_recent(after, limit_rows)) is not None:
            return epoch
        files = self._files_after(after)
        with pinned(files):
            try:
                return await trio.to_thread.run_sync(
                    read_from, files, self._schema, after, limit_rows
                )
            except InternalError:
                self._check_open()  # who closed it may have removed the files as well
                raise

    async def wait_beyond(self, boundary: int) -> None:
        """Returns once the log's boundary is later. Raises: ClosedError: the log was closed."""
        await trio.lowlevel.checkpoint()
        while self.boundary <= boundary:
            self._check_open()
            await self._moved.wait()

    def hold(self, consumer: str, boundary: int, expires: float | None = None) -> None:
        """Keeps the rows with stime > boundary for a consumer; `expires`: seconds of trio's clock,
        or never."""
        self.retention.hold(consumer, boundary, expires)

    def release(self, consumer: str) -> None:
        self.retention.release(consumer)

    def needed(self, without: frozenset[str]) -> int:
        """The boundary that all its consumers have reached, some left out; the log's own where
        there are no others."""
        return min(self.boundary, self.retention.held(without))

    def retain(self, now: float) -> int:
        """Lets go of the files that nobody needs and history has passed; how many. now: seconds of
        trio's clock."""
        floor = self.retention.floor(self.boundary, self.last_stime, now)
        # The newest file stays, whatever is in it: its name is the boundary.
        count = 0
        while count < len(self._files) - 1 and self._files[count].upto <= floor:
            count += 1
        gone, self._files = self._files[:count], self._files[count:]
        for file in gone:
            self._replace(file)
        return count

    async def compact(self) -> int:
        """Merges one run of small files, if there is one worth it; how many files became one.

        Raises:
            StorageFullError: no room for the merged file; nothing was changed.
        """
        run = compaction.choose(self._files)
        if self._compacting or not run:
            return 0
        self._compacting = True
        try:
            with pinned(run):
                writer = await trio.to_thread.run_sync(self._merge, run)
                return self._install_merged(run, writer)
        finally:
            self._compacting = False

    def compact_now(self) -> int:
        """`compact` in this thread."""
        run = compaction.choose(self._files)
        return self._install_merged(run, self._merge(run)) if run else 0

    def close(self) -> None:
        """Wakes whoever waits, with a ClosedError; the files stay."""
        self._closed = True
        self._recent.clear()
        self._moved.set()

    def _stage(self, upto: int, table: pa.Table | None) -> EpochWriter | None:
        """Writes the epoch under a temporary name; None: an empty one that needs no file."""
        if upto <= self.boundary:
            raise InternalError(f"epoch up to {upto}, but the log is at {self.boundary}")
        rows = table if table is not None else self._schema.empty_table()
        if rows.num_rows:
            check_rows(rows, self._schema, self.boundary, upto)
        elif self._files:
            return None
        if self.bytes + rows.nbytes > self._disk_bytes:
            raise StorageFullError(
                f"the log in {self._folder} has {self.bytes} bytes, at most {self._disk_bytes} are "
                "allowed: let its consumers catch up, or declare less history"
            )
        writer = EpochWriter(self._folder, self._schema, compress=False, durable=self._durable)
        try:
            writer.write(rows)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise
        return writer

    def _install(self, upto: int, table: pa.Table | None, writer: EpochWriter | None) -> None:
        """What commits the epoch, and what readers see of it."""
        if writer is None:
            self._extend(upto)
        else:
            self._files.append(self._commit(writer, self.boundary, upto, table))
        rows = tidy(table) if table is not None else self._schema.empty_table()
        self._recent.add(Epoch(self.boundary, upto, rows))
        self.boundary = upto
        self.appended_rows += rows.num_rows
        self._notify()

    def _notify(self) -> None:
        self.moved_at = time.monotonic()
        self._moved.set()
        self._moved = trio.Event()

    def _commit(
        self, writer: EpochWriter, after: int, upto: int, table: pa.Table | None
    ) -> EpochFile:
        path = path_of(self._folder, after, upto)
        try:
            writer.commit(path)
        except StorageFullError:
            writer.abandon()
            raise
        if self._durable:
            sync_folder(self._folder)
        low = high = None
        if table is not None and table.num_rows:
            stime = table.column("stime")
            low, high = stime[0].as_py(), stime[-1].as_py()
        return EpochFile(path, after, upto, writer.rows, path.stat().st_size, low, high)

    def _extend(self, upto: int) -> None:
        """The newest file covers an empty epoch as well."""
        last = self._files[-1]
        path = path_of(self._folder, last.after, upto)
        with storing(path):
            os.link(last.path, path)
        if self._durable:
            sync_folder(self._folder)
        self._files[-1] = EpochFile(
            path, last.after, upto, last.rows, last.bytes, last.low, last.high
        )
        self._replace(last)

    def _merge(self, run: Sequence[EpochFile]) -> EpochWriter:
        # Synced in any case: the files that it replaces may have reached the disk long ago.
        return compaction.merge(run, self._folder, self._schema, durable=True)

    def _install_merged(self, run: Sequence[EpochFile], writer: EpochWriter) -> int:
        start = self._files.index(run[0]) if run[0] in self._files else -1
        if start < 0 or self._files[start : start + len(run)] != list(run):
            writer.abandon()  # retention was quicker
            return 0
        file = self._commit(writer, run[0].after, run[-1].upto, None)
        file.low = next((f.low for f in run if f.low is not None), None)
        file.high = next((f.high for f in reversed(run) if f.high is not None), None)
        self._files[start : start + len(run)] = [file]
        for old in run:
            self._replace(old)
        return len(run)

    def _replace(self, file: EpochFile) -> None:
        file.replaced = True
        if not file.pins:
            file.path.unlink(missing_ok=True)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the log in {self._folder.name} is closed")

    def _check_retained(self, after: int) -> None:
        if after < self.start:
            raise NotRetainedError(
                f"the stream is kept from boundary {self.start} on; {after} is older"
            )

    def _read_recent(self, after: int, limit_rows: int) -> Epoch | None:
        self._check_retained(after)
        if after < self._recent.start:
            return None
        return self._recent.read(after, limit_rows)

    def _files_after(self, after: int) -> list[EpochFile]:
        return [file for file in self._files if file.upto > after]

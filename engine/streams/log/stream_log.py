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

import os
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.definitions import DEFAULT_HISTORY_US
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.load import metered
from medusa.engine.streams.log.epochs import (
    JOB_BYTES,
    EpochDamagedError,
    EpochFile,
    EpochWriter,
    check_rows,
    count_rows,
    pinned,
    reach_of,
    tail_of,
)
from medusa.engine.streams.log.folder import EpochFolder, choose, merge
from medusa.engine.streams.log.folding import folded, worth_folding
from medusa.engine.streams.log.parts import Part, read_part
from medusa.engine.streams.log.recent import RECENT_BYTES, Epoch, Recent, SharedMemory
from medusa.engine.streams.log.retention import Hold, Retention
from medusa.engine.streams.log.scanning import lost_in_words, not_here, read_all, scan
from medusa.engine.streams.ordering import tidy
from medusa.overlay.concurrency import Watched
from medusa.overlay.errors import (
    BusyError,
    ClosedError,
    InternalError,
    NotRetainedError,
    StorageFullError,
    UnavailableError,
)
from medusa.overlay.files import storing
from medusa.overlay.killpoints import KillPoint, kill_point
from medusa.overlay.listeners import Decision, Listeners

_ENCODE_INLINE_BYTES: Final = 2**20
"""An epoch below this is encoded at once (under a millisecond); above, in a worker thread."""

DISK_BYTES: Final = 256 * 2**30
"""Bytes of a log's files at most; past it appending is refused until retention drops some."""


class StreamLog:
    """The log of one stream, in epoch files.

    Attributes:
        appended_rows: since it was opened.
        moved_at: when the boundary last moved, on the monotonic clock, seconds.
        retention: the holds of its consumers. shared: bounds recent epochs, with other logs.
        shown_from: the boundary before which nothing is shown, though it may be kept.
        table_key: of a table; what is not needed of it is folded, and not dropped.
        lost: rows that a loss of power took, for people.
        damaged: told of every file that is found damaged, for people.
        mend: fetches a lost file again, if any peer has it; returns once that was tried.
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
        self._folder = EpochFolder(folder, files, durable=durable)
        self._schema = schema
        self._recent = recent
        self._disk_bytes = disk_bytes
        self._durable = durable
        self._appending = trio.Lock()
        self._encoding = trio.Lock()
        self._compacting = False
        self._closed = False
        self.retention = retention
        self.shared = recent.shared
        self.table_key: tuple[str, ...] = ()
        self.lost: tuple[str, ...] = ()
        self.damaged: Listeners[[str]] = Listeners()
        self.mend: Decision[[EpochFile], Awaitable[None]] = Decision(_nobody_has_it)
        self.shown_from: Decision[[], int] = Decision(lambda: BEGINNING)
        self._boundary = Watched(files[-1].upto if files else BEGINNING)
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
        """Open the log in `folder`, which is made if need be. Blocking.

        Raises:
            DamagedError: two of its files overlap. StorageError: its folder cannot be read.
        """
        assert schema.names[0] == "stime", "the log of a stream begins with stime"
        files, lost = scan(folder, schema, durable=durable)
        boundary = files[-1].upto if files else BEGINNING
        parts = (
            Recent(schema, boundary, recent_bytes, shared or SharedMemory()),
            Retention(history_us),
        )
        log = cls(folder, schema, files, *parts, disk_bytes=disk_bytes, durable=durable)
        log.lost = tuple(lost)
        return log

    @property
    def boundary(self) -> int:
        """Every row with stime <= it is in the log; microseconds."""
        return self._boundary.value

    @property
    def folder(self) -> Path:
        return self._folder.path

    @property
    def _files(self) -> Sequence[EpochFile]:
        return self._folder.files

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def start(self) -> int:
        """The boundary from which on rows are here: earlier ones are gone, or never were."""
        return self._files[0].after if self._files else self.boundary

    @property
    def lost_files(self) -> tuple[EpochFile, ...]:
        """The files that are damaged or missing, the oldest first."""
        return tuple(file for file in self._files if file.lost)

    @property
    def whole_from(self) -> int:
        """The boundary after which no row is lost."""
        return max([self.start, *(file.upto for file in self._files if file.lost)])

    @property
    def oldest(self) -> int:
        """The boundary from which on all is kept and whole. Blocking and cheap, as `tail`."""
        return max(self.whole_from, self.shown_from())

    @property
    def oldest_kept(self) -> int:
        """The boundary from which on rows are kept; some may be lost. Blocking and cheap."""
        return max(self.start, self.shown_from())

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self._files)

    @property
    def bytes(self) -> int:
        return self._folder.bytes

    @property
    def first_stime(self) -> int | None:
        """The least stime in the log; None without rows."""
        return next((file.low for file in self._files if file.low is not None), None)

    @property
    def last_stime(self) -> int | None:
        """The greatest stime in the log; None without rows."""
        return next((file.high for file in reversed(self._files) if file.high is not None), None)

    def reach(self, after: int, limit_rows: int, limit_bytes: int = JOB_BYTES) -> int:
        """The latest boundary with no more than about so many rows, and Arrow bytes of them, after
        `after`. At least one epoch file is included, however much it has.
        """
        return reach_of(self._files, after, limit_rows, limit_bytes)

    def count(self, after: int, upto: int) -> int:
        """The number of rows in the log with after < stime <= upto. Blocking, and cheap: a file is
        read only if an end of the interval lies within it, and of it the stimes around that end.

        Raises:
            NotRetainedError: rows after `after` are gone already, or some before `upto` are lost.
        """
        self._check_retained(after)
        try:
            return sum(count_rows(file, after, upto) for file in self._whole(after, upto))
        except EpochDamagedError as error:
            self.find_damaged(error.path)
            return self.count(after, upto)

    def tail(self, rows: int, *, whole_files: bool = False) -> int:
        """The latest boundary with at least so many rows after it; `start` if there are fewer. The
        rows of one stime stay together. Blocking, and cheap. whole_files: see `tail_of`."""
        try:
            found = tail_of(self._files, rows, whole_files=whole_files)
        except EpochDamagedError as error:
            self.find_damaged(error.path)
            return self.tail(rows, whole_files=whole_files)
        return self.start if found is None else found

    @kill_point(KillPoint.LOG_BEGIN)
    def begin(self, boundary: int) -> None:
        """Start a new log at a boundary: earlier tuples are not known. Blocking.

        Raises:
            StorageFullError: no room.
        """
        assert not self._files, "the log has begun already"
        writer = EpochWriter(self.folder, self._schema, compress=False, durable=self._durable)
        writer.finish()
        self._folder.commit(writer, boundary, boundary, None)
        self._recent.start = boundary
        self._move_to(boundary)

    @kill_point(KillPoint.LOG_REOPEN)
    def reopen(self, boundary: int) -> None:
        """Take the end off the log of an ended stream, which goes on from that boundary, behind its
        last tuple. Blocking.

        Raises:
            UnavailableError: its last file is read at the moment.
            StorageError: the disk does not take it; nothing was changed.
        """
        assert self.boundary == END, "it has not ended"
        if self._files[-1].pins:
            raise UnavailableError(f"the end of the log in {self.folder} is being read: try again")
        self._folder.shorten(boundary)
        self._recent.begin(boundary)
        self.shared.last.forget(self)
        self._move_to(boundary)

    def reaches(self, boundary: int) -> None:
        """Note that the log had reached that boundary: what it misses of that at its end is lost.
        Blocking, before it has readers."""
        if self.boundary < boundary:
            self._folder.lose(self.boundary, boundary)
            self._recent.begin(boundary)
            self._move_to(boundary)

    def miss(self, upto: int) -> None:
        """As `reaches`; and tell people. Blocking."""
        if self.boundary < upto:
            self.reaches(upto)
            self.damaged.tell(lost_in_words(self._files[-1]))

    @property
    def has_begun(self) -> bool:
        """Whether it has an epoch, be it one without tuples that goes no further than BEGINNING."""
        return bool(self._files)

    @property
    def before_end(self) -> int:
        """The boundary that the log of an ended stream had before its end, if the files tell it;
        else its last tuple's. Up to it the stream stays the same if it goes on."""
        if not self._files:
            return BEGINNING
        last = self._files[-1]
        return last.after if last.high is None else max(last.after, last.high)

    def append(self, upto: int, table: pa.Table | None) -> None:
        """Commit the epoch (boundary, upto] with these rows. Blocking.

        Raises:
            StorageError: the disk does not take it; nothing was changed: it may be tried again.
            InternalError: the rows do not belong there.
        """
        self._install(upto, table, self._stage(upto, table))

    @kill_point(KillPoint.LOG_COMMIT)
    async def commit(self, upto: int, table: pa.Table | None) -> float:
        """`append`, with the file written in a worker thread; gives the CPU seconds it took."""
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
            NotRetainedError: rows after `after` are gone already, or some before `upto` are lost.
        """
        self._check_retained(after)
        with pinned(self._whole(after, upto)) as files:
            yield [file.path for file in files]

    def read(self, after: int, taken: int = 0, limit_rows: int | None = None) -> Part | None:
        """The part after a boundary and some rows that the reader has; None: nothing follows.
        Blocking.

        Args:
            taken: rows with stime > `after` that the reader has.

        Raises:
            NotRetainedError: rows after `after` are gone already, or the next ones are lost.
        """
        self._check_retained(after)
        if after >= self.boundary:
            return None
        epoch = self._recent.read(after, limit_rows)
        if epoch is not None:
            return epoch.part(after, taken, limit_rows)
        try:
            with pinned(self._files_after(after)) as files:
                return read_part(files, self._schema, after, taken, limit_rows)
        except EpochDamagedError as error:
            self.find_damaged(error.path)
            return self.read(after, taken, limit_rows)

    async def part(self, after: int, taken: int = 0, *, encoded: bool = True) -> Part:
        """`read`, with the work in a worker thread, of a part that `wait_beyond` says is there. A
        lost file is fetched again first, if a peer has it.

        Args:
            encoded: as one body, which is encoded once for all readers that are there about now.

        Raises:
            NotRetainedError: rows after `after` are gone already, or the next ones are lost.
            ClosedError: the log was closed.
        """
        self._check_retained(after)
        if encoded and (part := self.shared.last.get(self, after, taken)) is not None:
            return part
        epoch = self._recent.read(after)
        if epoch is not None and self._recent.holds(epoch):
            if encoded:
                await self._encode(epoch)
            return epoch.part(after, taken)
        if epoch is not None:
            part = epoch.part(after, taken)
        else:
            part = await self._read_part(after, taken)
        if encoded:
            part = await _encoded(part)
            # meanwhile it may have been closed, or an ended stream been reopened
            if not self._closed and (part.upto or after) <= self.boundary:
                self.shared.last.add(self, after, taken, part)
        return part

    async def _read_part(self, after: int, taken: int) -> Part:
        following = next((file for file in self._files if file.upto > after), None)
        if following is not None and following.lost:
            await self.mend(following)
        try:
            with pinned(self._files_after(after)) as files:
                read = partial(read_part, files, self._schema, after, taken, None)
                return await trio.to_thread.run_sync(read)
        except EpochDamagedError as error:
            self._check_open()  # closing may have removed the files as well
            self.find_damaged(error.path)
            return await self.part(after, taken, encoded=False)

    async def next(self, after: int) -> Epoch:
        """The next rows, up to a boundary, waiting for one. All rows of one stime are together.

        Raises: as `part`.
        """
        await self.wait_beyond(after)
        tables: list[pa.Table] = []
        while True:
            part = await self.part(after, sum(map(len, tables)), encoded=False)
            tables.append(part.table)
            if part.upto is not None:
                return Epoch(after, part.upto, pa.concat_tables(tables))

    async def _encode(self, epoch: Epoch) -> None:
        """Encode an epoch once, however many read it at this moment."""
        async with self._encoding:
            if epoch.is_encoded:
                return
            if epoch.bytes < _ENCODE_INLINE_BYTES:
                epoch.encode()
            else:
                await trio.to_thread.run_sync(epoch.encode)

    async def wait_beyond(self, boundary: int) -> None:
        """Returns once the log's boundary is later. Raises: ClosedError: the log was closed."""
        await trio.lowlevel.checkpoint()
        while self.boundary <= boundary:
            self._check_open()
            await self._boundary.changed()

    def link_into(self, folder: Path, after: int = BEGINNING) -> int:
        """Hard-link its files into a new folder: the log as it is at this moment; gives their rows.
        Blocking.

        Args:
            after: without the files before that boundary.

        Raises:
            StorageError: the disk does not take them.
        """
        linked = 0
        with storing(folder):
            folder.mkdir(parents=True)
            for file in self._files:
                # missing files stay missing
                if (file.upto > after or file.after >= after) and file.path.exists():
                    os.link(file.path, folder / file.path.name)
                    linked += file.rows
        return linked

    def hold(
        self, consumer: Hold, boundary: int, expires: float | None = None, holder: str = ""
    ) -> None:
        """Keep the rows with stime > boundary for a consumer. expires: seconds of trio's clock;
        None: never. holder: its participant, if it is another one."""
        self.retention.hold(consumer, boundary, expires, holder)

    def release(self, consumer: Hold) -> None:
        self.retention.release(consumer)

    def needed(self, without: frozenset[Hold]) -> int:
        """The boundary that all consumers but these have reached; the log's, if there is none."""
        return min(self.boundary, self.retention.held(without))

    def held_by_others(self, now: float) -> Iterator[tuple[Hold, str, int, float]]:
        """(consumer, holder, bytes, since) of other participants' consumers that keep files which
        no consumer of ours needs. since: when that began; now: seconds of trio's clock."""
        retention = self.retention
        if not retention.is_held_by_others:
            return
        floor = retention.floor(self.boundary, self.last_stime, now, foreign=False)
        for consumer, holder, boundary, since in retention.lagging(floor, now):
            state = sum(f.bytes for f in self._files[:-1] if boundary < f.upto <= floor)
            if state:
                yield consumer, holder, state, since

    def retain(self, now: float) -> int:
        """Drop the files that no consumer needs and that history has passed, from the oldest on, up
        to one that a reader pins; gives their number. now: seconds of trio's clock.

        Raises:
            StorageError: the disk does not let them go.
        """
        if now < self.retention.rests_until:
            return 0
        if self.table_key:
            self.retention.rest()
            return 0
        floor = self.retention.floor(self.boundary, self.last_stime, now)
        count = 0
        # The newest file stays, whatever is in it: its name is the boundary.
        while len(self._files) > 1 and self._files[0].upto <= floor:
            if self._files[0].pins:
                return count
            self._folder.drop_oldest()
            count += 1
        self.retention.rest()
        return count

    def forget(self, after: int) -> None:
        """Drop all rows, so that the log is as new. Blocking.

        Args:
            after: the boundary that it may have to go on from. So it must not begin later, nor end
                earlier, if a crash comes between.

        Raises:
            BusyError: a file is being read.
            StorageError: the disk does not let them go; some may be gone.
        """
        if any(file.pins for file in self._files):
            raise BusyError(f"the log in {self.folder} is being read: try again")
        try:
            while self._files and self._files[0].upto <= after:
                self._folder.drop_oldest()
            while self._files:
                self._folder.drop_newest()
        finally:
            boundary = self._files[-1].upto if self._files else BEGINNING
            self._recent.begin(boundary)
            self.shared.last.forget(self)
            self._move_to(boundary)

    async def compact(self) -> int:
        """Merge one run of small files, if one is worth it, or fold what is not needed of a table;
        gives how many files became one.

        Raises:
            StorageError: the disk does not take the merged file; nothing was changed.
        """
        run, merge_run = self._foldable(), self._fold
        if not run:
            run, merge_run = choose(self._files), self._merge
        if self._compacting or not run:
            return 0
        self._compacting = True
        try:
            with pinned(run):
                writer = await trio.to_thread.run_sync(merge_run, run)
                self.retention.stir()
                return self._folder.replace(run, writer)
        except EpochDamagedError as error:
            self.find_damaged(error.path)
            return 0
        finally:
            self._compacting = False

    async def fetch_lost(self) -> None:
        """Fetch all lost files that any peer has, for a reader from the log's beginning."""
        for lost in self.lost_files:
            await self.mend(lost)

    def find_damaged(self, path: Path) -> None:
        """Note that a file of the log is damaged: it is lost from now on, and people are told."""
        for file in self._files:
            if file.path == path and not file.lost:
                file.lost = True
                self.damaged.tell(lost_in_words(file))

    async def verify(self, after: int, upto: int) -> None:
        """Read the files with rows in (after, upto] as a whole, to find damage.

        Raises:
            StorageError: one cannot be read for now.
        """
        for file in [file for file in self._files if file.holds(after, upto) and not file.lost]:
            try:
                with pinned([file]):
                    await trio.to_thread.run_sync(read_all, file.path, self._schema)
            except EpochDamagedError as error:
                self._check_open()
                self.find_damaged(error.path)

    def put_back(self, lost: EpochFile, found: EpochFile, writer: EpochWriter | None) -> None:
        """Put back a lost file; see `EpochFolder.put_back`."""
        self._folder.put_back(lost, found, writer)
        self.retention.stir()

    def close(self) -> None:
        """Wake all waiters with a ClosedError; the files stay."""
        self._closed = True
        self._recent.clear()
        self.shared.last.forget(self)
        self._boundary.set(self.boundary)

    def _stage(self, upto: int, table: pa.Table | None) -> EpochWriter | None:
        """Write the epoch under a temporary name; None: an empty one that needs no file."""
        if upto <= self.boundary:
            raise InternalError(f"epoch up to {upto}, but the log is at {self.boundary}")
        rows = table if table is not None else self._schema.empty_table()
        if rows.num_rows:
            check_rows(rows, self._schema, self.boundary, upto)
        elif self._files and not self._files[-1].lost:
            return None
        if self.bytes + rows.nbytes > self._disk_bytes:
            raise StorageFullError(
                f"the log in {self.folder} has {self.bytes} bytes, at most {self._disk_bytes} are "
                "allowed: let its consumers catch up, or declare less history"
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
        self.moved_at = time.monotonic()
        self.retention.stir()
        self._boundary.set(boundary)

    def _foldable(self) -> Sequence[EpochFile]:
        if not self.table_key:
            return ()
        floor = self.retention.floor(self.boundary, self.last_stime, trio.current_time())
        return worth_folding(self._files, floor)

    def _fold(self, run: Sequence[EpochFile]) -> EpochWriter:
        return folded(run, self.folder, self._schema, self.table_key, durable=True)

    def _merge(self, run: Sequence[EpochFile]) -> EpochWriter:
        # Synced in any case: the files that it replaces may have reached the disk long ago.
        return merge(run, self.folder, self._schema, durable=True)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the log in {self.folder.name} is closed")

    def _check_retained(self, after: int) -> None:
        if after < self.start:
            raise NotRetainedError(
                f"the stream is kept from boundary {self.start} on; {after} is older"
            )

    def _files_after(self, after: int) -> list[EpochFile]:
        """The files after a boundary, up to the next lost one.

        Raises:
            NotRetainedError: the first of them is lost.
        """
        following = [file for file in self._files if file.upto > after]
        if following and following[0].lost:
            raise not_here(following[0])
        return list(takewhile(lambda file: not file.lost, following))

    def _whole(self, after: int, upto: int) -> list[EpochFile]:
        """The files with rows in (after, upto]. Raises: NotRetainedError: one of them is lost."""
        files = [file for file in self._files if file.holds(after, upto)]
        for file in files:
            if file.lost:
                raise not_here(file)
        return files


async def _encoded(part: Part) -> Part:
    if part.table.nbytes < _ENCODE_INLINE_BYTES:
        return part.encoded()
    return await trio.to_thread.run_sync(part.encoded)


async def _nobody_has_it(_: EpochFile) -> None:
    await trio.lowlevel.checkpoint()

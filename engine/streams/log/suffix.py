"""The tentative suffix of a stream: results from the inputs that were present.

A stream is a stable prefix, its log, and behind that a suffix that may change. The suffix exists
only while it reaches further than the log: the log replaces it without a message. It does not
outlive this process, since all of its tuples come again in the log.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.log.epochs import reading, write_rows
from medusa.engine.streams.log.parts import Part
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.ordering import between
from medusa.overlay.concurrency import Watched
from medusa.overlay.errors import ClosedError, NotRetainedError
from medusa.overlay.files import storing

SUFFIX_BYTES: Final = 2**30
"""Bytes of one stream's suffix on disk. Older tuples are dropped: present readers have received
them, and the stable tuples will replace them; only a later reader misses them."""

RECENT_BYTES: Final = 8 * 2**20
"""Bytes of one suffix in memory: its readers follow closely."""


class State(StrEnum):
    """The state of a stream at a producer (Balazinska et al., Fault-Tolerance in the Borealis
    Distributed Stream Processing System, TODS 2008, section 4)."""

    STABLE = "stable"
    """All of its tuples are final."""
    UP_FAILURE = "up_failure"
    """An input is missing: new tuples may change."""
    STABILIZATION = "stabilization"
    """The producer corrects earlier tuples."""


class _Run:
    """One tentative suffix, until the log has all its tuples. Its files stay while they are
    read."""

    def __init__(self, log: StreamLog) -> None:
        self.log = log
        self.readers = 0
        self.over = False

    def end(self) -> None:
        self.over = True
        self.log.close()
        self.sweep()

    def sweep(self) -> None:
        if self.over and not self.readers:
            shutil.rmtree(self.log.folder, ignore_errors=True)


class Suffix:
    """The tentative rows behind a stable log.

    Args:
        stable: the stream's log.
        limit_bytes: the most bytes on disk. Attributes:
        began_at: the log's boundary when the suffix began, microseconds.
        runs: the number of suffixes so far; each has different tuples.
    """

    def __init__(self, stable: StreamLog, limit_bytes: int = SUFFIX_BYTES) -> None:
        self._stable = stable
        self._limit_bytes = limit_bytes
        self._folder = stable.folder.with_name(f"{stable.folder.name}.tentative")
        self.runs = 0
        self._run: _Run | None = None
        self._stood_at = BEGINNING
        self.began_at = BEGINNING
        self._adding = trio.Lock()
        self._added = Watched(BEGINNING)
        shutil.rmtree(self._folder, ignore_errors=True)  # left by a process that has died

    @property
    def boundary(self) -> int:
        """The suffix's boundary, microseconds; BEGINNING: there is no suffix."""
        reached = BEGINNING if self._run is None else self._run.log.boundary
        return reached if reached > self._stable.boundary else BEGINNING

    @property
    def visible(self) -> int:
        """The boundary of the stream together with its suffix, if there is one."""
        return max(self.boundary, self._stable.boundary)

    @property
    def state(self) -> State:
        if self.boundary == BEGINNING:
            return State.STABLE
        corrects = self._stable.boundary > self._stood_at
        return State.STABILIZATION if corrects else State.UP_FAILURE

    @property
    def first_stime(self) -> int | None:
        """The least stime in the suffix; None without rows."""
        return (
            None
            if self.boundary == BEGINNING or self._run is None
            else self._run.log.files.first_stime
        )

    async def add(self, after: int, upto: int, table: pa.Table | None, *, failing: bool) -> None:
        """Add the tuples after `after` up to `upto`; tuples that it has already are left out. Args:
        failing: whether the log cannot grow at the moment.

        Raises:
            StorageError: the disk does not take it; nothing has changed.
        """
        async with self._adding:
            if self.boundary == BEGINNING:
                self.clear()
            if upto <= self.visible:
                return
            if self._run is None:
                begin = max(after, self._stable.boundary)
                self._run = _Run(await trio.to_thread.run_sync(self._open, begin))
                self._stood_at = self.began_at = self._stable.boundary
            log = self._run.log
            rows = None if table is None else between(table, log.boundary, upto)
            await log.commit(upto, rows)
            if failing:
                self._stood_at = self._stable.boundary
            self._trim(log)
            self._added.set(upto)

    def _open(self, after: int) -> StreamLog:
        self.runs += 1
        folder = self._folder / str(self.runs)
        log = StreamLog.open(
            folder,
            self._stable.schema,
            history_us=0,
            recent_bytes=RECENT_BYTES,
            shared=self._stable.shared,
        )
        log.begin(after)
        return log

    def _trim(self, log: StreamLog) -> None:
        """Drop the oldest tuples beyond the suffix's limit."""
        while log.files.bytes > self._limit_bytes:
            before = log.files.start
            log.retention.hold(Hold("limit"), log.files.reach(before, 0))
            log.upkeep.retain(0.0)
            if log.files.start == before:
                return

    async def wait_beyond(self, boundary: int) -> None:
        """Return once the suffix reaches further than that boundary."""
        await trio.lowlevel.checkpoint()
        await self._added.until(lambda _: self.boundary > boundary)

    async def part(self, after: int, taken: int) -> Part | None:
        """The part that follows `after` and the rows that the reader has already; None: there is no
        suffix, or no further part. Dropped tuples are left out."""
        run = self._run
        if run is None or self.boundary <= after:
            return None
        with self._reading(run):
            try:
                return await run.log.reader.part(max(after, run.log.start), taken)
            except ClosedError:  # the log has the tuples now
                return None
            # files of the suffix are damaged: the log will get all tuples later
            except NotRetainedError:
                if run is self._run:
                    self.clear()
                return None

    @asynccontextmanager
    async def files(self, after: int, upto: int) -> AsyncIterator[list[Path]]:
        """The suffix's files with rows in (after, upto], without rows up to `after`: the log has
        those."""
        run = self._run
        if run is None or run.log.boundary <= after:
            yield []
            return
        with ExitStack() as stack:
            stack.enter_context(self._reading(run))
            paths = stack.enter_context(run.log.reader.pinned(max(after, run.log.start), upto))
            if run.log.start < after and paths:
                with storing(self._folder):
                    folder = Path(stack.enter_context(TemporaryDirectory()))
                paths = await trio.to_thread.run_sync(_cut, paths, after, folder)
            yield paths

    @contextmanager
    def _reading(self, run: _Run) -> Iterator[None]:
        run.readers += 1
        try:
            yield
        finally:
            run.readers -= 1
            run.sweep()

    def clear(self) -> None:
        """Drop the whole suffix."""
        if self._run is not None:
            self._run.end()
            self._run = None

    def tidy(self) -> bool:
        """Drop a suffix that the log has replaced. Returns whether there is none left."""
        if self.boundary == BEGINNING and not self._adding.locked():
            self.clear()
        return self._run is None


def _cut(paths: list[Path], after: int, folder: Path) -> list[Path]:
    """The files; a file with rows up to `after` is replaced by a copy without these."""
    found: list[Path] = []
    for number, path in enumerate(paths):
        with reading(path) as parquet:
            if parquet.metadata.row_group(0).column(0).statistics.min > after:
                found.append(path)
                continue
            rows = between(parquet.read(use_threads=False), after, END)
        found.append(folder / f"{number}.parquet")
        with storing(found[-1]):
            write_rows(rows, found[-1])
    return found

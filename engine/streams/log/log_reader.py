"""Reads a log: parts for readers that follow it, files for jobs, and counts of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import trio

from medusa.engine.streams.log.damage import Damage
from medusa.engine.streams.log.epoch_files import EpochFiles
from medusa.engine.streams.log.epochs import EpochDamagedError, count_rows, pinned
from medusa.engine.streams.log.parts import Part, read_part
from medusa.engine.streams.log.reached import Reached
from medusa.engine.streams.log.recent import Epoch, Recent
from medusa.overlay.errors import NotRetainedError

_ENCODE_INLINE_BYTES: Final = 2**20
"""Bytes below which an epoch is encoded at once (under a millisecond); larger ones are encoded in a
worker thread."""


class LogReader:
    """Reads one log: recent epochs from memory, older ones from their files.

    A part is encoded once for all readers that need it at about the same time.
    """

    def __init__(
        self,
        files: EpochFiles,
        schema: pa.Schema,
        recent: Recent,
        reached: Reached,
        damage: Damage,
    ) -> None:
        self._files = files
        self._schema = schema
        self._recent = recent
        self._reached = reached
        self._damage = damage
        self._encoding = trio.Lock()

    @contextmanager
    def pinned(self, after: int, upto: int) -> Iterator[list[Path]]:
        """The files with rows in (after, upto], oldest first; they stay during the block. A file
        may have rows outside of the interval as well: select by stime.

        Raises:
            NotRetainedError: rows after `after` are gone already, or some before `upto` are lost.
        """
        self._check_retained(after)
        with pinned(self._files.within(after, upto)) as files:
            yield [file.path for file in files]

    def count(self, after: int, upto: int) -> int:
        """The number of rows in the log with after < stime <= upto. Blocking, and cheap: a file is
        read only if an end of the interval lies within it, and then only the stimes around that
        end.

        Raises:
            NotRetainedError: rows after `after` are gone already, or some before `upto` are lost.
        """
        self._check_retained(after)
        try:
            return sum(count_rows(file, after, upto) for file in self._files.within(after, upto))
        except EpochDamagedError as error:
            self._damage.find(error.path)
            return self.count(after, upto)

    def tail(self, rows: int, *, whole_files: bool = False) -> int:
        """As `EpochFiles.tail`; if a file is found damaged, the boundary is behind it."""
        try:
            return self._files.tail(rows, whole_files=whole_files)
        except EpochDamagedError as error:
            self._damage.find(error.path)
            return self.tail(rows, whole_files=whole_files)

    def read(self, after: int, taken: int = 0, limit_rows: int | None = None) -> Part | None:
        """The part that follows a boundary and the rows that the reader has already; None: nothing
        follows. Blocking.

        Args:
            taken: rows with stime > `after` that the reader has.

        Raises:
            NotRetainedError: rows after `after` are gone already, or the next ones are lost.
        """
        self._check_retained(after)
        if after >= self._reached.boundary:
            return None
        epoch = self._recent.read(after, limit_rows)
        if epoch is not None:
            return epoch.part(after, taken, limit_rows)
        try:
            with pinned(self._files.following(after)) as files:
                return read_part(files, self._schema, after, taken, limit_rows)
        except EpochDamagedError as error:
            self._damage.find(error.path)
            return self.read(after, taken, limit_rows)

    async def part(self, after: int, taken: int = 0, *, encoded: bool = True) -> Part:
        """`read` in a worker thread. `wait_beyond` must have returned, so that the part exists. A
        lost file is fetched again first, if a peer has it.

        Args:
            encoded: whether to return one body, which is encoded once for all readers that need it
                at about the same time.

        Raises:
            NotRetainedError: rows after `after` are gone already, or the next ones are lost.
            ClosedError: the log was closed.
        """
        self._check_retained(after)
        if encoded and (part := self._recent.last_part(after, taken)) is not None:
            return part
        epoch = self._recent.read(after)
        if epoch is not None and self._recent.holds(epoch):
            if encoded:
                await self._encode(epoch)
            return epoch.part(after, taken)
        part = await self._read_part(after, taken) if epoch is None else epoch.part(after, taken)
        if encoded:
            part = await _encoded(part)
            # meanwhile the log may have been closed, or an ended stream been reopened
            if not self._reached.is_closed and (part.upto or after) <= self._reached.boundary:
                self._recent.keep_part(after, taken, part)
        return part

    async def _read_part(self, after: int, taken: int) -> Part:
        await self._damage.fetch(after)
        try:
            with pinned(self._files.following(after)) as files:
                read = partial(read_part, files, self._schema, after, taken, None)
                return await trio.to_thread.run_sync(read)
        except EpochDamagedError as error:
            self._reached.check_open()  # closing may have removed the files, too
            self._damage.find(error.path)
            return await self.part(after, taken, encoded=False)

    async def next(self, after: int) -> Epoch:
        """The next rows, up to a boundary, waiting for one. All rows of one stime are together.

        Raises: as `part`.
        """
        await self._reached.beyond(after)
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

    def _check_retained(self, after: int) -> None:
        start = self._files.start
        if after < start:
            raise NotRetainedError(f"the stream is kept from boundary {start} on; {after} is older")


async def _encoded(part: Part) -> Part:
    if part.table.nbytes < _ENCODE_INLINE_BYTES:
        return part.encoded()
    return await trio.to_thread.run_sync(part.encoded)

"""The epoch files of one log: the steps by which its folder changes, and the state after a crash in
each.

* an epoch: written to `.tmp-*`, then renamed: the rename commits it.
* an empty epoch: the newest file gets a second name (hard link) with the later boundary, then loses
  the old one. Between the two, both names are there: the shorter interval is dropped.
* compaction: the merged file is written, renamed, and only then its parts are deleted. In between
  they lie within its interval, and are dropped.
* a copy that is not needed: deletes from the newest file on, behind the rows that retention drops.
  So after a crash the remaining files begin early enough.
* retention: deletes from the oldest file on, and stops at a file that a reader pins. So a crash
  leaves no gap.

Without `durable` this holds for the death of the process, not for a loss of power.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa

from medusa.engine.objects.schema import BEGINNING, END, STIME
from medusa.engine.streams.log.epoch_files import EpochFiles
from medusa.engine.streams.log.epochs import (
    GROUP_BYTES,
    JOB_BYTES,
    EpochFile,
    EpochWriter,
    discard,
    lost_file,
    path_of,
    read_groups,
)
from medusa.engine.streams.ordering import tidy
from medusa.engine.streams.storage import sync_folder
from medusa.overlay.errors import InternalError, StorageError
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.files import storing


class EpochFolder:
    """The epoch files of one log.

    Attributes:
        path: the path of the folder. files: the present files.
    """

    def __init__(self, path: Path, files: list[EpochFile], *, durable: bool) -> None:
        self.path = path
        self.files = EpochFiles(files)
        self._durable = durable
        self._strays: list[Path] = []

    def commit(self, writer: EpochWriter, after: int, upto: int, table: pa.Table | None) -> None:
        """Commit the next epoch, which the writer has written. table: its rows.

        Raises:
            StorageError: the disk does not take it; nothing was committed.
        """
        file = self._named(writer, after, upto)
        if table is not None and table.num_rows:
            stime = table.column(STIME)
            file.low, file.high = stime[0].as_py(), stime[-1].as_py()
        self.files.put(len(self.files), len(self.files), file)

    def _named(self, writer: EpochWriter, after: int, upto: int) -> EpochFile:
        path = path_of(self.path, after, upto)
        try:
            size = writer.bytes
            self._sweep_strays()
            with self._naming(path):
                writer.commit(path)
        except BaseException:
            writer.abandon()
            raise
        return EpochFile(path, after, upto, writer.rows, size, writer.content, None, None)

    def extend(self, upto: int) -> None:
        """Extend the newest file by an empty epoch.

        Raises:
            StorageError: the disk does not take it; nothing was committed.
        """
        last = self.files[-1]
        path = path_of(self.path, last.after, upto)
        self._sweep_strays()
        with self._naming(path), storing(path):
            os.link(last.path, path)
        extended = EpochFile(
            path, last.after, upto, last.rows, last.bytes, last.content, last.low, last.high
        )
        self.files.put(len(self.files) - 1, len(self.files), extended)
        _replace(last)

    def shorten(self, upto: int) -> None:
        """Shorten the newest file, which has no reader, by an empty epoch. It takes one rename,
        because after a crash between two steps a restart would find two names, and take the longer
        interval.

        Raises:
            StorageError: the disk does not take it; nothing was changed.
        """
        last = self.files[-1]
        path = path_of(self.path, last.after, upto)
        with storing(path):
            if not last.lost or last.path.exists():
                last.path.rename(path)
            try:
                if self._durable:
                    sync_folder(self.path)
            except BaseException:
                path.rename(last.path)
                raise
        self.files.put(len(self.files) - 1, len(self.files), replace(last, path=path, upto=upto))

    def lose(self, after: int, upto: int) -> None:
        """Note that the newest files, of that interval, are missing."""
        lost = lost_file(path_of(self.path, after, upto), after, upto)
        self.files.put(len(self.files), len(self.files), lost)

    def replace(self, run: Sequence[EpochFile], writer: EpochWriter) -> int:
        """Replace these files by the written one; returns their number, 0 if some are gone.

        Raises:
            StorageError: the disk does not take it; nothing was changed.
        """
        start = self.files.index(run[0]) if run[0] in self.files else -1
        if start < 0 or self.files[start : start + len(run)] != list(run):
            writer.abandon()  # retention has dropped a file meanwhile
            return 0
        file = self._named(writer, run[0].after, run[-1].upto)
        file.low = next((f.low for f in run if f.low is not None), None)
        file.high = next((f.high for f in reversed(run) if f.high is not None), None)
        self.files.put(start, start + len(run), file)
        for old in run:
            _replace(old)
        return len(run)

    def drop_oldest(self) -> None:
        """Delete the oldest file. Raises: StorageError: the disk refuses it."""
        oldest = self.files[0]
        self.files.put(0, 1)
        try:
            with storing(oldest.path):
                oldest.path.unlink(missing_ok=True)
        except StorageError:
            self.files.put(0, 0, oldest)  # otherwise the next drop would leave a gap
            raise

    @failpoint(Failpoint.LOG_FORGET)
    def drop_newest(self) -> None:
        """Delete the newest file. Raises: StorageError: the disk refuses it."""
        newest = self.files[-1]
        with storing(newest.path):
            newest.path.unlink(missing_ok=True)
            self.files.put(len(self.files) - 1, len(self.files))
            if self._durable:
                sync_folder(self.path)

    def put_back(self, lost: EpochFile, found: EpochFile, writer: EpochWriter | None) -> None:
        """Put back a lost file. writer: the writer of a new copy; None: the file itself has come
        back.

        Raises:
            StorageError: the disk does not take it.
        """
        if lost not in self.files:  # retention has dropped the file meanwhile
            if writer is not None:
                writer.abandon()
            return
        if writer is not None:
            try:
                writer.commit(lost.path)
            except BaseException:
                writer.abandon()
                raise
        at = self.files.index(lost)
        self.files.put(at, at + 1, found)

    def link_into(self, folder: Path, after: int = BEGINNING) -> int:
        """Hard-link the files into a new folder: the present log; returns the number of rows.
        Blocking. Args: after: files before that boundary are left out.

        Raises:
            StorageError: the disk does not take them.
        """
        linked = 0
        with storing(folder):
            folder.mkdir(parents=True)
            for file in self.files:
                # missing files stay missing in the copy
                if (file.upto > after or file.after >= after) and file.path.exists():
                    os.link(file.path, folder / file.path.name)
                    linked += file.rows
        return linked

    @contextmanager
    def _naming(self, path: Path) -> Iterator[None]:
        """Name a file in the block, so that the name survives a loss of power. If the block fails,
        remove the name, even if the rename succeeded: the file is not committed."""
        try:
            yield
            if self._durable:
                with storing(path):
                    sync_folder(self.path)
        except BaseException:
            self._strays.append(path)
            with suppress(StorageError):
                self._sweep_strays()
            raise

    def _sweep_strays(self) -> None:
        while self._strays:
            with storing(self._strays[0]):
                self._strays[0].unlink(missing_ok=True)
            del self._strays[0]


def _replace(file: EpochFile) -> None:
    file.replaced = True
    if not file.pins:
        discard(file.path)


RUN: Final = 16
"""The fewest files that are merged at once: each row is rewritten once per factor of 16, about
three times in all."""
TIERS: Final = (64 * 2**10, 2**20, 16 * 2**20)
"""Limits of file sizes, bytes. Files below a tier are merged with each other before larger files
are rewritten."""
MERGED_BYTES: Final = 64 * 2**20
"""Most bytes of a merged file, about: so retention can still drop parts of a day, and a reader of a
few rows opens no huge file. A merged file also has no more rows than one job takes."""


def choose(files: Sequence[EpochFile]) -> Sequence[EpochFile]:
    """Neighbouring files that are worth merging, or none. The newest file is never among them,
    because empty epochs extend it."""
    if len(files) <= RUN:
        return ()
    for tier in TIERS:
        run: list[EpochFile] = []
        size = content = 0
        for file in files[:-1]:
            full = size + file.bytes > MERGED_BYTES or content + file.content > JOB_BYTES
            if file.lost or file.bytes >= tier or full:
                if len(run) >= RUN:
                    break
                run, size, content = [], 0, 0
            if file.bytes < tier and not file.lost:
                run.append(file)
                size += file.bytes
                content += file.content
        if len(run) >= RUN:
            return run
    return ()


def merge(
    files: Sequence[EpochFile], folder: Path, schema: pa.Schema, *, durable: bool
) -> EpochWriter:
    """Merge neighbouring files into one, finished but not committed. Blocking.

    Holds one row group at a time.

    Raises:
        StorageError: the disk does not take it; nothing is left behind.
        EpochDamagedError: a file is damaged.
    """
    assert all(one.upto == two.after for one, two in pairwise(files)), "not neighbours"
    writer = EpochWriter(folder, schema, compress=True, durable=durable)
    try:
        waiting: list[pa.Table] = []
        size = 0
        for file in files:
            for rows in read_groups(file.path, schema, BEGINNING, END):
                waiting.append(rows)
                size += rows.nbytes
                if size >= GROUP_BYTES:
                    writer.write(tidy(pa.concat_tables(waiting)))
                    waiting, size = [], 0
        writer.write(tidy(pa.concat_tables([schema.empty_table(), *waiting])))
        if writer.rows != sum(file.rows for file in files):
            raise InternalError(f"{writer.rows} rows were read of {files[0].path.name} and others")
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return writer

"""The journal: every accepted post is written here before it is acknowledged.

A folder of segments `<number>.journal`, each a list of entries (`entries.py`). The first entry of a
segment is a snapshot of the state that the entries before it led to, so older segments may be
deleted as soon as nothing in them is needed.

The files after a crash, step by step:

* `append`: one vectored write at the end of the newest segment. A crash inside it leaves a torn
  entry, which was not acknowledged; `open` truncates it. A failed write is truncated at once.
* `begin` (a new segment): written to `.tmp-*` and renamed. Before the rename: removed by `open`.
  After it: a segment that begins with its snapshot, and follows the old one.
* `drop`: deletes from the oldest on, so the newest segments remain, without a gap.

The segments are in the inventory of the folder (`medusa.overlay.inventory`), which is beside it: so
a missing segment is noticed, be it the oldest, the newest, or the whole folder.

Any other fault that `open` finds is damage: by the disk, or by a loss of power if the journal is
not `durable` (then an entry survives the death of the process, not of the machine). A damaged
segment is written anew with its whole entries; the old file stays beside it as `<number>.damaged`
for a person, and the next `open` finds nothing wrong.

After a failed sync the file's content on disk is unknown, also after the next sync (Rebello et al.,
Can Applications Recover from fsync Failures?, USENIX ATC 2020). So the journal never writes to such
a file again: before the next entry it copies the segment to a new file.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from medusa.engine.streams.journal.entries import (
    HEAD,
    Bytes,
    head,
    is_torn,
    length_of_whole,
    split,
    whole_entries,
)
from medusa.engine.streams.storage import TEMPORARY, keep_aside, sweep, sync_folder
from medusa.overlay.errors import DamagedError, DecodeError, NotRetainedError, StorageError
from medusa.overlay.files import storing
from medusa.overlay.inventory import Inventory

_NAME: Final = re.compile(r"(\d{12})\.journal")

Position = tuple[int, int]
"""A place between two entries: a segment's number, and the number of bytes before the place in
it."""

START: Final[Position] = (0, 0)


@dataclass(frozen=True, slots=True)
class Record:
    """One entry that was found. first: whether it is its segment's snapshot."""

    segment: int
    first: bool
    meta: bytes
    body: bytes
    end: int = field(default=0, compare=False)
    """The end of the entry in its segment's file."""


class Reader(Protocol):
    """Receives the content of a journal when it is opened, in the order of its writing."""

    def restore(self, record: Record) -> None:
        """Take a whole entry."""

    def missing(self, what: str) -> None:
        """Note that acknowledged posts may be missing here. what: for people."""

    def torn(self, what: str) -> None:
        """Note that the last entry is torn: the process died while it wrote it, so it was not
        acknowledged. A damaged length, or a file that was cut, looks the same."""

    def state(self) -> bytes:
        """A snapshot of the state that was restored so far."""


class Journal:
    """A folder of segments. Append-only; blocking; one caller at a time.

    Attributes:
        segment: the newest segment's number; 0: none yet, call `begin`.
        size: its length, bytes. lost_end: whether its newest segments, or all, were missing when it
            was opened.
    """

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._folder = folder
        self._inventory = Inventory(folder)
        self.lost_end = False
        self._durable = durable
        self._file: BinaryIO | None = None
        self._segments: list[int] = []
        self._doubtful = False
        self._stray: Path | None = None
        self.segment = 0
        self.size = 0

    @classmethod
    def open(cls, folder: Path, reader: Reader, *, durable: bool = False) -> Journal:
        """Pass all whole entries to `reader`, the oldest first; repair torn and damaged segments.

        Raises:
            StorageError: a file cannot be read or written.
        """
        with storing(folder):
            sweep(folder)
            journal = cls(folder, durable=durable)
            names = [_NAME.fullmatch(path.name) for path in folder.iterdir()]
        journal._segments = sorted(int(name[1]) for name in names if name)
        first, last = journal._gone()
        gaps = journal._close_gaps()
        if first:
            reader.missing(journal._missing(first))
        for number in journal._segments:
            if number in gaps:
                reader.missing(gaps[number])
            journal._restore(number, reader)
        if last:
            journal.lost_end = True
            reader.missing(journal._missing(last))
        journal._enrol()
        return journal

    @property
    def segments(self) -> tuple[int, ...]:
        return tuple(self._segments)

    @property
    def position(self) -> Position:
        """The end of the journal."""
        return self.segment, self.size

    def length(self, segment: int) -> int:
        """Bytes of an existing segment."""
        if segment == self.segment:
            return self.size
        with storing(self._folder):
            return self._path(segment).stat().st_size

    def read(self, at: Position, limit: int) -> tuple[Position, bytes]:
        """Read whole entries of one segment from a place on. Returns their place, and about `limit`
        bytes of them, or one entry if it is longer. At the end of a segment it reads from the next
        one.

        Raises:
            NotRetainedError: the segment was dropped.
            DamagedError: the entries are damaged.
        """
        segment, offset = at
        if segment not in self._segments:
            raise NotRetainedError(f"journal segment {segment} is gone")
        if segment < self.segment and offset >= self.length(segment):
            segment, offset = segment + 1, 0
        end = self.length(segment)
        if offset >= end:
            return (segment, offset), b""
        path = self._path(segment)
        with storing(path), path.open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), max(min(limit, end - offset), HEAD.size), offset)
            whole = length_of_whole(data)
            if not whole and len(data) >= HEAD.size:
                _, meta_length, body_length = HEAD.unpack_from(data)
                whole = HEAD.size + meta_length + body_length
                data = os.pread(file.fileno(), min(whole, end - offset), offset)
        _check_whole(data[:whole], whole or HEAD.size, path, offset)
        return (segment, offset), data[:whole]

    def begin(self, snapshot: bytes, number: int = 0) -> None:
        """Start a new segment.

        Args:
            number: the number of the first one, if it does not follow another of this journal.

        Raises:
            StorageError: the disk does not take it. `segment` then says whether the old segment is
                still the newest, or the new one is, which is not durable before the next `append`.
        """
        assert not (number and self._segments), "segments follow one another"
        before, _ = head(snapshot, b"")
        self._go_on_in(number or self.segment + 1, [before, snapshot])

    def append(self, meta: bytes, body: Bytes) -> None:
        """Write one entry; when it returns the entry survives `kill -9`.

        Raises:
            StorageError: the disk does not take it; nothing was written.
            InvalidInputError: it is longer than an entry may be.
        """
        before, length = head(meta, body)
        path = self._path(self.segment)
        self._remove_stray()
        # the file is not listed yet if there was no room when the segment began
        self._inventory.add(path.name)
        if self._doubtful:
            self._copy()
        file = self._file
        assert file is not None, "begin a segment first"
        try:
            with storing(path):
                buffers = [memoryview(before), memoryview(meta), memoryview(body)]
                _write_all(file.fileno(), buffers, self.size)
                if self._durable:
                    self._sync(file)
        except BaseException:
            self._take_back(file, path)
            raise
        self.size += length

    def drop(self, before: int) -> None:
        """Delete the segments with a number below `before`; never the newest."""
        while len(self._segments) > 1 and self._segments[0] < before:
            self._inventory.remove(self._path(self._segments[0]).name)
            with storing(self._folder):
                self._path(self._segments[0]).unlink(missing_ok=True)
            del self._segments[0]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.journal"

    def _sync(self, file: BinaryIO) -> None:
        try:
            os.fdatasync(file.fileno())
        except OSError:
            self._doubtful = True
            raise

    def _take_back(self, file: BinaryIO, path: Path) -> None:
        """Truncate an incomplete entry, so that it is not followed by the next one."""
        doubtful, self._doubtful = self._doubtful, True
        with storing(path):
            os.ftruncate(file.fileno(), self.size)
        self._doubtful = doubtful

    def _remove_stray(self) -> None:
        """Remove the file of a segment that was not begun; otherwise a restart would continue from
        it."""
        if self._stray is not None:
            with storing(self._stray):
                self._stray.unlink(missing_ok=True)
            self._stray = None

    def _copy(self) -> None:
        """Copy the newest segment to a new file."""
        assert self._file is not None, "it has one"
        path = self._path(self.segment)
        with storing(path):
            data = os.pread(self._file.fileno(), self.size, 0)
        _check_whole(data, self.size, path, 0)
        self._go_on_in(self.segment, [data])

    def _go_on_in(self, number: int, parts: Sequence[Bytes]) -> None:
        """From now on write to that segment, in a new file that begins with these parts."""
        try:
            file = self._write(number, parts)
        except BaseException:
            if number != self.segment:  # the file may exist nevertheless
                self._stray = self._path(number)
                with suppress(StorageError):
                    self._remove_stray()
            raise
        self._stray = None
        # The new file is on disk now, so all later writes must go to it, whatever happens.
        self.close()
        self._file = file
        if number != self.segment:
            self._segments.append(number)
        self.segment, self.size = number, sum(len(part) for part in parts)
        self._doubtful = self._durable
        self._inventory.add(self._path(number).name)
        if self._durable:
            with storing(self._path(number)):
                sync_folder(self._folder)
            self._doubtful = False

    def _write(self, number: int, parts: Sequence[Bytes]) -> BinaryIO:
        """Write a whole segment to a new file."""
        path, temporary = self._path(number), self._folder / f"{TEMPORARY}{number}"
        file = None
        try:
            with storing(path):
                file = temporary.open("w+b", buffering=0)
                _write_all(file.fileno(), [memoryview(part) for part in parts], 0)
                if self._durable:
                    os.fdatasync(file.fileno())
                temporary.rename(path)
        except BaseException:
            if file is not None:
                file.close()
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        return file

    # -- opening ------------------------------------------------------------------------------

    def _gone(self) -> tuple[list[int], list[int]]:
        """The missing segments: those of the inventory before the oldest existing one and behind
        the newest."""
        known = [
            int(match[1]) for name in self._inventory.names if (match := _NAME.fullmatch(name))
        ]
        oldest, newest = (self._segments or [0])[0], (self._segments or [0])[-1]
        first = sorted(number for number in known if number < oldest)
        return first, sorted(number for number in known if number > newest)

    def _missing(self, numbers: Sequence[int]) -> str:
        return (
            f"{self._folder}: journal segments {numbers[0]}..{numbers[-1]} are missing: what was "
            "acknowledged in them is lost; look at its disk, and who has removed them"
        )

    def _enrol(self) -> None:
        """Let the inventory list the existing segments, because the missing ones are reported."""
        there = [self._path(number).name for number in self._segments]
        self._inventory.remove(*self._inventory.names.difference(there))
        for name in there:
            self._inventory.add(name)

    def _close_gaps(self) -> dict[int, str]:
        """Rename the segments before a gap, so that the next `open` finds no gap. Returns texts
        about the missing segments, by the number of the segment after them."""
        missing: dict[int, str] = {}
        for place, (older, newer) in reversed(list(enumerate(pairwise(self._segments)))):
            number = self._segments[place + 1] - 1
            if newer == older + 1 and number == older:
                continue
            with storing(self._folder):
                self._path(older).rename(self._path(number))
            self._segments[place] = number
            if newer != older + 1:
                missing[number + 1] = (
                    f"{self._folder}: journal segments {older + 1}..{newer - 1} are missing: what "
                    "was acknowledged in them is lost"
                )
        return missing

    def _restore(self, number: int, reader: Reader) -> None:
        path = self._path(number)
        with storing(path):
            file: BinaryIO = path.open("r+b", buffering=0)
        try:
            with storing(path):
                replay = _Replay(number, path, file, reader, durable=self._durable)
                parts = replay.run(newest=number == self._segments[-1])
            if replay.aside is not None:
                rewritten = self._write(number, parts)
                file.close()
                file = rewritten
                if self._durable:
                    with storing(path):
                        sync_folder(self._folder)
        except BaseException:
            file.close()
            raise
        if number == self._segments[-1]:
            self._file, self.segment, self.size = file, number, replay.end
        else:
            file.close()


class _Replay:
    """Passes one segment to a reader, entry by entry. Attributes: end: the end of the last entry,
    in the present file or in the one that will be written. aside: the path of the old file, if it
    was damaged; None: it was whole.
    """

    def __init__(
        self, number: int, path: Path, file: BinaryIO, reader: Reader, *, durable: bool
    ) -> None:
        self._number = number
        self._path = path
        self._descriptor = file.fileno()
        self._reader = reader
        self._durable = durable
        self._parts: list[Bytes] = []
        self.end = 0
        self.aside: Path | None = None

    def run(self, *, newest: bool) -> list[Bytes]:
        """Replay the segment; returns its whole entries if it was damaged."""
        size = os.fstat(self._descriptor).st_size
        at = 0
        for entry in whole_entries(self._descriptor, size):
            if entry.start > at:
                self._miss(at, entry.start)
            self._give(entry.meta, entry.body)
            at = entry.end
        if newest and at and is_torn(self._descriptor, at, size):
            if at < size:
                os.ftruncate(self._descriptor, at)
                self._reader.torn(
                    f"{self._path}: its last {size - at} bytes were part of an entry and are gone: "
                    "nobody was told that it is there, unless something else has cut the file"
                )
        elif at < size or not at:
            self._miss(at, size)
        return self._parts

    def _give(self, meta: bytes, body: bytes) -> None:
        before, length = head(meta, body)
        first = not self.end
        self.end += length
        self._reader.restore(Record(self._number, first, meta, body, self.end))
        if self.aside is not None:
            self._parts += [before, meta, body]

    def _miss(self, start: int, end: int) -> None:
        if self.aside is None:
            self.aside = keep_aside(self._path)
            self._parts.append(os.pread(self._descriptor, start, 0))
        hint = "" if self._durable else " (engine.fsync = true keeps more through that)"
        self._reader.missing(
            f"{self._path}: {end - start} bytes from byte {start} on are damaged, by the disk or "
            f"by a loss of power{hint}; what was acknowledged in them is lost; as the file was, it "
            f"is kept as {self.aside.name}"
        )
        if not start:
            self._give(self._reader.state(), b"")


def remove_journal(folder: Path) -> None:
    """Remove the journal in that folder, which may be gone already. Blocking."""
    Inventory(folder).path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _check_whole(data: Bytes, length: int, path: Path, offset: int) -> None:
    """Raise DamagedError unless the data is that many bytes of whole entries."""
    try:
        for _ in split(data):
            pass
    except DecodeError as error:
        raise DamagedError(f"{path} is damaged after byte {offset}: {error}") from None
    if len(data) != length:
        raise DamagedError(f"{path} is damaged: it ends at byte {offset + len(data)}")


def _write_all(descriptor: int, buffers: list[memoryview], offset: int) -> None:
    """Write the buffers; after a short write, write the rest, so that the kernel reports the
    reason."""
    written = os.pwritev(descriptor, buffers, offset)
    total = sum(len(buffer) for buffer in buffers)
    while written < total:
        rest: list[memoryview] = []
        skip = written
        for buffer in buffers:
            rest.append(buffer[min(skip, len(buffer)) :])
            skip = max(0, skip - len(buffer))
        written += os.pwritev(descriptor, rest, offset + written)

"""The journal: what was accepted, written before it is acknowledged.

A folder of segments `<number>.journal`, each a list of entries:

    crc32 u32 | length of meta u32 | length of body u32 | meta | body        (little endian)

The checksum covers everything after it. The first entry of a segment is a snapshot of the state
that the entries before it led to, so older segments may be deleted as soon as nothing in them is
needed.

What a crash leaves, step by step:

* `append`: one vectored write at the end of the newest segment. A crash inside it leaves a torn
  entry, which was not acknowledged; `open` truncates it. A write that failed (full disk) is
  truncated at once.
* `begin` (a new segment): written to `.tmp-*` and renamed. Before the rename: removed by `open`.
  After it: a segment that begins with its snapshot, and follows the old one.
* `drop`: deletes from the oldest on, so what remains is always the newest segments without a gap.

Without `durable`, an entry survives the death of the process, not that of the machine: the newest
segment may then begin with a torn snapshot, too, which is put aside; and one before it that was
written shortly before may be torn at its end. `lost` says so.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from engine.streams.storage import TEMPORARY, WRITTEN_BACK_S, storing, sweep, sync_folder
from overlay.errors import DecodeError, InternalError, InvalidInputError, NotRetainedError

_HEAD: Final = struct.Struct("<III")
_SUFFIX: Final = ".journal"
_TORN: Final = ".torn"

MAX_META_BYTES: Final = 8 * 2**20
"""A snapshot of 10,000 producers with names of 512 bytes, and what their posts missed, is below
7.5 MiB."""
MAX_BODY_BYTES: Final = 16 * 2**20
"""Above anything a post may carry; a longer claim is damage."""

Bytes = bytes | bytearray | memoryview

Position = tuple[int, int]
"""Between two entries: a segment's number, and how many of its bytes are before."""

START: Final[Position] = (0, 0)


@dataclass(frozen=True, slots=True)
class Record:
    """One entry as found. first: it is its segment's snapshot."""

    segment: int
    first: bool
    meta: bytes
    body: bytes
    end: int = field(default=0, compare=False)
    """Where it ends in its segment's file."""


class Journal:
    """Append-only; blocking; one caller at a time.

    Attributes:
        segment: the newest segment's number; 0: none yet, call `begin`.
        size: its length, bytes.
        lost: what a loss of power took that was acknowledged, for people; "": nothing is known.
    """

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable
        self._file: BinaryIO | None = None
        self._segments: list[int] = []
        self.segment = 0
        self.size = 0
        self.lost = ""

    @classmethod
    def open(
        cls, folder: Path, restore: Callable[[Record], None], *, durable: bool = False
    ) -> Journal:
        """Gives every whole entry to `restore`, oldest first, and truncates a torn end.

        Raises:
            InternalError: a segment before the newest is damaged, or one is missing between two.
        """
        sweep(folder)
        journal = cls(folder, durable=durable)
        journal._segments = sorted(int(path.stem) for path in folder.glob(f"*{_SUFFIX}"))
        if not durable:
            journal._put_aside_torn()
        for older, newer in zip(journal._segments, journal._segments[1:], strict=False):
            if newer != older + 1:
                raise InternalError(
                    f"{folder}: journal segments {older + 1}..{newer - 1} are missing"
                )
        for number in journal._segments:
            journal._restore(number, restore)
        return journal

    @property
    def segments(self) -> tuple[int, ...]:
        return tuple(self._segments)

    @property
    def position(self) -> Position:
        """Its end."""
        return self.segment, self.size

    def length(self, segment: int) -> int:
        """Bytes in a segment that is there."""
        if segment == self.segment:
            return self.size
        with storing(self._folder):
            return self._path(segment).stat().st_size

    def read(self, at: Position, limit: int) -> tuple[Position, bytes]:
        """Whole entries from there on, of one segment: where they stand, and about `limit` bytes of
        them, or one entry if it is longer. At the end of a segment the next one follows.

        Raises:
            NotRetainedError: the segment was dropped.
        """
        segment, offset = at
        if segment not in self._segments:
            raise NotRetainedError(f"journal segment {segment} is gone")
        if segment < self.segment and offset >= self.length(segment):
            segment, offset = segment + 1, 0
        end = self.length(segment)
        if offset >= end:
            return (segment, offset), b""
        with storing(self._folder), self._path(segment).open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), max(min(limit, end - offset), _HEAD.size), offset)
            whole = _whole(data)
            if not whole:
                _, meta_length, body_length = _HEAD.unpack_from(data)
                whole = _HEAD.size + meta_length + body_length
                data = os.pread(file.fileno(), whole, offset)
        return (segment, offset), data[:whole]

    def begin(self, snapshot: bytes, number: int = 0) -> None:
        """Starts a new segment.

        Args:
            number: of the first one, where it does not follow another of this journal.

        Raises:
            StorageFullError: there is no room; the old segment stays the newest.
        """
        assert not (number and self._segments), "segments follow one another"
        number = number or self.segment + 1
        path = self._path(number)
        temporary = self._folder / f"{TEMPORARY}{number}"
        head, length = _head(snapshot, b"")
        file = None
        try:
            with storing(path):
                file = temporary.open("w+b", buffering=0)
                _write_all(file.fileno(), [memoryview(head), memoryview(snapshot)], 0)
                if self._durable:
                    os.fdatasync(file.fileno())
                temporary.rename(path)
        except BaseException:
            if file is not None:
                file.close()
            temporary.unlink(missing_ok=True)
            raise
        # From here on the new segment is the newest on disk, so it must be the one we write to.
        self.close()
        self._file, self.segment, self.size = file, number, length
        self._segments.append(number)
        if self._durable:
            with storing(path):
                sync_folder(self._folder)

    def append(self, meta: bytes, body: Bytes) -> None:
        """Writes one entry; when it returns the entry survives `kill -9`.

        Raises:
            StorageFullError: there is no room; nothing was written.
            InvalidInputError: it is longer than an entry may be.
        """
        file = self._file
        assert file is not None, "begin a segment first"
        head, length = _head(meta, body)
        path = self._path(self.segment)
        try:
            with storing(path):
                _write_all(
                    file.fileno(), [memoryview(head), memoryview(meta), memoryview(body)], self.size
                )
                if self._durable:
                    os.fdatasync(file.fileno())
        except BaseException:
            # A part of it must not look like an entry, nor stand before the next.
            with storing(path):
                os.ftruncate(file.fileno(), self.size)
            raise
        self.size += length

    def drop(self, before: int) -> None:
        """Deletes the segments with a number below `before`; never the newest."""
        while len(self._segments) > 1 and self._segments[0] < before:
            with storing(self._folder):
                self._path(self._segments[0]).unlink(missing_ok=True)
            del self._segments[0]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}{_SUFFIX}"

    def _put_aside_torn(self) -> None:
        """The newest segment, if not even its snapshot had reached the disk."""
        if not self._segments:
            return
        path = self._path(self._segments[-1])
        with path.open("rb") as file:
            if not _is_torn(file):
                return
        with storing(path):
            path.rename(path.with_suffix(_TORN))
        del self._segments[-1]
        self.lost = (
            f"{path}: a loss of power left nothing of this newest segment; what was acknowledged "
            f"since it was begun is lost (engine.fsync = true would keep it), and it is put aside "
            f"as {path.stem}{_TORN}"
        )

    def _may_be_unsynced(self, path: Path) -> bool:
        newest = self._path(self._segments[-1]).stat().st_mtime
        return not self._durable and path.stat().st_mtime >= newest - WRITTEN_BACK_S

    def _restore(self, number: int, restore: Callable[[Record], None]) -> None:
        path = self._path(number)
        newest = number == self._segments[-1]
        file = path.open("r+b", buffering=0)
        end = 0
        try:
            for meta, body, stop in _entries(file):
                restore(Record(number, end == 0, meta, body, stop))
                end = stop
            length = os.fstat(file.fileno()).st_size
            if end == 0 or (length > end and not newest):
                if newest or not self._may_be_unsynced(path):
                    raise InternalError(f"{path} is damaged at byte {end}: restore it from a copy")
                self.lost = (
                    f"{path}: a loss of power left its first {end} bytes; what was acknowledged "
                    "after them is lost (engine.fsync = true would keep it)"
                )
            if length > end:
                os.ftruncate(file.fileno(), end)
        except BaseException:
            file.close()
            raise
        if newest:
            self._file, self.segment, self.size = file, number, end
        else:
            file.close()


def split(data: Bytes) -> Iterator[tuple[bytes, memoryview]]:
    """(meta, body) of each of some whole entries.

    Raises:
        DecodeError: they are not.
    """
    view = memoryview(data)
    while view:
        if len(view) < _HEAD.size:
            raise DecodeError("part of a journal that ends within an entry")
        crc, meta_length, body_length = _HEAD.unpack_from(view)
        end = _HEAD.size + meta_length + body_length
        if meta_length > MAX_META_BYTES or body_length > MAX_BODY_BYTES or end > len(view):
            raise DecodeError("part of a journal that ends within an entry")
        if zlib.crc32(view[4:end]) != crc:
            raise DecodeError("part of a journal whose checksum is wrong")
        yield bytes(view[_HEAD.size : _HEAD.size + meta_length]), view[end - body_length : end]
        view = view[end:]


def _whole(data: bytes) -> int:
    """Bytes of the whole entries at the beginning."""
    end = 0
    while end + _HEAD.size <= len(data):
        _, meta_length, body_length = _HEAD.unpack_from(data, end)
        after = end + _HEAD.size + meta_length + body_length
        if after > len(data):
            break
        end = after
    return end


def _head(meta: bytes, body: Bytes) -> tuple[bytes, int]:
    if len(meta) > MAX_META_BYTES or len(body) > MAX_BODY_BYTES:
        raise InvalidInputError(f"an entry of {len(meta)} + {len(body)} bytes: too long")
    lengths = struct.pack("<II", len(meta), len(body))
    crc = zlib.crc32(body, zlib.crc32(meta, zlib.crc32(lengths)))
    return struct.pack("<I", crc) + lengths, _HEAD.size + len(meta) + len(body)


def _entries(file: BinaryIO) -> Iterator[tuple[bytes, bytes, int]]:
    """(meta, body, end) of each whole entry, up to the first that is not."""
    end = 0
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        crc, meta_length, body_length = _HEAD.unpack(head)
        if meta_length > MAX_META_BYTES or body_length > MAX_BODY_BYTES:
            return
        meta = file.read(meta_length)
        body = file.read(body_length)
        if len(meta) != meta_length or len(body) != body_length:
            return
        if zlib.crc32(body, zlib.crc32(meta, zlib.crc32(head[4:]))) != crc:
            return
        end += _HEAD.size + meta_length + body_length
        yield meta, body, end


def _is_torn(file: BinaryIO) -> bool:
    """Whether a file ends within its first entry, or was never filled: other damage is no loss of
    power's."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not any(head):
        return True
    _, meta_length, body_length = _HEAD.unpack(head)
    if meta_length > MAX_META_BYTES or body_length > MAX_BODY_BYTES:
        return False
    whole: int = _HEAD.size + meta_length + body_length
    return os.fstat(file.fileno()).st_size < whole


def _write_all(descriptor: int, buffers: list[memoryview], offset: int) -> None:
    """One vectored write; goes on after a short one, so that the kernel names the reason."""
    written = os.pwritev(descriptor, buffers, offset)
    total = sum(len(buffer) for buffer in buffers)
    while written < total:
        rest: list[memoryview] = []
        skip = written
        for buffer in buffers:
            rest.append(buffer[min(skip, len(buffer)) :])
            skip = max(0, skip - len(buffer))
        written += os.pwritev(descriptor, rest, offset + written)

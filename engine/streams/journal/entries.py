"""The bytes of a journal's entries: writing them, and finding the whole ones in a damaged file.

    crc32 u32 | length of meta u32 | length of body u32 | meta | body        (little endian)

The checksum covers everything after it. `meta` is MessagePack: an array whose first element is a
text, but for the snapshot that begins a segment.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from medusa.overlay.errors import DecodeError, InvalidInputError

HEAD: Final = struct.Struct("<III")

MAX_META_BYTES: Final = 8 * 2**20
"""Bytes of the meta of an entry. A snapshot of 10,000 producers with names of 256 bytes takes under
3 MiB."""
MAX_BODY_BYTES: Final = 16 * 2**20
"""Bytes of the body of an entry, more than any post has; a greater length is damage."""

_PLAUSIBLE: Final = re.compile(
    rb"[\x90-\x9f\xdc]"  # an array of up to 15 elements, or of more
    # before that stands the end of a length of at most MAX_META_BYTES, about
    rb"(?<=[\x00-\x80]\x00"
    rb"...[\x00\x01].)"  # and a length of at most MAX_BODY_BYTES
    rb"(?:\x00[\x10-\x1f])?"  # the number of elements, if they are more: up to 31
    rb"[\xa0-\xbf\xd9]",  # the first element is a text
    re.DOTALL,
)
"""A pattern for the beginning of a meta. In random bytes it matches at one of some ten million
places. (It searches eight times as fast in this order as in the order of the bytes.)"""
_PLAUSIBLE_BYTES: Final = HEAD.size + 4

_BLOCK_BYTES: Final = 4096
"""Bytes of a block; a damaged disk fails to read blocks of about this size."""
_WINDOW_BYTES: Final = 2**20
"""Bytes searched at once for the next whole entry."""
_SEARCH: Final = 4
"""The most bytes compared in a search, as a multiple of the file's size: posts may look like many
entries."""

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry that was found: the bytes [start, end) of its file."""

    start: int
    end: int
    meta: bytes
    body: bytes


def head(meta: bytes, body: Bytes) -> tuple[bytes, int]:
    """The head of an entry, and the length of the whole entry.

    Raises:
        InvalidInputError: it is longer than an entry may be.
    """
    if len(meta) > MAX_META_BYTES or len(body) > MAX_BODY_BYTES:
        raise InvalidInputError(f"an entry of {len(meta)} + {len(body)} bytes: too long")
    lengths = struct.pack("<II", len(meta), len(body))
    crc = zlib.crc32(body, zlib.crc32(meta, zlib.crc32(lengths)))
    return struct.pack("<I", crc) + lengths, HEAD.size + len(meta) + len(body)


def split(data: Bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Split data into entries; yields (meta, body) of each. Raises: DecodeError: an entry is not
    whole."""
    view = memoryview(data)
    while view:
        end = _length(view)
        if end is None or end > len(view):
            raise DecodeError("part of a journal that ends within an entry")
        crc, meta_length, _ = HEAD.unpack_from(view)
        if zlib.crc32(view[4:end]) != crc:
            raise DecodeError("part of a journal whose checksum is wrong")
        body = HEAD.size + meta_length
        yield bytes(view[HEAD.size : body]), view[body:end]
        view = view[end:]


def length_of_whole(data: bytes) -> int:
    """Bytes of the whole entries at the beginning, by their lengths alone."""
    end = 0
    while end + HEAD.size <= len(data):
        _, meta_length, body_length = HEAD.unpack_from(data, end)
        after = end + HEAD.size + meta_length + body_length
        if after > len(data):
            break
        end = after
    return end


def is_torn(descriptor: int, at: int, size: int) -> bool:
    """Whether the process died while it wrote the entry that begins there: the file ends before
    the entry does, by the entry's own lengths."""
    length = _length(_read(descriptor, at, HEAD.size))
    return size - at < HEAD.size or (length is not None and at + length > size)


def whole_entries(descriptor: int, size: int) -> Iterator[Entry]:
    """The whole entries of a file, in order. Bytes between two of them are damaged, bytes after the
    last one are damaged or torn.

    Raises:
        OSError: the file cannot be read; a single unreadable block counts as damage.
    """
    at, search = 0, _Search(descriptor, size)
    while at < size:
        entry = _entry(descriptor, at, size) or search.next(at)
        if entry is None:
            return
        yield entry
        at = entry.end


class _Search:
    """Finds whole entries in a damaged file; its work is proportional to the file's size."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._left = _SEARCH * size

    def next(self, damaged: int) -> Entry | None:
        """The first whole entry after a damaged one."""
        length = _length(_read(self._descriptor, damaged, HEAD.size))
        if length is not None:  # mostly the body is damaged, because it is the longest part
            if damaged + length == self._size:
                return None
            entry = _entry(self._descriptor, damaged + length, self._size)
            if entry is not None:
                return entry
        for at in self._places(damaged + 1):
            entry = self._try(at)
            if entry is not None or self._left < 0:
                return entry
        return None

    def _try(self, at: int) -> Entry | None:
        length = _length(_read(self._descriptor, at, HEAD.size))
        if length is None or at + length > self._size:
            return None
        self._left -= length
        return _entry(self._descriptor, at, self._size)

    def _places(self, start: int) -> Iterator[int]:
        while start < self._size:
            data = _read(self._descriptor, start, _WINDOW_BYTES + _PLAUSIBLE_BYTES - 1)
            for match in _PLAUSIBLE.finditer(data, HEAD.size):
                yield start + match.start() - HEAD.size
            start += _WINDOW_BYTES


def _length(data: Bytes) -> int | None:
    """The length of an entry, by its head; None: these bytes begin no entry."""
    if len(data) < HEAD.size:
        return None
    _, meta_length, body_length = HEAD.unpack_from(data)
    if meta_length > MAX_META_BYTES or body_length > MAX_BODY_BYTES:
        return None
    return HEAD.size + int(meta_length) + int(body_length)


def _entry(descriptor: int, at: int, size: int) -> Entry | None:
    """The whole entry that begins there, if one does."""
    length = _length(_read(descriptor, at, HEAD.size))
    if length is None or at + length > size:
        return None
    data = _read(descriptor, at, length)
    if len(data) < length or zlib.crc32(memoryview(data)[4:]) != HEAD.unpack_from(data)[0]:
        return None
    body = HEAD.size + HEAD.unpack_from(data)[1]
    return Entry(at, at + length, data[HEAD.size : body], data[body:])


def _read(descriptor: int, at: int, length: int) -> bytes:
    """Up to `length` bytes; zeros in place of unreadable blocks."""
    try:
        return os.pread(descriptor, length, at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    parts: list[bytes] = []
    end = min(at + length, os.fstat(descriptor).st_size)
    while at < end:
        block = min(_BLOCK_BYTES - at % _BLOCK_BYTES, end - at)
        try:
            parts.append(os.pread(descriptor, block, at))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            parts.append(bytes(block))
        at += block
    return b"".join(parts)

"""Reads a posted file or pipe: inspects its beginning, decompresses it, and cuts it at line ends.

A file yields full blocks. A pipe or a terminal is live: its block has the lines that arrived within
a moment; an incomplete line waits for its end.
"""

from __future__ import annotations

import io
import os
import select
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import IO, Final

import pyarrow as pa

from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.encodings import as_utf8

BLOCK_BYTES: Final = 8 * 2**20
"""Bytes read at once, and of the longest line: no tuple is longer than a message."""

LIVE_S: Final = 0.5
"""Seconds that a line from a live source waits for others to be posted with it."""

GROWN_S: Final = 0.2
"""Seconds between checks whether a followed file has grown."""

TAIL_BYTES: Final = 256
"""Bytes before the read position that must not change while a file grows; otherwise it was
truncated, and has other rows from its beginning on."""

CAUGHT_UP_S: Final = 1.0
"""Seconds between two reports, while no rows come, that a followed file is read to its end: the
stream's boundary follows these reports."""

_PACKED: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""The first bytes of compressed files, and the compression."""

_LOOKED_AT: Final = 64
"""First bytes by which a format is recognised: `#separator` in UTF-32, and its mark."""


def _compression(beginning: bytes) -> str | None:
    return next((codec for magic, codec in _PACKED.items() if beginning.startswith(magic)), None)


class RowInput(io.RawIOBase):
    """A file or pipe, opened without a buffer, whose first bytes can be inspected.

    Args:
        until: for a growing file, a pipe: once the pipe is closed, the file no longer grows.

    Attributes:
        live: whether its bytes arrive over time.
        growing: whether it is a followed file.
        torn: whether the followed file was truncated: the bytes that were taken are all of them,
            and their last line may be incomplete.
        in_line: whether the bytes taken so far end within a line.
        on_caught_up: called, while a followed file does not grow, with a time at which all of its
            bytes were taken and ended with a whole line; seconds since the epoch.
    """

    def __init__(self, file: IO[bytes], until: int | None = None) -> None:
        self._file = file
        self._head = b""
        self._looked = False
        self._until = until
        self._ended = False
        self._at = 0
        self._tail = b""
        self.growing = until is not None
        self.live = self.growing or not file.seekable()
        self.torn = False
        self.in_line = False
        self.on_caught_up: Callable[[float], None] | None = None
        self._told = -CAUGHT_UP_S

    @cached_property
    def packed(self) -> str | None:
        """The compression; to be called before any byte is taken."""
        return _compression(self.look())

    def look(self) -> bytes:
        """The first bytes, without taking them; from a pipe, once they have arrived: a line, or the
        first bytes of a compressed file, which need not contain the end of a line."""
        while not self._looked and (data := self._read(_LOOKED_AT)):
            self._head += data
            suffices = self.live and (b"\n" in self._head or _compression(self._head) is not None)
            self._looked = suffices or len(self._head) >= _LOOKED_AT
        self._looked = True
        return self._head

    def whole(self) -> IO[bytes]:
        """The whole file from the beginning, for a reader that seeks."""
        if self.live:
            return io.BufferedReader(self)
        self._file.seek(0)
        return self._file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer is too wide
        data = self.take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def take(self, size: int) -> bytes:
        """Read the available bytes, at most `size`; waits while there are none; b"": the end."""
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._read(size)

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; returns whether bytes, or the end, arrived."""
        if self._head or not self.growing:
            return bool(self._head) or bool(select.select([self._file], [], [], seconds)[0])
        self._head = self._read_within(_LOOKED_AT, seconds)
        return bool(self._head) or self._ended

    def _read(self, size: int) -> bytes:
        at = time.time()
        data = self._next(size)
        while not data and self.growing and not self._ended:
            self._report_caught_up(at)
            at = time.time()
            data = self._read_within(size, GROWN_S)
        return data

    def _report_caught_up(self, at: float) -> None:
        if self.on_caught_up is None or self.in_line:
            return
        now = time.monotonic()
        if now - self._told >= CAUGHT_UP_S:
            self._told = now
            self.on_caught_up(at)

    def _read_within(self, size: int, seconds: float) -> bytes:
        """The bytes by which a file grows within that time."""
        until = time.monotonic() + seconds
        while not (data := self._next(size)) and not self._ended:
            left = until - time.monotonic()
            assert self._until is not None
            if select.select([self._until], [], [], max(0.0, min(left, GROWN_S)))[0]:
                self._ended = True
                return self._next(size)  # bytes written just before the end
            if left <= 0:
                break
        return data

    def _next(self, size: int) -> bytes:
        """The next bytes that are there now; none of a followed file that was truncated.

        The bytes before are compared after the read: what is read is then surely behind them.
        """
        if self.torn:
            return b""
        data = self._file.read(size)
        if self.growing:
            tail = os.pread(self._file.fileno(), len(self._tail), self._at - len(self._tail))
            if tail != self._tail:
                self.torn = self._ended = True
                return b""
            self._at += len(data)
            self._tail = (self._tail + data)[-TAIL_BYTES:]
        return data

    def unpacked(self) -> Callable[[], bytes]:
        """A function that reads the next block, decompressed if necessary, in UTF-8."""
        return as_utf8(self._blocks())

    def _blocks(self) -> Callable[[], bytes]:
        if self.packed:
            file = pa.PythonFile(io.BufferedReader(self), "r")
            stream = pa.CompressedInputStream(file, self.packed)
            return lambda: stream.read(BLOCK_BYTES)
        if self.live:
            return self._gather
        buffered = io.BufferedReader(self)
        return lambda: buffered.read(BLOCK_BYTES)

    def _gather(self) -> bytes:
        """The bytes that arrive within a moment after the first ones."""
        gathered = [data := self.take(BLOCK_BYTES)]
        until, size = time.monotonic() + LIVE_S, len(data)
        while data and size < BLOCK_BYTES and self.wait(max(0.0, until - time.monotonic())):
            gathered.append(data := self.take(BLOCK_BYTES - size))
            size += len(data)
        return b"".join(gathered)


def whole_lines(
    pieces: Iterator[bytes], end: Callable[[bytes], int], source: RowInput
) -> Iterator[bytes]:
    """Blocks of whole lines; the last line may lack its end, unless the source is torn.

    Args:
        pieces: the bytes of the source, cut anywhere.
        end: the number of bytes in whole lines; see `end_of_lines`.

    Raises:
        InvalidInputError: a line is too long.
    """
    rest = b""
    for piece in pieces:
        rest += piece
        whole = end(rest)
        if whole:
            yield rest[:whole]
            rest = rest[whole:]
        source.in_line = bool(rest)
        if len(rest) > BLOCK_BYTES:
            raise InvalidInputError(
                f"a line of more than {BLOCK_BYTES} bytes: is a quotation never closed?"
            )
    if rest and not source.torn:
        yield rest


def end_of_lines(data: bytes) -> int:
    """The end of the last whole line, as an offset."""
    return data.rfind(b"\n") + 1


def end_of_quoted_lines(data: bytes) -> int:
    """The end of the last whole line of CSV; line ends within quotation marks do not count (RFC
    4180)."""
    end, marks = len(data), data.count(b'"')
    while True:
        before = data.rfind(b"\n", 0, end) + 1
        marks -= data.count(b'"', before, end)
        end = before
        if not end or marks % 2 == 0:
            return end
        end = data.rfind(b'"', 0, end)
        marks -= 1


def end_of_first_line(data: bytes) -> int:
    """The end of the first line of CSV, as an offset; 0: it is incomplete."""
    start = marks = 0
    while end := data.find(b"\n", start) + 1:
        marks += data.count(b'"', start, end)
        if marks % 2 == 0:
            return end
        start = end
    return 0

"""The posted part of a file: its first rows, by number and content.

Each post of a file says where in the file it ends, and the stream's leader stores that with the
tuples (`medusa.engine.streams.messages.Post`). So the same command, run again after any end,
continues after the stored rows; and it notices if the file no longer begins with them.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.streams.source.acceptance import MAX_OFFSET_BYTES
from medusa.overlay.encoding import decode
from medusa.overlay.errors import InvalidInputError

_DIGEST_BYTES: Final = 16
"""Bytes of the digest of a file's rows: no two files differ by chance or mistake and have the
same."""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A position in a file.

    Attributes:
        rows: number of rows before it. digest: the digest of their content.
    """

    rows: int = 0
    digest: bytes = b""

    @property
    def offset(self) -> bytes:
        """The position as the stream's leader stores it."""
        return msgspec.msgpack.encode(self)


def producer_of(path: Path) -> str:
    """The producer of a file: named after the file and this machine, the same for all users."""
    place = f"{socket.gethostname()}\0{path.resolve()}"
    return f"file-{hashlib.sha256(os.fsencode(place)).hexdigest()[:32]}"


def decode_position(offset: bytes) -> Position:
    """
    Raises:
        DecodeError: it is no position.
    """
    return decode(offset, Position, limit=MAX_OFFSET_BYTES, what="position in a file")


class Trail:
    """The rows of a file passed so far. Their digest does not depend on the cuts into tables: each
    column has separate digests for nulls, lengths and values.

    Attributes:
        rows: the number of rows. differs: whether these rows differ from the stored rows.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.rows = 0
        self.differs = False
        self._columns = [_Column() for _ in schema]

    @property
    def position(self) -> Position:
        whole = hashlib.sha256()
        for column in self._columns:
            whole.update(column.digest())
        return Position(self.rows, whole.digest()[:_DIGEST_BYTES])

    def step(self, table: pa.Table) -> bytes:
        """Pass these rows too; returns the offset after them."""
        self.rows += table.num_rows
        for digests, column in zip(self._columns, table.columns, strict=True):
            for chunk in column.chunks:
                digests.update(chunk)
        return self.position.offset

    def rest(self, tables: Iterator[pa.Table], since: Position) -> Iterator[pa.Table]:
        """The part of a file's tables after a position, empty ones too; the trail passes the rows
        before it.

        Raises:
            InvalidInputError: the file does not begin with the rows up to the position.
        """
        for table in tables:
            passed = max(0, min(table.num_rows, since.rows - self.rows))
            if passed:
                self.step(table.slice(0, passed))
                if self.rows == since.rows:
                    self._check(since)
            if passed < table.num_rows or self.rows >= since.rows:
                yield table.slice(passed)
        if self.rows < since.rows:
            self._check(since)

    def _check(self, since: Position) -> None:
        self.differs = self.position != since
        if self.differs:
            raise InvalidInputError(
                f"its first {since.rows:,} rows are not those that were posted from it before: "
                "with --again it is posted as a new file"
            )


class _Column:
    def __init__(self) -> None:
        self._digests = tuple(hashlib.sha256() for _ in range(3))

    def digest(self) -> bytes:
        return b"".join(each.digest() for each in self._digests)

    def update(self, values: pa.Array) -> None:
        nulls, lengths, content = self._digests
        nulls.update(_bytes(values.is_null().cast(pa.uint8())))
        if pa.types.is_string(values.type):
            values = values.fill_null("")
            lengths.update(_bytes(pc.binary_length(values)))
            content.update(_text(values))
        elif pa.types.is_boolean(values.type):
            content.update(_bytes(values.fill_null(False).cast(pa.uint8())))
        elif pa.types.is_timestamp(values.type):
            content.update(_bytes(values.cast(pa.int64()).fill_null(0)))
        else:
            content.update(_bytes(values.fill_null(0)))


def _bytes(numbers: pa.Array) -> Any:  # noqa: ANN401 - a buffer, without nulls
    width = numbers.type.bit_width // 8
    buffer = memoryview(numbers.buffers()[1] or b"")
    return buffer[numbers.offset * width : (numbers.offset + len(numbers)) * width]


def _text(texts: pa.Array) -> Any:  # noqa: ANN401 - a buffer, without nulls
    if not len(texts):
        return b""
    _, offsets, content = texts.buffers()
    ends = memoryview(offsets).cast("i")
    start, stop = ends[texts.offset], ends[texts.offset + len(texts)]
    return memoryview(content or b"")[start:stop]

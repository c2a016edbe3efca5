"""Tables of a subscription -> text or Arrow on a stream of bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from overlay.errors import InvalidInputError
from tools.rows import Format

ISO_UTC: Final = "%Y-%m-%dT%H:%M:%SZ"
"""Arrow's %S has the fraction of the column's unit."""

PIECE_ROWS: Final = 8192
"""Rows that are made into text at once."""

STEERING: Final = r"[\p{C}\p{Zl}\p{Zp}]"
"""Characters of other people's texts that a terminal obeys, or that hide what stands beside them:
controls, escapes, overrides of direction, line ends. RE2's classes."""


class RowWriter(Protocol):
    """Writes tables of one schema; what was written is flushed before `write` returns."""

    def write(self, table: pa.Table) -> None: ...

    def finish(self) -> None: ...


def open_writer(file: IO[bytes], kind: Format, schema: pa.Schema) -> RowWriter:
    """A writer of that format; CSV and Arrow start with the schema, even if no row follows.

    Raises:
        InvalidInputError: a terminal shows no Arrow.
    """
    if file.isatty():
        if kind is Format.ARROW:
            raise InvalidInputError("Arrow is not for a terminal: write it to a file or a pipe")
        return _OnTerminal(_writer(file, kind, schema))
    return _writer(file, kind, schema)


def _writer(file: IO[bytes], kind: Format, schema: pa.Schema) -> RowWriter:
    match kind:
        case Format.CSV:
            return _Csv(file, schema)
        case Format.JSON:
            return _Json(file)
        case Format.ARROW | Format.PARQUET:
            assert kind is Format.ARROW, "Parquet has its index at the end: not for a stream"
            return _Arrow(file, schema)


def readable(table: pa.Table) -> pa.Table:
    """Timestamps as RFC 3339 texts; the rest as it is."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            # Without the zone: its values are UTC, and no time-zone database is needed.
            naive = table.column(index).cast(pa.timestamp("us"))
            table = table.set_column(index, field.name, pc.strftime(naive, format=ISO_UTC))
    return table


def harmless(table: pa.Table) -> pa.Table:
    """With `?` for each character of a text that would steer a terminal, as `ls` does it."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = pc.replace_substring_regex(table.column(index), STEERING, "?")
            table = table.set_column(index, field, texts)
    return table


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """An epoch may be large, and its text, or Python's objects, are many times as large."""
    return (table.slice(start, PIECE_ROWS) for start in range(0, table.num_rows, PIECE_ROWS))


class _OnTerminal:
    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer

    def write(self, table: pa.Table) -> None:
        self._writer.write(harmless(table))

    def finish(self) -> None:
        self._writer.finish()


class _Csv:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file = file
        self._write(readable(schema.empty_table()), header=True)

    def _write(self, table: pa.Table, *, header: bool) -> None:
        buffer = io.BytesIO()
        pv.write_csv(table, buffer, pv.WriteOptions(include_header=header, quoting_style="needed"))
        self._file.write(buffer.getbuffer())
        self._file.flush()

    def write(self, table: pa.Table) -> None:
        for piece in _pieces(table):
            self._write(readable(piece), header=False)

    def finish(self) -> None:
        self._file.flush()


class _Json:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._encoder = msgspec.json.Encoder()

    def write(self, table: pa.Table) -> None:
        for piece in _pieces(table):
            self._file.write(self._encoder.encode_lines(readable(piece).to_pylist()))
        self._file.flush()

    def finish(self) -> None:
        self._file.flush()


class _Arrow:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file = file
        self._writer = pa.ipc.new_stream(file, schema)
        file.flush()

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)
        self._file.flush()

    def finish(self) -> None:
        self._writer.close()
        self._file.flush()

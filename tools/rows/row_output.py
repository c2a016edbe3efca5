"""Writes the tables of a subscription as text, Arrow or Parquet."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import IO, Any, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from medusa.engine.streams.parquet import open_parquet
from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.moments import texts_of

PIECE_ROWS: Final = 8192
"""Rows converted to text at once."""

STEERING: Final = r"[\p{C}\p{Zl}\p{Zp}]"
"""Characters of untrusted texts that steer a terminal, or hide neighbouring text: controls,
escapes, overrides of direction, line ends. RE2's classes."""


GROUP_ROWS: Final = 131_072
"""Rows of a Parquet row group, which are in memory until it is written."""

GROUP_BYTES: Final = 32 * 2**20
"""Bytes of the rows of a Parquet row group: a group of long rows has fewer rows."""

FINISH_S: Final = 2.0
"""Seconds after which a reader of our pipe that takes nothing does not get the end of the rows."""


class RowWriter(Protocol):
    """Writes tables of one schema. Except for Parquet, a written table is flushed before `write`
    returns. `finish` may be called while another thread writes."""

    def write(self, table: pa.Table) -> None: ...

    def finish(self) -> None: ...


def open_writer(file: IO[bytes], kind: Format, schema: pa.Schema) -> RowWriter:
    """A writer of that format; all but JSON write the schema even without rows.

    Raises:
        InvalidInputError: the output is a terminal, which cannot show Arrow or Parquet.
    """
    if file.isatty():
        if kind in {Format.ARROW, Format.PARQUET}:
            raise InvalidInputError(
                f"{kind.capitalize()} is not for a terminal: write it to a file or a pipe"
            )
        return _OnTerminal(_writer(file, kind, schema))
    return _writer(file, kind, schema)


def _writer(file: IO[bytes], kind: Format, schema: pa.Schema) -> RowWriter:
    match kind:
        case Format.CSV:
            return _Csv(file, schema)
        case Format.JSON:
            return _Json(file)
        case Format.ARROW:
            return _Ended(_Arrow(file, schema))
        case Format.PARQUET:
            return _Ended(_Parquet(file, schema))
        case Format.ZEEK:
            raise InvalidInputError("Zeek's logs are read, and not written")


def readable(table: pa.Table) -> pa.Table:
    """The table with timestamps as texts, as they are read again."""
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, texts_of(table.column(index)))
    return table


def harmless(table: pa.Table) -> pa.Table:
    """The table with `?` in place of each character that would steer a terminal, as `ls` does."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = pc.replace_substring_regex(table.column(index), STEERING, "?")
            table = table.set_column(index, field, texts)
    return table


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    """Pieces of an epoch, which may be large: its text, or Python objects, are many times
    larger."""
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


class _Parquet:
    """Row groups of limited size; `finish` writes the index, without which it is no Parquet."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema
        self._writer = open_parquet(_Counted(file), schema, compress=True)
        self._waiting: list[pa.Table] = []
        self._rows = self._bytes = 0

    def write(self, table: pa.Table) -> None:
        self._waiting.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write_group()

    def finish(self) -> None:
        if self._waiting:
            self._write_group()
        self._writer.close()
        self._file.flush()

    def _write_group(self) -> None:
        group = pa.concat_tables(self._waiting).cast(self._schema)
        self._waiting, self._rows, self._bytes = [], 0, 0
        self._writer.write_table(group, row_group_size=GROUP_ROWS)


class _Counted(io.RawIOBase):
    """A file without seeking, for a writer that asks for its position."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._position += len(view)
        return len(view)


class _Ended:
    """A writer whose format has an end, written once, after the last table."""

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer
        self._writing = threading.Lock()

    def write(self, table: pa.Table) -> None:
        with self._writing:
            self._writer.write(table)

    def finish(self) -> None:
        # Ctrl-C may have left a thread that writes to a full pipe
        if self._writing.acquire(timeout=FINISH_S):
            self._writer.finish()

"""Tables of a subscription -> text or Arrow on a stream of bytes."""

from __future__ import annotations

import io
from typing import IO, Final, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from tools.rows import Format

ISO_UTC: Final = "%Y-%m-%dT%H:%M:%SZ"
"""Arrow's %S has the fraction of the column's unit."""


class RowWriter(Protocol):
    """Writes tables of one schema; what was written is flushed before `write` returns."""

    def write(self, table: pa.Table) -> None: ...

    def finish(self) -> None: ...


def open_writer(file: IO[bytes], kind: Format, schema: pa.Schema) -> RowWriter:
    """A writer of that format; CSV and Arrow start with the schema, even if no row follows."""
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
        self._write(readable(table), header=False)

    def finish(self) -> None:
        self._file.flush()


class _Json:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._encoder = msgspec.json.Encoder()

    def write(self, table: pa.Table) -> None:
        self._file.write(self._encoder.encode_lines(readable(table).to_pylist()))
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

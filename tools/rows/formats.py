"""Reads rows of a schema from files and pipes in batches: CSV, JSON, Zeek's logs, Parquet and
Arrow.

`medusa.tools.rows.row_process` runs this module, and limits the memory that a file can make it
take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from medusa.engine.objects.moments import TOO_FAR
from medusa.engine.objects.schema import Schema
from medusa.overlay.errors import InvalidInputError, MedusaError
from medusa.tools.rows.columns import Columns, to_payload
from medusa.tools.rows.csv_rows import Choose, check_columns, csv_tables, names_alone
from medusa.tools.rows.encodings import plain_beginning
from medusa.tools.rows.format_names import Format
from medusa.tools.rows.json_rows import JsonRows
from medusa.tools.rows.row_input import RowInput, end_of_lines, end_of_quoted_lines, whole_lines
from medusa.tools.rows.zeek_rows import zeek_tables

BATCH_ROWS: Final = 65_536
"""Rows of a batch: enough for vectorised work, few enough for one message."""

BATCH_BYTES: Final = 32 * 2**20
"""Bytes of a batch's columns, if rows are long: as much as a poster has under way."""

PARQUET_ROWS: Final = 8192
"""Rows read at once from Parquet, which does not have the length of its rows beforehand."""

ARROW_FILE_MAGIC: Final = b"ARROW1"


_BEGINNINGS: Final = {
    b"#separator": Format.ZEEK,
    b"#fields": Format.ZEEK,
    b"{": Format.JSON,
    b"[": Format.JSON,
    b"PAR1": Format.PARQUET,
    ARROW_FILE_MAGIC: Format.ARROW,
    b"\xff\xff\xff\xff": Format.ARROW,
}


class Reading(Struct, frozen=True):
    """The way to read rows.

    Attributes:
        schema: the schema of the stream.
        kind: None: recognised by the first bytes; else CSV.
        ignore_extra: drop columns that the schema does not have, instead of refusing them. Zeek's
            logs have dozens, and are always read so.
        names: fields by column name, for columns with other names than their fields.
    """

    schema: Schema
    kind: Format | None = None
    ignore_extra: bool = False
    names: Mapping[str, str] = {}


class RowFile:
    """Rows being read.

    Attributes:
        name: its name in messages.
        columns: the columns of the file; has the columns dropped so far.
        rows: their number, if the format tells it.
        tables: the rows, with the columns that the schema wants. Where the format names columns in
            the file, an empty table with all names comes first. A table without columns has no
            rows: a reader of rows that all lack the wanted columns keeps one column.
    """

    def __init__(self, name: str, columns: Columns) -> None:
        self.name = name
        self.columns = columns
        self.rows: int | None = None
        self.tables: Iterator[pa.Table] = iter(())

    def batches(self) -> Iterator[pa.Table]:
        """The rows as payload tables of at most BATCH_ROWS, and BATCH_BYTES unless it is one row.
        The same file gives the same tables.

        Raises:
            InvalidInputError: names the file, the row (from 1, after any header) and the field.
        """
        row = 1
        try:
            for table in self.tables:
                named = table.rename_columns(self.columns.take(table.column_names))
                self.columns.fill(each.name for each in named.schema if not _is_null(each))
                for part in _parts(named):
                    yield to_payload(part, self.columns.schema, row, ignore_extra=True)
                    row += len(part)
        except MemoryError:
            raise InvalidInputError(
                f"{self.name}: what follows row {row - 1} takes more memory at once than there is: "
                "write it in smaller row groups, batches or values"
            ) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidInputError(f"{self.name}: {_one_line(error)}") from None
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.name}: {error}") from None


def _is_null(column: pa.Field) -> bool:
    return bool(pa.types.is_null(column.type))


def read_rows(source: RowInput, name: str, reading: Reading) -> RowFile:
    """Read the rows of an open file or pipe.

    Raises:
        InvalidInputError: it is not of that format, or its columns are not the schema's.
    """
    try:
        return _open(source, name, reading)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InvalidInputError(f"{name}: {_one_line(error)}") from None
    except MedusaError as error:
        raise InvalidInputError(f"{name}: {error}") from None


def _open(source: RowInput, name: str, reading: Reading) -> RowFile:
    kind = reading.kind or _looks_like(source.look())
    if kind in {Format.PARQUET, Format.ARROW}:
        return _open_columnar(source, name, reading, kind)
    packed = source.packed is not None
    if source.growing and packed:
        raise InvalidInputError("a compressed file does not grow by lines: it cannot be followed")
    read = source.unpacked()
    first = read()
    if reading.kind is None and packed:
        kind = _looks_like(first)
    ignore_extra = reading.ignore_extra or kind is Format.ZEEK
    columns = Columns(reading.schema, reading.names, ignore_extra=ignore_extra)
    file, beginning = RowFile(name, columns), first.lstrip()[:1]
    pieces = chain([first], iter(read, b""))
    if kind is Format.ZEEK and beginning != b"{":
        file.tables = zeek_tables(whole_lines(pieces, end_of_lines, source), columns.wanted)
    elif kind in {Format.ZEEK, Format.JSON}:
        rows = JsonRows(columns)
        lines = whole_lines(pieces, end_of_lines, source)
        file.tables = rows.array(pieces) if beginning == b"[" else rows.tables(lines)
    else:
        file.tables = csv_tables(whole_lines(pieces, end_of_quoted_lines, source), columns.wanted)
    return file


def _open_columnar(source: RowInput, name: str, reading: Reading, kind: Format) -> RowFile:
    if source.growing:
        raise InvalidInputError(f"{kind} does not grow by lines: it cannot be followed")
    if source.live and kind is Format.PARQUET:
        raise InvalidInputError("Parquet has its index at the end: post it from a file")
    if source.packed:
        raise InvalidInputError(f"it is compressed, and {kind} is read in an order of its own")
    columns = Columns(reading.schema, reading.names, ignore_extra=reading.ignore_extra)
    file, whole = RowFile(name, columns), source.whole()
    if kind is Format.PARQUET:
        reader = _open_parquet(whole)
        check_columns(reader.metadata.num_columns)
        columns.take(reader.schema_arrow.names)
        file.rows = reader.metadata.num_rows
        file.tables = _parquet(whole, reader, columns.wanted(reader.schema_arrow.names))
    else:
        file.tables = _arrow(whole, columns.wanted)
    return file


def _looks_like(beginning: bytes) -> Format | None:
    text = plain_beginning(beginning).lstrip()
    return next((kind for magic, kind in _BEGINNINGS.items() if text.startswith(magic)), None)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """A table cut to the size of batches."""
    start = 0
    while start < len(table):
        part = table.slice(start, BATCH_ROWS)
        while len(part) > 1 and _bytes(part) > BATCH_BYTES:
            part = part.slice(0, len(part) // 2)
        yield part
        start += len(part)


def _bytes(table: pa.Table) -> int:
    """Bytes of a table's columns; a value of a dictionary counts as often as it occurs."""
    total: int = table.nbytes
    for column in table.columns:
        if pa.types.is_dictionary(column.type) and pa.types.is_string(column.type.value_type):
            for chunk in column.chunks:
                lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
                total += pc.sum(lengths).as_py() or 0
    return total


def _open_parquet(file: IO[bytes], int96_unit: str | None = None) -> pq.ParquetFile:
    return pq.ParquetFile(
        file,
        pre_buffer=False,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=int96_unit,
    )


def _parquet(file: IO[bytes], reader: pq.ParquetFile, wanted: list[str]) -> Iterator[pa.Table]:
    def batches(of: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
        yield from of.iter_batches(batch_size=PARQUET_ROWS, columns=columns, use_threads=False)

    old = _int96(reader, wanted)
    if not old:
        yield from (pa.Table.from_batches([batch]) for batch in batches(reader, wanted))
        return
    # nanoseconds would wrap after 2262; microseconds wrap as well, and seconds have room for all
    fine = _open_parquet(file, int96_unit="us")
    coarse = _open_parquet(file, int96_unit="s")
    row = 1
    for batch, seconds in zip(batches(fine, wanted), batches(coarse, old), strict=True):
        for name in old:
            _check_int96(name, batch.column(name), seconds.column(name), row)
        yield pa.Table.from_batches([batch])
        row += len(batch)


def _int96(reader: pq.ParquetFile, wanted: list[str]) -> list[str]:
    """The wanted columns that are timestamps of the old kind."""
    columns = (reader.schema.column(index) for index in range(reader.metadata.num_columns))
    old = {column.path for column in columns if column.physical_type == "INT96"}
    return [name for name in wanted if name in old]


def _check_int96(name: str, micros: pa.Array, seconds: pa.Array, first_row: int) -> None:
    wrapped = pc.not_equal(pc.floor_temporal(micros, unit="second").cast(seconds.type), seconds)
    if pc.any(wrapped).as_py():
        row = first_row + pc.index(wrapped, True).as_py()
        raise InvalidInputError(f"row {row}, column {name!r}: {TOO_FAR}")


def _arrow(file: IO[bytes], choose: Choose) -> Iterator[pa.Table]:
    if file.seekable() and file.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC:
        reader = pa.ipc.open_file(file)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        if file.seekable():
            file.seek(0)
        reader = pa.ipc.open_stream(file)
        batches = iter(reader)
    names = reader.schema.names
    wanted = {*choose(names)}
    indices = [index for index, name in enumerate(names) if name in wanted]
    yield names_alone(names)
    yield from (pa.Table.from_batches([batch.select(indices)]) for batch in batches)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

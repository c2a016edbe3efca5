"""Rows of a schema in files: CSV, JSON lines, Parquet and Arrow, read in batches.

What a file may make this take is bounded by `tools.row_process`, which runs it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from engine.schema import Schema
from overlay.errors import InvalidInputError, MedusaError
from tools.columns import check_names, to_payload
from tools.json_rows import JsonRows

BATCH_ROWS: Final = 65_536
"""Rows of a batch: large enough for vectors, small enough for one message."""

BATCH_BYTES: Final = 32 * 2**20
"""Of a batch's columns, where rows are long: as much as a poster has on its way."""

PARQUET_ROWS: Final = 8192
"""Read at once from Parquet, which does not tell before how long its rows are."""

CSV_BLOCK_BYTES: Final = 8 * 2**20
"""Read at once; the longest line it can hold."""

MAX_COLUMNS: Final = 4096
"""Of a file: well above any schema's fields. Each costs memory before its name is known."""

_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
"""What such a text begins with."""

ARROW_FILE_MAGIC: Final = b"ARROW1"


class Format(StrEnum):
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"


_BY_SUFFIX: Final = {
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".parquet": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,
    ".ipc": Format.ARROW,
    ".feather": Format.ARROW,
}


def format_of(path: Path) -> Format:
    """The format that a file's name says.

    Raises:
        InvalidInputError: it says none.
    """
    try:
        return _BY_SUFFIX[path.suffix.lower()]
    except KeyError:
        raise InvalidInputError(
            f"{path}: cannot tell its format from its name; say --format csv|json|parquet|arrow"
        ) from None


@dataclass
class RowFile:
    """Rows being read.

    Attributes:
        name: for messages.
    """

    name: str
    _tables: Iterator[pa.Table]
    _schema: Schema
    _ignore_extra: bool

    def batches(self) -> Iterator[pa.Table]:
        """The rows as payload tables of at most BATCH_ROWS, and BATCH_BYTES unless it is one row.
        The same file gives the same tables.

        Raises:
            InvalidInputError: naming the file, the row (from 1, after any header) and the field.
        """
        row = 1
        try:
            for table in self._tables:
                for part in _parts(table):
                    yield to_payload(part, self._schema, row, ignore_extra=self._ignore_extra)
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


def read_rows(
    file: IO[bytes], name: str, schema: Schema, kind: Format, *, ignore_extra: bool = False
) -> RowFile:
    """Rows from an open file; Parquet and Arrow's file form need one that can seek.

    Raises:
        InvalidInputError: it is not of that format, or its columns are not the schema's.
    """
    try:
        match kind:
            case Format.CSV:
                tables = _csv(file, schema, ignore_extra=ignore_extra)
            case Format.JSON:
                tables = JsonRows(schema, ignore_extra=ignore_extra).tables(file, BATCH_ROWS)
            case Format.PARQUET:
                tables = _parquet(file, schema, ignore_extra=ignore_extra)
            case Format.ARROW:
                tables = _arrow(file)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InvalidInputError(f"{name}: {_one_line(error)}") from None
    except MedusaError as error:
        raise InvalidInputError(f"{name}: {error}") from None
    return RowFile(name, tables, schema, ignore_extra)


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
    """Of its columns, with each value of a dictionary as often as it occurs."""
    total: int = table.nbytes
    for column in table.columns:
        if pa.types.is_dictionary(column.type) and pa.types.is_string(column.type.value_type):
            for chunk in column.chunks:
                lengths = pc.take(pc.binary_length(chunk.dictionary), chunk.indices)
                total += pc.sum(lengths).as_py() or 0
    return total


def _csv(file: IO[bytes], schema: Schema, *, ignore_extra: bool) -> Iterator[pa.Table]:
    """Every column as text: the conversion to the schema's types names row and field."""
    header = _peek(file)
    if header.startswith(_UTF_16):
        raise InvalidInputError("it is UTF-16: write it as UTF-8")
    if header.partition(b"\n")[0].count(b",") >= MAX_COLUMNS:
        raise InvalidInputError(f"its first line names more than {MAX_COLUMNS} columns")
    reader = pv.open_csv(
        file,
        read_options=pv.ReadOptions(block_size=CSV_BLOCK_BYTES, use_threads=False),
        parse_options=pv.ParseOptions(newlines_in_values=True),
        convert_options=pv.ConvertOptions(
            column_types={field.name: pa.string() for field in schema.fields},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    check_names(reader.schema.names, schema, ignore_extra=ignore_extra)
    return (pa.Table.from_batches([batch]) for batch in reader)


def _peek(file: IO[bytes]) -> bytes:
    """What it begins with, of which nothing is taken."""
    return file.peek(1) if isinstance(file, io.BufferedReader) else b""


def _parquet(file: IO[bytes], schema: Schema, *, ignore_extra: bool) -> Iterator[pa.Table]:
    reader = pq.ParquetFile(file, pre_buffer=False, page_checksum_verification=True)
    if reader.metadata.num_columns > MAX_COLUMNS:
        raise InvalidInputError(f"it has more than {MAX_COLUMNS} columns")
    check_names(reader.schema_arrow.names, schema, ignore_extra=ignore_extra)
    wanted = [f.name for f in schema.fields if f.name in reader.schema_arrow.names]
    batches = reader.iter_batches(batch_size=PARQUET_ROWS, columns=wanted, use_threads=False)
    return (pa.Table.from_batches([batch]) for batch in batches)


def _arrow(file: IO[bytes]) -> Iterator[pa.Table]:
    if file.seekable() and file.read(len(ARROW_FILE_MAGIC)) == ARROW_FILE_MAGIC:
        reader = pa.ipc.open_file(file)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        if file.seekable():
            file.seek(0)
        batches = iter(pa.ipc.open_stream(file))
    return (pa.Table.from_batches([batch]) for batch in batches)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "straddling object" in text:
        return f"a line of more than {CSV_BLOCK_BYTES} bytes: is a quotation never closed?"
    return text

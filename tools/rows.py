"""Rows of a schema in files: CSV, JSON lines, Parquet and Arrow, read in batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq

from engine.schema import Schema
from overlay.errors import InvalidInputError, MedusaError, NotFoundError
from tools.columns import check_names, to_payload
from tools.json_rows import JsonRows

BATCH_ROWS: Final = 65_536
"""Rows of a batch: large enough for vectors, small enough for one message."""

CSV_BLOCK_BYTES: Final = 8 * 2**20
"""Read at once; the longest line it can hold."""

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
        total: bytes of the file, or None where it cannot be known (a pipe).
    """

    name: str
    total: int | None
    _file: IO[bytes]
    _tables: Iterator[pa.Table]
    _schema: Schema
    _ignore_extra: bool

    @property
    def position(self) -> int:
        """Bytes read so far, of `total`."""
        return min(self._file.tell(), self.total) if self.total is not None else 0

    def batches(self) -> Iterator[pa.Table]:
        """The rows as payload tables of at most BATCH_ROWS.

        Raises:
            InvalidInputError: naming the file, the row (from 1, after any header) and the field.
        """
        row = 1
        try:
            for table in self._tables:
                for start in range(0, len(table), BATCH_ROWS):
                    part = table.slice(start, BATCH_ROWS)
                    yield to_payload(part, self._schema, row, ignore_extra=self._ignore_extra)
                    row += len(part)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InvalidInputError(f"{self.name}: {_one_line(error)}") from None
        except InvalidInputError as error:
            raise InvalidInputError(f"{self.name}: {error}") from None


@contextmanager
def open_rows(
    path: Path, schema: Schema, kind: Format | None = None, *, ignore_extra: bool = False
) -> Iterator[RowFile]:
    """A file's rows, to be posted to a stream of this schema.

    Raises:
        NotFoundError: no such file.
        InvalidInputError: its format or its columns are not right.
    """
    kind = kind or format_of(path)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFoundError(f"no such file: {path}") from None
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from None
    with file:
        size = path.stat().st_size if path.is_file() else None
        yield read_rows(file, str(path), schema, kind, total=size, ignore_extra=ignore_extra)


def read_rows(
    file: IO[bytes],
    name: str,
    schema: Schema,
    kind: Format,
    *,
    total: int | None = None,
    ignore_extra: bool = False,
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
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInputError(f"{name}: {_one_line(error)}") from None
    except MedusaError as error:
        raise InvalidInputError(f"{name}: {error}") from None
    return RowFile(name, total, file, tables, schema, ignore_extra)


def _csv(file: IO[bytes], schema: Schema, *, ignore_extra: bool) -> Iterator[pa.Table]:
    """Every column as text: the conversion to the schema's types names row and field."""
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


def _parquet(file: IO[bytes], schema: Schema, *, ignore_extra: bool) -> Iterator[pa.Table]:
    reader = pq.ParquetFile(file)
    check_names(reader.schema_arrow.names, schema, ignore_extra=ignore_extra)
    wanted = [f.name for f in schema.fields if f.name in reader.schema_arrow.names]
    batches = reader.iter_batches(batch_size=BATCH_ROWS, columns=wanted, use_threads=False)
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
    return " ".join(str(error).split())

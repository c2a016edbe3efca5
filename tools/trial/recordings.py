"""Derives the schemas of recorded files whose streams a query does not declare."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.json as pj
import pyarrow.parquet as pq

from medusa.engine.objects.schema import STIME, Field, FieldType, Schema, check_schema, wrong_name
from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError, NotFoundError
from medusa.tools.rows.format_names import WRITTEN, Format, endings, format_of
from medusa.tools.rows.json_faults import fault_in, lines_of, name_twice
from medusa.tools.rows.moments import all_are_moments, is_text
from medusa.tools.rows.row_input import RowInput, end_of_lines, end_of_quoted_lines
from medusa.tools.rows.row_process import open_to_read

BEGINNING_BYTES: Final = 4 * 2**20
"""Bytes of a CSV or JSON file from which the types of its columns are inferred."""

BEGINNING_ROWS: Final = 65_536
"""Rows of a Parquet or Arrow file by which the program decides whether its columns of texts are
times: as many as are read at once."""

_TYPES: Final = (
    (pa.types.is_boolean, FieldType.BOOL),
    (pa.types.is_int8, FieldType.BYTE),
    (lambda kind: pa.types.is_int16(kind) or pa.types.is_uint8(kind), FieldType.SHORT),
    (lambda kind: pa.types.is_int32(kind) or pa.types.is_uint16(kind), FieldType.INT),
    (pa.types.is_integer, FieldType.LONG),
    (pa.types.is_float32, FieldType.SINGLE),
    (lambda kind: pa.types.is_floating(kind) or pa.types.is_decimal(kind), FieldType.DOUBLE),
    (lambda kind: pa.types.is_timestamp(kind) or pa.types.is_date(kind), FieldType.TIMESTAMP),
    (is_text, FieldType.STRING),
)


class RecordingError(InvalidInputError, code=None):
    """A file that is given for a stream is wrong, not the query."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The content of a recorded file.

    Attributes:
        schema: the schema of its rows.
        left_out: columns that cannot be fields, and why.
    """

    schema: Schema
    left_out: Mapping[str, str]


def recording_of(
    file: Path, name: str, time: str | None, names: Mapping[str, str] | None = None
) -> Recording:
    """The schema of a recorded file's rows.

    Args:
        name: the schema's.
        time: the field of their time, if the file has it; else it is the first timestamp.
        names: fields by columns of other names.

    Raises:
        NotFoundError: there is no such file.
        RecordingError: it is of another format, or has no column with a time; the message names the
            file.
    """
    fields: list[Field] = []
    left_out: dict[str, str] = {}
    columns = arrow_schema_of(file)
    for column in columns:
        field = (names or {}).get(column.name, column.name.replace(".", "_"))
        reason = wrong_name(field)
        if reason:
            left_out[column.name] = f"{file}: column {column.name[:80]!a}: {reason}"
            continue
        try:
            fields.append(Field(field, field_type_of(file, column), nullable=True))
        except RecordingError as error:
            left_out[column.name] = str(error)
    if not fields:
        reasons = f": {next(iter(left_out.values()))}" if left_out else ""
        raise RecordingError(f"{file} has no columns{reasons}")
    without_rows = all(pa.types.is_null(column.type) for column in columns)
    chosen = _time_of(file, fields, time, without_rows=without_rows)
    fields = [
        msgspec.structs.replace(each, nullable=False) if each.name == chosen else each
        for each in fields
    ]
    schema = Schema(name, tuple(fields), chosen)
    try:
        check_schema(schema)
    except InvalidInputError as error:
        raise RecordingError(f"{file}: {error}") from None
    return Recording(schema, left_out)


def with_key(schema: Schema, key: Sequence[str], file: Path) -> Schema:
    """The schema with a key: that of a table.

    Args:
        file: it is the schema of its rows.

    Raises:
        RecordingError: a column of the key is missing, or cannot be in a key; the message names the
            file.
    """
    fields = tuple(
        msgspec.structs.replace(each, nullable=each.nullable and each.name not in key)
        for each in schema.fields
    )
    keyed = Schema(schema.name, fields, schema.time, tuple(key))
    try:
        check_schema(keyed)
    except InvalidInputError as error:
        raise RecordingError(f"{file}: {error}") from None
    return keyed


def _time_of(file: Path, fields: Sequence[Field], time: str | None, *, without_rows: bool) -> str:
    if time is not None and any(each.name == time for each in fields):
        return time
    found = next((each.name for each in fields if each.type is FieldType.TIMESTAMP), None)
    if found is not None:
        return found
    columns = {each.name: each.type for each in fields}
    if time is not None:
        there = alternatives(time, columns, columns)
        raise RecordingError(f"{file} has no column {time[:80]!a}; {there}")
    if without_rows:
        raise RecordingError(
            f"{file}: it has no rows, by which a column would have a type: declare the stream in "
            "the query"
        )
    known = ", ".join(f"{name} {kind}" for name, kind in columns.items())[:200]
    raise RecordingError(
        f"{file}: no column is a timestamp: say --time COLUMN, of the columns {known}; of "
        f"rows that Medusa wrote, --map {STIME}=FIELD --time FIELD takes their stime"
    )


def field_type_of(file: Path, column: pa.Field) -> FieldType:
    """The type of the field that a column becomes. Raises: RecordingError: no field has such a
    type."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    for matches, found in _TYPES:
        if matches(kind):
            return found
    if pa.types.is_null(kind):
        return FieldType.STRING
    raise RecordingError(f"{file}: column {column.name[:80]!a} is of type {kind}: no field is")


def arrow_schema_of(file: Path) -> pa.Schema:
    """The columns of a file, with the types that its beginning has.

    Raises:
        NotFoundError: there is no such file. RecordingError: it is of another format.
    """
    if not file.is_file():
        raise NotFoundError(f"no such file: {file}")
    try:
        match format_of(file):
            case Format.PARQUET:
                return _of_parquet(file)
            case Format.CSV:
                beginning = _beginning(file, end_of_quoted_lines)
                options = pv.ReadOptions(use_threads=False)  # the options outlive a failure
                return _typed(pv.read_csv(io.BytesIO(beginning), options))
            case Format.JSON:
                beginning = _beginning(file, end_of_lines)
                return _typed(_json(beginning))
            case Format.ARROW:
                with pa.OSFile(str(file)) as source:
                    return _of_arrow(source)
            case Format.ZEEK | None:
                raise RecordingError(
                    f"{file}: a recorded file ends in {endings(WRITTEN)}; for another one, declare "
                    "the stream in the query"
                )
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RecordingError(f"{file}: {str(error).splitlines()[0]}") from None
    except RecordingError:
        raise
    except InvalidInputError as error:
        raise RecordingError(f"{file}: {error}") from None


_OTHER_KIND: Final = re.compile(r"Column\(/(.+)\) changed from (\w+) to (\w+) in row (\d+)")


def _json(beginning: bytes) -> pa.Table:
    """The columns of objects.

    Raises:
        InvalidInputError: a row does not fit those before it; the message names the first such row,
            from 1.
    """
    whole = pj.ReadOptions(block_size=len(beginning) + 1, use_threads=False)
    try:
        return pj.read_json(io.BytesIO(beginning), whole)
    except pa.ArrowInvalid as error:
        for number, row in enumerate(lines_of(beginning), 1):
            if told := fault_in(row, {}) or name_twice(row):
                raise InvalidInputError(f"row {number}{told}") from None
        if match := _OTHER_KIND.search(str(error)):
            column, before, now, at = match.groups()
            raise InvalidInputError(
                f"row {int(at) + 1}, column {column[:80]!r}: a {now}, and a {before} before"
            ) from None
        raise


def _beginning(file: Path, end: Callable[[bytes], int]) -> bytes:
    """The first lines of a text."""
    with open_to_read(file) as opened:
        source = RowInput(opened)
        block = source.unpacked()()
    if not block:
        raise RecordingError(f"{file}: it is empty: declare the stream in the query")
    cut = block[:BEGINNING_BYTES]
    return cut if len(cut) == len(block) else cut[: end(cut)] or cut


def _typed(table: pa.Table) -> pa.Schema:
    """The types of the columns of a text, as Arrow has inferred them."""
    fields = [  # a time of the day is no type of a field
        pa.field(each.name, pa.string()) if pa.types.is_time(each.type) else each
        for each in table.schema
    ]
    return _with_times(pa.schema(fields), table)


def _with_times(schema: pa.Schema, beginning: pa.Table) -> pa.Schema:
    """The types of a file's columns; texts are as `medusa.tools.rows.moments` reads them.

    Args:
        beginning: the first rows; only columns with texts need be in it.
    """
    return pa.schema(
        pa.field(each.name, FieldType.TIMESTAMP.arrow)
        if _has_texts(each) and all_are_moments(beginning.column(each.name).cast(pa.string()))
        else each
        for each in schema
    )


def _has_texts(field: pa.Field) -> bool:
    kind = field.type
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _of_parquet(file: Path) -> pa.Schema:
    with pq.ParquetFile(file) as opened:
        schema = opened.schema_arrow
        texts = [field.name for field in schema if _has_texts(field)]
        batches = opened.iter_batches(BEGINNING_ROWS, columns=texts, use_threads=False)
        return _with_times(schema, _first(schema, batches))


def _of_arrow(source: pa.NativeFile) -> pa.Schema:
    try:
        opened = pa.ipc.open_file(source)
        batches = map(opened.get_batch, range(opened.num_record_batches))
    except pa.ArrowInvalid:
        source.seek(0)
        opened = pa.ipc.open_stream(source)
        batches = iter(opened)
    return _with_times(opened.schema, _first(opened.schema, batches))


def _first(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    batch = next(batches, None)
    if batch is None:
        return schema.empty_table()
    return pa.Table.from_batches([batch]).slice(0, BEGINNING_ROWS)

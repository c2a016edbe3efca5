"""Columns of strangers' files -> columns of a schema, with errors that name row and field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.schema import Field, FieldType, Schema
from overlay.errors import InvalidInputError

SHOWN_CHARACTERS: Final = 60
"""Of a value in an error message: enough to recognise it."""


def to_payload(
    table: pa.Table, schema: Schema, first_row: int, *, ignore_extra: bool | None
) -> pa.Table:
    """The table as the schema's payload: its columns by name, its types, nulls only where allowed.

    Args:
        first_row: the number of its first row in the file, from 1; errors count from it.
        ignore_extra: drop columns the schema does not have, instead of refusing them; None: as
            False, for a program, which has no flag to be told of.

    Raises:
        InvalidInputError: naming the row, the field and what is wrong.
    """
    check_names(table.column_names, schema, ignore_extra=ignore_extra)
    columns = []
    for field in schema.fields:
        if field.name in table.column_names:
            column = to_field(table.column(field.name), field, first_row)
        else:
            column = pa.chunked_array([pa.nulls(len(table), field.type.arrow)])
        columns.append(column)
    return pa.table(columns, schema=schema.payload)


def check_names(names: list[str], schema: Schema, *, ignore_extra: bool | None) -> None:
    """Columns against fields.

    Raises:
        InvalidInputError: a column twice, one too many, or a missing one that may not be null.
    """
    fields = {field.name for field in schema.fields}
    known = f"{schema.name} has: {', '.join(field.name for field in schema.fields)}"
    for name in names:
        if name in fields and names.count(name) > 1:
            raise InvalidInputError(f"column {name!r} appears twice")
        if name not in fields and not ignore_extra:
            mend = "" if ignore_extra is None else " (--ignore-extra drops it)"
            raise InvalidInputError(f"column {name!r} is no field of the schema{mend}; {known}")
    for field in schema.fields:
        if not field.nullable and field.name not in names:
            raise InvalidInputError(f"no column for field {field.name!r}; {known}")


def to_field(column: pa.ChunkedArray, field: Field, first_row: int) -> pa.ChunkedArray:
    """One column as the field's type.

    Raises:
        InvalidInputError: naming the row, the field and what is wrong.
    """
    source = column.type
    if pa.types.is_dictionary(source):
        column = _of_values(column)
    if pa.types.is_null(source):
        converted = pa.chunked_array([pa.nulls(len(column), field.type.arrow)])
    elif source == field.type.arrow:
        converted = column
    else:
        converted = _cast(column, field, first_row)
    if not field.nullable:
        if _is_text(column.type) and field.type is FieldType.STRING:
            # CSV cannot tell an empty text from a missing one where nothing may be missing.
            converted = pc.fill_null(converted, "")
        if converted.null_count:
            row = first_row + pc.index(pc.is_null(converted), True).as_py()
            raise InvalidInputError(f"row {row}, field {field.name!r}: null, and it may not be")
    _check_size(converted, field, first_row)
    return converted


def _of_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a dictionary's numbers as one of its values."""
    kind = column.type.value_type
    if pa.types.is_string_view(kind):  # of polars; Arrow does not cast it whole
        texts = [chunk.dictionary.cast(pa.string()).take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array(texts, pa.string())
    return column.cast(kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _cast(column: pa.ChunkedArray, field: Field, first_row: int) -> pa.ChunkedArray:
    casts = _casts(column.type, field.type)
    if not casts:
        raise InvalidInputError(f"field {field.name!r}: a {column.type} is no {field.type}")
    for cast in casts:
        try:
            return cast(column)
        except pa.ArrowInvalid:
            continue
    offset = max(_first_failure(column, cast) for cast in casts)
    value = str(column[offset].as_py())
    shown = value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + "..."
    raise InvalidInputError(
        f"row {first_row + offset}, field {field.name!r}: {shown!r} is no {field.type}"
    )


Cast = Callable[[pa.ChunkedArray], pa.ChunkedArray]


def _casts(source: pa.DataType, kind: FieldType) -> tuple[Cast, ...]:
    """The ways to read a column of this Arrow type as the field's; the first that works counts."""
    target = kind.arrow
    numeric = pa.types.is_integer(source) or pa.types.is_floating(source)
    if kind is FieldType.TIMESTAMP:
        return _timestamp_casts(source, numeric=numeric)
    if kind is FieldType.STRING:
        return (lambda c: c.cast(target),) if _is_text(source) else ()
    if kind is FieldType.BOOL:
        return (
            (lambda c: c.cast(target),) if _is_text(source) or pa.types.is_boolean(source) else ()
        )
    if kind in {FieldType.SINGLE, FieldType.DOUBLE}:
        # Rounding to the nearest float is what a float is for; only texts can fail.
        allowed = numeric or _is_text(source) or pa.types.is_decimal(source)
        return (lambda c: c.cast(target, safe=False),) if allowed else ()
    allowed = numeric or _is_text(source)
    return (lambda c: c.cast(target),) if allowed else ()


def _timestamp_casts(source: pa.DataType, *, numeric: bool) -> tuple[Cast, ...]:
    utc = FieldType.TIMESTAMP.arrow
    if pa.types.is_timestamp(source):
        truncating = pc.CastOptions(target_type=utc, allow_time_truncate=True)
        return (lambda c: c.cast(options=truncating),)
    if numeric:
        return (_from_seconds,)
    if _is_text(source):
        # With a zone; without one, which means UTC; seconds since the epoch.
        return (
            lambda c: c.cast(utc),
            lambda c: c.cast(pa.timestamp("us")).cast(utc),
            lambda c: _from_seconds(c.cast(pa.float64())),
        )
    return ()


def _from_seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    micros = pc.floor(pc.multiply(column.cast(pa.float64()), 1e6)).cast(pa.int64())
    return micros.cast(FieldType.TIMESTAMP.arrow)


def _first_failure(column: pa.ChunkedArray, cast: Cast) -> int:
    """The offset of the first value that does not cast, by halving."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            cast(column.slice(low, middle - low))
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return low


def _check_size(column: pa.ChunkedArray, field: Field, first_row: int) -> None:
    if field.size is None or field.type is not FieldType.STRING or not len(column):
        return
    too_long = pc.fill_null(pc.greater(pc.binary_length(column), field.size), False)
    offset = pc.index(too_long, True).as_py()
    if offset >= 0:
        raise InvalidInputError(
            f"row {first_row + offset}, field {field.name!r}: "
            f"longer than the {field.size} bytes of its declared size"
        )

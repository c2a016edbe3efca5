"""Converts rows that a program passes to the client, in any supported form, to an Arrow table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from medusa.engine.objects.schema import Schema
from medusa.overlay.errors import InvalidInputError


class ArrowStream(Protocol):
    """Rows with Arrow's C stream: tables of pyarrow, pandas (2.2 and later), polars, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArray(Protocol):
    """Rows with Arrow's C data: a RecordBatch of pyarrow."""

    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...


Rows: TypeAlias = (
    ArrowStream | ArrowArray | Sequence[Mapping[str, object]] | Mapping[str, Sequence[object]]
)
"""Rows for the client: anything with Arrow's C stream or data (tables of pyarrow, pandas, polars,
DuckDB), a list of dictionaries (one for each row), or a dictionary of columns."""

FORMS: Final = (
    "a table of pyarrow, pandas (2.2 or later) or polars, a list of dictionaries, one a row, or a "
    "dictionary of columns"
)

PANDAS_INDEX: Final = "__index_level_"
"""The prefix of the column that pandas makes from an unnamed index."""

_FAILURES: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""The errors that pyarrow raises for values that make no column."""


def to_table(rows: Rows, schema: Schema) -> pa.Table:
    """The rows as one table, with the given column names and types.

    Args:
        schema: the schema of the stream, which decides the type of columns of plain values.

    Raises:
        InvalidInputError: the argument `rows` has none of the forms, or a value that fits in no
            column (names its row, from 1, and its field).
    """
    given: Any = rows
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, Mapping):
        return _of_columns(given, schema)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return _of_rows(given, schema)
    if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
        return _without_index(_made(lambda: pa.table(given)), schema)
    raise InvalidInputError(f"argument rows: expected {FORMS}, got {type(given).__qualname__}")


def _made(make: Callable[[], pa.Table]) -> pa.Table:
    try:
        return make()
    except _FAILURES as error:
        raise InvalidInputError(f"argument rows: {' '.join(str(error).split())}") from None


def _without_index(table: pa.Table, schema: Schema) -> pa.Table:
    """The table without pandas's automatic row numbers; a named index is a column."""
    numbers = [
        name
        for name in table.column_names
        if name.startswith(PANDAS_INDEX) and schema.field(name) is None
    ]
    return table.drop_columns(numbers) if table.schema.pandas_metadata and numbers else table


def _of_rows(rows: Sequence[object], schema: Schema) -> pa.Table:
    if not rows:
        return schema.payload.empty_table()
    names: dict[object, None] = {}
    read: list[Mapping[object, object]] = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise InvalidInputError(
                f"argument rows: row {number}: expected a dictionary, got {type(row).__qualname__}"
            )
        names.update(dict.fromkeys(row))
        read.append(row)
    return _of_columns({name: [row.get(name) for row in read] for name in names}, schema)


def _of_columns(columns: Mapping[object, Any], schema: Schema) -> pa.Table:
    made = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise InvalidInputError(f"argument rows: {name!r:.60} is no name of a field")
        made[name] = _column(name, values, schema)
    return _made(lambda: pa.table(made))


def _column(name: str, values: Any, schema: Schema) -> pa.ChunkedArray | pa.Array:  # noqa: ANN401 - anyone's
    """A column of plain values, by their own types: `to_payload` casts it to the field's."""
    if hasattr(values, "__arrow_c_stream__"):
        return _made(lambda: pa.chunked_array(values))
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise InvalidInputError(
            f"argument rows: field {name!r}: expected a column of values, got "
            f"{type(values).__qualname__}; one row is a list of one dictionary"
        )
    try:
        return pa.array(values)
    except _FAILURES as error:
        reason = _misfit(name, values, schema) or f"field {name!r}: {' '.join(str(error).split())}"
    raise InvalidInputError(f"argument rows: {reason}")


def _misfit(name: str, values: object, schema: Schema) -> str:
    """The first value that is not of the field's type, in words."""
    field = schema.field(name)
    if field is None or not isinstance(values, Sequence):
        return ""
    for number, value in enumerate(values, 1):
        try:
            pa.array([value], field.type.arrow)
        except _FAILURES:
            return f"row {number}, field {name!r}: {value!r:.60} is no {field.type}"
    return ""

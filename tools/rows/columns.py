"""Converts columns of untrusted files to a schema's types; errors name row and field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.moments import FORMS, TOO_FAR, moment_of
from medusa.engine.objects.schema import SEQ, STIME, Field, FieldType, Schema
from medusa.engine.streams.validate import times_of
from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.moments import NUMBER_FORM, is_text, moments_of

SHOWN_CHARACTERS: Final = 60
"""Characters of a value in an error message: enough to recognise the value."""

SHOWN_NAMES: Final = 30
"""Names of columns in a message: Zeek's conn.log has two dozen."""


OURS: Final = frozenset({STIME, SEQ})
"""Columns that `medusa subscribe` and `medusa try --out` write, and that no schema can have:
posting leaves them out, without an error."""


class Columns:
    """Assigns a file's columns to the fields of a schema.

    A column fills the field of its name; one with dots, as Zeek has, also a field with underscores
    for them.

    Attributes:
        dropped: columns that are no fields, in the order in which they were found.
    """

    def __init__(
        self, schema: Schema, names: Mapping[str, str] | None = None, *, ignore_extra: bool
    ) -> None:
        self.schema = schema
        self.ignore_extra = ignore_extra
        self.dropped: dict[str, None] = {}
        self._names = names or {}
        self._columns = {field: column for column, field in self._names.items()}
        self._filled: set[str] = set()

    @property
    def unfilled(self) -> list[str]:
        """The fields that no column has filled so far; none before the first column."""
        if not self._filled:
            return []
        return [field.name for field in self.schema.fields if field.name not in self._filled]

    def column_of(self, field: str) -> str:
        """The name of a field's column in the file."""
        return self._columns.get(field, field)

    def wanted(self, columns: Sequence[str]) -> list[str]:
        """The columns of a file that become fields."""
        return [column for column in columns if self._is_field(column)]

    def dotted(self, columns: Iterable[str]) -> Mapping[str, str]:
        """Columns with dots by the fields that they fill."""
        return {self._named(each): each for each in columns if "." in each and self._is_field(each)}

    def take(self, columns: Sequence[str]) -> list[str]:
        """The names of a file's columns, as fields.

        Raises:
            InvalidInputError: they are not the schema's.
        """
        named = [self._named(column) for column in columns]
        ours = [name for name in named if name in OURS and not self.schema.field(name)]
        foreign = [name for name in named if name not in ours]
        check_names(foreign, self.schema, ignore_extra=self.ignore_extra, ours=ours)
        self.drop(columns)
        return named

    def fill(self, named: Iterable[str]) -> None:
        """Note the fields that have columns."""
        self._filled |= {name for name in named if self.schema.field(name) is not None}

    def refusal(self, columns: Sequence[str]) -> str:
        """The error about columns that the schema does not have; "": there are none."""
        extra = [name for name in columns if not self._is_field(name) and name not in OURS]
        return _said_of(extra, self.schema, flags=True)

    def drop(self, columns: Iterable[str]) -> None:
        """Note the columns that the schema does not have."""
        self.dropped |= dict.fromkeys(name for name in columns if not self._is_field(name))

    def _is_field(self, column: str) -> bool:
        return self.schema.field(self._named(column)) is not None

    def _named(self, column: str) -> str:
        if column in self._names or "." not in column:
            return self._names.get(column, column)
        plain = column.replace(".", "_")
        known = self.schema.field(plain) is not None and plain not in self._columns
        return plain if known else column


def to_payload(
    table: pa.Table, schema: Schema, first_row: int, *, ignore_extra: bool | None
) -> pa.Table:
    """Convert a table to the schema's payload: its columns by name, its types, nulls only where
    allowed.

    Args:
        first_row: the number of its first row in the file, from 1; errors count from it.
        ignore_extra: drop columns the schema does not have, instead of refusing them; None: as
            False, for a program, whose errors mention no flag.

    Raises:
        InvalidInputError: names the row, the field and the mistake.
    """
    check_names(table.column_names, schema, ignore_extra=ignore_extra)
    columns = []
    for field in schema.fields:
        if field.name in table.column_names:
            column = to_field(table.column(field.name), field, first_row)
        else:
            column = pa.chunked_array([pa.nulls(len(table), field.type.arrow)])
        columns.append(column)
    payload = pa.table(columns, schema=schema.payload)
    if schema.time is not None:
        times_of(payload, schema, first_row)
    return payload


def check_names(
    names: list[str], schema: Schema, *, ignore_extra: bool | None, ours: Sequence[str] = ()
) -> None:
    """Compare the columns of a table with the fields of a schema.

    Args:
        ours: further permitted columns, of `OURS`; an error for a missing column names them, too.

    Raises:
        InvalidInputError: a column twice, one too many, or a missing one that may not be null.
    """
    fields = {field.name for field in schema.fields}
    for name in names:
        if name in fields and names.count(name) > 1:
            raise InvalidInputError(f"column {name!r} appears twice")
    extra = [name for name in names if name not in fields]
    if extra and not ignore_extra:
        raise InvalidInputError(_said_of(extra, schema, flags=ignore_extra is not None))
    for field in schema.fields:
        if not field.nullable and field.name not in names:
            column = STIME if field.name == schema.time and STIME in ours else "COLUMN"
            mend = "" if ignore_extra is None else f"; --map {column}={field.name} says which it is"
            raise InvalidInputError(
                f"no column for field {field.name!r}; it has {few_names([*names, *ours])}{mend}"
            )


def _said_of(extra: Sequence[str], schema: Schema, *, flags: bool) -> str:
    """The error about columns that are no fields. flags: whether to name the command's options
    about them."""
    if not extra:
        return ""
    mend = (
        "; --ignore-extra posts the rows without, --map COLUMN=FIELD says which field a column is"
        if flags
        else ""
    )
    known = ", ".join(field.name for field in schema.fields)
    return f"{few_names(extra)}: no field of the schema{mend}; {schema.name} has: {known}"


def few_names(names: Sequence[str], kind: str = "column") -> str:
    """The first of some names, for a message. kind: what they name."""
    if not names:
        return f"no {kind}"
    shown = ", ".join(repr(name[:SHOWN_CHARACTERS]) for name in names[:SHOWN_NAMES])
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {shown}{more}"


def unfilled_in_words(fields: Sequence[str]) -> str:
    """The message about fields that no column of a file fills."""
    return (
        f"no column for {few_names(fields, 'field')}, null in every row; --map COLUMN=FIELD says "
        "which column is meant"
    )


def to_field(column: pa.ChunkedArray, field: Field, first_row: int) -> pa.ChunkedArray:
    """Convert one column to the field's type.

    Raises:
        InvalidInputError: names the row, the field and the mistake.
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
    if not field.nullable and converted.null_count:
        if not (is_text(column.type) and field.type is FieldType.STRING):
            row = first_row + pc.index(pc.is_null(converted), True).as_py()
            raise InvalidInputError(f"row {row}, field {field.name!r}: null, and it may not be")
        # CSV cannot distinguish an empty text from a missing one; here none may be missing. The
        # reader of a format that can checks this itself.
        converted = pc.fill_null(converted, "")
    _check_size(converted, field, first_row)
    return converted


def _of_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A dictionary-encoded column as a column of its values."""
    kind = column.type.value_type
    if pa.types.is_string_view(kind):  # from polars; Arrow does not cast it whole
        texts = [chunk.dictionary.cast(pa.string()).take(chunk.indices) for chunk in column.chunks]
        return pa.chunked_array(texts, pa.string())
    return column.cast(kind)


def _cast(column: pa.ChunkedArray, field: Field, first_row: int) -> pa.ChunkedArray:
    """
    Raises:
        InvalidInputError: names the first value that is none of the type.
    """
    if field.type is FieldType.TIMESTAMP:
        converted = moments_of(column)
    else:
        cast = _cast_of(column.type, field.type)
        converted = None if cast is None else _nulls_for_failures(column, cast)
    if converted is None:
        raise InvalidInputError(f"field {field.name!r}: a {column.type} is no {field.type}")
    if converted.null_count > column.null_count:
        offset = pc.index(pc.and_(converted.is_null(), column.is_valid()), True).as_py()
        told = _refusal(column[offset], field)
        raise InvalidInputError(f"row {first_row + offset}, field {field.name!r}: {told}")
    return converted


def _refusal(value: pa.Scalar, field: Field) -> str:
    shown = shown_value(value)
    cut = shown if len(shown) <= SHOWN_CHARACTERS else shown[:SHOWN_CHARACTERS] + "..."
    told = f"{cut!r} is no {field.type}"
    if field.type is not FieldType.TIMESTAMP:
        return told
    return f"{told}: {_reason_against(shown) if is_text(value.type) else TOO_FAR}"


_NUMBER: Final = re.compile(NUMBER_FORM)


def _reason_against(text: str) -> str:
    try:
        moment_of(text)
    except ValueError as error:
        if str(error) != FORMS:
            return str(error)
        if not _NUMBER.fullmatch(text):
            return f"{FORMS}; a number is seconds since 1970"
    return TOO_FAR


def shown_value(value: pa.Scalar) -> str:
    """A value as text; a date may be beyond Python's calendar."""
    try:
        return str(value.as_py())
    except (ValueError, OverflowError):
        return f"{value.value} {value.type}"


Cast = Callable[[pa.ChunkedArray], pa.ChunkedArray]


def _cast_of(source: pa.DataType, kind: FieldType) -> Cast | None:
    """The way to read a column of this Arrow type as the field's; None: there is none."""
    target = kind.arrow
    number = pa.types.is_integer(source) or pa.types.is_floating(source)
    number = number or pa.types.is_decimal(source)
    if kind is FieldType.STRING:
        return (lambda c: c.cast(target)) if is_text(source) else None
    if kind is FieldType.BOOL:
        truth = is_text(source) or pa.types.is_boolean(source)
        return (lambda c: c.cast(target)) if truth else None
    if not number and not is_text(source):
        return None
    if kind in {FieldType.SINGLE, FieldType.DOUBLE}:
        # rounding to the nearest float is right; only texts can fail
        return lambda c: c.cast(target, safe=False)
    return lambda c: c.cast(target)


def _nulls_for_failures(column: pa.ChunkedArray, cast: Cast) -> pa.ChunkedArray:
    """The column cast as far as its first value that does not cast, and nulls from there on."""
    try:
        return cast(column)
    except pa.ArrowInvalid:
        good = _first_failure(column, cast)
        left = pa.nulls(len(column) - good, cast(column.slice(0, 0)).type)
        return pa.chunked_array([*cast(column.slice(0, good)).chunks, left])


def _first_failure(column: pa.ChunkedArray, cast: Cast) -> int:
    """The offset of the first value that cannot be cast, by binary search."""
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

"""Checks a posted body against its stream's schema: fields, nulls, sizes, and each stime.

One row in a wrong unit would move the boundary far ahead, and all later rows would be late for
ever, since a boundary is a promise. So a post with such a row, or such a promise, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.moments import moment_text
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.streams.ipc import decode
from medusa.engine.streams.ordering import bounds, is_ordered
from medusa.engine.streams.seconds import micros_of
from medusa.overlay.errors import InvalidInputError

STIME_LIMIT: Final = 2**62
"""The greatest stime, either way, microseconds: within 146,000 years, adding a window or a slack
cannot overflow."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Valid tuples as posted.

    Attributes:
        payload: the schema's fields; may be empty.
        stime: the stime of each row, int64 microseconds; None: the rows get the time of arrival.
        low, high: least and greatest stime; BEGINNING for an empty batch or no stime.
        ordered: no stime is less than the one before it.
    """

    payload: pa.Table
    stime: pa.Array | None = None
    low: int = BEGINNING
    high: int = BEGINNING
    ordered: bool = True

    def arrived(self, stime: int) -> Batch:
        """The same tuples, all with the stime of their arrival."""
        column = pa.repeat(pa.scalar(stime, pa.int64()), self.payload.num_rows)
        return Batch(self.payload, column, stime, stime)


def read_post(body: bytes | bytearray | memoryview, schema: Schema) -> Batch:
    """The tuples in a post's body; an empty body has none.

    Raises:
        InvalidInputError: it does not decode, or does not fit the schema; the message names field
            and row.
    """
    if not len(body):
        return Batch(schema.payload.empty_table())
    payload = decode(body, schema.payload).combine_chunks()
    check_sizes(payload, schema)
    if schema.time is None or not payload.num_rows:
        return Batch(payload)
    stime = times_of(payload, schema)
    ordered = is_ordered(stime)
    return Batch(payload, stime, *bounds(stime, ordered=ordered), ordered)


def check_sizes(payload: pa.Table, schema: Schema) -> None:
    """Raise InvalidInputError if a text is longer than its field allows; the message names field
    and row."""
    for field in schema.fields:
        if field.size is not None and field.type is FieldType.STRING:
            _check_size(payload.column(field.name), field)


def times_of(payload: pa.Table, schema: Schema, first_row: int = 1) -> pa.Array:
    """Each tuple's stime by the schema's time field, microseconds.

    Args:
        first_row: the number of the first tuple, for errors.

    Raises:
        InvalidInputError: a time is null or out of range; names field and row.
    """
    field = None if schema.time is None else schema.field(schema.time)
    if field is None:
        raise InvalidInputError(f"schema {schema.name} has no field {schema.time}, its time")
    column = payload.column(field.name).combine_chunks()
    stime = _stime(column, field, first_row)
    ends = pc.min_max(stime)
    if len(stime) and (ends["min"].as_py() < -STIME_LIMIT or ends["max"].as_py() > STIME_LIMIT):
        outside = pc.or_(pc.less(stime, -STIME_LIMIT), pc.greater(stime, STIME_LIMIT))
        raise _out_of_range(field, column, outside.index(True).as_py(), first_row)
    return stime


def _check_size(column: pa.ChunkedArray, field: Field) -> None:
    lengths = pc.binary_length(column)
    longest = pc.max(lengths).as_py()
    if longest is not None and longest > field.size:
        row = pc.index(pc.greater(lengths, field.size), True).as_py()
        raise InvalidInputError(
            f"field {field.name} takes {lengths[row].as_py()} bytes in row {row + 1}; "
            f"its schema allows {field.size}"
        )


def _stime(column: pa.Array, field: Field, first_row: int) -> pa.Array:
    if column.null_count:
        row = first_row + column.is_null().index(True).as_py()
        raise InvalidInputError(
            f"row {row}, field {field.name!r}: null, and it is the stream's time"
        )
    match field.type:
        case FieldType.TIMESTAMP:
            return column.view(pa.int64())
        case FieldType.LONG:
            return column
        case FieldType.INT:
            return micros_of(column)
        case FieldType.SINGLE | FieldType.DOUBLE:
            return _from_seconds(column, field, first_row)
        case _:
            raise InvalidInputError(
                f"field {field.name} is {field.type.value}: it cannot be a time"
            )


def _from_seconds(seconds: pa.Array, field: Field, first_row: int) -> pa.Array:
    microseconds = micros_of(seconds)
    if microseconds.null_count:
        raise _out_of_range(field, seconds, microseconds.is_null().index(True).as_py(), first_row)
    return microseconds


def _out_of_range(field: Field, column: pa.Array, row: int, first_row: int) -> InvalidInputError:
    shown = _shown(column[row])
    return InvalidInputError(
        f"row {first_row + row}, field {field.name!r}: {shown} is no time of a stream: that has at "
        f"most {STIME_LIMIT} microseconds from 1970"
    )


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_timestamp(value.type):
        return moment_text(value.value)
    return "NaN" if value.as_py() != value.as_py() else str(value)


_UNITS: Final = {1_000: "milliseconds", 1_000_000: "microseconds", 1_000_000_000: "nanoseconds"}
"""The names of units, by their number in a second."""

_PLAUSIBLE_US: Final = 20 * 366 * 86_400 * 1_000_000
"""Twenty years, microseconds: if a time in another unit is so near to the present, that unit was
probably meant."""

_SPANS: Final = (("year", 31_556_952), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def check_ahead(
    times: pa.Array | None,
    promise: int | None,
    schema: Schema,
    stream: StreamDefinition | None,
    now_us: int,
) -> None:
    """Refuse a post with a time that is too far ahead of the clock.

    Args:
        times: the stimes of the rows of a post, microseconds; null: the row has none; None: no row
            has one. promise: the post's boundary. now_us: the clock's time, microseconds.

    Raises:
        InvalidInputError: a time is too far ahead; names row and field.
    """
    if stream is None or stream.max_ahead_us is None:
        return
    latest = now_us + stream.max_ahead_us
    row = -1 if times is None else pc.index(pc.greater(times, latest), True).as_py()
    if times is not None and row >= 0:
        stime = times[row].as_py()
        raise InvalidInputError(
            f"row {row + 1}: {schema.time} is {_in_words(stime - now_us)} ahead of the clock of "
            f"the stream's leader{_unit_meant(stime, now_us, schema)} {_allowed(stream)}"
        )
    if promise is not None and latest < promise < END:
        raise InvalidInputError(
            f"boundary {promise} is {_in_words(promise - now_us)} ahead of the clock of the "
            f"stream's leader: boundaries are microseconds since 1970; {_allowed(stream)}"
        )


def _allowed(stream: StreamDefinition) -> str:
    assert stream.max_ahead_us is not None, "there is a limit"
    allowed = _in_words(stream.max_ahead_us)
    return (
        f"{stream.name} takes {allowed} at most: mend that time; where such times are right, "
        f"`medusa stream alter {stream.name} --max-ahead SECONDS`, or none if they are generated "
        "or recorded ones"
    )


def _unit_meant(stime: int, now_us: int, schema: Schema) -> str:
    """A question that names the unit in which the time would be about the present; "" if there is
    none."""
    field = schema.field(schema.time or "")
    number = field is not None and field.type is FieldType.LONG
    per_second = 1_000_000 if number else 1
    for many, unit in _UNITS.items():
        if many > per_second and abs(stime * per_second // many - now_us) < _PLAUSIBLE_US:
            return f": is it in {unit}, and not in {'micro' if number else ''}seconds?"
    return ";"


def _in_words(microseconds: int) -> str:
    seconds = microseconds / 1e6
    for word, span in _SPANS:
        if seconds >= span:
            count = round(seconds / span)
            return f"{count:,} {word}{'s' if count != 1 else ''}"
    return f"{seconds:.3g} s"

"""Checks a posted body against its stream's schema: fields, nulls, sizes, and each stime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.objects.schema import BEGINNING, Field, FieldType, Schema
from engine.streams.ipc import decode
from engine.streams.ordering import bounds, is_ordered
from overlay.errors import InvalidInputError

STIME_LIMIT: Final = 2**62
"""stime stays within +-146,000 years, microseconds: adding a window or slack cannot overflow."""

_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Batch:
    """Valid tuples as posted.

    Attributes:
        payload: the schema's fields; may be empty.
        stime: of each row, int64 microseconds; None: the time of arrival.
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

    def count_upto(self, boundary: int) -> int:
        """How many tuples have stime <= boundary."""
        count = int(self.payload.num_rows)
        if not count or self.low > boundary:
            return 0
        if self.high <= boundary:
            return count
        return int(pc.sum(pc.less_equal(self.stime, boundary)).as_py())


def read_post(body: bytes | bytearray | memoryview, schema: Schema) -> Batch:
    """The tuples in a post's body; an empty body has none.

    Raises:
        InvalidInputError: it does not decode or is not what the schema says; names field and row.
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
    """InvalidInputError if a text is longer than its field allows; names field and row."""
    for field in schema.fields:
        if field.size is not None and field.type is FieldType.STRING:
            _check_size(payload.column(field.name), field)


def times_of(payload: pa.Table, schema: Schema, first_row: int = 1) -> pa.Array:
    """Each tuple's stime by the schema's time field, microseconds.

    Args:
        first_row: the number of the first tuple, for errors.

    Raises:
        InvalidInputError: it is null or out of range; names field and row.
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
        case FieldType.SINGLE | FieldType.DOUBLE:
            return _from_seconds(column.cast(pa.float64()), field, first_row)
        case _:
            raise InvalidInputError(
                f"field {field.name} is {field.type.value}: it cannot be a time"
            )


def _from_seconds(seconds: pa.Array, field: Field, first_row: int) -> pa.Array:
    microseconds = pc.floor(pc.multiply(seconds, _MICROSECONDS))
    # NaN compares false, so it is outside as well.
    inside = pc.less_equal(pc.abs(microseconds), float(STIME_LIMIT))
    if (row := inside.index(False).as_py()) >= 0:
        raise _out_of_range(field, seconds, row, first_row)
    return microseconds.cast(pa.int64())


def _out_of_range(field: Field, column: pa.Array, row: int, first_row: int) -> InvalidInputError:
    value = str(column[row])
    shown = {"nan": "NaN"}.get(value, value)
    return InvalidInputError(
        f"row {first_row + row}, field {field.name!r}: {shown} is no time of a stream: that has at "
        f"most {STIME_LIMIT} microseconds from 1970"
    )

"""The schema of connection traces, and its conversion from outside columns."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Container, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError

FIELDS: Final = (
    Field("ts", FieldType.DOUBLE),
    Field("src_ip", FieldType.STRING),
    Field("src_port", FieldType.INT, nullable=True),
    Field("dst_ip", FieldType.STRING, nullable=True),
    Field("dst_port", FieldType.INT, nullable=True),
    Field("proto", FieldType.STRING, nullable=True),
    Field("bytes_out", FieldType.LONG, nullable=True),
    Field("bytes_in", FieldType.LONG, nullable=True),
    Field("duration", FieldType.DOUBLE, nullable=True),
)

REQUIRED: Final = ("ts", "src_ip", "dst_port")
"""Columns a trace must have: the intrusion query reads them."""

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "ts": ("ts", "timestamp", "time"),
    "src_ip": ("src_ip", "id.orig_h"),
    "src_port": ("src_port", "id.orig_p"),
    "dst_ip": ("dst_ip", "id.resp_h"),
    "dst_port": ("dst_port", "id.resp_p"),
    "proto": ("proto",),
    "bytes_out": ("bytes_out", "orig_bytes"),
    "bytes_in": ("bytes_in", "resp_bytes"),
    "duration": ("duration",),
}
"""Names of a field in a trace: in our traces, then in Zeek's logs."""

MAX_TS: Final = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC).timestamp()
"""Latest believed ts, seconds: a ts beyond it is in milliseconds or finer."""

MAX_PORT: Final = 65_535

MAX_COLUMNS: Final = 4096
"""Columns of a trace: Zeek's conn.log has two dozen."""


class BadCellError(Exception):
    """A cell that does not fit its field: the row counts from 0 within the given columns."""

    def __init__(self, row: int, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.row = row
        self.field = field
        self.reason = reason


def conn_schema(name: str) -> Schema:
    """The schema of connections under an object name; stime is ts."""
    return Schema(name=name, fields=FIELDS, time="ts")


ARROW: Final = conn_schema("").payload


def pick(field: str, present: Container[str]) -> str | None:
    """The name of a field in a trace, or None."""
    return next((name for name in NAMES[field] if name in present), None)


def choose(columns: list[str]) -> dict[str, str]:
    """Field -> the trace's name for it.

    Raises:
        InvalidInputError: a column that the query needs is missing, or there are too many.
    """
    if len(columns) > MAX_COLUMNS:
        raise InvalidInputError(f"{len(columns)} columns; at most {MAX_COLUMNS} are allowed")
    chosen = {field: name for field in NAMES if (name := pick(field, columns)) is not None}
    for field in REQUIRED:
        if field not in chosen:
            expected = " or ".join(NAMES[field])
            raise InvalidInputError(f"no column {expected}; it has {_few(columns)}")
    return chosen


def _few(columns: list[str]) -> str:
    """The first columns, to recognise a file."""
    more = ", ..." if len(columns) > 30 else ""
    return ", ".join(name[:60] for name in columns[:30]) + more


def fit(columns: Mapping[str, pa.Array], rows: int) -> pa.Table:
    """Convert columns (by field; absent ones become null) to the connection table.

    Raises:
        BadCellError: names the first row and field that does not fit.
    """
    arrays = []
    for field in FIELDS:
        column = columns.get(field.name)
        if column is None:
            arrays.append(pa.nulls(rows, field.type.arrow))
            continue
        arrays.append(_fit_column(field, column))
    return pa.table(arrays, schema=ARROW)


def _fit_column(field: Field, column: pa.Array) -> pa.Array:
    convert = _CONVERSIONS[field.name]
    try:
        fitted = convert(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
        row = _first_failing(column, convert)
        value = column[row]
        raise BadCellError(row, field.name, f"{_shown(value)} is {_WANTED[field.type]}") from None
    if not field.nullable and fitted.null_count:
        row = pc.index(fitted.is_null(), True).as_py()
        raise BadCellError(row, field.name, "is empty, and every connection needs it")
    _check_range(field, fitted)
    return fitted


def _check_range(field: Field, fitted: pa.Array) -> None:
    if field.name == "ts":
        good = pc.less(pc.abs(fitted), MAX_TS)
        reason = "is not seconds since the epoch"
    elif field.name.endswith("_port"):
        good = pc.and_(pc.greater_equal(fitted, 0), pc.less_equal(fitted, MAX_PORT))
        reason = f"is not a port (0 to {MAX_PORT})"
    else:
        return
    # index() finds no null, so nulls of the nullable fields pass.
    row = pc.index(good, False).as_py()
    if row >= 0:
        raise BadCellError(row, field.name, f"{_shown(fitted[row])} {reason}")


def _first_failing(column: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> int:
    """The first row that does not convert, by halving: for the error."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(column.slice(low, middle - low))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError):
            high = middle
        else:
            low = middle
    return low


def _shown(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 60 else text[:57] + "..."


def _to_seconds(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _ticks_to_seconds(column)
    if _is_text(kind):
        try:
            return pc.cast(_plain(column), pa.float64())
        except pa.ArrowInvalid:
            return _iso_to_seconds(_plain(column))
    return pc.cast(column, pa.float64(), safe=False)


def _ticks_to_seconds(column: pa.Array) -> pa.Array:
    """Whole seconds and the rest separately: nanoseconds of today do not fit a double."""
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
    ticks = column.cast(pa.int64())
    whole = pc.divide(ticks, per_second)
    rest = pc.subtract(ticks, pc.multiply(whole, per_second))
    return pc.add(pc.cast(whole, pa.float64()), pc.divide(pc.cast(rest, pa.float64()), per_second))


def _iso_to_seconds(text: pa.Array) -> pa.Array:
    """ISO 8601 with a zone, or without one: then UTC."""
    zoned = pc.match_substring_regex(text, r"(Z|[+-]\d\d:?\d\d)$")
    if pc.all(zoned).as_py():
        return _to_seconds(pc.cast(text, pa.timestamp("ns", "UTC")))
    return _to_seconds(pc.cast(text, pa.timestamp("ns")))


def _to_integer(wanted: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def convert(column: pa.Array) -> pa.Array:
        if not _is_text(column.type):
            return pc.cast(column, wanted)
        try:
            return pc.cast(_plain(column), wanted)
        except pa.ArrowInvalid:
            # tools without null integers write whole numbers as 80.0
            return pc.cast(pc.cast(_plain(column), pa.float64()), wanted)

    return convert


def _to_double(column: pa.Array) -> pa.Array:
    if pa.types.is_duration(column.type):
        return _ticks_to_seconds(column)
    return pc.cast(_plain(column), pa.float64(), safe=False)


def _to_text(column: pa.Array) -> pa.Array:
    text = _plain(column)
    if not pa.types.is_string(text.type):
        raise pa.ArrowInvalid("not text")
    # in every format an empty cell means null
    return pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def _is_text(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_binary(value)
    )


def _plain(column: pa.Array) -> pa.Array:
    """Text of any Arrow encoding, or an all-null column, as plain strings; other columns
    unchanged."""
    if _is_text(column.type) or pa.types.is_null(column.type):
        return pc.cast(column, pa.string())
    return column


_CONVERSIONS: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = {
    "ts": _to_seconds,
    "src_ip": _to_text,
    "src_port": _to_integer(pa.int32()),
    "dst_ip": _to_text,
    "dst_port": _to_integer(pa.int32()),
    "proto": _to_text,
    "bytes_out": _to_integer(pa.int64()),
    "bytes_in": _to_integer(pa.int64()),
    "duration": _to_double,
}

_WANTED: Final[Mapping[FieldType, str]] = {
    FieldType.DOUBLE: "neither a number nor a time",
    FieldType.STRING: "not text",
    FieldType.INT: "not a whole number of 32 bits",
    FieldType.LONG: "not a whole number of 64 bits",
}

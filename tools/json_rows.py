"""JSON lines -> Arrow, typed by the schema, with errors that name row and field."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import IO, Annotated, Any, Final

import msgspec
import pyarrow as pa

from engine.schema import Field, FieldType, Schema
from overlay.encoding import MALFORMED
from overlay.errors import InvalidInputError

MAX_LINE_BYTES: Final = 8 * 2**20
"""One tuple cannot be longer than a message of the wire."""

MAX_BATCH_BYTES: Final = 16 * 2**20
"""Of the lines of one batch: as Python's objects they take several times that."""

MAX_SECONDS: Final = 9.2e12
"""From the epoch: what int64 microseconds can hold."""


def _integer(bits: int) -> object:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_TYPES: Final[dict[FieldType, object]] = {
    FieldType.BOOL: bool,
    FieldType.BYTE: _integer(8),
    FieldType.SHORT: _integer(16),
    FieldType.INT: _integer(32),
    FieldType.LONG: _integer(64),
    FieldType.SINGLE: float,
    FieldType.DOUBLE: float,
    FieldType.STRING: str,
    # RFC 3339, or seconds since the epoch.
    FieldType.TIMESTAMP: datetime.datetime
    | Annotated[float, msgspec.Meta(ge=-MAX_SECONDS, le=MAX_SECONDS)],
}


class JsonRows:
    """Decodes lines of one schema."""

    def __init__(self, schema: Schema, *, ignore_extra: bool) -> None:
        self._schema = schema
        names = {f"f{i}": field.name for i, field in enumerate(schema.fields)}
        row = msgspec.defstruct(
            "Row",
            [_attribute(i, field) for i, field in enumerate(schema.fields)],
            rename=names,
            forbid_unknown_fields=not ignore_extra,
            kw_only=True,
        )
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row)

    def tables(self, file: IO[bytes], rows: int) -> Iterator[pa.Table]:
        """The lines of the file, `rows` at a time, fewer of long ones; empty ones are skipped.

        Raises:
            InvalidInputError: naming the row (lines counted from 1) and the field.
        """
        batch: list[Any] = []
        number = size = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise InvalidInputError(f"row {number}: longer than {MAX_LINE_BYTES} bytes")
            if line.isspace():
                continue
            batch.append(self._decode(line, number))
            size += len(line)
            if len(batch) == rows or size >= MAX_BATCH_BYTES:
                yield self._table(batch)
                batch, size = [], 0
        if batch:
            yield self._table(batch)

    def _decode(self, line: bytes, number: int) -> object:
        try:
            return self._decoder.decode(line)
        except RecursionError:
            raise InvalidInputError(f"row {number}: nested too deeply") from None
        except MALFORMED as error:
            # msgspec names the field as a path: "... - at `$.port`"
            raise InvalidInputError(f"row {number}: {error}") from None

    def _table(self, batch: Sequence[Any]) -> pa.Table:
        columns = [
            _column([getattr(row, f"f{i}") for row in batch], field)
            for i, field in enumerate(self._schema.fields)
        ]
        return pa.table(columns, names=[field.name for field in self._schema.fields])


def _attribute(index: int, field: Field) -> Any:  # noqa: ANN401 - what defstruct takes
    kind: Any = _TYPES[field.type]
    if field.nullable:
        return (f"f{index}", kind | None, None)
    return (f"f{index}", kind)


def _column(values: list[Any], field: Field) -> pa.Array:
    if field.type is FieldType.TIMESTAMP:
        return pa.array([_micros(value) for value in values], pa.int64()).cast(field.type.arrow)
    return pa.array(values, field.type.arrow)


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def _micros(value: datetime.datetime | float | None) -> int | None:
    match value:
        case datetime.datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
            return (aware - _EPOCH) // _MICROSECOND
        case None:
            return None
        case seconds:
            return int(seconds * 1e6 // 1)

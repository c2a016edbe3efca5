"""Parses JSON, lines or an array, into Arrow typed by the schema; errors name row and field."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from engine.objects.schema import Field, FieldType
from overlay.encoding import MALFORMED
from overlay.errors import InvalidInputError
from tools.rows.columns import Columns

MAX_ARRAY_BYTES: Final = 64 * 2**20
"""Bytes of an array, which is read as a whole: as objects its rows take several times that."""


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
    FieldType.TIMESTAMP: str | float,  # see `tools.rows.moments`
}


class JsonRows:
    """Decodes objects that are rows of one schema."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._fields = columns.schema.fields
        names = {f"f{i}": columns.column_of(field.name) for i, field in enumerate(self._fields)}
        row = msgspec.defstruct(
            "Row",
            [_attribute(i, field) for i, field in enumerate(self._fields)],
            rename=names,
            forbid_unknown_fields=not columns.ignore_extra,
            kw_only=True,
        )
        self._row: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row)
        self._array: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list[row])  # type: ignore[valid-type]  # made above

    def tables(self, blocks: Iterator[bytes]) -> Iterator[pa.Table]:
        """The rows of blocks of lines with an object each; empty lines are skipped.

        Raises:
            InvalidInputError: names the row (counting non-empty lines from 1) and the field.
        """
        done = 0
        for block in blocks:
            try:
                rows = self._row.decode_lines(block)
            except MALFORMED:
                self._find_fault(block, done + 1)
                raise
            if self._columns.ignore_extra:
                self._note_dropped(_KEYS.decode_lines(block))
            done += len(rows)
            yield self._table(rows)

    def array(self, pieces: Iterator[bytes]) -> Iterator[pa.Table]:
        """The rows of an array of objects, which is read as a whole.

        Raises:
            InvalidInputError: names the row, from 1, and the field; or the array is too long.
        """
        whole = b""
        for piece in pieces:
            whole += piece
            if len(whole) > MAX_ARRAY_BYTES:
                raise InvalidInputError(
                    f"a JSON array is read at once, and this one has more than {MAX_ARRAY_BYTES} "
                    "bytes: write an object a line (jq -c '.[]')"
                )
        try:
            rows = self._array.decode(whole)
        except RecursionError:
            raise InvalidInputError("nested too deeply") from None
        except MALFORMED as error:
            raise InvalidInputError(_ELEMENT.sub(_from_one, str(error))) from None
        if self._columns.ignore_extra:
            self._note_dropped(_ARRAY_KEYS.decode(whole))
        yield self._table(rows)

    def _note_dropped(self, rows: list[dict[str, msgspec.Raw]]) -> None:
        self._columns.drop(sorted(set().union(*rows)))

    def _find_fault(self, block: bytes, row: int) -> None:
        """
        Raises:
            InvalidInputError: names the first row that cannot be decoded.
        """
        for line in block.splitlines():
            if line.isspace() or not line:
                continue
            try:
                self._row.decode(line)
            except RecursionError:
                raise InvalidInputError(f"row {row}: nested too deeply") from None
            except MALFORMED as error:
                # msgspec names the field as a path: "... - at `$.port`"
                extra = self._extra(line)
                raise InvalidInputError(f"row {row}: {extra or error}") from None
            row += 1

    def _extra(self, line: bytes) -> str:
        """The error about fields of an object that the schema does not have."""
        if not self._columns.ignore_extra:
            with suppress(*MALFORMED):
                return self._columns.refusal(list(_KEYS.decode(line)))
        return ""

    def _table(self, batch: Sequence[Any]) -> pa.Table:
        columns = [
            _column([getattr(row, f"f{i}") for row in batch], field)
            for i, field in enumerate(self._fields)
        ]
        names = [self._columns.column_of(field.name) for field in self._fields]
        return pa.table(columns, names=names)


def _attribute(index: int, field: Field) -> Any:  # noqa: ANN401 - what defstruct takes
    kind: Any = _TYPES[field.type]
    if field.nullable:
        return (f"f{index}", kind | None, None)
    return (f"f{index}", kind)


def _column(values: list[Any], field: Field) -> pa.Array:
    if field.type is FieldType.TIMESTAMP:
        return _times(values)
    return pa.array(values, field.type.arrow)


def _times(values: list[str | float | None]) -> pa.Array:
    """Texts or numbers, as they are; as texts where there are both."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {str, float}:
        return pa.array([repr(each) if isinstance(each, float) else each for each in values])
    return pa.array(values, pa.float64() if kinds == {float} else pa.string())


_KEYS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY_KEYS: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

_ELEMENT: Final = re.compile(r"`\$\[(\d+)\]")
"""An element of an array in msgspec's errors."""


def _from_one(match: re.Match[str]) -> str:
    return f"row {int(match[1]) + 1}, `$"

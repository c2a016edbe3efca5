"""Parses JSON, lines or an array, into Arrow typed by the schema; errors name row and field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import UNSET

from engine.objects.schema import Field, FieldType
from overlay.encoding import MALFORMED
from overlay.errors import InvalidInputError
from tools.rows.columns import OURS, Columns

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
        self._ours = sorted(OURS - {*columns.wanted(sorted(OURS))})
        self._dotted: dict[str, str] = {}
        self._read_as({})

    def _read_as(self, dotted: Mapping[str, str]) -> None:
        """Make the decoders.

        Args:
            dotted: by field, the name of its column, if that has dots.
        """
        self._dotted |= dotted
        attributes = [_attribute(i, field) for i, field in enumerate(self._fields)]
        names = {f"f{i}": self._column_of(field.name) for i, field in enumerate(self._fields)}
        row = msgspec.defstruct(
            "Row",
            [*attributes, *((each, msgspec.Raw | msgspec.UnsetType, UNSET) for each in self._ours)],
            rename=names,
            forbid_unknown_fields=not self._columns.ignore_extra,
            kw_only=True,
        )
        self._row: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row)
        self._array: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list[row])  # type: ignore[valid-type]  # made above

    def _column_of(self, field: str) -> str:
        return self._dotted.get(field, self._columns.column_of(field))

    def tables(self, blocks: Iterator[bytes]) -> Iterator[pa.Table]:
        """The rows of blocks of lines with an object each; empty lines are skipped.

        Raises:
            InvalidInputError: names the row (counting non-empty lines from 1) and the field.
        """
        done = 0
        for block in blocks:
            rows = self._rows(block, done + 1)
            done += len(rows)
            yield self._table(rows)

    def _rows(self, block: bytes, first_row: int) -> list[Any]:
        """The rows of lines. first_row: the number of their first, for errors."""
        try:
            rows: list[Any] = self._row.decode_lines(block)
        except MALFORMED:
            if not self._finds_dotted(block, _KEYS.decode_lines):
                self._find_fault(block, first_row)
                raise
            return self._rows(block, first_row)
        if self._columns.ignore_extra:
            keys = _KEYS.decode_lines(block)
            if self._read_dotted(keys):
                return self._rows(block, first_row)
            self._note_dropped(keys)
        return rows

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
        yield self._table(self._elements(whole))

    def _elements(self, whole: bytes) -> list[Any]:
        try:
            rows: list[Any] = self._array.decode(whole)
        except RecursionError:
            raise InvalidInputError("nested too deeply") from None
        except MALFORMED as error:
            if self._finds_dotted(whole, _ARRAY_KEYS.decode):
                return self._elements(whole)
            raise InvalidInputError(_ELEMENT.sub(_from_one, str(error))) from None
        if self._columns.ignore_extra:
            keys = _ARRAY_KEYS.decode(whole)
            if self._read_dotted(keys):
                return self._elements(whole)
            self._note_dropped(keys)
        return rows

    def _finds_dotted(self, data: bytes, read: Callable[[bytes], list[_Keys]]) -> bool:
        """Whether rows were not read because keys with dots had not been seen before."""
        with suppress(*MALFORMED):
            return self._read_dotted(read(data))
        return False

    def _read_dotted(self, rows: list[_Keys]) -> bool:
        """Read keys with dots as fields from now on; whether there are new ones."""
        dotted = self._columns.dotted(sorted(set().union(*rows)))
        new = {f: key for f, key in dotted.items() if key != self._column_of(f)}
        new = {f: key for f, key in new.items() if f not in self._dotted}
        if new:
            self._read_as(new)
        return bool(new)

    def _note_dropped(self, rows: list[_Keys]) -> None:
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
        """The rows' columns; one without any value has Arrow's type of nulls."""
        if batch and not self._columns.ignore_extra:  # rows of ours have the same columns
            self._columns.drop(each for each in self._ours if getattr(batch[0], each) is not UNSET)
        columns = [
            _column([getattr(row, f"f{i}") for row in batch], field)
            for i, field in enumerate(self._fields)
        ]
        names = [self._column_of(field.name) for field in self._fields]
        return pa.table(columns, names=names)


def _attribute(index: int, field: Field) -> Any:  # noqa: ANN401 - what defstruct takes
    kind: Any = _TYPES[field.type]
    if field.nullable:
        return (f"f{index}", kind | None, None)
    return (f"f{index}", kind)


def _column(values: list[Any], field: Field) -> pa.Array:
    time = field.type is FieldType.TIMESTAMP
    made = _times(values) if time else pa.array(values, field.type.arrow)
    return made if made.null_count < len(made) else pa.nulls(len(made))


def _times(values: list[str | float | None]) -> pa.Array:
    """Texts or numbers, as they are; as texts where there are both."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {str, float}:
        return pa.array([repr(each) if isinstance(each, float) else each for each in values])
    return pa.array(values, pa.float64() if kinds == {float} else pa.string())


_Keys: TypeAlias = dict[str, msgspec.Raw]
_KEYS: Final = msgspec.json.Decoder(_Keys)
_ARRAY_KEYS: Final = msgspec.json.Decoder(list[_Keys])

_ELEMENT: Final = re.compile(r"`\$\[(\d+)\]")
"""An element of an array in msgspec's errors."""


def _from_one(match: re.Match[str]) -> str:
    return f"row {int(match[1]) + 1}, `$"

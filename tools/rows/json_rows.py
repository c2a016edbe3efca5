"""Parses JSON, lines or an array, into Arrow typed by the schema; errors name row and field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import repeat
from operator import length_hint
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import UNSET

from medusa.engine.objects.schema import Field, FieldType
from medusa.overlay.encoding import MALFORMED
from medusa.overlay.errors import InvalidInputError
from medusa.tools.rows.columns import OURS, Columns
from medusa.tools.rows.json_faults import (
    MEMBERS,
    TYPES,
    Members,
    fault_in,
    lines_of,
    name_twice,
    no_json,
    quotes,
)

MAX_ARRAY_BYTES: Final = 64 * 2**20
"""Bytes of an array, which is read as a whole: as objects its rows take several times that."""

_MANY: Final = 2**62
"""More values than a file has."""


class _Form(NamedTuple):
    """The layout of the objects in a text.

    Attributes:
        members: reads each as names with values. each: cuts the text into them.
    """

    members: Callable[[bytes], list[Members]]
    each: Callable[[bytes], Iterable[bytes]]


def _elements(text: bytes) -> Iterator[bytes]:
    return map(bytes, _ELEMENTS.decode(text))


_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_LINES: Final = _Form(MEMBERS.decode_lines, lines_of)
_ARRAY: Final = _Form(msgspec.json.Decoder(list[Members]).decode, _elements)


class JsonRows:
    """Decodes objects that are rows of one schema.

    A decoder silently takes the last of two values with one name. So the quotation marks of a text
    are counted: two for each name that was read, and two for each text. If there are more, its rows
    are read again, one by one.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._fields = columns.schema.fields
        self._ours = sorted(OURS - {*columns.wanted(sorted(OURS))})
        self._dotted: dict[str, str] = {}
        # UNSET is the value of an absent field; the rest of the iterator shows how many were absent
        self._nulls, self._unset = repeat(None, _MANY), repeat(UNSET, _MANY)
        self._read_as({})

    def _read_as(self, dotted: Mapping[str, str]) -> None:
        """Make the decoders.

        Args:
            dotted: by field, the name of its column, if that has dots.
        """
        self._dotted |= dotted
        attributes = [self._attribute(i, field) for i, field in enumerate(self._fields)]
        names = {f"f{i}": self._column_of(field.name) for i, field in enumerate(self._fields)}
        unset = msgspec.field(default_factory=self._unset.__next__)
        row = msgspec.defstruct(
            "Row",
            [*attributes, *((each, msgspec.Raw | msgspec.UnsetType, unset) for each in self._ours)],
            rename=names,
            forbid_unknown_fields=not self._columns.ignore_extra,
            kw_only=True,
        )
        self._rows: dict[_Form, Callable[[bytes], list[Any]]] = {
            _LINES: msgspec.json.Decoder(row).decode_lines,
            _ARRAY: msgspec.json.Decoder(list[row]).decode,  # type: ignore[valid-type]  # made above
        }

    def _attribute(self, index: int, field: Field) -> Any:  # noqa: ANN401 - what defstruct takes
        kind: Any = TYPES[field.type]
        if not field.nullable:
            return (f"f{index}", kind)
        return (f"f{index}", kind | None, msgspec.field(default_factory=self._nulls.__next__))

    def _column_of(self, field: str) -> str:
        return self._dotted.get(field, self._columns.column_of(field))

    def tables(self, blocks: Iterator[bytes]) -> Iterator[pa.Table]:
        """The rows of blocks of lines with an object each; empty lines are skipped.

        Raises:
            InvalidInputError: names the row (counting non-empty lines from 1) and the field.
        """
        done = 0
        for block in blocks:
            table = self._read(block, _LINES, done + 1)
            done += table.num_rows
            yield table

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
        yield self._read(whole, _ARRAY, 1)

    def _read(self, text: bytes, form: _Form, first_row: int) -> pa.Table:
        """The rows of a text. first_row: the number of its first, for errors."""
        nulls, unset = length_hint(self._nulls), length_hint(self._unset)
        try:
            rows = self._rows[form](text)
        except MALFORMED:
            if not self._finds_dotted(text, form):
                self._find_fault(text, form, first_row)
                raise
            return self._read(text, form, first_row)
        nulls, unset = nulls - length_hint(self._nulls), unset - length_hint(self._unset)
        table, texts = self._table(rows)
        if self._columns.ignore_extra:
            members = form.members(text)
            if self._read_dotted(members):
                return self._read(text, form, first_row)
            self._columns.drop(sorted(set().union(*members)))
            marks = quotes(msgspec.json.encode(members))
        else:
            marks = 2 * (len(rows) * len(self._fields) - nulls + texts)
            if unset < len(rows) * len(self._ours):
                marks += self._marks_of_ours(rows)
        if quotes(text) != marks:
            self._find_fault(text, form, first_row)
        return table

    def _marks_of_ours(self, rows: list[Any]) -> int:
        """The quotation marks of columns of ours; their names are noted as not posted."""
        marks = 0
        for name in self._ours:
            given = [each for row in rows if (each := getattr(row, name)) is not UNSET]
            marks += 2 * len(given) + quotes(msgspec.json.encode(given))
            if given:
                self._columns.drop([name])
        return marks

    def _finds_dotted(self, text: bytes, form: _Form) -> bool:
        """Whether rows were not read because keys with dots had not been seen before."""
        with suppress(*MALFORMED):
            return self._read_dotted(form.members(text))
        return False

    def _read_dotted(self, rows: list[Members]) -> bool:
        """Read keys with dots as fields from now on; whether there are new ones."""
        dotted = self._columns.dotted(sorted(set().union(*rows)))
        new = {f: key for f, key in dotted.items() if key != self._column_of(f)}
        new = {f: key for f, key in new.items() if f not in self._dotted}
        if new:
            self._read_as(new)
        return bool(new)

    def _find_fault(self, text: bytes, form: _Form, first_row: int) -> None:
        """
        Raises:
            InvalidInputError: names the first row that has a fault, if one has.
        """
        try:
            rows = form.each(text)
        except MALFORMED as error:
            raise InvalidInputError(no_json(text, error, "array")) from None
        columns = {self._column_of(field.name): field for field in self._fields}
        for number, row in enumerate(rows, first_row):
            if told := self._extra(row) or name_twice(row) or fault_in(row, columns):
                raise InvalidInputError(f"row {number}{told}")

    def _extra(self, row: bytes) -> str:
        """The error about fields of an object that the schema does not have."""
        if not self._columns.ignore_extra:
            with suppress(*MALFORMED):
                extra = self._columns.refusal(list(MEMBERS.decode(row)))
                return f": {extra}" if extra else ""
        return ""

    def _table(self, rows: list[Any]) -> tuple[pa.Table, int]:
        """The rows' columns, and how many texts are in them; one without any value has Arrow's type
        of nulls."""
        columns = [
            _column([getattr(row, f"f{i}") for row in rows], field)
            for i, field in enumerate(self._fields)
        ]
        names = [self._column_of(field.name) for field in self._fields]
        return pa.table([made for made, _ in columns], names=names), sum(n for _, n in columns)


def _column(values: list[Any], field: Field) -> tuple[pa.Array, int]:
    if field.type is FieldType.TIMESTAMP:
        made, texts = _times(values)
    else:
        made = pa.array(values, field.type.arrow)
        texts = len(made) - made.null_count if field.type is FieldType.STRING else 0
    return made if made.null_count < len(made) else pa.nulls(len(made)), texts


def _times(values: list[str | float | None]) -> tuple[pa.Array, int]:
    """The values unchanged if all are texts or all are numbers, else all as texts; and the number
    of texts."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {str, float}:
        made = [repr(each) if isinstance(each, float) else each for each in values]
        return pa.array(made), sum(isinstance(each, str) for each in values)
    if kinds == {float}:
        return pa.array(values, pa.float64()), 0
    column = pa.array(values, pa.string())
    return column, len(column) - column.null_count

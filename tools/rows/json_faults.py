"""Describes the fault of a row of JSON in the words of the other formats: the field, its value, and
the type that the schema has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, TypeAlias

import msgspec
import numpy as np

from medusa.engine.objects.schema import Field, FieldType
from medusa.overlay.encoding import MALFORMED
from medusa.tools.rows.columns import SHOWN_CHARACTERS

Members: TypeAlias = dict[str, msgspec.Raw]
"""An object: each of its values as text of JSON."""

MEMBERS: Final = msgspec.json.Decoder(Members)

NO_OBJECT: Final = 'a row is an object, {"field": value, ...}'


def _integer(bits: int) -> object:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


TYPES: Final[dict[FieldType, object]] = {
    FieldType.BOOL: bool,
    FieldType.BYTE: _integer(8),
    FieldType.SHORT: _integer(16),
    FieldType.INT: _integer(32),
    FieldType.LONG: _integer(64),
    FieldType.SINGLE: float,
    FieldType.DOUBLE: float,
    FieldType.STRING: str,
    FieldType.TIMESTAMP: str | float,  # see `medusa.tools.rows.moments`
}
"""The values that a field of each type accepts."""


def _whole(bits: int) -> str:
    return f"a whole number from {-(2 ** (bits - 1))} to {2 ** (bits - 1) - 1}"


_TAKEN: Final = {
    FieldType.BOOL: "true or false",
    FieldType.BYTE: _whole(8),
    FieldType.SHORT: _whole(16),
    FieldType.INT: _whole(32),
    FieldType.LONG: _whole(64),
    FieldType.SINGLE: "a number",
    FieldType.DOUBLE: "a number of 64 bits",
    FieldType.STRING: "a text",
    FieldType.TIMESTAMP: "a text, or a number of seconds since 1970",
}

_KINDS: Final = {b'"': "a text", b"{": "an object", b"[": "a list", b"t": "a bool", b"f": "a bool"}
"""Kinds of values, by their first byte; all others are numbers."""


def lines_of(text: bytes) -> Iterator[bytes]:
    """The lines that are not empty."""
    return (line for line in text.split(b"\n") if line and not line.isspace())


def fault_in(row: bytes, columns: Mapping[str, Field]) -> str:
    """Why an object is no row, as words that follow the row's number; "": it is one, apart from its
    names.

    Args:
        columns: the fields, by the columns' names.
    """
    try:
        members = MEMBERS.decode(row)
    except MALFORMED as error:
        return f": {no_json(row, error, 'object')}"
    for column, field in columns.items():
        if told := _fault_of(members.get(column), field):
            return f", field {field.name!r}: {told}"
    return ""


def _fault_of(raw: msgspec.Raw | None, field: Field) -> str:
    written = b"" if raw is None else bytes(raw)
    if written in {b"", b"null"}:
        missing = "null" if written else "missing"
        return "" if field.nullable else f"{missing}, and it may not be"
    try:
        msgspec.json.decode(written, type=TYPES[field.type])
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except MALFORMED:
        kind = _KINDS.get(written[:1], "a number")
        return f"{_shown(written)} is {kind}, and {_article(field)} is {_TAKEN[field.type]}"
    return ""


def _article(field: Field) -> str:
    return f"an {field.type}" if field.type is FieldType.INT else f"a {field.type}"


_BYTE: Final = re.compile(r"\(byte (\d+)\)$")
"""The place, from 0, in msgspec's errors about bytes that are no JSON."""


_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def no_json(text: bytes, error: Exception, kind: str) -> str:
    """Why a text is not JSON of a kind: an object or an array."""
    match error:
        case RecursionError():
            return "nested too deeply"
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case msgspec.ValidationError():
            return NO_OBJECT
        case _:
            return _not_json(text, str(error), kind)


def _not_json(text: bytes, error: str, kind: str) -> str:
    place = _BYTE.search(error)
    if place is None and text.rstrip()[-1:] in {b"}", b"]"} and _SURROGATE.search(text):
        return "a text has half of a surrogate pair, like \\ud800 without \\udc00 behind it"
    if place is None:
        end = "each object on one line (jq -c .)" if kind == "object" else "its end is missing"
        return f"it breaks off: {end}"
    at = int(place[1])
    if "trailing characters" in error:
        return f"more after the {kind}: {_shown(text[at - 1 :].lstrip())}"
    return f"no JSON from byte {at + 1} on: {_shown(text[at:])}"


def _shown(written: bytes) -> str:
    text = written.decode(errors="replace")
    cut = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
    return ascii(cut)[1:-1] if not cut.isprintable() else cut


_MARK: Final = ord('"')


def quotes(text: bytes) -> int:
    """How many quotation marks begin or end a text in JSON."""
    # this is five times as fast as bytes.count, which takes 3 % of the reading time
    marks = int(np.count_nonzero(np.frombuffer(text, np.uint8) == _MARK))
    if b"\\" not in text:
        return marks
    # without escaped quotation marks, whose backslash is not escaped itself
    return marks - text.replace(b"\\\\", b"").count(b'\\"')


def name_twice(row: bytes) -> str:
    """The fault of an object that has a name twice, as words that follow the row's number; "": it
    has no name twice, or is no object."""
    try:
        once = quotes(row) == quotes(msgspec.json.encode(MEMBERS.decode(row)))
    except MALFORMED:
        return ""
    if once:
        return ""
    names = json.loads(row, object_pairs_hook=_names, parse_int=str, parse_float=str)
    twice = next(name for at, name in enumerate(names) if name in names[:at])
    return f": column {twice[:SHOWN_CHARACTERS]!r} appears twice"


def _names(members: list[tuple[str, object]]) -> list[str]:
    return [name for name, _ in members]

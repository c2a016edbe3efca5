"""The fields of a schema, from a short text."""

from __future__ import annotations

import re
from typing import Final

from medusa.engine.objects.schema import Field, FieldType

_FIELD: Final = re.compile(r"(\w+) (\w+)(?:\((\d+)\))?(\?)?")


def fields_of(text: str) -> tuple[Field, ...]:
    """Return the fields that a text like `at timestamp, name string(8), rate double?` has; the last
    of these may be null."""
    found = [_FIELD.fullmatch(part) for part in text.split(", ")]
    assert all(found), text
    return tuple(
        Field(each[1], FieldType(each[2]), int(each[3]) if each[3] else None, bool(each[4]))
        for each in found
        if each
    )

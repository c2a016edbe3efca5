"""Names and lengths as SQL, from which `medusa.engine.language.sql.script` reads the same names and
lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from medusa.engine.expressions.printing import name_text
from medusa.engine.expressions.spans import in_units
from medusa.engine.expressions.type_grammar import TYPES
from medusa.engine.objects.schema import FieldType
from medusa.overlay.names import ObjectName

_TYPE_NAMES: Final = {FieldType(type_): name for name, type_ in reversed(TYPES.items())}
"""Our own names of types."""


def object_sql(name: str) -> str:
    """The name of a stream, schema or query: `medusa://mit.edu/a/b` is `mit.edu."a/b"`."""
    parsed = ObjectName.parse(name)
    return ".".join(map(name_text, (*parsed.participant.split("."), parsed.path)))


def type_sql(type_: FieldType) -> str:
    return _TYPE_NAMES[type_]


def interval_sql(microseconds: int) -> str:
    number, unit = in_units(microseconds)
    return f"INTERVAL '{number}' {unit.upper()}"


def options_sql(options: Sequence[tuple[str, str]]) -> str:
    """`WITH (...)` with a blank before it; "" if there are no options."""
    if not options:
        return ""
    told = ", ".join(f"{name_text(name)} = {value}" for name, value in options)
    return f" WITH ({told})"

"""All scalar functions and signs, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from medusa.engine.scalars.addresses import ADDRESSES
from medusa.engine.scalars.choices import CHOICES
from medusa.engine.scalars.hashes import HASHES
from medusa.engine.scalars.json_texts import JSON
from medusa.engine.scalars.moments import LATER, MOMENTS
from medusa.engine.scalars.numbers import NUMBERS_FAMILY
from medusa.engine.scalars.regexes import REGEXES
from medusa.engine.scalars.scalar import Scalar, ShortForm
from medusa.engine.scalars.signs import SIGNS
from medusa.engine.scalars.texts import TEXTS

FAMILIES: Final = (CHOICES, NUMBERS_FAMILY, MOMENTS, TEXTS, REGEXES, JSON, ADDRESSES, HASHES)
"""The families of functions, in the order of the documentation."""

_ROWS: Final = tuple(row for family in FAMILIES for row in family.rows)

SCALARS: Final[Mapping[str, Scalar]] = {
    row.name: row for row in (*SIGNS, LATER, *_ROWS) if isinstance(row, Scalar)
}

SHORT_FORMS: Final[Mapping[str, ShortForm]] = {
    row.name: row for row in _ROWS if isinstance(row, ShortForm)
}

OTHER_NAMES: Final[Mapping[str, str]] = {
    name: row.name for row in _ROWS for name in row.other_names
}
"""Names that other systems use, and the function that each means here."""

FUNCTIONS: Final = frozenset({*(row.name for row in _ROWS), *OTHER_NAMES})
"""The names that a call may have."""

"""All aggregate functions, by name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from medusa.engine.aggregates import (
    counts,
    distinct,
    ends,
    extremes,
    percentiles,
    sums,
    texts,
    variances,
)
from medusa.engine.aggregates.function import AggregateFunction
from medusa.overlay.errors import InvalidInputError

AGGREGATES: Final[Mapping[str, AggregateFunction]] = {
    row.name: row
    for family in (counts, distinct, sums, extremes, ends, variances, percentiles, texts)
    for row in family.ROWS
}

OTHER_NAMES: Final[Mapping[str, AggregateFunction]] = {
    name: row for row in AGGREGATES.values() for name in row.other_names
}
"""Other names that SQL has for the same functions; they are read, and never written."""

NAMES: Final[Mapping[str, AggregateFunction]] = {**AGGREGATES, **OTHER_NAMES}
"""The functions, by every name that is read."""


def aggregate_named(name: str) -> AggregateFunction:
    """The function of that name. Raises: InvalidInputError: there is none; the message lists
    similar names."""
    found = NAMES.get(name)
    if found is None:
        alike = get_close_matches(name[:80], NAMES) or NAMES
        raise InvalidInputError(
            f"there is no aggregate {name[:64]!a}; there are {', '.join(alike)}"
        )
    return found

"""Floats as keys and in orders: equal values are one key, and NaN is greater than every number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from medusa.engine.evaluation.expressions import Row
from medusa.engine.scalars.values import Value


def plain_floats(rows: Sequence[Row]) -> list[Row]:
    """The rows with 0.0 for -0.0, and with one object for every NaN: Python takes two objects for
    two keys of a dictionary.
    """
    return [_plain(row) for row in rows]


def _plain(row: Row) -> Row:
    changed = {name: plain_float(value) for name, value in row.items() if isinstance(value, float)}
    return row | changed if changed else row


def plain_float(value: float) -> float:
    """The float with one kind of NaN, and without -0.0: see `plain_floats`."""
    return math.nan if math.isnan(value) else value + 0.0


def nulls_last(value: Value) -> tuple[bool, bool, Value]:
    """A sort key for values: numbers, NaN, nulls."""
    is_nan = value != value  # noqa: PLR0124 - only NaN differs from itself
    return value is None, is_nan, None if is_nan else value

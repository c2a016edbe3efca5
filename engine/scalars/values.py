"""Fits values of fields to a type."""

from __future__ import annotations

import math
import struct
from typing import Any, TypeAlias

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.type_rules import INTEGER_RANGE, INTEGERS

Value: TypeAlias = Any
"""The value of a field: a number, a text, a truth value, or None."""


def fitted(value: Value, type_: FieldType) -> Value:
    """The result of an operation as a value of its type: null for an integer that does not fit, and
    0.0 for -0.0, so that equal values have equal bytes everywhere. So a user's function never sees
    a negative zero, as with Spark."""
    if value is None:
        return None
    if type_ in INTEGERS:
        return int(value) if int(value) in INTEGER_RANGE[type_] else None
    if type_ is FieldType.SINGLE:
        return single(value) + 0.0
    return float(value) + 0.0 if type_ is FieldType.DOUBLE else value


def single(value: float) -> float:
    """The nearest number of 32 bits by IEEE 754; beyond the greatest one, infinity."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)

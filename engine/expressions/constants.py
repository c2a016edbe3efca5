"""Constants of expressions: numbers and times as they are written, and their wider types."""

from __future__ import annotations

import re
import struct
from typing import cast

from medusa.engine.expressions.typed import Constant, Expression, Operation
from medusa.engine.objects.moments import moment_of
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.casts import CAST, can_cast
from medusa.engine.scalars.type_rules import INTEGER_RANGE, INTEGERS, NUMBERS, common_type

_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def number(text: str) -> Constant:
    """The number that a text denotes, as an int if it fits, else as a long, else as a double.

    Raises:
        ValueError: it denotes no number, or none that fits; the message says which.
    """
    digits = text.removeprefix("-")
    if _NUMBER.fullmatch(digits) is None:
        raise ValueError(f"{text[:40]!a} is not a number")
    if digits.isdecimal() and len(digits) <= 19:
        value = int(text)
        for type_ in (FieldType.INT, FieldType.LONG):
            if value in INTEGER_RANGE[type_]:
                return Constant(value, type_)
    double = float(text) + 0.0  # results never have -0.0
    if digits.isdecimal() or double in {float("inf"), float("-inf")}:
        raise ValueError(f"{text[:40]!a} does not fit a number")
    return Constant(double, FieldType.DOUBLE)


def folded(constant: Constant, target: FieldType) -> Constant | None:
    """The constant as a constant of type `target`; None if it needs a cast.

    Raises:
        ValueError: a text cannot be read as a timestamp.
    """
    value = constant.value
    if target is FieldType.TIMESTAMP and isinstance(value, str):
        return Constant(_moment(value), target)
    if value is None and can_cast(constant.type, target):
        return Constant(None, target)
    if constant.type in INTEGERS and target in INTEGERS:
        fits = value in INTEGER_RANGE[target]
        return Constant(value if fits else None, target)
    widens = constant.type in NUMBERS and common_type((constant.type, target)) is target
    return cast("Constant", widened(constant, target)) if widens else None


def widened(expression: Expression, target: FieldType) -> Expression:
    """The expression, widened to a type; a constant stays a constant."""
    if expression.type is target:
        return expression
    if not isinstance(expression, Constant):
        return Operation(CAST, (expression,), target)
    value = expression.value
    if isinstance(value, int) and target is FieldType.SINGLE:
        value = float(struct.unpack("<f", struct.pack("<f", value))[0])
    elif isinstance(value, int) and target is FieldType.DOUBLE:
        value = float(value)
    return Constant(value, target)


def _moment(text: str) -> int:
    try:
        return moment_of(text)
    except ValueError as error:
        raise ValueError(
            f"{text[:40]!a} is not a time like '2018-03-24 12:00:00' (UTC): {error}"
        ) from None

"""The interpreter's casts; `medusa.engine.language.casts` defines them."""

from __future__ import annotations

import math
import re
from typing import Final

from medusa.engine.language.casts import INTEGER, NUMBER, WORD
from medusa.engine.objects.schema import FieldType
from medusa.engine.reference.values import Value, fitted
from medusa.engine.scalars.type_rules import INTEGERS, NUMBERS

_MOST_DIGITS: Final = len(str(2**63))
"""Of a long."""

_INTEGER: Final = re.compile(INTEGER)
_NUMBER: Final = re.compile(NUMBER)
_WORD: Final = re.compile(WORD)


def cast(value: Value, source: FieldType, target: FieldType) -> Value:
    """Cast a value that is not null."""
    if source is FieldType.STRING and target in NUMBERS:
        return _read(value, target)
    if target is FieldType.STRING:
        return str(value).lower() if source is FieldType.BOOL else str(value)
    if target in INTEGERS and isinstance(value, float):
        return fitted(math.trunc(value), target) if math.isfinite(value) else None
    made = fitted(value, target)
    if target is FieldType.SINGLE and math.isinf(made) and not math.isinf(value):
        return None
    return made


def _read(text: str, target: FieldType) -> Value:
    if target in INTEGERS:
        return _integer(text, target) if _INTEGER.fullmatch(text) else None
    if _WORD.fullmatch(text):
        return float(text)
    double = float(text) if _NUMBER.fullmatch(text) else math.inf
    return None if math.isinf(double) else cast(double, FieldType.DOUBLE, target)


def _integer(text: str, target: FieldType) -> int | None:
    sign, digits = re.findall(r"^\s*([+-]?)0*([0-9]*)", text)[0]
    if len(digits) > _MOST_DIGITS:  # Python refuses to read thousands
        return None
    made: int | None = fitted(int(f"{sign}0{digits}"), target)
    return made

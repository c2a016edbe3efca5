"""The casts of the language, and the reading of texts as numbers.

A cast is null if the value does not fit the target: an integer beyond its range, a finite number
that would become infinite. A fraction is cut towards zero in an integer, and rounded to the nearest
in a narrower float.

A text is a number as SQL writes one, perhaps with a sign, and with blanks around it: `12`, `-0.5`,
`1e3`; or one of the words `NaN`, `Infinity` and `inf`, in any case. So `1d` and `0x1p3`, which Java
reads, are none, and `1.5` is no integer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.late import SPARK_NAMES, Column, F
from medusa.engine.scalars.numbers import GREATEST
from medusa.engine.scalars.type_rules import FLOATS, INTEGER_RANGE, INTEGERS, NUMBERS
from medusa.engine.scalars.values import Value, fitted

CAST: Final = "cast"

_BLANKS: Final = r"[ \t-\r]*"

INTEGER: Final = rf"{_BLANKS}[+-]?[0-9]+{_BLANKS}"
"""A pattern of integers, for Java and for Python."""

NUMBER: Final = rf"{_BLANKS}[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?{_BLANKS}"
"""A pattern of finite numbers."""

WORD: Final = rf"{_BLANKS}([nN][aA][nN]|[+-]?[iI][nN][fF]([iI][nN][iI][tT][yY])?){_BLANKS}"
"""A pattern of the other floats: infinity and NaN."""

BEYOND_SINGLE: Final = 2.0**128 - 2.0**103
"""The least double that would become an infinite single: half a step above the greatest one."""


def can_cast(source: FieldType, target: FieldType) -> bool:
    """Whether `cast(source as target)` exists.

    It exists from numbers to numbers, from booleans to numbers (1, 0), from integers and booleans
    to strings, from strings to numbers (null if the text is no number), and between timestamps and
    longs, which are microseconds since the epoch.
    """
    if source is target:
        return True
    if target in NUMBERS and source in (*NUMBERS, FieldType.BOOL, FieldType.STRING):
        return True
    if target is FieldType.STRING:
        return source in (*INTEGERS, FieldType.BOOL)
    return {source, target} == {FieldType.TIMESTAMP, FieldType.LONG}


REPEATS: Final[Mapping[tuple[FieldType, FieldType], int]] = {
    **{(FieldType.STRING, integer): 2 for integer in INTEGERS},
    (FieldType.STRING, FieldType.SINGLE): 15,
    (FieldType.STRING, FieldType.DOUBLE): 5,
    (FieldType.SINGLE, FieldType.LONG): 2,
    (FieldType.DOUBLE, FieldType.LONG): 2,
    (FieldType.DOUBLE, FieldType.SINGLE): 3,
}
"""How often Spark's expression of a cast repeats its operand, by the types of operand and result;
other casts have it once."""


# -- in Spark --------------------------------------------------------------------------------------


def spark_cast(operand: Column, source: FieldType, target: FieldType) -> Column:
    """The cast of a column."""
    if source is target:
        return operand
    if target is FieldType.TIMESTAMP:
        return F.timestamp_micros(operand)
    if source is FieldType.TIMESTAMP:
        return F.unix_micros(operand)
    if source is FieldType.STRING:
        return _spark_number(operand, target)
    made = operand.try_cast(SPARK_NAMES[target])
    if source in FLOATS and target is FieldType.LONG:  # Spark casts 2^63 to the greatest long
        return F.when(made != F.lit(INTEGER_RANGE[target][-1]), made)
    if source is FieldType.DOUBLE and target is FieldType.SINGLE:
        size = F.abs(operand)
        return F.when(~size.between(F.lit(BEYOND_SINGLE), F.lit(GREATEST)), made)
    return made


def _spark_number(text: Column, target: FieldType) -> Column:
    """A text as a number. Spark's own cast would accept every text that Java accepts."""
    if target in INTEGERS:
        return F.when(_is(text, INTEGER), text.try_cast(SPARK_NAMES[target]))
    double = text.try_cast("double")
    finite = F.when(_is(text, NUMBER) & (F.abs(double) <= F.lit(GREATEST)), double)
    made = F.when(_is(text, WORD), double).otherwise(finite)
    return made if target is FieldType.DOUBLE else spark_cast(made, FieldType.DOUBLE, target)


def _is(text: Column, pattern: str) -> Column:
    return F.rlike(text, F.lit(rf"\A{pattern}\z"))


# -- in Python -------------------------------------------------------------------------------------


_MOST_DIGITS: Final = len(str(2**63))
"""Digits of a long."""

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
    if len(digits) > _MOST_DIGITS:  # Python refuses to read thousands of digits
        return None
    made: int | None = fitted(int(f"{sign}0{digits}"), target)
    return made

"""The casts of the language, and the reading of texts as numbers.

A cast is null if the value does not fit the target: an integer beyond its range, a finite number
that would become infinite. A fraction is cut towards zero in an integer, and rounded to the nearest
in a narrower float.

A text is a number as SQL writes one, perhaps with a sign, and with blanks around it: `12`, `-0.5`,
`1e3`; or one of the words `NaN`, `Infinity` and `inf`, in any case. So `1d` and `0x1p3`, which Java
reads, are none, and `1.5` is no integer.
"""

from __future__ import annotations

from typing import Final

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.type_rules import INTEGERS, NUMBERS

CAST: Final = "cast"

_BLANKS: Final = r"[ \t-\r]*"

INTEGER: Final = rf"{_BLANKS}[+-]?[0-9]+{_BLANKS}"
"""The texts that are integers, for Java and for Python."""

NUMBER: Final = rf"{_BLANKS}[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?{_BLANKS}"
"""The texts that are finite numbers."""

WORD: Final = rf"{_BLANKS}([nN][aA][nN]|[+-]?[iI][nN][fF]([iI][nN][iI][tT][yY])?){_BLANKS}"
"""The texts that are other floats."""

BEYOND_SINGLE: Final = 2.0**128 - 2.0**103
"""The least double that would become an infinite single: half a step above the greatest one."""


def can_cast(source: FieldType, target: FieldType) -> bool:
    """Whether `cast(source as target)` exists.

    Numbers to numbers; booleans to numbers (1, 0); integers and booleans to strings; strings to
    numbers (null if they are none); timestamps to long and back, in microseconds since the epoch.
    """
    if source is target:
        return True
    if target in NUMBERS and source in (*NUMBERS, FieldType.BOOL, FieldType.STRING):
        return True
    if target is FieldType.STRING:
        return source in (*INTEGERS, FieldType.BOOL)
    return {source, target} == {FieldType.TIMESTAMP, FieldType.LONG}

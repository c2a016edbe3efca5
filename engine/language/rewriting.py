"""Functions that abbreviate other operations, and second names of functions.

    mod(a, b)             a % b
    if(c, a, b)           case when c then a else b end
    nullif(a, b)          case when a = b then null else a end
    ifnull(a, b) nvl(a, b)  coalesce(a, b)
    sign(a)               case when a > 0 then 1 when a < 0 then -1 when a = 0 then 0 end;
                          of floats a double, and of NaN, which is greater than infinity, NaN
    left(s, n)            substring(s, 1, n)
    position(part, s)     instr(s, part); also position(part in s)
    sha256(s)             sha2(s, 256)
    extract(hour from t)  hour(t), and so on

An operand that is left out: substring's length (all), round's digits (0), the filling of lpad and
rpad (a blank).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from medusa.engine.language.time_units import CALENDAR_UNITS, PARTS, UNITS_US, unit_of
from medusa.engine.language.typed import Constant, Expression, Operation
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.type_rules import FLOATS, INTEGER_RANGE

Typed: TypeAlias = Expression | None
"""None: a bare `null`; it gets the type of its neighbours."""

Make: TypeAlias = Callable[[str, Sequence[Typed]], Operation]
"""Makes an operation by its operator's name."""

OTHER_NAMES: Final = {
    "ceiling": "ceil",
    "char_length": "length",
    "dayofmonth": "day",
    "ends_with": "endswith",
    "rlike": "regexp_like",
    "starts_with": "startswith",
    "substr": "substring",
    "xxhash64": "hash64",
}
"""Names that others use, and the function of each."""


@dataclass(frozen=True, slots=True)
class ShortForm:
    """A function that is written as other operations.

    Attributes:
        takes: the operands, in words for an error message.
        count: how many they are.
        build: raises ValueError, with the reason, for operands that it refuses.
    """

    takes: str
    count: int
    build: Callable[[Make, Sequence[Typed]], Typed]


def _number(value: int) -> Constant:
    return Constant(value, FieldType.INT)


def _sign(make: Make, operands: Sequence[Typed]) -> Typed:
    number = operands[0]
    floats = number is not None and number.type in FLOATS
    pairs: list[Typed] = []
    if floats:
        infinity = Constant(math.inf, FieldType.DOUBLE)
        pairs += [make(">", [number, infinity]), Constant(math.nan, FieldType.DOUBLE)]
    for sign, value in ((">", 1), ("<", -1), ("=", 0)):
        made = Constant(float(value), FieldType.DOUBLE) if floats else _number(value)
        pairs += [make(sign, [number, _number(0)]), made]
    return make("case", [*pairs, None])


def _nullif(make: Make, operands: Sequence[Typed]) -> Typed:
    return make("case", [make("=", operands), None, operands[0]])


def _extract(make: Make, operands: Sequence[Typed]) -> Typed:
    unit, moment = operands
    name = unit_of(str(unit.value)) if isinstance(unit, Constant) else ""
    if name not in PARTS:
        raise ValueError(f"`extract` takes one of {', '.join(sorted(PARTS))}, from a timestamp")
    return make(name, [moment])


SHORT_FORMS: Final[dict[str, ShortForm]] = {
    "mod": ShortForm("two numbers", 2, lambda make, o: make("%", o)),
    "if": ShortForm("a condition and two values", 3, lambda make, o: make("case", o)),
    "nullif": ShortForm("two values", 2, _nullif),
    "ifnull": ShortForm("two values", 2, lambda make, o: make("coalesce", o)),
    "nvl": ShortForm("two values", 2, lambda make, o: make("coalesce", o)),
    "sign": ShortForm("one number", 1, _sign),
    "left": ShortForm(
        "a string and a number", 2, lambda make, o: make("substring", [o[0], _number(1), o[1]])
    ),
    "position": ShortForm("two strings", 2, lambda make, o: make("instr", [o[1], o[0]])),
    "sha256": ShortForm("one string", 1, lambda make, o: make("sha2", [o[0], _number(256)])),
    "extract": ShortForm("a unit and a timestamp", 2, _extract),
}

_LEFT_OUT: Final = {
    ("substring", 2): Constant(2**31 - 1, FieldType.INT),
    ("round", 1): Constant(0, FieldType.INT),
    ("lpad", 2): Constant(" ", FieldType.STRING),
    ("rpad", 2): Constant(" ", FieldType.STRING),
}


def completed(name: str, operands: Sequence[Typed]) -> list[Typed]:
    """The operands, with the one that may be left out."""
    missing = _LEFT_OUT.get((name, len(operands)))
    return [*operands] if missing is None else [*operands, missing]


def interval_us(amount: str, unit: str) -> int:
    """An interval in microseconds.

    Args:
        amount: a whole number; of text that a person wrote.
        unit: as `second` or `SECONDS`.

    Raises:
        ValueError: there is no such interval; says why.
    """
    name = unit_of(unit)
    if name in CALENDAR_UNITS:
        raise ValueError(f"a {name} has no fixed length: write the interval in days")
    if name not in UNITS_US:
        raise ValueError(f"an interval's unit is one of {', '.join(UNITS_US)}, not {unit[:20]!a}")
    if re.fullmatch(r"[+-]?[0-9]{1,19}", amount.strip()) is None:
        raise ValueError(f"an interval is a whole number, as INTERVAL '5' {unit[:20].upper()}")
    interval = int(amount) * UNITS_US[name]
    if interval not in INTEGER_RANGE[FieldType.LONG]:
        raise ValueError("the interval is longer than any two timestamps are apart")
    return interval


def with_backslashes(pattern: str, escape: str) -> str:
    """A pattern of `like ... escape 'c'` as one whose escape character is the backslash.

    Raises:
        ValueError: the character makes nothing plain that has a meaning, or is not one.
    """
    if len(escape) != 1:
        raise ValueError(f"`escape` takes one character, not {escape[:20]!a}")
    sign = re.escape(escape)
    if re.fullmatch(f"(?:[^{sign}]|{sign}[%_{sign}])*", pattern, re.DOTALL) is None:
        raise ValueError(
            f"the character {escape!a} of `escape` must precede %, _ or itself in the pattern"
        )

    def plain(match: re.Match[str]) -> str:
        escaped, other = match.groups()
        if escaped is None:
            return "\\\\" if other == "\\" else str(other)
        return f"\\{escaped}" if escaped in "%_\\" else str(escaped)

    return re.sub(f"{sign}(.)|(.)", plain, pattern, flags=re.DOTALL)

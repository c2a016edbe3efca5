"""Functions of numbers.

There is no power, exp or logarithm: their last bits differ from library to library.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import SPARK_NAMES, Column, F
from medusa.engine.scalars.scalar import Family, Make, Scalar, ShortForm
from medusa.engine.scalars.type_rules import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    SOME_NUMBER,
    Literals,
    Nulls,
    Resolution,
    Types,
    fixed,
    uniform,
)

LONG_LIMIT: Final = 2.0**63
"""The least double above every long."""

GREATEST: Final = sys.float_info.max
"""The greatest finite double."""

_DIGITS: Final = Context(prec=400)
"""More digits than a double has, on either side of the decimal point."""


# -- whole numbers ---------------------------------------------------------------------------------


def _whole_types(types: Types) -> Resolution | None:
    if len(types) != 1 or types[0] not in NUMBERS:
        return None
    return Resolution((types[0],), types[0] if types[0] in INTEGERS else FieldType.LONG)


def _whole(name: str, towards: Callable[[float], int], gives: str, *others: str) -> Scalar:
    """A function that rounds to a whole number. It is null where the result is no long; Spark's
    functions saturate there."""

    def spark(types: Resolution, x: Column) -> Column:
        if types.operands[0] in INTEGERS:
            return x
        wide = x.cast("double")
        fits = (wide >= F.lit(-LONG_LIMIT)) & (wide < F.lit(LONG_LIMIT))
        return F.when(fits, F.call_function(name, wide))

    return Scalar(
        name,
        f"{name}(x)",
        "one number",
        _whole_types,
        Nulls.POSSIBLE,
        spark=spark,
        value=lambda _, x: towards(x) if math.isfinite(x) else None,
        gives=f"{gives}: of an integer itself, of a float a long, null if it does not fit.",
        examples=(Example(f"{name}(-1.5)", towards(-1.5)),),
        other_names=others,
        repeats=(3,),
        by_types=True,
    )


def _round_types(types: Types) -> Resolution | None:
    if len(types) != 2 or types[0] not in NUMBERS or types[1] not in INTEGERS:
        return None
    value = types[0] if types[0] in INTEGERS else FieldType.DOUBLE
    return Resolution((value, FieldType.INT), value)


def _check_digits(values: Literals) -> str | None:
    return None if values[0] in range(10) else "the digits must be a constant from 0 to 9"


def _round(number: float, digits: int) -> float:
    if isinstance(number, int) or not math.isfinite(number):
        return number
    step = Decimal(1).scaleb(-digits)
    return float(Decimal(repr(number)).quantize(step, ROUND_HALF_UP, _DIGITS))


# -- signs and roots -------------------------------------------------------------------------------


def _spark_absolute(types: Resolution, x: Column) -> Column:
    """The absolute value; null for the one integer that has no opposite."""
    if types.result in FLOATS:
        return F.abs(x)
    wide = "decimal(19,0)" if types.result is FieldType.LONG else "long"
    return F.abs(x.cast(wide)).try_cast(SPARK_NAMES[types.result])


def _root(x: float) -> float | None:
    return x if math.isnan(x) else math.sqrt(x) if x >= 0 else None


def _sign(make: Make, operands: Sequence[Any]) -> Any:  # noqa: ANN401 - as `Make` has it
    (number,) = operands
    floats = number is not None and number.type in FLOATS
    pairs: list[Any] = [make(">", [number, math.inf]), math.nan] if floats else []
    for sign, value in ((">", 1), ("<", -1), ("=", 0)):
        pairs += [make(sign, [number, 0]), float(value) if floats else value]
    return make("case", [*pairs, None])


# -- bits ------------------------------------------------------------------------------------------


def _bits(
    name: str,
    sign: str,
    spark: Callable[[Column, Column], Column],
    value: Callable[[int, int], int],
    gives: str,
) -> Scalar:
    return Scalar(
        name,
        f"{name}(a, b)",
        "two integers",
        uniform(frozenset(INTEGERS)),
        Nulls.IF_ANY,
        spark=spark,
        value=value,
        gives=gives,
        examples=(Example(f"{name}(6, 3)", value(6, 3), duckdb=f"{sign}"),),
    )


def _shift_types(types: Types) -> Resolution | None:
    if len(types) != 2 or types[0] not in INTEGERS or types[1] not in INTEGERS[:3]:
        return None
    wide = FieldType.LONG if types[0] is FieldType.LONG else FieldType.INT
    return Resolution((wide, FieldType.INT), wide)


def _width(types: Resolution) -> int:
    return 64 if types.result is FieldType.LONG else 32


def _left(value: int, bits: int, width: int) -> int:
    moved = value << bits & (1 << width) - 1
    return moved - (1 << width) if moved >> width - 1 else moved


def _shift(
    name: str, moved: Callable[[int, int, int], int], gives: str, example: Example
) -> Scalar:
    """A shift of bits. It is null where Java takes the number of bits modulo 32 or 64."""

    def spark(types: Resolution, x: Column, bits: Column) -> Column:
        beyond = F.lit(~(_width(types) - 1))
        return F.when(bits.bitwiseAND(beyond) == F.lit(0), F.call_function(name, x, bits))

    def value(types: Resolution, x: int, bits: int) -> int | None:
        width = _width(types)
        return moved(x, bits, width) if bits in range(width) else None

    return Scalar(
        name,
        f"{name}(x, bits)",
        "an integer and a number of bits, an int",
        _shift_types,
        Nulls.POSSIBLE,
        spark=spark,
        value=value,
        gives=f"{gives}, of an int or a long; null if the type has fewer bits.",
        examples=(example,),
        repeats=(1, 2),
        by_types=True,
    )


NUMBERS_FAMILY: Final = Family(
    "Numbers",
    (
        Scalar(
            "abs",
            "abs(x)",
            "one number",
            uniform(SOME_NUMBER, least=1, most=1),
            Nulls.POSSIBLE,
            spark=_spark_absolute,
            value=lambda _, x: abs(x),
            gives="The number without its sign; null of the one integer that has no opposite.",
            examples=(Example("abs(-7)", 7),),
            by_types=True,
        ),
        ShortForm(
            "sign",
            "sign(x)",
            "one number",
            1,
            _sign,
            "1, 0 or -1; of a float a double, and of NaN NaN.",
            (Example("sign(-7)", -1),),
        ),
        _whole("floor", math.floor, "The greatest whole number that is no greater"),
        _whole("ceil", math.ceil, "The least whole number that is no less", "ceiling"),
        Scalar(
            "round",
            "round(x, digits)",
            "a number and digits (a constant, 0 to 9)",
            _round_types,
            Nulls.POSSIBLE,
            spark=lambda x, digits: F.round(x, F.lit(digits)),
            value=_round,
            gives="Half away from zero, of the shortest decimal that denotes the number; digits, a "
            "constant from 0 to 9, may be left out: 0.",
            examples=(
                Example("round(2.675, 2)", 2.68, differs="DuckDB rounds the double, to 2.67"),
                Example("round(2.5)", 3.0),
            ),
            constants=(1,),
            check=_check_digits,
            left_out=(1, 0),
        ),
        Scalar(
            "sqrt",
            "sqrt(x)",
            "one number",
            fixed((FieldType.DOUBLE,), FieldType.DOUBLE),
            Nulls.POSSIBLE,
            spark=lambda x: F.when(x >= F.lit(0.0), F.sqrt(x)),
            value=_root,
            gives="The square root, rounded as IEEE 754 says; null below 0.",
            examples=(Example("sqrt(2)", math.sqrt(2)),),
            repeats=(2,),
        ),
        ShortForm(
            "mod",
            "mod(a, b)",
            "two numbers",
            2,
            lambda make, o: make("%", o),
            "What is left of a division, `a % b`: it has the sign of a; null if b is 0.",
            (Example("mod(-7, 3)", -1),),
        ),
        _bits(
            "bitand",
            "6 & 3",
            lambda a, b: a.bitwiseAND(b),
            lambda a, b: a & b,
            "The bits that both integers have.",
        ),
        _bits(
            "bitor",
            "6 | 3",
            lambda a, b: a.bitwiseOR(b),
            lambda a, b: a | b,
            "The bits that one of the integers has.",
        ),
        _bits(
            "bitxor",
            "xor(6, 3)",
            lambda a, b: a.bitwiseXOR(b),
            lambda a, b: a ^ b,
            "The bits that the integers do not have in common.",
        ),
        _shift(
            "shiftleft",
            _left,
            "The bits moved to the left",
            Example("shiftleft(3, 2)", 12, duckdb="3 << 2"),
        ),
        _shift(
            "shiftright",
            lambda x, bits, _: x >> bits,
            "The bits moved to the right, with the sign",
            Example("shiftright(-8, 1)", -4, duckdb="-8 >> 1"),
        ),
    ),
)

"""The operators and functions of expressions: the table that the parser and Spark read.

All others are refused. All are total: on any data they give a value or null and never fail.
Operands of one `Operation` already have the types that `Operator.resolve` asks for: the parser puts
an explicit `cast` where a number is widened, so no engine coerces by rules of its own.

    + - * %  neg abs      numbers, result of their common type; an integer that does not fit is
                          null; `%` has the dividend's sign; `% 0` is null, for floats too
    /                     double; `/ 0` is null
    = <> < <= > >=        numbers, strings (by code point), timestamps; `=` and `<>` also bool;
                          NaN equals NaN and is greater than every number
    and or (2 and more operands)  not  is_null  in (value, then members)    three-valued logic
    like                  (string, constant pattern): % and _, a backslash makes them plain
    case                  (condition, value, condition, value, ..., else), a first match
    cast                  see `medusa.engine.language.casts`
    coalesce              the first that is not null
    least greatest        nulls are skipped; null if all are
    lower upper trim      trim takes spaces off both ends
    length                code points
    substring             (string, start from 1, length); start 0 counts as 1, a negative one
                          from the end: the part of [start, start + length) that exists
    substring_index       (string, delimiter, n): the part before the n-th delimiter from the
                          left, or after the n-th from the right if n < 0; the whole string if
                          there are fewer; "" if n = 0 or the delimiter is ""
    concat                strings; null if any is
    floor ceil            of integers themselves, of floats a long (null if it does not fit)
    round                 (number, constant digits 0..9), half away from zero, of the shortest
                          decimal that denotes the number; floats give double
    sqrt                  double, rounded as IEEE 754 says; null below 0. There is no power, exp or
                          logarithm: their last bits differ from library to library
    bitand bitor bitxor   integers, of their common type
    shiftleft shiftright  (integer, n): of an int or a long, in two's complement; shiftright keeps
                          the sign; null if n is not from 0 to 31 (of a long 63)
    is [not] distinct from  as `<>` and `=`, with null equal to null

The heads of `medusa.engine.language.operators_time` and `medusa.engine.language.operators_text`
have the operators on moments and on texts, `medusa.engine.language.rewriting` the functions that
are other ones in short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from medusa.engine.language.casts import CAST, can_cast
from medusa.engine.language.operators_text import TEXT_OPERATORS
from medusa.engine.language.operators_time import TIME_OPERATORS
from medusa.engine.language.typed import Call, Constant, Expression, FieldRef
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.type_rules import (
    ANY,
    FLOATS,
    INTEGER_RANGE,
    INTEGERS,
    NUMBERS,
    ORDERED,
    SOME_BOOL,
    SOME_NUMBER,
    SOME_STRING,
    Nulls,
    Operator,
    Resolution,
    Types,
    common_type,
    fixed,
    uniform,
)

__all__ = [
    "CAST",
    "FLOATS",
    "INTEGERS",
    "INTEGER_RANGE",
    "IS_SAME",
    "NUMBERS",
    "OPERATORS",
    "ORDERED",
    "can_cast",
    "common_type",
    "nullable",
]


def nullable(expression: Expression, fields: Callable[[str], bool]) -> bool:
    """Whether the expression may give null; `fields(name)`: whether a field may."""
    if isinstance(expression, FieldRef):
        return fields(expression.name)
    if isinstance(expression, Constant):
        return expression.value is None
    if isinstance(expression, Call):
        return True
    rule = Nulls.POSSIBLE if expression.operator == CAST else OPERATORS[expression.operator].nulls
    operands = expression.operands
    if expression.operator == "case":
        operands = (*operands[1::2], operands[-1])
    if rule is Nulls.IF_ANY:
        return any(nullable(operand, fields) for operand in operands)
    if rule is Nulls.IF_ALL:
        return all(nullable(operand, fields) for operand in operands)
    return rule is Nulls.POSSIBLE


def _case(types: Types) -> Resolution | None:
    if len(types) < 3 or len(types) % 2 == 0:
        return None
    if any(each is not FieldType.BOOL for each in types[:-1:2]):
        return None
    common = common_type((*types[1::2], types[-1]))
    if common is None:
        return None
    return Resolution((*(FieldType.BOOL, common) * (len(types) // 2), common), common)


def _whole(types: Types) -> Resolution | None:
    """floor and ceil."""
    if len(types) != 1 or types[0] not in NUMBERS:
        return None
    return Resolution((types[0],), types[0] if types[0] in INTEGERS else FieldType.LONG)


def _round(types: Types) -> Resolution | None:
    if len(types) != 2 or types[0] not in NUMBERS or types[1] not in INTEGERS:
        return None
    value = types[0] if types[0] in INTEGERS else FieldType.DOUBLE
    return Resolution((value, FieldType.INT), value)


def _shift(types: Types) -> Resolution | None:
    if len(types) != 2 or types[0] not in INTEGERS or types[1] not in INTEGERS[:3]:
        return None
    wide = FieldType.LONG if types[0] is FieldType.LONG else FieldType.INT
    return Resolution((wide, FieldType.INT), wide)


MANY: Final = 1024
"""Most operands of one operation: bounds the size of an expression."""

_ARITHMETIC: Final = Operator("two numbers", uniform(SOME_NUMBER), Nulls.POSSIBLE)
_UNARY: Final = Operator("one number", uniform(SOME_NUMBER, least=1, most=1), Nulls.POSSIBLE)
_EQUALITY: Final = Operator(
    "two numbers, strings, timestamps or booleans",
    uniform(ANY, FieldType.BOOL),
    Nulls.IF_ANY,
)
_ORDER: Final = Operator(
    "two numbers, strings or timestamps", uniform(ORDERED, FieldType.BOOL), Nulls.IF_ANY
)
_LOGIC: Final = Operator("booleans", uniform(SOME_BOOL, most=MANY), Nulls.IF_ANY)
_TEXT: Final = Operator("one string", uniform(SOME_STRING, least=1, most=1), Nulls.IF_ANY)
_EXTREME: Final = Operator(
    "two or more numbers, strings or timestamps", uniform(ORDERED, most=MANY), Nulls.IF_ALL
)
_WHOLE: Final = Operator("one number", _whole, Nulls.POSSIBLE)
_BITS: Final = Operator("two integers", uniform(frozenset(INTEGERS)), Nulls.IF_ANY)
_SHIFT: Final = Operator("an integer and a number of bits, an int", _shift, Nulls.POSSIBLE)

IS_SAME: Final = "is not distinct from"

OPERATORS: Final[dict[str, Operator]] = {
    "+": _ARITHMETIC,
    "-": _ARITHMETIC,
    "*": _ARITHMETIC,
    "%": _ARITHMETIC,
    "/": Operator(
        "two numbers",
        fixed((FieldType.DOUBLE, FieldType.DOUBLE), FieldType.DOUBLE),
        Nulls.POSSIBLE,
    ),
    "neg": _UNARY,
    "abs": _UNARY,
    "=": _EQUALITY,
    "<>": _EQUALITY,
    "<": _ORDER,
    "<=": _ORDER,
    ">": _ORDER,
    ">=": _ORDER,
    "and": _LOGIC,
    "or": _LOGIC,
    "not": Operator("one boolean", uniform(SOME_BOOL, least=1, most=1), Nulls.IF_ANY),
    "is_null": Operator("one value", uniform(ANY, FieldType.BOOL, least=1, most=1), Nulls.NEVER),
    "in": Operator(
        "a value and a list of values of its type",
        uniform(ANY, FieldType.BOOL, most=MANY),
        Nulls.IF_ANY,
    ),
    "like": Operator(
        "a string and a constant pattern",
        fixed((FieldType.STRING, FieldType.STRING), FieldType.BOOL),
        Nulls.IF_ANY,
    ),
    "case": Operator("boolean conditions, and values of one type", _case, Nulls.IF_ANY),
    "coalesce": Operator("values of one type", uniform(ANY, least=1, most=MANY), Nulls.IF_ALL),
    "least": _EXTREME,
    "greatest": _EXTREME,
    "lower": _TEXT,
    "upper": _TEXT,
    "trim": _TEXT,
    "length": Operator("one string", fixed((FieldType.STRING,), FieldType.INT), Nulls.IF_ANY),
    "substring": Operator(
        "a string, a start and a length",
        fixed((FieldType.STRING, FieldType.INT, FieldType.INT), FieldType.STRING),
        Nulls.IF_ANY,
    ),
    "substring_index": Operator(
        "a string, a delimiter and a number",
        fixed((FieldType.STRING, FieldType.STRING, FieldType.INT), FieldType.STRING),
        Nulls.IF_ANY,
    ),
    "concat": Operator("strings", uniform(SOME_STRING, least=1, most=MANY), Nulls.IF_ANY),
    "floor": _WHOLE,
    "ceil": _WHOLE,
    "round": Operator("a number and digits (a constant, 0 to 9)", _round, Nulls.POSSIBLE),
    "sqrt": Operator("one number", fixed((FieldType.DOUBLE,), FieldType.DOUBLE), Nulls.POSSIBLE),
    "bitand": _BITS,
    "bitor": _BITS,
    "bitxor": _BITS,
    "shiftleft": _SHIFT,
    "shiftright": _SHIFT,
    IS_SAME: Operator("two values of one type", uniform(ANY, FieldType.BOOL), Nulls.NEVER),
    **TIME_OPERATORS,
    **TEXT_OPERATORS,
}

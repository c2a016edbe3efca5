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
    cast                  see `can_cast`; to integers truncates; null if the value does not fit
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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from engine.language.steps import Constant, Expression, FieldRef
from engine.objects.schema import FieldType

NUMBERS: Final = (
    FieldType.BYTE,
    FieldType.SHORT,
    FieldType.INT,
    FieldType.LONG,
    FieldType.SINGLE,
    FieldType.DOUBLE,
)
"""The numeric types, each widened to the next ones."""

INTEGERS: Final = NUMBERS[:4]
FLOATS: Final = NUMBERS[4:]
ORDERED: Final = frozenset({*NUMBERS, FieldType.STRING, FieldType.TIMESTAMP})

INTEGER_RANGE: Final = {
    FieldType.BYTE: range(-(2**7), 2**7),
    FieldType.SHORT: range(-(2**15), 2**15),
    FieldType.INT: range(-(2**31), 2**31),
    FieldType.LONG: range(-(2**63), 2**63),
}

CAST: Final = "cast"

Types = Sequence[FieldType]


class Nulls(Enum):
    """When an operation may give null."""

    NEVER = "never"
    IF_ANY = "if any operand is null"
    IF_ALL = "if all operands are null"
    POSSIBLE = "whatever the operands are"


class Resolution(NamedTuple):
    """The types the operands are widened to, and the type of the result."""

    operands: tuple[FieldType, ...]
    result: FieldType


@dataclass(frozen=True, slots=True)
class Operator:
    """One row of the table.

    Attributes:
        takes: the operands, in words for an error message.
        resolve: operand types to their resolution; None if they do not fit.
    """

    takes: str
    resolve: Callable[[Types], Resolution | None]
    nulls: Nulls


def common_type(types: Types) -> FieldType | None:
    """The narrowest type that all of `types` widen to; None if there is none."""
    first = types[0]
    if all(each is first for each in types):
        return first
    if all(each in NUMBERS for each in types):
        return max(types, key=NUMBERS.index)
    return None


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


def nullable(expression: Expression, fields: Callable[[str], bool]) -> bool:
    """Whether the expression may give null; `fields(name)`: whether a field may."""
    if isinstance(expression, FieldRef):
        return fields(expression.name)
    if isinstance(expression, Constant):
        return expression.value is None
    rule = Nulls.POSSIBLE if expression.operator == CAST else OPERATORS[expression.operator].nulls
    operands = expression.operands
    if expression.operator == "case":
        operands = (*operands[1::2], operands[-1])
    if rule is Nulls.IF_ANY:
        return any(nullable(operand, fields) for operand in operands)
    if rule is Nulls.IF_ALL:
        return all(nullable(operand, fields) for operand in operands)
    return rule is Nulls.POSSIBLE


def _same(types: Types, allowed: frozenset[FieldType]) -> FieldType | None:
    """The common type, if it is an allowed one."""
    common = common_type(types)
    return common if common in allowed else None


_NUMBERS: Final = frozenset(NUMBERS)
_BOOL: Final = frozenset({FieldType.BOOL})
_STRING: Final = frozenset({FieldType.STRING})
_ANY: Final = frozenset(FieldType)


def _uniform(
    allowed: frozenset[FieldType], result: FieldType | None = None, least: int = 2, most: int = 2
) -> Callable[[Types], Resolution | None]:
    """Operands of one allowed type; the result is of that type too, or of `result`."""

    def resolve(types: Types) -> Resolution | None:
        if not least <= len(types) <= most:
            return None
        common = _same(types, allowed)
        return None if common is None else Resolution((common,) * len(types), result or common)

    return resolve


def _fixed(
    operands: tuple[FieldType, ...], result: FieldType
) -> Callable[[Types], Resolution | None]:
    """Exactly these operand types, numbers widened to them."""

    def resolve(types: Types) -> Resolution | None:
        if len(types) != len(operands):
            return None
        fits = all(
            common_type((given, wanted)) is wanted
            for given, wanted in zip(types, operands, strict=True)
        )
        return Resolution(operands, result) if fits else None

    return resolve


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


MANY: Final = 1024
"""Most operands of one operation: bounds the size of an expression."""

_ARITHMETIC: Final = Operator("two numbers", _uniform(_NUMBERS), Nulls.POSSIBLE)
_UNARY: Final = Operator("one number", _uniform(_NUMBERS, least=1, most=1), Nulls.POSSIBLE)
_EQUALITY: Final = Operator(
    "two numbers, strings, timestamps or booleans",
    _uniform(_ANY, FieldType.BOOL),
    Nulls.IF_ANY,
)
_ORDER: Final = Operator(
    "two numbers, strings or timestamps", _uniform(ORDERED, FieldType.BOOL), Nulls.IF_ANY
)
_LOGIC: Final = Operator("booleans", _uniform(_BOOL, most=MANY), Nulls.IF_ANY)
_TEXT: Final = Operator("one string", _uniform(_STRING, least=1, most=1), Nulls.IF_ANY)
_EXTREME: Final = Operator(
    "two or more numbers, strings or timestamps", _uniform(ORDERED, most=MANY), Nulls.IF_ALL
)
_WHOLE: Final = Operator("one number", _whole, Nulls.POSSIBLE)

OPERATORS: Final[dict[str, Operator]] = {
    "+": _ARITHMETIC,
    "-": _ARITHMETIC,
    "*": _ARITHMETIC,
    "%": _ARITHMETIC,
    "/": Operator(
        "two numbers",
        _fixed((FieldType.DOUBLE, FieldType.DOUBLE), FieldType.DOUBLE),
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
    "not": Operator("one boolean", _uniform(_BOOL, least=1, most=1), Nulls.IF_ANY),
    "is_null": Operator("one value", _uniform(_ANY, FieldType.BOOL, least=1, most=1), Nulls.NEVER),
    "in": Operator(
        "a value and a list of values of its type",
        _uniform(_ANY, FieldType.BOOL, most=MANY),
        Nulls.IF_ANY,
    ),
    "like": Operator(
        "a string and a constant pattern",
        _fixed((FieldType.STRING, FieldType.STRING), FieldType.BOOL),
        Nulls.IF_ANY,
    ),
    "case": Operator("boolean conditions, and values of one type", _case, Nulls.IF_ANY),
    "coalesce": Operator("values of one type", _uniform(_ANY, least=1, most=MANY), Nulls.IF_ALL),
    "least": _EXTREME,
    "greatest": _EXTREME,
    "lower": _TEXT,
    "upper": _TEXT,
    "trim": _TEXT,
    "length": Operator("one string", _fixed((FieldType.STRING,), FieldType.INT), Nulls.IF_ANY),
    "substring": Operator(
        "a string, a start and a length",
        _fixed((FieldType.STRING, FieldType.INT, FieldType.INT), FieldType.STRING),
        Nulls.IF_ANY,
    ),
    "substring_index": Operator(
        "a string, a delimiter and a number",
        _fixed((FieldType.STRING, FieldType.STRING, FieldType.INT), FieldType.STRING),
        Nulls.IF_ANY,
    ),
    "concat": Operator("strings", _uniform(_STRING, least=1, most=MANY), Nulls.IF_ANY),
    "floor": _WHOLE,
    "ceil": _WHOLE,
    "round": Operator("a number and digits (a constant, 0 to 9)", _round, Nulls.POSSIBLE),
}

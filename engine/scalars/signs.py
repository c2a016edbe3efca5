"""The signs and words of expressions: arithmetic, comparisons, logic, `case`.

+ - * %  neg          numbers, result of their common type; an integer that does not fit is
                      null; `%` has the dividend's sign; `% 0` is null, for floats too
/                     double; `/ 0` is null
= <> < <= > >=        numbers, strings (by code point), timestamps; `=` and `<>` also bool;
                      NaN equals NaN and is greater than every number
and or (2 and more operands)  not  is_null  in (value, then members)    three-valued logic
is [not] distinct from  as `<>` and `=`, with null equal to null
like                  (string, constant pattern): % and _, a backslash makes them plain
case                  (condition, value, condition, value, ..., else), a first match
cast                  see `medusa.engine.scalars.casts`
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, reduce
from operator import and_, or_
from typing import Any, Final

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.late import SPARK_NAMES, Column, F
from medusa.engine.scalars.scalar import Scalar
from medusa.engine.scalars.type_rules import (
    ANY,
    FLOATS,
    INTEGERS,
    ORDERED,
    SOME_BOOL,
    SOME_NUMBER,
    Literals,
    Nulls,
    Resolution,
    Types,
    common_type,
    fixed,
    uniform,
)

IS_SAME: Final = "is not distinct from"

MANY: Final = 1024
"""Most operands of one operation: bounds the size of an expression."""

Value = Any


def equal(left: Value, right: Value) -> bool:
    """Whether the values are equal; NaN equals NaN."""
    return bool(left == right or (left != left and right != right))  # noqa: PLR0124


def less(left: Value, right: Value) -> bool:
    """Whether the left value is less; NaN is greater than every number."""
    return bool(left < right or (right != right and left == left))  # noqa: PLR0124


# -- arithmetic ------------------------------------------------------------------------------------


def _arithmetic(
    sign: str,
    exact: Callable[[Column, Column], Column],
    plain: Callable[[Value, Value], Value],
) -> Scalar:
    """An arithmetic operator. An integer result that does not fit is null; floats follow IEEE
    754."""

    def spark(types: Resolution, a: Column, b: Column) -> Column:
        made: Column = exact(a, b) if types.result in INTEGERS else plain(a, b)
        return made

    return Scalar(
        sign,
        f"a {sign} b",
        "two numbers",
        uniform(SOME_NUMBER),
        Nulls.POSSIBLE,
        spark=spark,
        value=lambda _, a, b: plain(a, b),
        by_types=True,
    )


def _negative(types: Resolution, x: Column) -> Column:
    """The negative value; null for the one integer that has no opposite."""
    if types.result in FLOATS:
        return -x
    return F.try_subtract(F.lit(0).cast(SPARK_NAMES[types.result]), x)


def _remainder(a: Value, b: Value) -> Value:
    return None if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)


# -- logic -----------------------------------------------------------------------------------------


def _compared(
    sign: str, spark: Callable[[Column, Column], Column], value: Callable[[Value, Value], bool]
) -> Scalar:
    takes, types = "two numbers, strings or timestamps", ORDERED
    if sign in {"=", "<>"}:
        takes, types = "two numbers, strings, timestamps or booleans", ANY
    return Scalar(
        sign,
        f"a {sign} b",
        takes,
        uniform(types, FieldType.BOOL),
        Nulls.IF_ANY,
        spark=spark,
        value=value,
    )


def _and(*values: bool | None) -> bool | None:
    return False if False in values else None if None in values else True


def _or(*values: bool | None) -> bool | None:
    return True if True in values else None if None in values else False


def _in(value: Value, *members: Value) -> bool | None:
    if value is None:
        return None
    return _or(*(None if each is None else equal(value, each) for each in members))


def _same(left: Value, right: Value) -> bool:
    return left is right if None in (left, right) else equal(left, right)


# -- like and case ---------------------------------------------------------------------------------


_ESCAPED = re.compile(r"(?:[^\\]|\\[\\%_])*", re.DOTALL)


def _check_like(values: Literals) -> str | None:
    (pattern,) = values
    if pattern is None:
        return None
    if not isinstance(pattern, str):
        return "the pattern must be a string"
    if _ESCAPED.fullmatch(pattern) is None:
        return "a backslash in the pattern must precede %, _ or a backslash"
    return None


def _like(text: str, pattern: str) -> bool:
    return _wildcards(pattern).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _wildcards(pattern: str) -> re.Pattern[str]:
    parts = re.findall(r"\\?.", pattern, re.DOTALL)
    signs = {"%": ".*", "_": "."}
    return re.compile("".join(signs.get(p, re.escape(p[-1])) for p in parts), re.DOTALL)


def with_backslashes(pattern: str, escape: str) -> str:
    """Rewrite a pattern of `like ... escape 'c'` with the backslash as escape character. Raises:
    ValueError: the escape character precedes a character that needs no escape, or is not one
    character.
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


def _case_types(types: Types) -> Resolution | None:
    if len(types) < 3 or len(types) % 2 == 0:
        return None
    if any(each is not FieldType.BOOL for each in types[:-1:2]):
        return None
    common = common_type((*types[1::2], types[-1]))
    if common is None:
        return None
    return Resolution((*(FieldType.BOOL, common) * (len(types) // 2), common), common)


def _spark_case(first: Column, value: Column, *others: Column) -> Column:
    chain = F.when(first, value)
    for condition, each in zip(others[:-1:2], others[1:-1:2], strict=True):
        chain = chain.when(condition, each)
    return chain.otherwise(others[-1])


def _case(*operands: Value) -> Value:
    pairs = zip(operands[:-1:2], operands[1::2], strict=True)
    return next((value for condition, value in pairs if condition is True), operands[-1])


SIGNS: Final = (
    _arithmetic("+", F.try_add, lambda a, b: a + b),
    _arithmetic("-", F.try_subtract, lambda a, b: a - b),
    _arithmetic("*", F.try_multiply, lambda a, b: a * b),
    Scalar(
        "%",
        "a % b",
        "two numbers",
        uniform(SOME_NUMBER),
        Nulls.POSSIBLE,
        spark=lambda a, b: a % b,
        value=_remainder,
    ),
    Scalar(
        "/",
        "a / b",
        "two numbers",
        fixed((FieldType.DOUBLE, FieldType.DOUBLE), FieldType.DOUBLE),
        Nulls.POSSIBLE,
        spark=lambda a, b: a / b,
        value=lambda a, b: None if b == 0 else a / b,
    ),
    Scalar(
        "neg",
        "-a",
        "one number",
        uniform(SOME_NUMBER, least=1, most=1),
        Nulls.POSSIBLE,
        spark=_negative,
        value=lambda _, a: -a,
        by_types=True,
    ),
    _compared("=", lambda a, b: a == b, equal),
    _compared("<>", lambda a, b: a != b, lambda a, b: not equal(a, b)),
    _compared("<", lambda a, b: a < b, less),
    _compared("<=", lambda a, b: a <= b, lambda a, b: not less(b, a)),
    _compared(">", lambda a, b: a > b, lambda a, b: less(b, a)),
    _compared(">=", lambda a, b: a >= b, lambda a, b: not less(a, b)),
    Scalar(
        "and",
        "a and b",
        "booleans",
        uniform(SOME_BOOL, most=MANY),
        Nulls.IF_ANY,
        spark=lambda *o: reduce(and_, o),
        value=_and,
        of_nulls=True,
    ),
    Scalar(
        "or",
        "a or b",
        "booleans",
        uniform(SOME_BOOL, most=MANY),
        Nulls.IF_ANY,
        spark=lambda *o: reduce(or_, o),
        value=_or,
        of_nulls=True,
    ),
    Scalar(
        "not",
        "not a",
        "one boolean",
        uniform(SOME_BOOL, least=1, most=1),
        Nulls.IF_ANY,
        spark=lambda a: ~a,
        value=lambda a: not a,
    ),
    Scalar(
        "is_null",
        "a is null",
        "one value",
        uniform(ANY, FieldType.BOOL, least=1, most=1),
        Nulls.NEVER,
        spark=lambda a: a.isNull(),
        value=lambda a: a is None,
        of_nulls=True,
    ),
    Scalar(
        "in",
        "a in (b, c)",
        "a value and a list of values of its type",
        uniform(ANY, FieldType.BOOL, most=MANY),
        Nulls.IF_ANY,
        spark=lambda a, *members: a.isin(*members),
        value=_in,
        of_nulls=True,
    ),
    Scalar(
        IS_SAME,
        "a is not distinct from b",
        "two values of one type",
        uniform(ANY, FieldType.BOOL),
        Nulls.NEVER,
        spark=lambda a, b: a.eqNullSafe(b),
        value=_same,
        of_nulls=True,
    ),
    Scalar(
        "like",
        "text like 'a%'",
        "a string and a constant pattern",
        fixed((FieldType.STRING, FieldType.STRING), FieldType.BOOL),
        Nulls.IF_ANY,
        spark=lambda text, pattern: F.like(text, F.lit(pattern).cast("string")),
        value=_like,
        constants=(1,),
        check=_check_like,
    ),
    Scalar(
        "case",
        "case when a then b else c end",
        "boolean conditions, and values of one type",
        _case_types,
        Nulls.IF_ANY,
        spark=_spark_case,
        value=_case,
        of_nulls=True,
    ),
)

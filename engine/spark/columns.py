"""Expressions to Spark columns, as `medusa.engine.language.operators` defines them: total on any
data.

Spark runs with ANSI mode off, so most failures give null. Where Spark wraps, saturates or raises,
this file takes another form.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.language.casts import BEYOND_SINGLE, INTEGER, NUMBER, WORD
from medusa.engine.language.operators import FLOATS, INTEGER_RANGE, INTEGERS, IS_SAME
from medusa.engine.language.typed import Call, Constant, Expression, FieldRef, Operation
from medusa.engine.objects.schema import BEGINNING, END, STIME, FieldType
from medusa.engine.scalars.type_rules import Literal, Literals
from medusa.engine.spark.columns_text import TEXT_COLUMNS
from medusa.engine.spark.columns_time import TIME_COLUMNS, moment

SPARK_TYPES: Final[Mapping[FieldType, T.DataType]] = {
    FieldType.BOOL: T.BooleanType(),
    FieldType.BYTE: T.ByteType(),
    FieldType.SHORT: T.ShortType(),
    FieldType.INT: T.IntegerType(),
    FieldType.LONG: T.LongType(),
    FieldType.SINGLE: T.FloatType(),
    FieldType.DOUBLE: T.DoubleType(),
    FieldType.STRING: T.StringType(),
    FieldType.TIMESTAMP: T.TimestampType(),
}

Columns = Sequence[Column]

_LONG_LIMIT: Final = 2.0**63
"""The least double above every long."""

_GREATEST: Final = sys.float_info.max
"""The greatest finite double."""


def quoted(name: str) -> Column:
    """A column by its exact name, whatever characters it has."""
    return F.col(f"`{name.replace('`', '``')}`")


def without_negative_zero(column: Column) -> Column:
    """The column with 0.0 for -0.0, so that equal rows have equal bytes."""
    return column + F.lit(0.0).cast(T.FloatType())


def field_column(field: FieldRef) -> Column:
    """The column of a DataFrame that a field means."""
    is_time = field.name == STIME or field.name.endswith(f".{STIME}")  # of a side of a join
    return F.timestamp_micros(quoted(field.name)) if is_time else quoted(field.name)


def column(expression: Expression, read: Callable[[FieldRef], Column] = field_column) -> Column:
    """The expression over a DataFrame that has its fields and `stime`.

    Args:
        read: gives a field's value, if it is no column.
    """
    match expression:
        case FieldRef():
            return read(expression)
        case Constant(value=value, type=type_):
            return _constant(value, type_)
        case Operation(operator=operator, type=type_):
            operands = [column(each, read) for each in expression.operands]
            if operator in _BY_TYPES:
                types = [each.type for each in expression.operands]
                return _BY_TYPES[operator](operands, types, type_)
            if operator in _BY_CONSTANTS:
                return _BY_CONSTANTS[operator](operands, _literals(expression.operands))
            return _SIMPLE[operator](operands)
        case Call(function=function):
            raise AssertionError(f"{function.name} is called between Spark's jobs")


def output(name: str, expression: Expression) -> Column:
    """The expression under the name of an output field."""
    made = column(expression)
    if expression.type in FLOATS:
        made = without_negative_zero(made)
    return made.alias(name)


def _literals(operands: Sequence[Expression]) -> Literals:
    """The values of the operands that are constants, None for the others."""
    return [each.value if isinstance(each, Constant) else None for each in operands]


def _constant(value: Literal, type_: FieldType) -> Column:
    if type_ is FieldType.TIMESTAMP and isinstance(value, int):
        return moment(value)
    return F.lit(value).cast(SPARK_TYPES[type_])


def _arithmetic(
    exact: Callable[[Column, Column], Column], plain: Callable[[Column, Column], Column]
) -> Callable[[Columns, Sequence[FieldType], FieldType], Column]:
    """Integers that do not fit give null; floats follow IEEE 754."""

    def build(operands: Columns, _types: Sequence[FieldType], type_: FieldType) -> Column:
        return (exact if type_ in INTEGERS else plain)(operands[0], operands[1])

    return build


def _negative(operands: Columns, _types: Sequence[FieldType], type_: FieldType) -> Column:
    """Null for the one integer that has no opposite."""
    if type_ in FLOATS:
        return -operands[0]
    return F.try_subtract(F.lit(0).cast(SPARK_TYPES[type_]), operands[0])


def _absolute(operands: Columns, _types: Sequence[FieldType], type_: FieldType) -> Column:
    """Null for the one integer that has no opposite."""
    if type_ in FLOATS:
        return F.abs(operands[0])
    wide = T.DecimalType(19, 0) if type_ is FieldType.LONG else T.LongType()
    return F.abs(operands[0].cast(wide)).try_cast(SPARK_TYPES[type_])


def _cast(operands: Columns, types: Sequence[FieldType], type_: FieldType) -> Column:
    operand, source = operands[0], types[0]
    if source is type_:
        return operand
    if type_ is FieldType.TIMESTAMP:
        return F.timestamp_micros(operand)
    if source is FieldType.TIMESTAMP:
        return F.unix_micros(operand)
    if source is FieldType.STRING:
        return _number_in(operand, type_)
    made = operand.try_cast(SPARK_TYPES[type_])
    if source in FLOATS and type_ is FieldType.LONG:  # Spark takes 2^63 for the greatest long
        return F.when(made != F.lit(INTEGER_RANGE[type_][-1]), made)
    if source is FieldType.DOUBLE and type_ is FieldType.SINGLE:
        size = F.abs(operand)
        return F.when(~size.between(F.lit(BEYOND_SINGLE), F.lit(_GREATEST)), made)
    return made


def _number_in(text: Column, type_: FieldType) -> Column:
    """A text as a number. Spark's own cast takes all that Java reads."""
    if type_ in INTEGERS:
        return F.when(_is(text, INTEGER), text.try_cast(SPARK_TYPES[type_]))
    double = text.try_cast(T.DoubleType())
    finite = F.when(_is(text, NUMBER) & (F.abs(double) <= F.lit(_GREATEST)), double)
    made = F.when(_is(text, WORD), double).otherwise(finite)
    return made if type_ is FieldType.DOUBLE else _cast([made], [FieldType.DOUBLE], type_)


def _is(text: Column, pattern: str) -> Column:
    return F.rlike(text, F.lit(rf"\A{pattern}\z"))


def _whole(
    towards: Callable[[Column], Column],
) -> Callable[[Columns, Sequence[FieldType], FieldType], Column]:
    """floor and ceil; null where the result is no long, where Spark's saturate."""

    def build(operands: Columns, types: Sequence[FieldType], _type: FieldType) -> Column:
        operand = operands[0]
        if types[0] in INTEGERS:
            return operand
        wide = operand.cast(T.DoubleType())
        fits = (wide >= F.lit(-_LONG_LIMIT)) & (wide < F.lit(_LONG_LIMIT))
        return F.when(fits, towards(wide))

    return build


def _case(operands: Columns) -> Column:
    chain = F.when(operands[0], operands[1])
    for condition, value in zip(operands[2:-1:2], operands[3:-1:2], strict=True):
        chain = chain.when(condition, value)
    return chain.otherwise(operands[-1])


def _shift(function: str) -> Callable[[Columns, Sequence[FieldType], FieldType], Column]:
    """Null where Java takes the number of bits modulo 32 or 64."""

    def build(operands: Columns, _types: Sequence[FieldType], type_: FieldType) -> Column:
        value, bits = operands
        beyond = F.lit(~63 if type_ is FieldType.LONG else ~31)
        return F.when(bits.bitwiseAND(beyond) == F.lit(0), F.call_function(function, value, bits))

    return build


def _root(operands: Columns) -> Column:
    return F.when(operands[0] >= F.lit(0.0), F.sqrt(operands[0]))


_BY_TYPES: Final[Mapping[str, Callable[[Columns, Sequence[FieldType], FieldType], Column]]] = {
    "+": _arithmetic(F.try_add, lambda a, b: a + b),
    "-": _arithmetic(F.try_subtract, lambda a, b: a - b),
    "*": _arithmetic(F.try_multiply, lambda a, b: a * b),
    "neg": _negative,
    "abs": _absolute,
    "cast": _cast,
    "floor": _whole(F.floor),
    "ceil": _whole(F.ceil),
    "shiftleft": _shift("shiftleft"),
    "shiftright": _shift("shiftright"),
}

_BY_CONSTANTS: Final = {**TIME_COLUMNS, **TEXT_COLUMNS}

_SIMPLE: Final[Mapping[str, Callable[[Columns], Column]]] = {
    "/": lambda o: o[0] / o[1],
    "%": lambda o: o[0] % o[1],
    "=": lambda o: o[0] == o[1],
    "<>": lambda o: o[0] != o[1],
    "<": lambda o: o[0] < o[1],
    "<=": lambda o: o[0] <= o[1],
    ">": lambda o: o[0] > o[1],
    ">=": lambda o: o[0] >= o[1],
    "and": lambda o: reduce(and_, o),
    "or": lambda o: reduce(or_, o),
    "not": lambda o: ~o[0],
    "like": lambda o: F.like(o[0], o[1]),  # the parser refuses patterns that Spark fails on
    "is_null": lambda o: o[0].isNull(),
    "in": lambda o: o[0].isin(*o[1:]),
    "case": _case,
    "coalesce": lambda o: F.coalesce(*o),
    "least": lambda o: F.least(*o),
    "greatest": lambda o: F.greatest(*o),
    "lower": lambda o: F.lower(o[0]),
    "upper": lambda o: F.upper(o[0]),
    "trim": lambda o: F.trim(o[0]),
    "length": lambda o: F.length(o[0]),
    "substring": lambda o: F.substr(*o),
    "substring_index": lambda o: F.call_function("substring_index", *o),
    "concat": lambda o: F.concat(*o),
    "round": lambda o: F.round(o[0], o[1]),
    "sqrt": _root,
    "bitand": lambda o: o[0].bitwiseAND(o[1]),
    "bitor": lambda o: o[0].bitwiseOR(o[1]),
    "bitxor": lambda o: o[0].bitwiseXOR(o[1]),
    IS_SAME: lambda o: o[0].eqNullSafe(o[1]),
}


def within(name: str, least: int, most: int, *, constant: bool) -> str:
    """The condition least <= name <= most.

    Numbers that differ from epoch to epoch would make Spark generate and compile other code every
    time: see `changing`. Such a condition is not pushed into the scan; `constant` makes a plain
    one, which is.
    """
    least, most = max(least, BEGINNING + 1), min(most, END)
    if constant:
        return f"{name} BETWEEN {least}L AND {most}L"
    low, high = changing(name, least, most)
    return f"{name} >= {low} AND {name} <= {high}"


def changing(name: str, *numbers: int) -> list[str]:
    """Numbers that differ from epoch to epoch, as expressions of which Spark makes the same code.

    They are in an array that the code refers to. The index into it depends (in form only) on the
    column `name`, a long; else Spark would fold it to a number.
    """
    values = ", ".join(f"{number}L" for number in numbers)
    first = f"CAST({name} & 0L AS INT)"
    return [f"get(array({values}), {first} + {n})" for n in range(len(numbers))]

"""Expressions to Spark columns, as `engine.language.operators` defines them: total on any data.

Spark runs with ANSI mode off, so most failures give null. Where Spark wraps, saturates or raises,
this file takes another form. Windows and their functions do not depend on how rows are cut and
partitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine.language.operators import FLOATS, INTEGERS
from engine.language.steps import Constant, Expression, FieldRef, Operation
from engine.objects.query import Function
from engine.objects.schema import STIME, Field, FieldType
from engine.tasks.plan import AggregateStep, TypedAggregate

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


def quoted(name: str) -> Column:
    """A column by its exact name, whatever characters it has."""
    return F.col(f"`{name.replace('`', '``')}`")


def without_negative_zero(column: Column) -> Column:
    """The column with 0.0 for -0.0, so that equal rows have equal bytes."""
    return column + F.lit(0.0).cast(T.FloatType())


def column(expression: Expression) -> Column:
    """The expression over a DataFrame that has its fields and `stime`."""
    match expression:
        case FieldRef(name=name):
            return F.timestamp_micros(quoted(STIME)) if name == STIME else quoted(name)
        case Constant(value=value, type=type_):
            return _constant(value, type_)
        case Operation(operator=operator, type=type_):
            operands = [column(each) for each in expression.operands]
            if operator in _BY_TYPES:
                types = [each.type for each in expression.operands]
                return _BY_TYPES[operator](operands, types, type_)
            return _SIMPLE[operator](operands)


def _constant(value: bool | int | float | str | None, type_: FieldType) -> Column:
    if type_ is FieldType.TIMESTAMP and value is not None:
        return F.timestamp_micros(F.lit(value).cast(T.LongType()))
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
    return operand.try_cast(SPARK_TYPES[type_])


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


_BY_TYPES: Final[Mapping[str, Callable[[Columns, Sequence[FieldType], FieldType], Column]]] = {
    "+": _arithmetic(F.try_add, lambda a, b: a + b),
    "-": _arithmetic(F.try_subtract, lambda a, b: a - b),
    "*": _arithmetic(F.try_multiply, lambda a, b: a * b),
    "neg": _negative,
    "abs": _absolute,
    "cast": _cast,
    "floor": _whole(F.floor),
    "ceil": _whole(F.ceil),
}

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
}


_LOW_BITS: Final = 32
"""Longs are summed in halves of this many bits: 2**31 rows cannot make them overflow."""


def window_starts(step: AggregateStep) -> Column:
    """The starts of the windows that may hold a tuple: one (tumbling), or one per row (sliding).

    Where `advance` does not divide `size`, the oldest of them may have ended before the tuple.
    """
    stime = quoted(STIME)
    last = stime - F.pmod(stime, F.lit(step.advance_us))
    if step.size_us == step.advance_us:
        return last
    count = -(-step.size_us // step.advance_us)
    oldest = last - F.lit((count - 1) * step.advance_us)
    # a sequence that runs backwards would fail: a stime so low that it wraps has no other window
    return F.explode(F.sequence(F.least(oldest, last), last, F.lit(step.advance_us)))


def order_of(fields: Sequence[Field]) -> Column:
    """Canonical order of derived tuples: stime, then the fields; NaN after numbers, nulls last."""
    keys = [quoted(STIME)]
    for each in fields:
        if each.nullable:
            keys.append(quoted(each.name).isNull())
        keys.append(quoted(each.name))
    return F.struct(*keys)


class Aggregates:
    """The functions of a window, as columns.

    All `firstval` share one struct of their arguments, and so do all `lastval`: their order has all
    fields, so one order per function would grow with the square of the schema.

    Attributes:
        computed: the columns that Spark aggregates, named.
        values: the functions' results over those columns.
        plain: whether `computed` are the results already.

    Args:
        order: of tuples, for firstval and lastval; different tuples are never equal in it.
    """

    def __init__(self, functions: Sequence[TypedAggregate], order: Column) -> None:
        self.computed: list[Column] = []
        self.values: list[Column] = []
        ends: dict[Function, list[Column]] = {Function.FIRSTVAL: [], Function.LASTVAL: []}
        for number, each in enumerate(functions):
            name = f"value{number}"
            if each.function in ends and each.argument is not None:
                ends[each.function].append(_argument(each.argument).alias(name))
                self.values.append(F.col(each.function).getField(name))
            else:
                self.computed.append(_aggregate(each).alias(name))
                self.values.append(F.col(name))
        self.plain = not any(ends.values())
        for function, arguments in ends.items():
            if arguments:
                found = _ENDS[function](F.struct(*arguments), order)
                self.computed.append(found.alias(function))


def _aggregate(each: TypedAggregate) -> Column:
    if each.argument is None:
        return F.count(F.lit(1))
    return _UNORDERED[each.function](_argument(each.argument), each.argument.type)


def _argument(expression: Expression) -> Column:
    made = column(expression)
    return without_negative_zero(made) if expression.type in FLOATS else made


def _distinct(argument: Column, type_: FieldType) -> Column:
    if type_ in FLOATS:  # to a set, NaN differs from itself
        return F.count_distinct(argument)
    return F.size(F.collect_set(argument)).cast(T.LongType())


def _sum(argument: Column, type_: FieldType) -> Column:
    if type_ in FLOATS:
        return _fold(argument)
    if type_ is not FieldType.LONG:
        return F.sum(argument)  # 2**31 ints cannot overflow a long
    high, low = _halves(argument)
    fits = (high >= F.lit(-(2**31))) & (high < F.lit(2**31))
    return F.when(fits, F.shiftleft(high, _LOW_BITS).bitwiseOR(low))


def _average(argument: Column, type_: FieldType) -> Column:
    if type_ in FLOATS:
        total = _fold(argument)
    elif type_ is FieldType.LONG:
        wide = T.DecimalType(38, 0)
        high, low = (half.cast(wide) for half in _halves(argument))
        total = (high * F.lit(2**_LOW_BITS).cast(T.DecimalType(11, 0)) + low).cast(T.DoubleType())
    else:
        total = F.sum(argument).cast(T.DoubleType())
    return total / F.count(argument)


def _halves(argument: Column) -> tuple[Column, Column]:
    """The exact sum of longs, as (high, low): high * 2**32 + low, low within [0, 2**32)."""
    mask = F.lit(2**_LOW_BITS - 1)
    low = F.sum(argument.bitwiseAND(mask))
    high = F.sum(F.shiftright(argument, _LOW_BITS)) + F.shiftright(low, _LOW_BITS)
    return high, low.bitwiseAND(mask)


def _fold(argument: Column) -> Column:
    """The sum of floats, added in ascending order: the same bits however the rows are cut."""
    values = F.sort_array(F.collect_list(argument.cast(T.DoubleType())))
    total = F.aggregate(values, F.lit(0.0), lambda total, value: total + value)
    return F.when(F.count(argument) > 0, total)


_ENDS: Final[Mapping[Function, Callable[[Column, Column], Column]]] = {
    Function.FIRSTVAL: F.min_by,
    Function.LASTVAL: F.max_by,
}

_UNORDERED: Final[Mapping[Function, Callable[[Column, FieldType], Column]]] = {
    Function.COUNT: lambda argument, _type: F.count(argument),
    Function.COUNT_DISTINCT: _distinct,
    Function.SUM: _sum,
    Function.AVG: _average,
    Function.MIN: lambda argument, _type: F.min(argument),
    Function.MAX: lambda argument, _type: F.max(argument),
}

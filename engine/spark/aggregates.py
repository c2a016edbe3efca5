"""Windows and their functions as Spark columns, independent of how rows are cut and partitioned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine.language.expressions import Expression
from engine.language.operators import FLOATS
from engine.objects.query import Function
from engine.objects.schema import STIME, Field, FieldType
from engine.spark.columns import column, quoted, without_negative_zero
from engine.tasks.plan import AggregateStep, TypedAggregate

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

"""The functions of a window as Spark columns: of tuples, of panes, and of what panes make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.language.aggregates import BAGS, KINDS, VARIANCES, Kind
from medusa.engine.language.operators import FLOATS
from medusa.engine.language.typed import Expression
from medusa.engine.objects.query import Function
from medusa.engine.objects.schema import SEQ, STIME, Field, FieldType
from medusa.engine.operators.aggregate.step import AggregateStep, Form
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.shared.panes import Counted, Layout, layout
from medusa.engine.spark.bags import Bag, bag_of, bin_of, of_bag
from medusa.engine.spark.buckets import bucket_of
from medusa.engine.spark.columns import column, quoted, without_negative_zero
from medusa.engine.spark.distinct import code_of, estimate, estimate_of_codes, rank_of, register_of
from medusa.engine.spark.variances import TRIPLE, combined_moments, moments_of, variance


class Functions:
    """The functions of a window, as columns.

    Attributes:
        keys: columns to group by, besides the window and its groups, named. parted: they, over the
            result.
        parts: how often each tuple is taken; 0: once, without a number.
        computed: the columns that Spark aggregates, named.
        values: the results over those columns. plain: they are `computed`.
    """

    def __init__(self) -> None:
        self.keys: list[Column] = []
        self.parted: list[Column] = []
        self.parts = 0
        self.computed: list[Column] = []
        self.values: list[Column] = []
        self.plain = True

    def add(self, column: Column) -> None:
        """Add a result that Spark aggregates."""
        self.values.append(self.compute(column))

    def add_over(self, result: Column) -> None:
        """Add a result over what Spark aggregates."""
        self.plain = False
        self.values.append(result.alias(f"result{len(self.values)}"))

    def compute(self, column: Column) -> Column:
        """Have Spark aggregate something that is no result; gives its column."""
        name = f"value{len(self.computed)}"
        self.computed.append(column.alias(name))
        return F.col(name)


def functions_of(
    step: AggregateStep,
    fields: Sequence[Field],
    part: str,
    *,
    by_arrival: bool,
    counted: bool = False,
) -> Functions:
    """The functions of a window.

    Args:
        fields: of its input. part: the column with the part for which a tuple is taken.
        by_arrival: the input has SEQ, and tuples of one stime are in its order.
        counted: in place of values, panes have numbers of different values.
    """
    order = F.struct(STIME, SEQ) if by_arrival else order_of(fields)
    match step.form:
        case Form.WHOLE:
            return _whole(step, order)
        case Form.PARTIAL:
            return _partial(step, order, part)
        case Form.COMBINED:
            return _combined(step, counted=counted)


def order_of(fields: Sequence[Field]) -> Column:
    """Canonical order of derived tuples: stime, then the fields; NaN after numbers, nulls last."""
    keys = [quoted(STIME)]
    for each in fields:
        if each.nullable:
            keys.append(quoted(each.name).isNull())
        keys.append(quoted(each.name))
    return F.struct(*keys)


# -- of tuples ------------------------------------------------------------------------------------


def _whole(step: AggregateStep, order: Column) -> Functions:
    """All `firstval` share one struct of their arguments, and so do all `lastval`: their order has
    all fields, so one order per function would grow with the square of the schema.

    Args:
        order: of tuples, for firstval and lastval; different tuples are never equal in it.
    """
    made = Functions()
    ends: dict[Function, list[Column]] = {Function.FIRSTVAL: [], Function.LASTVAL: []}
    for number, each in enumerate(step.functions):
        if each.function in ends and each.argument is not None:
            name = f"end{number}"
            ends[each.function].append(_argument(each.argument).alias(name))
            made.values.append(F.col(each.function).getField(name))
        elif each.argument is None:
            made.add(F.count(F.lit(1)))
        elif each.function in VARIANCES:
            states = moments_of(_argument(each.argument), each.argument.type)
            _add_variance(made, each, states)
        else:
            made.add(_UNORDERED[each.function](_argument(each.argument), each.argument.type))
    for function, arguments in ends.items():
        if arguments:
            found = _ENDS[function](F.struct(*arguments), order)
            made.computed.append(found.alias(function))
            made.plain = False
    return made


def _add_variance(made: Functions, each: TypedAggregate, states: Sequence[Column]) -> None:
    """Add the result of the states, each of which Spark aggregates."""
    assert each.argument is not None
    found = [made.compute(state) for state in states]
    made.add_over(variance(each.function, found, each.argument.type))


def _argument(expression: Expression) -> Column:
    made = column(expression)
    return without_negative_zero(made) if expression.type in FLOATS else made


def _distinct(argument: Column, type_: FieldType) -> Column:
    if type_ in FLOATS:  # to a set, NaN differs from itself
        return F.count_distinct(argument)
    return F.size(F.collect_set(argument)).cast(T.LongType())


def _approximate(argument: Column, type_: FieldType) -> Column:
    return estimate_of_codes(F.collect_set(code_of(argument, type_)))


def _sum(argument: Column, type_: FieldType) -> Column:
    if type_ in FLOATS:
        return _fold(argument)
    if type_ is not FieldType.LONG:
        return F.sum(argument)  # 2**31 ints cannot overflow a long
    return _fitted(*_halves(argument))


def _average(argument: Column, type_: FieldType) -> Column:
    if type_ in FLOATS:
        total = _fold(argument)
    elif type_ is FieldType.LONG:
        total = _as_double(*_halves(argument))
    else:
        total = F.sum(argument).cast(T.DoubleType())
    return total / F.count(argument)


_LOW_BITS: Final = 32
"""Longs are summed in halves of this many bits: 2**31 rows cannot make them overflow."""

_MASK: Final = 2**_LOW_BITS - 1


def _halves(argument: Column) -> tuple[Column, Column]:
    """The exact sum of longs, as (high, low): high * 2**32 + low, low within [0, 2**32)."""
    low = F.sum(argument.bitwiseAND(F.lit(_MASK)))
    return _carried(F.sum(F.shiftright(argument, _LOW_BITS)), low)


def _carried(high: Column, low: Column) -> tuple[Column, Column]:
    """The halves of a sum, given the sums of the halves."""
    return high + F.shiftright(low, _LOW_BITS), low.bitwiseAND(F.lit(_MASK))


def _fitted(high: Column, low: Column) -> Column:
    """The long of these halves; null if it does not fit."""
    fits = (high >= F.lit(-(2**31))) & (high < F.lit(2**31))
    return F.when(fits, F.shiftleft(high, _LOW_BITS).bitwiseOR(low))


def _as_double(high: Column, low: Column) -> Column:
    """The double that is nearest to these halves."""
    wide = T.DecimalType(38, 0)
    scale = F.lit(2**_LOW_BITS).cast(T.DecimalType(11, 0))
    return (high.cast(wide) * scale + low.cast(wide)).cast(T.DoubleType())


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
    Function.APPROX_COUNT_DISTINCT: _approximate,
    Function.SUM: _sum,
    Function.AVG: _average,
    Function.MIN: lambda argument, _type: F.min(argument),
    Function.MAX: lambda argument, _type: F.max(argument),
    Function.BOOL_AND: lambda argument, _type: F.min(argument),
    Function.BOOL_OR: lambda argument, _type: F.max(argument),
}


# -- of panes: `medusa.engine.operators.shared.panes` defines their fields
# ---------------------------------------


def _partial(step: AggregateStep, order: Column, part: str) -> Functions:
    """Tuples to partial results.

    Args:
        part: the column with the part for which a tuple is taken.
    """
    made, layout_ = Functions(), layout(step.group_by, step.functions)

    def taken(value: Column, number: int) -> Column:
        """The value, null in other parts."""
        return value if layout_.part is None else F.when(F.col(part) == number, value)

    if layout_.part is not None:
        made.parts = 1 + len(layout_.values)
        made.keys.append(F.col(part))
        made.parted.append(F.col(part))
    for number, each in enumerate(layout_.values, start=1):
        made.keys.append(taken(_key_of(each), number).alias(each.name))
        made.parted.append(quoted(each.name))
    for number, each in enumerate(layout_.values, start=1):
        if each.state is not None:
            made.add(_state_of(each, partial(taken, number=number)))
    for function in step.functions:
        if function.argument is None:
            made.add(F.count(taken(F.lit(1), 0)))
        elif function.function not in KINDS:
            argument = taken(_argument(function.argument), 0)
            _add_states(made, function, argument, order)
    made.add(F.lit(False))  # `former`
    return made


def _key_of(each: Counted) -> Column:
    """By what the tuples of a value are put together."""
    argument = _argument(each.argument)
    match each.kind:
        case Kind.VALUES | Kind.NUMBERS:
            return argument
        case Kind.REGISTERS:
            return register_of(argument, each.argument.type)
        case Kind.BUCKETS:
            return bucket_of(argument)
        case Kind.BINS:
            assert isinstance(each.parameter, int)
            return bin_of(argument, each.argument.type, each.parameter)


def _state_of(each: Counted, taken: Callable[[Column], Column]) -> Column:
    """What is known of a value."""
    if each.kind is Kind.REGISTERS:
        return F.max(taken(rank_of(_argument(each.argument), each.argument.type)))
    return F.count(taken(F.lit(1)))


def _add_states(made: Functions, each: TypedAggregate, argument: Column, order: Column) -> None:
    """Add the partial results of one function."""
    assert each.argument is not None
    function, type_ = each.function, each.argument.type
    if function in VARIANCES and type_ in FLOATS:
        (triple,) = map(made.compute, moments_of(argument, type_))
        for name in TRIPLE:
            made.add_over(triple.getField(name))
    elif function in VARIANCES:
        for state in moments_of(argument, type_):
            made.add(state)
    elif function in _ENDS:
        made.add(_ENDS[function](argument, order))
    else:
        for state in _states(function, argument, type_):
            made.add(state)


def _states(function: Function, argument: Column, type_: FieldType) -> Sequence[Column]:
    """The partial results of a function that is neither a variance nor asks for order."""
    if function not in {Function.SUM, Function.AVG}:
        return [_UNORDERED[function](argument, type_)]
    sums = _halves(argument) if type_ is FieldType.LONG else (_sum(argument, type_),)
    return sums if function is Function.SUM else (*sums, F.count(argument))


def _combined(step: AggregateStep, *, counted: bool) -> Functions:
    """Partial results to results."""
    made, layout_ = Functions(), layout(step.group_by, step.functions)
    at = quoted(STIME)
    if layout_.part is not None:
        at = F.when(quoted(layout_.part) == 0, at)
    bags = _bags(made, layout_)
    for each, names in zip(step.functions, layout_.states, strict=True):
        states = [quoted(name) for name in names]
        type_ = FieldType.LONG if each.argument is None else each.argument.type
        if names[0] in bags:
            made.add_over(of_bag(each, bags[names[0]]))
        elif each.function in VARIANCES:
            _add_variance(made, each, combined_moments(states, type_))
        elif each.function in _ENDS:
            made.add(_ENDS[each.function](states[0], at))
        elif counted and each.function is Function.COUNT_DISTINCT:
            made.add(F.coalesce(F.sum(states[0]), F.lit(0).cast(T.LongType())))
        else:
            made.add(_COMBINED[each.function](states, type_))
    return made


def _bags(made: Functions, layout_: Layout) -> dict[str, Bag]:
    """The values that occur a number of times, by the field of the values. Functions share them."""
    found: dict[str, Bag] = {}
    for each in layout_.values:
        if each.kind in BAGS and each.state is not None:
            key, number = quoted(each.name), quoted(each.state)
            entries, total = (made.compute(column) for column in bag_of(key, number))
            found[each.name] = Bag(entries, total, each.type)
    return found


def _combined_total(states: Sequence[Column], type_: FieldType) -> tuple[Column, Column]:
    """The halves of a sum of integers."""
    if type_ is FieldType.LONG:
        return _carried(F.sum(states[0]), F.sum(states[1]))
    return _halves(states[0])


def _combined_sum(states: Sequence[Column], type_: FieldType) -> Column:
    if type_ in FLOATS:
        return _fold_in_order(states[0])
    return _fitted(*_combined_total(states, type_))


def _combined_average(states: Sequence[Column], type_: FieldType) -> Column:
    if type_ in FLOATS:
        total = _fold_in_order(states[0])
    else:
        total = _as_double(*_combined_total(states, type_))
    return total / F.sum(states[-1])


def _fold_in_order(state: Column) -> Column:
    """The sum of the panes' sums, pane after pane."""
    placed = F.when(state.isNotNull(), F.struct(quoted(STIME), state.alias("sum")))
    values = F.sort_array(F.collect_list(placed))
    total = F.aggregate(values, F.lit(0.0), lambda total, each: total + each.getField("sum"))
    return F.when(F.count(state) > 0, total)


_COMBINED: Final[Mapping[Function, Callable[[Sequence[Column], FieldType], Column]]] = {
    Function.COUNT: lambda states, _type: F.sum(states[0]),
    Function.COUNT_DISTINCT: lambda states, _type: F.count(states[0]),
    Function.APPROX_COUNT_DISTINCT: lambda states, _type: estimate(*states),
    Function.SUM: _combined_sum,
    Function.AVG: _combined_average,
    Function.MIN: lambda states, _type: F.min(states[0]),
    Function.MAX: lambda states, _type: F.max(states[0]),
    Function.BOOL_AND: lambda states, _type: F.min(states[0]),
    Function.BOOL_OR: lambda states, _type: F.max(states[0]),
}

"""The functions of a window as Spark columns: of tuples, of panes, and of what panes make."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from medusa.engine.aggregates.function import Bag, Counted, End, Folded, OfBag, OfSet
from medusa.engine.dataframes.columns import column, quoted, without_negative_zero
from medusa.engine.expressions.typed import Expression
from medusa.engine.objects.schema import SEQ, STIME, Field, FieldType
from medusa.engine.operators.aggregate.step import AggregateStep, Form
from medusa.engine.operators.shared.panes import Layout, layout
from medusa.engine.scalars.type_rules import FLOATS


class Functions:
    """The functions of a window, as columns.

    Attributes:
        keys: further columns to group by, besides the window and its groups, named. parted: the
            same columns, over the result. parts: how often each tuple is repeated; 0: once, without
            a number. computed: the columns that Spark aggregates, named.
        values: the results over these columns. plain: whether the results are `computed`
            themselves.
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
        """Add a result that is computed from Spark's aggregates."""
        self.plain = False
        self.values.append(result.alias(f"result{len(self.values)}"))

    def compute(self, column: Column) -> Column:
        """Add an aggregate that is no result itself; returns its column."""
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
        fields: the fields of its input. part: the column with the part to which a copy of a tuple
            belongs. by_arrival: whether the input has SEQ, which orders tuples of one stime.
            counted: whether panes have numbers of different values in place of the values.
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
    """The functions of a window over tuples. All `firstval` share one struct of their arguments,
    and so do all `lastval`: their order has all fields, so one order per function would grow with
    the square of the schema. Args: order: a total order of tuples, for firstval and lastval.
    """
    made = Functions()
    ends: dict[End, list[Column]] = {}
    for number, each in enumerate(step.functions):
        x, type_ = _argument(each.argument), each.argument_type
        match each.function:
            case Folded() as function:
                _add_result(made, function, function.spark_partial(x, type_), type_)
            case End() as function:
                name = f"end{number}"
                ends.setdefault(function, []).append(x.alias(name))
                made.values.append(F.col(function.name).getField(name))
            case OfSet() as function:
                made.add(function.spark_whole(x, type_))
            case function:
                raise AssertionError(f"{function.name} is computed of panes")
    for function, arguments in ends.items():
        found = function.spark_end(F.struct(*arguments), order)
        made.computed.append(found.alias(function.name))
        made.plain = False
    return made


def _add_result(
    made: Functions, function: Folded, aggregated: Sequence[Column], type_: FieldType
) -> None:
    """Add the result of a function that Spark aggregates."""
    if function.named:
        found = [made.compute(each) for each in aggregated]
        made.add_over(function.spark_result(found, type_))
    else:
        made.add(function.spark_result(aggregated, type_))


def _argument(expression: Expression | None) -> Column:
    if expression is None:
        return F.lit(1)
    made = column(expression)
    return without_negative_zero(made) if expression.type in FLOATS else made


# -- of panes: `medusa.engine.operators.shared.panes` defines their fields ------------------------


def _partial(step: AggregateStep, order: Column, part: str) -> Functions:
    """The functions that make partial results from tuples. Args: part: the column with the part to
    which a copy of a tuple belongs.
    """
    made, layout_ = Functions(), layout(step.group_by, step.functions)

    def taken(value: Column, number: int) -> Column:
        """The value in the copies of tuples that belong to the part `number`, null in all other
        copies; without parts, the value itself."""
        return value if layout_.part is None else F.when(F.col(part) == number, value)

    if layout_.part is not None:
        made.parts = 1 + len(layout_.values)
        made.keys.append(F.col(part))
        made.parted.append(F.col(part))
    arguments = [_argument(each.argument) for each in layout_.values]
    for number, (keyed, x) in enumerate(zip(layout_.values, arguments, strict=True), start=1):
        key = keyed.kind.spark_key(x, keyed.argument.type, keyed.constant)
        made.keys.append(taken(key, number).alias(keyed.name))
        made.parted.append(quoted(keyed.name))
    for number, (keyed, x) in enumerate(zip(layout_.values, arguments, strict=True), start=1):
        if keyed.kind.state is not None:
            mark = taken(keyed.kind.spark_mark(x, keyed.argument.type), number)
            made.add(F.count(mark) if keyed.kind.counts else F.max(mark))
    for each in step.functions:
        x, type_ = taken(_argument(each.argument), 0), each.argument_type
        match each.function:
            case Folded() as function:
                _add_states(made, function, function.spark_partial(x, type_), type_)
            case End() as function:
                made.add(function.spark_end(x, order))
            case _:
                assert isinstance(each.function, Counted), "its values are above"
    made.add(F.lit(False))  # `former`
    return made


def _add_states(
    made: Functions, function: Folded, aggregated: Sequence[Column], type_: FieldType
) -> None:
    """Add the states of a function that Spark aggregates."""
    if len(aggregated) == len(function.states(type_)):
        for each in aggregated:
            made.add(each)
    else:
        for each in function.spark_states([made.compute(each) for each in aggregated], type_):
            made.add_over(each)


def _combined(step: AggregateStep, *, counted: bool) -> Functions:
    """The functions that make results from partial results."""
    made, layout_ = Functions(), layout(step.group_by, step.functions)
    at = quoted(STIME)
    if layout_.part is not None:
        at = F.when(quoted(layout_.part) == 0, at)
    bags = _bags(made, layout_)
    for each, names in zip(step.functions, layout_.states, strict=True):
        fields, type_ = [quoted(name) for name in names], each.argument_type
        match each.function:
            case Folded() as function:
                merged = function.spark_merged(fields, quoted(STIME), type_)
                _add_result(made, function, merged, type_)
            case End() as function:
                made.add(function.spark_end(fields[0], at))
            case OfSet() as function if counted and function.kind.state is None:
                made.add(F.coalesce(F.sum(fields[0]), F.lit(0).cast("long")))
            case OfSet() as function:
                made.add(function.spark_combined(fields))
            case OfBag() as function:
                down = each.descending
                made.add_over(function.spark_of(bags[names[0]], each.parameter, descending=down))
            case function:
                raise AssertionError(f"{function.name} has no partial form")
    return made


def _bags(made: Functions, layout_: Layout) -> dict[str, Bag]:
    """The bags of keys and their numbers, by the field of the key. Functions with the same key
    share a bag."""
    found: dict[str, Bag] = {}
    for each in layout_.values:
        if each.state is not None and each.kind.counts:
            key, number = quoted(each.name), quoted(each.state)
            entry = F.when(key.isNotNull(), F.struct(key.alias("key"), number.alias("number")))
            entries = made.compute(F.sort_array(F.collect_list(entry)))
            total = made.compute(F.sum(F.when(key.isNotNull(), number)))
            found[each.name] = Bag(entries, total, each.type)
    return found

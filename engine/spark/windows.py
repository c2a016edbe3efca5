"""Windows and their functions as Spark columns: of tuples, of panes, and of what panes make.

No result depends on how rows are cut, ordered and partitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine.language.operators import FLOATS
from engine.language.panes import DISTINCT, Counted, layout, panes_fields
from engine.language.steps import AggregateStep, Expression, Form
from engine.objects.query import WINDOW_START, Function
from engine.objects.schema import END, SEQ, STIME, Field, FieldType
from engine.spark.columns import changing, column, quoted, without_negative_zero
from engine.spark.distinct import code_of, estimate, estimate_of_codes, rank_of, register_of

SLICED: Final = 3
"""Windows of one job from which on panes that are in the same ones are merged first."""


class Windows:
    """An aggregate over a DataFrame of its input.

    Args:
        fields: of the input.
        by_arrival: the input has SEQ, and tuples of one stime are in its order.
        last: it is the task's last step. Then the columns of its result have names of their own:
            the window's start, the keys, the results (or, of panes, the fields of the layout).
    """

    def __init__(
        self, step: AggregateStep, fields: Sequence[Field], *, by_arrival: bool, last: bool
    ) -> None:
        self._step = step
        self._window, self._part = _free_names(fields)
        self._functions = _functions(step, fields, self._part, by_arrival=by_arrival)
        self._taken = _taken(step)
        keys = _keys(step)
        self._keys = [F.col(self._window), *keys, *self._functions.keys]
        found = [F.col(self._window), *_key_names(step), *self._functions.values]
        if last:
            self._found = [] if self._functions.plain else found
        else:
            start, *rest = found
            end = start + F.lit(step.size_us - 1)
            self._found = [end.alias(STIME), *named(step, start, rest)]

    def apply(self, frame: DataFrame, after: int, upto: int, *, small: bool) -> DataFrame:
        """The windows whose last microsecond is in (after, upto].

        Args:
            small: one core without a shuffle is quicker.
        """
        if self._taken is not None:
            frame = frame.where(self._taken)
        if small:
            frame = frame.coalesce(1)  # no shuffle
        windows = self._slices(frame, after, upto)
        if windows is None:
            windows = frame.select(_starts(self._step, after, upto).alias(self._window), F.col("*"))
            if self._step.size_us % self._step.advance_us:
                # the oldest of them may have ended before the tuple
                windows = windows.where(f"{self._window} > {STIME} - {self._step.size_us}L")
        windows = _in_parts(windows, self._functions.parts, self._part)
        windows = _with_merged_values(windows, self._step, [F.col(self._window)])
        result = _grouped(windows, self._keys, self._functions.computed)
        return result.select(*self._found) if self._found else result

    def _slices(self, frame: DataFrame, after: int, upto: int) -> DataFrame | None:
        """The panes of each due window, those merged before that are in the same ones: then a value
        is once in each window, not once for each pane and window. None: it would not pay."""
        size, advance = self._step.size_us, self._step.advance_us
        first, last = _due(self._step, after, upto)
        if size % advance or last - first < (SLICED - 1) * advance or not _has_values(self._step):
            return None
        begins, ends = (f"{self._window} {end}" for end in ("begins", "ends"))
        bounds = _first_and_last(self._step, after, upto)
        placed = frame.select(bounds[0].alias(begins), bounds[1].alias(ends), F.col("*"))
        columns = (quoted(begins), quoted(ends))
        merged = _with_merged_values(placed.where(columns[0] <= columns[1]), self._step, columns)
        starts = F.explode(F.sequence(*columns, F.lit(advance)))
        return merged.select(starts.alias(self._window), F.col("*"))


class TaggedWindows:
    """The same aggregate of several tasks over a DataFrame whose rows say which task's window each
    is in, by the columns `tags`: the first has the window's start.

    The result has the tags, the group-by fields, and the results by the functions' names (or, of
    panes, the fields of the layout), without stime.
    """

    def __init__(
        self, step: AggregateStep, fields: Sequence[Field], tags: Sequence[str], *, by_arrival: bool
    ) -> None:
        self._step = step
        self._tags = [quoted(tag) for tag in tags]
        _, self._part = _free_names(fields)
        self._functions = _functions(step, fields, self._part, by_arrival=by_arrival)
        self._taken = _taken(step)
        self._keys = [*self._tags, *_keys(step), *self._functions.keys]
        values = [*_key_names(step), *self._functions.parted, *self._functions.values]
        if step.form is Form.PARTIAL:
            names = [each.name for each in panes_fields(step)]
            found = [value.alias(name) for value, name in zip(values, names, strict=True)]
        else:
            found = named(step, self._tags[0], values)
        self._found = [*self._tags, *found]

    def apply(self, frame: DataFrame) -> DataFrame:
        """All windows of the rows."""
        if self._taken is not None:
            frame = frame.where(self._taken)
        frame = _in_parts(frame, self._functions.parts, self._part)
        frame = _with_merged_values(frame, self._step, self._tags)
        return _grouped(frame, self._keys, self._functions.computed).select(*self._found)


def _taken(step: AggregateStep) -> Column | None:
    """True for the panes of the step's edition; None: it reads tuples."""
    if step.form is not Form.COMBINED:
        return None
    former = quoted(layout(step.group_by, step.functions).former)
    if step.former_after == END:
        return ~former
    return former == (quoted(STIME) > F.lit(step.former_after))


def _keys(step: AggregateStep) -> list[Column]:
    """The group-by fields under names of their own."""
    return [quoted(each.name).alias(f"key{n}") for n, each in enumerate(step.group_by)]


def _key_names(step: AggregateStep) -> list[Column]:
    return [F.col(f"key{number}") for number in range(len(step.group_by))]


def named(step: AggregateStep, start: Column, rest: Sequence[Column]) -> list[Column]:
    """The output's columns by their names, without stime.

    Args:
        start: of the window. rest: the keys, the values.
    """
    names = [*(each.name for each in step.group_by), *(each.output for each in step.functions)]
    return [
        F.timestamp_micros(start).alias(WINDOW_START),
        *(value.alias(name) for value, name in zip(rest, names, strict=True)),
    ]


def _grouped(frame: DataFrame, keys: Sequence[Column], computed: Sequence[Column]) -> DataFrame:
    """The computed columns of each group. Panes of `count_distinct` alone have none."""
    if not computed:
        return frame.select(*keys).distinct()
    return frame.groupBy(*keys).agg(*computed)


def _in_parts(frame: DataFrame, parts: int, name: str) -> DataFrame:
    """Each row once for every part, with the part's number; 0: as they are."""
    if not parts:
        return frame
    return frame.select(F.col("*"), F.explode(F.array(*map(F.lit, range(parts)))).alias(name))


def _free_names(fields: Sequence[Field]) -> tuple[str, str]:
    """Names of the columns of the window's start and of the part, which no field has."""
    taken = {each.name.lower() for each in fields}
    number = next(
        n for n in range(2 * len(taken) + 1) if {f"window{n}", f"part{n}"}.isdisjoint(taken)
    )
    return f"window{number}", f"part{number}"


def _starts(step: AggregateStep, after: int, upto: int) -> Column:
    """The starts of the windows that may hold a tuple and end in (after, upto]: one (tumbling), or
    one per row (sliding)."""
    if step.size_us == step.advance_us:
        return _newest(step)  # the job reads tuples of those windows only
    begins, ends = _first_and_last(step, after, upto)
    # a sequence that runs backwards would fail
    return F.explode(F.when(begins <= ends, F.sequence(begins, ends, F.lit(step.advance_us))))


def _newest(step: AggregateStep) -> Column:
    """The start of the newest window that holds a tuple."""
    stime = quoted(STIME)
    return stime - F.pmod(stime, F.lit(step.advance_us))


def _due(step: AggregateStep, after: int, upto: int) -> tuple[int, int]:
    """The starts of the first and of the last window that end in (after, upto]."""
    size, advance = step.size_us, step.advance_us
    first = max((after + 1 - size) // advance + 1, -(END // advance)) * advance
    return first, min((upto + 1 - size) // advance, END // advance) * advance


def _first_and_last(step: AggregateStep, after: int, upto: int) -> tuple[Column, Column]:
    """The starts of the first and the last window that may hold a tuple and end in (after, upto];
    the first is behind the last if there is none."""
    due = [F.expr(each) for each in changing(STIME, *_due(step, after, upto))]
    last = _newest(step)
    oldest = last - F.lit((-(-step.size_us // step.advance_us) - 1) * step.advance_us)
    # a stime so low that the subtraction wraps has no other window
    return F.greatest(F.least(oldest, last), due[0]), F.least(last, due[1])


class _Functions:
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
        name = f"value{len(self.computed)}"
        self.computed.append(column.alias(name))
        self.values.append(F.col(name))


def _functions(
    step: AggregateStep, fields: Sequence[Field], part: str, *, by_arrival: bool
) -> _Functions:
    order = F.struct(STIME, SEQ) if by_arrival else _order_of(fields)
    match step.form:
        case Form.WHOLE:
            return _whole(step, order)
        case Form.PARTIAL:
            return _partial(step, order, part)
        case Form.COMBINED:
            return _combined(step)


def _order_of(fields: Sequence[Field]) -> Column:
    """Canonical order of derived tuples: stime, then the fields; NaN after numbers, nulls last."""
    keys = [quoted(STIME)]
    for each in fields:
        if each.nullable:
            keys.append(quoted(each.name).isNull())
        keys.append(quoted(each.name))
    return F.struct(*keys)


# -- of tuples ------------------------------------------------------------------------------------


def _whole(step: AggregateStep, order: Column) -> _Functions:
    """All `firstval` share one struct of their arguments, and so do all `lastval`: their order has
    all fields, so one order per function would grow with the square of the schema.

    Args:
        order: of tuples, for firstval and lastval; different tuples are never equal in it.
    """
    made = _Functions()
    ends: dict[Function, list[Column]] = {Function.FIRSTVAL: [], Function.LASTVAL: []}
    for number, each in enumerate(step.functions):
        if each.function in ends and each.argument is not None:
            name = f"end{number}"
            ends[each.function].append(_argument(each.argument).alias(name))
            made.values.append(F.col(each.function).getField(name))
        elif each.argument is None:
            made.add(F.count(F.lit(1)))
        else:
            made.add(_UNORDERED[each.function](_argument(each.argument), each.argument.type))
    for function, arguments in ends.items():
        if arguments:
            found = _ENDS[function](F.struct(*arguments), order)
            made.computed.append(found.alias(function))
            made.plain = False
    return made


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
}


# -- of panes: `engine.language.panes` defines their fields ---------------------------------------


def _partial(step: AggregateStep, order: Column, part: str) -> _Functions:
    """Tuples to partial results.

    Args:
        part: the column with the part for which a tuple is taken.
    """
    made, layout_ = _Functions(), layout(step.group_by, step.functions)

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
        if each.rank is not None:
            rank = rank_of(_argument(each.argument), each.argument.type)
            made.add(F.max(taken(rank, number)))
    for function in step.functions:
        if function.argument is None:
            made.add(F.count(taken(F.lit(1), 0)))
        elif function.function not in DISTINCT:
            argument = taken(_argument(function.argument), 0)
            for state in _states(function.function, argument, function.argument.type, order):
                made.add(state)
    made.add(F.lit(False))  # `former`
    return made


def _key_of(each: Counted) -> Column:
    """By what the tuples of a value are put together."""
    argument = _argument(each.argument)
    return argument if each.rank is None else register_of(argument, each.argument.type)


def _states(
    function: Function, argument: Column, type_: FieldType, order: Column
) -> Sequence[Column]:
    """The partial results of one function."""
    if function in _ENDS:
        return [_ENDS[function](argument, order)]
    if function not in {Function.SUM, Function.AVG}:
        return [_UNORDERED[function](argument, type_)]
    sums = _halves(argument) if type_ is FieldType.LONG else (_sum(argument, type_),)
    return sums if function is Function.SUM else (*sums, F.count(argument))


def _combined(step: AggregateStep) -> _Functions:
    """Partial results to results."""
    made, layout_ = _Functions(), layout(step.group_by, step.functions)
    at = quoted(STIME)
    if layout_.part is not None:
        at = F.when(quoted(layout_.part) == 0, at)
    for each, names in zip(step.functions, layout_.states, strict=True):
        states = [quoted(name) for name in names]
        type_ = FieldType.LONG if each.argument is None else each.argument.type
        if each.function in _ENDS:
            made.add(_ENDS[each.function](states[0], at))
        else:
            made.add(_COMBINED[each.function](states, type_))
    return made


def _has_values(step: AggregateStep) -> bool:
    """Whether it reads panes that have rows for values."""
    return step.form is Form.COMBINED and bool(layout(step.group_by, step.functions).values)


def _with_merged_values(
    frame: DataFrame, step: AggregateStep, window: Sequence[Column]
) -> DataFrame:
    """The panes of each window as one, so that a value or a register has one row. Part 0 of a pane,
    whose functions may ask for time, stays as it is; and so do panes without values.

    Args:
        window: the columns that tell windows apart.
    """
    if not _has_values(step):
        return frame
    made = layout(step.group_by, step.functions)
    names = [*(each.name for each in step.group_by), *(each.name for each in made.values)]
    keys = [*window, *map(quoted, names)]
    if made.part is not None:
        at = F.when(quoted(made.part) == 0, quoted(STIME))
        keys += [quoted(made.part), at.alias(STIME)]
    ranks = [each.rank for each in made.values if each.rank is not None]
    merged = [F.max(quoted(rank)).alias(rank) for rank in ranks]
    for each, states in zip(step.functions, made.states, strict=True):
        if each.function not in DISTINCT:
            # what is not added up or compared is in part 0, where there is one row
            fold = _MERGED.get(each.function, F.max) if made.part is None else F.max
            merged += [fold(quoted(state)).alias(state) for state in states]
    return _grouped(frame, keys, merged)


_MERGED: Final[Mapping[Function, Callable[[Column], Column]]] = {
    Function.COUNT: F.sum,
    Function.SUM: F.sum,
    Function.AVG: F.sum,
    Function.MIN: F.min,
}


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
}

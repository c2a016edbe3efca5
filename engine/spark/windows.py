"""Windows of tuples, of panes, and of what panes make, over DataFrames.

No result depends on how rows are cut, ordered and partitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.language.panes import DISTINCT, layout, panes_fields
from engine.language.steps import AggregateStep, Form
from engine.objects.query import WINDOW_START, Function
from engine.objects.schema import END, STIME, Field
from engine.spark.columns import changing, quoted
from engine.spark.functions import functions_of

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
        self._functions = functions_of(step, fields, self._part, by_arrival=by_arrival)
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
        self._functions = functions_of(step, fields, self._part, by_arrival=by_arrival)
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

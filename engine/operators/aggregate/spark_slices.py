"""Slices: joins the panes of the windows that one job makes. Panes of a group that are in the same
windows become one pane, which is then copied for each of the windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from medusa.engine.aggregates.function import Counted, Fold
from medusa.engine.dataframes.columns import changing, quoted
from medusa.engine.objects.schema import END, STIME
from medusa.engine.operators.aggregate.step import AggregateStep, Form
from medusa.engine.operators.shared.panes import layout, states_of


def first_and_last(step: AggregateStep, after: int, upto: int) -> tuple[Column, Column]:
    """The starts of the first and the last window that may hold a tuple and end in (after, upto];
    the first is behind the last if there is none."""
    least, greatest = (F.expr(each) for each in changing(STIME, *due(step, after, upto)))
    last = newest(step)
    oldest = last - F.lit((-(-step.size_us // step.advance_us) - 1) * step.advance_us)
    # a stime so low that the subtraction wraps has no other window
    return F.greatest(F.least(oldest, last), least), F.least(last, greatest)


def newest(step: AggregateStep) -> Column:
    """The start of the newest window that holds a tuple."""
    stime = quoted(STIME)
    return stime - F.pmod(stime, F.lit(step.advance_us))


def due(step: AggregateStep, after: int, upto: int) -> tuple[int, int]:
    """The starts of the first and of the last window that end in (after, upto]."""
    size, advance = step.size_us, step.advance_us
    first = max((after + 1 - size) // advance + 1, -(END // advance)) * advance
    return first, min((upto + 1 - size) // advance, END // advance) * advance


def in_slices(
    frame: DataFrame, step: AggregateStep, window: str, after: int, upto: int
) -> DataFrame:
    """The panes of each window that ends in (after, upto]. Panes that are in the same windows are
    combined first: then a value is copied once for each window, not once for each pane and window.
    Args: window: the column for a window's start, which is no field's name.
    """
    begins, ends = (f"{window} {end}" for end in ("begins", "ends"))
    bounds = (quoted(begins), quoted(ends))
    first, last = first_and_last(step, after, upto)
    placed = frame.select(first.alias(begins), last.alias(ends), F.col("*"))
    merged = with_merged_values(placed.where(bounds[0] <= bounds[1]), step, bounds)
    starts = F.explode(F.sequence(*bounds, F.lit(step.advance_us)))
    return merged.select(starts.alias(window), F.col("*"))


def has_values(step: AggregateStep) -> bool:
    """Whether the step reads panes that have rows for values."""
    return step.form is Form.COMBINED and bool(layout(step.group_by, step.functions).values)


def with_merged_values(
    frame: DataFrame, step: AggregateStep, window: Sequence[Column]
) -> DataFrame:
    """Combine the panes of each window, so that a value or a register has one row. Part 0 of a
    pane, whose functions may depend on time, stays as it is, and so do panes without values.

    Args:
        window: the columns that tell windows apart.
    """
    if not has_values(step):
        return frame
    made = layout(step.group_by, step.functions)
    names = [*(each.name for each in step.group_by), *(each.name for each in made.values)]
    keys = [*window, *map(quoted, names)]
    if made.part is not None:
        at = F.when(quoted(made.part) == 0, quoted(STIME))
        keys += [quoted(made.part), at.alias(STIME)]
    found = {
        each.state: each.kind.state.fold
        for each in made.values
        if each.state is not None and each.kind.state is not None
    }
    found |= folds(step)
    merged = [F.call_function(fold, quoted(name)).alias(name) for name, fold in found.items()]
    return grouped(frame, keys, merged)


def folds(step: AggregateStep) -> Mapping[str, Fold]:
    """How the states of functions that count no values are combined, by field."""
    made = layout(step.group_by, step.functions)
    found: dict[str, Fold] = {}
    for each, names in zip(step.functions, made.states, strict=True):
        if not isinstance(each.function, Counted):
            # if panes have parts, these states are in part 0, which has one row per pane: MAX takes
            # its value
            found |= {
                name: state.fold if made.part is None else Fold.MAX
                for name, state in zip(names, states_of(each), strict=True)
            }
    return found


def grouped(frame: DataFrame, keys: Sequence[Column], computed: Sequence[Column]) -> DataFrame:
    """The computed columns of each group. Panes that only have `count_distinct` have no such
    columns."""
    if not computed:
        return frame.select(*keys).distinct()
    return frame.groupBy(*keys).agg(*computed)

"""Windows over DataFrames: computed from tuples, as panes, and from panes.

No result depends on the cut, the order or the partitions of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from medusa.engine.dataframes.columns import quoted
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.objects.query import WINDOW_START
from medusa.engine.objects.schema import END, STIME, Field
from medusa.engine.operators.aggregate.spark_functions import Functions, functions_of
from medusa.engine.operators.aggregate.spark_masks import Masks
from medusa.engine.operators.aggregate.spark_one_pane import OnePane, counts_values, in_parts
from medusa.engine.operators.aggregate.spark_slices import (
    due,
    first_and_last,
    grouped,
    has_values,
    in_slices,
    newest,
    with_merged_values,
)
from medusa.engine.operators.aggregate.step import AggregateStep, Form, panes_fields
from medusa.engine.operators.shared.panes import layout

SLICED: Final = 3
"""If a job has at least this many windows, it first combines the panes that are in the same
windows: then a value is copied once for each window."""


class Windows(Stage):
    """An aggregate over a DataFrame of its input.

    Args:
        fields: the fields of the input. by_arrival: whether the input has SEQ, which orders tuples
            of one stime. last: whether it is the task's last step. If it is not, the columns of its
            result have unique names: the window's start, the keys, the results (or, of panes, the
            fields of the layout).
    """

    def __init__(
        self, step: AggregateStep, fields: Sequence[Field], *, by_arrival: bool, last: bool
    ) -> None:
        self._step = step
        self._window, self._part = _free_names(fields)
        self._pane: OnePane | None = None
        combined = step
        if counts_values(step):
            tags = [F.col(self._window)]
            self._pane = OnePane(step, fields, self._part, tags, by_arrival=by_arrival)
            combined = replace(step, form=Form.COMBINED)
        made = partial(functions_of, combined, fields, self._part, by_arrival=by_arrival)
        self._functions = made()
        self._of_numbers = made(counted=True) if has_values(step) else self._functions
        self._taken = _taken(step)
        keys = _keys(step)
        self._keys = [F.col(self._window), *keys, *self._functions.keys]
        made_of = [*self._functions.parted, *self._functions.values]
        found = [F.col(self._window), *_key_names(step), *made_of]
        if last:
            self._found = [] if self._functions.plain else found
        else:
            start, *rest = found
            end = start + F.lit(step.size_us - 1)
            self._found = [end.alias(STIME), *named(step, start, rest)]

    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the windows whose last microsecond is in a job's (after, upto]."""
        if self._taken is not None:
            frame = frame.where(self._taken)
        if job.small:
            frame = frame.coalesce(1)  # no shuffle
        windows, functions = self._windows(frame, job.after, job.upto)
        if self._pane is not None:
            windows = self._pane.apply(windows)
        windows = in_parts(windows, functions.parts, self._part)
        result = grouped(windows, self._keys, functions.computed)
        return result.select(*self._found) if self._found else result

    def finished(self, raw: pa.Table, names: Sequence[str]) -> pa.Table:
        starts = raw.column(0)
        stime = pc.add(starts, self._step.size_us - 1)
        columns = [stime, *raw.columns[1:]]
        if self._step.form is not Form.PARTIAL:
            columns.insert(1, starts.cast(pa.timestamp("us", tz="UTC")))
        return pa.table(columns, names=[STIME, *names_made(self._step)]).select(names)

    def _windows(self, frame: DataFrame, after: int, upto: int) -> tuple[DataFrame, Functions]:
        """The rows of each window with the window's start, and the aggregates to compute over
        them."""
        step, window = self._step, self._window
        if has_values(step) and not step.size_us % step.advance_us:
            first, last = due(step, after, upto)
            if last - first >= (SLICED - 1) * step.advance_us:
                masks = Masks(step, after, upto)
                if masks.fit:
                    return masks.apply(frame, window), self._of_numbers
                windows = in_slices(frame, step, window, after, upto)
                return with_merged_values(windows, step, [F.col(window)]), self._functions
        windows = frame.select(_starts(step, after, upto).alias(window), F.col("*"))
        if step.size_us % step.advance_us:
            # the oldest of these windows may end before the tuple
            windows = windows.where(f"{window} > {STIME} - {step.size_us}L")
        return with_merged_values(windows, step, [F.col(window)]), self._functions


class TaggedWindows:
    """The same aggregate of several tasks over one DataFrame. The columns `tags` say which window
    of which task a row is in; the first of them is the window's start.

    The result has the tags, the group-by fields, and the results by the functions' names (or, of
    panes, the fields of the layout), without stime.
    """

    def __init__(
        self, step: AggregateStep, fields: Sequence[Field], tags: Sequence[str], *, by_arrival: bool
    ) -> None:
        self._step = step
        self._tags = [quoted(tag) for tag in tags]
        _, self._part = _free_names(fields)
        self._pane: OnePane | None = None
        combined = step
        if counts_values(step):
            self._pane = OnePane(step, fields, self._part, self._tags, by_arrival=by_arrival)
            combined = replace(step, form=Form.COMBINED)
        self._functions = functions_of(combined, fields, self._part, by_arrival=by_arrival)
        self._taken = _taken(step)
        self._keys = [*self._tags, *_keys(step), *self._functions.keys]
        values = [*_key_names(step), *self._functions.parted, *self._functions.values]
        if step.form is Form.PARTIAL:
            names = names_made(step)
            found = [value.alias(name) for value, name in zip(values, names, strict=True)]
        else:
            found = named(step, self._tags[0], values)
        self._found = [*self._tags, *found]

    def apply(self, frame: DataFrame) -> DataFrame:
        """All windows of the rows."""
        if self._taken is not None:
            frame = frame.where(self._taken)
        if self._pane is not None:
            frame = self._pane.apply(frame)
        frame = in_parts(frame, self._functions.parts, self._part)
        frame = with_merged_values(frame, self._step, self._tags)
        return grouped(frame, self._keys, self._functions.computed).select(*self._found)


def _taken(step: AggregateStep) -> Column | None:
    """A column that is true for panes of the edition that the step reads; None: it reads tuples."""
    if step.form is not Form.COMBINED:
        return None
    former = quoted(layout(step.group_by, step.functions).former)
    if step.former_after == END:
        return ~former
    return former == (quoted(STIME) > F.lit(step.former_after))


def _keys(step: AggregateStep) -> list[Column]:
    """The group-by fields under unique names."""
    return [quoted(each.name).alias(f"key{n}") for n, each in enumerate(step.group_by)]


def _key_names(step: AggregateStep) -> list[Column]:
    return [F.col(f"key{number}") for number in range(len(step.group_by))]


def named(step: AggregateStep, start: Column, rest: Sequence[Column]) -> list[Column]:
    """The output's columns by their names, without stime.

    Args:
        start: the column of the window's start. rest: the columns of the keys, then of the values.
    """
    first, *names = names_made(step)
    return [
        F.timestamp_micros(start).alias(first),
        *(value.alias(name) for value, name in zip(rest, names, strict=True)),
    ]


def names_made(step: AggregateStep) -> list[str]:
    """The names of the output's columns without stime, in Spark's order. A task of several cases
    also groups by `CASE`, the last field of its schema."""
    if step.form is Form.PARTIAL:
        return [each.name for each in panes_fields(step)]
    groups = (each.name for each in step.group_by)
    return [WINDOW_START, *groups, *(each.output for each in step.functions)]


def _free_names(fields: Sequence[Field]) -> tuple[str, str]:
    """Names for the columns of the window's start and of the part; no field has them."""
    taken = {each.name.lower() for each in fields}
    number = next(
        n for n in range(2 * len(taken) + 1) if {f"window{n}", f"part{n}"}.isdisjoint(taken)
    )
    return f"window{number}", f"part{number}"


def _starts(step: AggregateStep, after: int, upto: int) -> Column:
    """The starts of the windows that may hold a tuple and end in (after, upto]: one (tumbling), or
    one per row (sliding)."""
    if step.size_us == step.advance_us:
        return newest(step)  # the job reads only tuples of such windows
    begins, ends = first_and_last(step, after, upto)
    # a sequence that runs backwards would fail
    return F.explode(F.when(begins <= ends, F.sequence(begins, ends, F.lit(step.advance_us))))

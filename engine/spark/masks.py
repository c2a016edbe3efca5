"""Different values in several windows, counted by masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.language.panes import layout
from engine.language.steps import AggregateStep
from engine.objects.schema import STIME
from engine.spark.columns import changing, quoted
from engine.spark.slices import due, folds

WINDOWS: Final = 62
"""Windows of one job at most: a mask is a long, and is made of powers of two up to 2^62."""

STATES: Final = 24
"""Columns for other functions at most: each of their states (their fields in a pane) has one for
each window."""


class Masks:
    """The windows that end in (after, upto], made of panes by one job, with the number of different
    values in place of each field of values.

    A pane has a mask, with a bit for each window that it is in; a value has the bits of all its
    panes. So each pane is read once, and nothing is copied for each window but the results.
    """

    def __init__(self, step: AggregateStep, after: int, upto: int) -> None:
        self._step = step
        self._first, last = due(step, after, upto)
        self._windows = (last - self._first) // step.advance_us + 1
        self._layout = layout(step.group_by, step.functions)
        self._folds = folds(step)

    @property
    def fit(self) -> bool:
        """Whether the windows can be made so: there are no sketches, few states of other functions,
        and no function that needs panes in their order."""
        if self._windows > WINDOWS or any(each.rank for each in self._layout.values):
            return False
        few = len(self._folds) * self._windows <= STATES
        return not self._folds or (few and self._layout.part is None)

    def apply(self, frame: DataFrame, window: str) -> DataFrame:
        """A row for each window and group.

        Expressions are text: each is one call of the JVM, however long.

        Args:
            frame: of panes, each of which is in at least one of the windows.
            window: the column for a window's start, which no field is called.
        """
        mask, windows = f"`{window} mask`", range(self._windows)
        groups = [quoted(each.name) for each in self._step.group_by]
        values = [each.name for each in self._layout.values]
        bits = f"bit_or({mask}) AS {mask}"
        in_window = [f"({mask} & {1 << n}L) != 0" for n in windows]
        states = [
            f"{fold}(IF({has}, `{state}`, NULL)) AS `{state} {n}`"
            for state, fold in self._folds.items()
            for n, has in enumerate(in_window)
        ]
        found = frame.selectExpr("*", f"{self._mask()} AS {mask}")
        found = _grouped(found, [*groups, *map(quoted, values)], [bits, *states])
        numbers = [
            f"count(IF({has}, `{value}`, NULL)) AS `{value} {n}`"
            for value in values
            for n, has in enumerate(in_window)
        ]
        states = [
            f"{fold}(`{state} {n}`) AS `{state} {n}`"
            for state, fold in self._folds.items()
            for n in windows
        ]
        found = _grouped(found, groups, [bits, *numbers, *states])
        (first,) = changing(mask, self._first)
        rows = [
            [f"{first} + {n * self._step.advance_us}L AS `{window}`", f"{has} AS {mask}"]
            + [f"`{name} {n}` AS `{name}`" for name in (*values, *self._folds)]
            for n, has in enumerate(in_window)
        ]
        structs = ", ".join(f"struct({', '.join(row)})" for row in rows)
        found = found.select(*groups, F.expr(f"inline(array({structs}))"))
        return found.where(mask).drop(mask[1:-1])

    def _mask(self) -> str:
        """The mask of a pane: ones for its first window to its last."""
        size, advance = self._step.size_us, self._step.advance_us
        (first,) = changing(STIME, self._first)
        begins = f"greatest(({STIME} - {first} - {size - advance}L) div {advance}L, 0L)"
        ends = f"least(({STIME} - {first}) div {advance}L, {self._windows - 1}L)"
        return f"shiftleft(2L, CAST({ends} AS INT)) - shiftleft(1L, CAST({begins} AS INT))"


def _grouped(frame: DataFrame, keys: Sequence[Column], computed: Sequence[str]) -> DataFrame:
    return frame.groupBy(*keys).agg(*map(F.expr, computed))

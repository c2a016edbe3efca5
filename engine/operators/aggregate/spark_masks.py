"""Counts the different values of several overlapping windows in one pass: see `Masks`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from medusa.engine.dataframes.columns import changing, quoted
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.aggregate.spark_slices import due, folds
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.shared.panes import layout

WINDOWS: Final = 62
"""The most windows of one job: a mask is a long, made of powers of two up to 2^62."""

STATES: Final = 24
"""The most columns for the states of functions that count no values: each field of their state in a
pane (`folds`) needs one column for each window."""


class Masks:
    """Computes the windows that end in (after, upto] from panes in one job. Each field of values
    becomes the number of different values. A pane has a mask, with a bit for each window that it is
    in; a value has the bits of all its panes. So each pane is read once, and only the results are
    made for each window.
    """

    def __init__(self, step: AggregateStep, after: int, upto: int) -> None:
        self._step = step
        self._first, last = due(step, after, upto)
        self._count = (last - self._first) // step.advance_us + 1
        self._layout = layout(step.group_by, step.functions)
        self._groups = [quoted(each.name) for each in step.group_by]
        self._values = [each.name for each in self._layout.values]
        self._folds = folds(step)

    @property
    def fit(self) -> bool:
        """Whether the windows can be computed with masks: no value has a state, other functions
        have few, and none needs panes in their order."""
        if self._count > WINDOWS or any(each.state for each in self._layout.values):
            return False
        few = len(self._folds) * self._count <= STATES
        return not self._folds or (few and self._layout.part is None)

    def apply(self, frame: DataFrame, window: str) -> DataFrame:
        """A row for each window and group.

        Args:
            frame: the panes, each of which is in at least one of the windows.
            window: the column for a window's start, which is no field's name.
        """
        mask = f"`{window} mask`"
        found = frame.selectExpr("*", f"{self._mask()} AS {mask}")
        return self._windows_of(self._groups_of(self._values_of(found, mask), mask), mask, window)

    # Expressions are texts: each takes one call of the JVM, however long it is. Users' names do not
    # occur in them: `layout` makes the names of panes. The column `NAME n` belongs to the nth
    # window.

    def _values_of(self, panes: DataFrame, mask: str) -> DataFrame:
        """A row for each value of a group: the bits of its panes, and their states by window."""
        states = [
            f"{fold}(IF({_has(mask, n)}, `{state}`, NULL)) AS `{state} {n}`"
            for state, fold in self._folds.items()
            for n in range(self._count)
        ]
        return _grouped(panes, [*self._groups, *map(quoted, self._values)], [_bits(mask), *states])

    def _groups_of(self, values: DataFrame, mask: str) -> DataFrame:
        """A row for each group: its bits, how many values have the bit of each window, states."""
        numbers = [
            f"count(IF({_has(mask, n)}, `{value}`, NULL)) AS `{value} {n}`"
            for value in self._values
            for n in range(self._count)
        ]
        states = [
            f"{fold}(`{state} {n}`) AS `{state} {n}`"
            for state, fold in self._folds.items()
            for n in range(self._count)
        ]
        return _grouped(values, self._groups, [_bits(mask), *numbers, *states])

    def _windows_of(self, groups: DataFrame, mask: str, window: str) -> DataFrame:
        """Make a row for each window and group, if the group's mask has the bit of the window."""
        (first,) = changing(mask, self._first)
        names = [*self._values, *self._folds]
        windows = [
            ", ".join(
                [
                    f"{first} + {n * self._step.advance_us}L AS `{window}`",
                    f"{_has(mask, n)} AS {mask}",
                    *(f"`{name} {n}` AS `{name}`" for name in names),
                ]
            )
            for n in range(self._count)
        ]
        rows = ", ".join(f"struct({each})" for each in windows)
        found = groups.select(*self._groups, F.expr(f"inline(array({rows}))"))
        return found.where(mask).drop(F.col(mask))

    def _mask(self) -> str:
        """The mask of a pane: a bit is 1 from its first window to its last."""
        size, advance = self._step.size_us, self._step.advance_us
        (first,) = changing(STIME, self._first)
        begins = f"greatest(({STIME} - {first} - {size - advance}L) div {advance}L, 0L)"
        ends = f"least(({STIME} - {first}) div {advance}L, {self._count - 1}L)"
        return f"shiftleft(2L, CAST({ends} AS INT)) - shiftleft(1L, CAST({begins} AS INT))"


def _has(mask: str, n: int) -> str:
    """Whether a mask has the nth window's bit."""
    return f"({mask} & {1 << n}L) != 0"


def _bits(mask: str) -> str:
    """The bits of all masks together."""
    return f"bit_or({mask}) AS {mask}"


def _grouped(frame: DataFrame, keys: Sequence[Column], computed: Sequence[str]) -> DataFrame:
    return frame.groupBy(*keys).agg(*map(F.expr, computed))

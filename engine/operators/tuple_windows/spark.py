"""Count windows over DataFrames, from the last tuples of each group and the new tuples.

The new tuples of a group get the next numbers. Each tuple is copied for every window that contains
it and ends with a new tuple; then the windows are aggregated like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.dataframes.columns import quoted
from medusa.engine.dataframes.rows import shaped
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.objects.schema import SEQ, STIME, Field
from medusa.engine.operators.aggregate.spark import TaggedWindows
from medusa.engine.operators.aggregate.spark_functions import order_of
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.tuple_windows.step import TupleWindowsStep, layout_of, tuples_schema

_NEW: Final = "is new "
_BASE: Final = "number before "
_NEXT: Final = "next stimes "
_LAST: Final = "window last "
_AT: Final = "window at "
_WANTED: Final = "wanted "
"""Names of auxiliary columns; no field's name has a blank."""


class TupleWindowsOf(Stage):
    """The tuples with their numbers, and the windows, of a DataFrame of its input.

    Args:
        fields: the fields of the input.
        by_arrival: whether the input has SEQ, which orders tuples of one stime.
    """

    def __init__(
        self, step: TupleWindowsStep, fields: Sequence[Field], *, by_arrival: bool
    ) -> None:
        self._step = step
        self._layout = layout_of(step)
        self._groups = [each.name for each in step.group_by]
        self._made = tuples_schema("", step).fields
        self._order: list[str | Column] = [STIME, SEQ if by_arrival else order_of(fields)]
        # The numbers order the tuples of one stime. The names are generated, because results and
        # groups may have the names of a window's columns.
        groups = tuple(
            msgspec.structs.replace(each, name=f"group {n}") for n, each in enumerate(step.group_by)
        )
        functions = (replace(each, output=f"result {n}") for n, each in enumerate(step.functions))
        whole = AggregateStep(1, 1, groups, tuple(functions))
        fields_read = (*groups, *step.fields)
        self._aggregates = TaggedWindows(whole, fields_read, (_LAST, _AT), by_arrival=True)

    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the new tuples with their numbers, and the windows that end with one of them.

        Args:
            frame: the new tuples.
        """
        numbered = self._numbered(frame, job.own)
        tuples = numbered.where(quoted(_NEW))
        return self._kept(tuples).unionByName(self._windows(numbered))

    def _numbered(self, frame: DataFrame, own: DataFrame | None) -> DataFrame:
        """The new tuples, and as many of each group before them as a window may have, with their
        numbers as SEQ and the number before the group's first new tuple."""
        in_order = Window.partitionBy(*map(quoted, self._groups)).orderBy(*self._order)
        names = list(dict.fromkeys([*self._groups, *(each.name for each in self._step.fields)]))
        new = frame.select(
            quoted(STIME),
            *map(quoted, names),
            F.row_number().over(in_order).cast(T.LongType()).alias(_BASE),
        )
        if own is None:
            return new.select(
                *map(quoted, [STIME, *names]),
                quoted(_BASE).alias(SEQ),
                F.lit(0).cast(T.LongType()).alias(_BASE),
                F.lit(True).alias(_NEW),
            )
        before = self._before(own, frame, names)
        both = new.select("*", F.lit(True).alias(_NEW)).unionByName(before)
        group = Window.partitionBy(*map(quoted, self._groups))
        # `_BASE` is the number of an old tuple; for a new one it is the number among the new ones
        last = F.coalesce(F.max(F.when(~quoted(_NEW), quoted(_BASE))).over(group), F.lit(0))
        number = F.when(quoted(_NEW), quoted(_BASE) + last).otherwise(quoted(_BASE))
        return both.select(
            *map(quoted, [STIME, *names]), number.alias(SEQ), last.alias(_BASE), quoted(_NEW)
        )

    def _before(self, own: DataFrame, frame: DataFrame, names: Sequence[str]) -> DataFrame:
        """The last tuples of the groups that have new ones."""
        layout, size = self._layout, self._step.size
        near = own.where(quoted(layout.part) > F.lit(0))
        if self._groups:
            renamed = (quoted(name).alias(f"{_WANTED}{name}") for name in self._groups)
            wanted = frame.select(*renamed).distinct()
            same = (quoted(n).eqNullSafe(quoted(f"{_WANTED}{n}")) for n in self._groups)
            near = near.join(wanted, reduce(and_, same), "left_semi")
        group = Window.partitionBy(*map(quoted, self._groups))
        last = F.max(quoted(layout.number)).over(group)
        recent = near.withColumn(_BASE, last).where(
            quoted(layout.number) > quoted(_BASE) - F.lit(size)
        )
        fields = {each.name: name for each, name in layout.kept}
        return recent.select(
            quoted(STIME),
            *(quoted(name if name in self._groups else fields[name]).alias(name) for name in names),
            quoted(layout.number).alias(_BASE),
            F.lit(False).alias(_NEW),
        )

    def _kept(self, tuples: DataFrame) -> DataFrame:
        """The new tuples with the columns of the output."""
        layout, size = self._layout, self._step.size
        part = F.pmod(quoted(SEQ), F.lit(size)) + F.lit(1)
        return shaped(
            tuples.select(
                quoted(STIME),
                *map(quoted, self._groups),
                part.cast(T.IntegerType()).alias(layout.part),
                quoted(SEQ).alias(layout.number),
                *(quoted(each.name).alias(name) for each, name in layout.kept),
            ),
            self._made,
        )

    def _windows(self, numbered: DataFrame) -> DataFrame:
        """The results of the windows that end with a new tuple."""
        step = self._step
        number = quoted(SEQ)
        in_order = Window.partitionBy(*map(quoted, self._groups)).orderBy(SEQ)
        following = F.collect_list(quoted(STIME)).over(in_order.rowsBetween(0, step.size - 1))
        placed = numbered.withColumn(_NEXT, following)
        # the first window with this tuple ends `least` tuples later
        least = F.greatest(F.lit(0), quoted(_BASE) + F.lit(1) - number)
        if not step.partial:
            least = F.greatest(least, F.lit(step.size) - number)
        least += F.pmod(F.lit(step.size) - number - least, F.lit(step.advance))
        most = (F.size(quoted(_NEXT)) - F.lit(1)).cast(T.LongType())
        every = F.lit(step.advance).cast(T.LongType())
        # a sequence that runs backwards would fail
        ends = F.when(least <= most, F.sequence(least, most, every))
        copied = placed.select("*", F.explode(ends).alias(_LAST))
        at = F.element_at(quoted(_NEXT), (quoted(_LAST) + F.lit(1)).cast(T.IntegerType()))
        groups = (quoted(name).alias(f"group {n}") for n, name in enumerate(self._groups))
        tagged = copied.select(
            quoted(STIME),
            quoted(SEQ),
            *(quoted(each.name) for each in step.fields),
            at.alias(_AT),
            (number + quoted(_LAST)).alias(_LAST),
            *groups,
        )
        made = self._aggregates.apply(tagged)
        outputs = [each.output for each in step.functions]
        ending = [quoted(_LAST).alias(self._layout.number)] if step.number else []
        return shaped(
            made.select(
                quoted(_AT).alias(STIME),
                *ending,
                *(quoted(f"group {n}").alias(name) for n, name in enumerate(self._groups)),
                F.lit(0).cast(T.IntegerType()).alias(self._layout.part),
                *(quoted(f"result {n}").alias(name) for n, name in enumerate(outputs)),
            ),
            self._made,
        )

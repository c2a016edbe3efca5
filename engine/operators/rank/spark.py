"""The first tuples of windows, in an order, over DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.dataframes.columns import ordered, quoted
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.objects.schema import SEQ, STIME, Field
from medusa.engine.operators.aggregate.spark_functions import order_of
from medusa.engine.operators.rank import RankStep

_PLACE: Final = "place of its own"
"""An auxiliary column; no field's name has a blank."""


class Ranks(Stage):
    """A rank over a DataFrame of its input, of which every window is whole.

    Args:
        fields: the fields of the input.
        by_arrival: whether the input has SEQ, which orders tuples of one stime.
    """

    def __init__(self, step: RankStep, fields: Sequence[Field], *, by_arrival: bool) -> None:
        end = _last_of_window(step.size_us)
        ties = F.struct(STIME, SEQ) if by_arrival else order_of(fields)
        if step.newest_first:
            ties = ties.desc()
        order = list(map(ordered, step.order_by))
        window = Window.partitionBy(end, *map(quoted, step.partition_by)).orderBy(*order, ties)
        self._place = F.row_number().over(window)
        self._most = step.most
        self._found = [end.alias(STIME), *(quoted(each.name) for each in step.fields)]
        if step.place:
            self._found.append(F.col(_PLACE).cast(T.LongType()).alias(step.place))

    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the first tuples of each window, with their places."""
        if job.small:
            frame = frame.coalesce(1)
        placed = frame.select(F.col("*"), self._place.alias(_PLACE))
        return placed.where(F.col(_PLACE) <= self._most).select(*self._found)


def _last_of_window(size_us: int) -> Column:
    """The last microsecond of the window that holds a tuple."""
    stime = quoted(STIME)
    if size_us == 1:
        return stime
    return stime - F.pmod(stime, F.lit(size_us)) + F.lit(size_us - 1)

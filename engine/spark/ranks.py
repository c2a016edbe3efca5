"""The first tuples of windows, in an order, over DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.objects.query import OrderBy
from medusa.engine.objects.schema import SEQ, STIME, Field
from medusa.engine.operators.rank import RankStep
from medusa.engine.spark.columns import quoted
from medusa.engine.spark.functions import order_of

_PLACE: Final = "place of its own"
"""No field's name has a blank."""


class Ranks:
    """A rank over a DataFrame of its input, of which every window is whole.

    Args:
        fields: of the input.
        by_arrival: the input has SEQ, and tuples of one stime are in its order.
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

    def apply(self, frame: DataFrame, *, small: bool) -> DataFrame:
        """The first tuples of each window, with their places.

        Args:
            small: one core without a shuffle is quicker.
        """
        if small:
            frame = frame.coalesce(1)
        placed = frame.select(F.col("*"), self._place.alias(_PLACE))
        return placed.where(F.col(_PLACE) <= self._most).select(*self._found)


def ordered(order: OrderBy) -> Column:
    """A field in an order."""
    field = quoted(order.field)
    if order.descending:
        return field.desc_nulls_first() if order.nulls_first else field.desc_nulls_last()
    return field.asc_nulls_first() if order.nulls_first else field.asc_nulls_last()


def _last_of_window(size_us: int) -> Column:
    """The last microsecond of the window that holds a tuple."""
    stime = quoted(STIME)
    if size_us == 1:
        return stime
    return stime - F.pmod(stime, F.lit(size_us)) + F.lit(size_us - 1)

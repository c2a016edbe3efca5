"""Windows of tuples that are computed as if each were one pane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.aggregates.function import OfBag
from medusa.engine.dataframes.columns import quoted
from medusa.engine.objects.schema import STIME, Field
from medusa.engine.operators.aggregate.spark_functions import functions_of
from medusa.engine.operators.aggregate.spark_slices import grouped
from medusa.engine.operators.aggregate.step import AggregateStep, Form, panes_fields


def counts_values(step: AggregateStep) -> bool:
    """Whether the step reads tuples, and counts how often values occur."""
    counted = any(isinstance(each.function, OfBag) for each in step.functions)
    return step.form is Form.WHOLE and counted


class OnePane:
    """Makes one pane of the tuples of each window: partial results that are then combined. Args:
    fields: the fields of the input. part: the name of a column that is no field. tags: columns that
    tell windows apart. by_arrival: whether the input has SEQ, which orders tuples of one stime.
    """

    def __init__(
        self,
        step: AggregateStep,
        fields: Sequence[Field],
        part: str,
        tags: Sequence[Column],
        *,
        by_arrival: bool,
    ) -> None:
        partial = replace(step, form=Form.PARTIAL)
        self._part = part
        self._functions = functions_of(partial, fields, part, by_arrival=by_arrival)
        keys = [quoted(each.name).alias(f"key{n}") for n, each in enumerate(step.group_by)]
        self._keys = [*tags, *keys, *self._functions.keys]
        found = [F.col(f"key{n}") for n in range(len(keys))]
        found += [*self._functions.parted, *self._functions.values]
        named = zip(found, panes_fields(partial), strict=True)
        at = F.lit(0).cast(T.LongType()).alias(STIME)  # a single pane needs no order
        self._found = [*tags, at, *(column.alias(each.name) for column, each in named)]

    def apply(self, frame: DataFrame) -> DataFrame:
        frame = in_parts(frame, self._functions.parts, self._part)
        return grouped(frame, self._keys, self._functions.computed).select(*self._found)


def in_parts(frame: DataFrame, parts: int, name: str) -> DataFrame:
    """Repeat each row once for every part, with the part's number; with 0, return the rows
    unchanged."""
    if not parts:
        return frame
    return frame.select(F.col("*"), F.explode(F.array(*map(F.lit, range(parts)))).alias(name))

"""Filters over DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from medusa.engine.dataframes.columns import column
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.operators.filter import FilterStep


class Filtered(Stage):
    """The rows that leave by a step's port."""

    def __init__(self, step: FilterStep) -> None:
        self.condition = self._kept = _leaves_by(step)

    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the rows."""
        return frame.where(self._kept)

    def tagged(self, frame: DataFrame, tags: Sequence[str]) -> DataFrame:
        """Return the rows."""
        return frame.where(self._kept)


def _leaves_by(step: FilterStep) -> Column:
    """Return a column that is true for the tuples that leave by the step's port."""
    before = [~F.coalesce(column(each), F.lit(False)) for each in step.predicates[: step.port]]
    own = [column(each) for each in step.predicates[step.port : step.port + 1]]
    return reduce(and_, [*before, *own])

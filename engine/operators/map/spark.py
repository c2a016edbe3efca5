"""Maps over DataFrames."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from medusa.engine.dataframes.columns import output, quoted
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.map import MapStep


class Mapped(Stage):
    """The rows with the fields of a map."""

    def __init__(self, step: MapStep) -> None:
        self._columns = [quoted(STIME), *(output(*each) for each in step.outputs)]

    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the rows with their new fields."""
        return frame.select(*self._columns)

    def tagged(self, frame: DataFrame, tags: Sequence[str]) -> DataFrame:
        """Return the rows with their new fields."""
        return frame.select(*self._columns, *map(quoted, tags))

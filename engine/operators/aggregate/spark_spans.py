"""Aggregates over spans of stime, over DataFrames: each row gets the span that it is in, and the
rows of a span are aggregated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medusa.engine.dataframes.columns import quoted
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.objects.query import WINDOW_END, WINDOW_START
from medusa.engine.objects.schema import STIME, Field
from medusa.engine.operators.aggregate.spark import TaggedWindows
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.shared.aggregation import TypedAggregate

START: Final = "span start"
AT: Final = "span at"
END: Final = "span end"
"""Names of columns: the first microsecond of a span, the stime of its result, and its end. No field
has such a name, because of the blank."""


class Spans(Stage):
    """The aggregate over a DataFrame of its input. Args: fields: the fields of the input.
    by_arrival: whether the input has SEQ, which orders tuples of one stime.
    """

    def __init__(
        self,
        group_by: tuple[Field, ...],
        functions: tuple[TypedAggregate, ...],
        fields: Sequence[Field],
        *,
        by_arrival: bool,
    ) -> None:
        tags = (START, AT, END)
        whole = AggregateStep(1, 1, group_by, functions)
        self._aggregates = TaggedWindows(whole, fields, tags, by_arrival=by_arrival)
        names = [each.name for each in group_by]
        names += [each.output for each in functions]
        end = F.timestamp_micros(quoted(END)).alias(WINDOW_END)
        start = quoted(WINDOW_START)
        self._found = [quoted(AT).alias(STIME), start, end, *map(quoted, names)]

    @abstractmethod
    def placed(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the rows, each with START, AT and END of every span that has it and that the job
        computes."""

    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the results of a job."""
        if job.small:
            frame = frame.coalesce(1)
        return self._aggregates.apply(self.placed(frame, job)).select(*self._found)

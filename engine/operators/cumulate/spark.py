"""Cumulating windows over DataFrames."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.dataframes.columns import changing, quoted
from medusa.engine.dataframes.stage import Job
from medusa.engine.objects.schema import STIME, Field
from medusa.engine.operators.aggregate.spark_spans import AT, END, START, Spans
from medusa.engine.operators.cumulate import CumulateStep


class GrowingSpans(Spans):
    """Growing windows: a row is in all windows of its period that end after it."""

    def __init__(self, step: CumulateStep, fields: Sequence[Field], *, by_arrival: bool) -> None:
        super().__init__(step.group_by, step.functions, fields, by_arrival=by_arrival)
        self._step = step

    def placed(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the rows of the windows that end in a job."""
        return _growing(frame, self._step, job.after, job.upto)


def _growing(frame: DataFrame, step: CumulateStep, after: int, upto: int) -> DataFrame:
    """The rows, each repeated for every window that has it and ends in (after, upto]."""
    time, every, size = quoted(STIME), F.lit(step.step_us), F.lit(step.size_us)
    start = time - F.pmod(time, size)
    # Python's integers round towards minus infinity, and do not overflow
    first = (after + 1) // step.step_us * step.step_us + step.step_us - 1
    final = (upto + 1) // step.step_us * step.step_us - 1
    least, greatest = (F.expr(each) for each in changing(STIME, first, final))
    begin = F.greatest(time - F.pmod(time, every) + F.lit(step.step_us - 1), least)
    end = F.least(start + F.lit(step.size_us - 1), greatest)
    # a sequence that runs backwards would fail
    ends = F.when(begin <= end, F.sequence(begin, end, every.cast(T.LongType())))
    placed = frame.select(F.col("*"), start.alias(START), F.explode(ends).alias(AT))
    return placed.withColumn(END, quoted(AT) + F.lit(1))

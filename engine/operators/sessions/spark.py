"""Sessions over DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.dataframes.columns import later, quoted, within
from medusa.engine.dataframes.stage import Job
from medusa.engine.objects.schema import STIME, Field
from medusa.engine.operators.aggregate.spark_spans import AT, END, START, Spans
from medusa.engine.operators.sessions import SessionsStep

_FIRST: Final = "session first"
_LAST: Final = "session last"
_NEXT: Final = "session next"
_BLOCK: Final = "session block"
_TOO_LONG: Final = "session too long"
_BEHIND: Final = "session behind"


class SessionSpans(Spans):
    """Sessions: each row is in one, or in a part of one that is cut."""

    def __init__(self, step: SessionsStep, fields: Sequence[Field], *, by_arrival: bool) -> None:
        super().__init__(step.group_by, step.functions, fields, by_arrival=by_arrival)
        self._step = step

    def placed(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the rows of the sessions that the job emits."""
        due = within(f"`{AT}`", job.after + 1, job.upto, constant=False)
        return _sessions(frame, self._step).where(F.expr(due))


def _sessions(frame: DataFrame, step: SessionsStep) -> DataFrame:
    """The rows, each with its session, or with its part of a cut session: see
    `medusa.engine.objects.query.Sessions`."""
    keys = [quoted(each.name) for each in step.group_by]
    time, gap = quoted(STIME), F.lit(step.gap_us).cast(T.LongType())
    longest = F.lit(step.longest_us).cast(T.LongType())
    in_order = Window.partitionBy(*keys).orderBy(STIME)
    before = F.lag(STIME).over(in_order)
    begins = F.when(before.isNull() | (time - before > gap), time)
    block = time - F.pmod(time, longest)
    frame = frame.select(
        F.col("*"),
        F.max(begins).over(in_order).alias(_FIRST),
        F.lead(STIME).over(in_order).alias(_NEXT),
        block.alias(_BLOCK),
    )
    first, last, cut = quoted(_FIRST), quoted(_LAST), quoted(_BLOCK)
    session = Window.partitionBy(*keys, first)
    part = Window.partitionBy(*keys, first, cut)
    frame = frame.select(
        F.col("*"),
        F.max(STIME).over(session).alias(_LAST),
        F.min(F.when(time - first > longest, time)).over(session).alias(_TOO_LONG),
        F.min(STIME).over(part).alias(START),
        F.max(_NEXT).over(part).alias(_BEHIND),
    )
    is_whole = quoted(_TOO_LONG).isNull()
    is_end = is_whole | (last - F.pmod(last, longest) == cut)
    is_beginning = first - F.pmod(first, longest) == cut
    over = later(last, step.gap_us)
    at = F.when(is_beginning, quoted(_TOO_LONG)).otherwise(quoted(_BEHIND))
    return frame.withColumns(
        {
            START: F.when(is_whole, first).otherwise(quoted(START)),
            AT: F.when(is_end, over).otherwise(at),
            END: F.when(is_end, over).otherwise(cut + longest),
        }
    )

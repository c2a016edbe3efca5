"""Sessions and cumulating windows over DataFrames: each row gets the span that contains it, and the
rows of a span are aggregated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.objects.query import WINDOW_END, WINDOW_START
from medusa.engine.objects.schema import STIME, Field
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.cumulate import CumulateStep
from medusa.engine.operators.sessions import SessionsStep
from medusa.engine.spark.columns import changing, quoted, within
from medusa.engine.spark.joins import later
from medusa.engine.spark.windows import TaggedWindows

_START: Final = "span start"
_AT: Final = "span at"
_END: Final = "span end"
"""The first microsecond of a span, the stime of its result, and its end; no field's name has a
blank."""

_FIRST: Final = "session first"
_LAST: Final = "session last"
_NEXT: Final = "session next"
_BLOCK: Final = "session block"
_TOO_LONG: Final = "session too long"
_BEHIND: Final = "session behind"


class Spans:
    """The aggregate over a DataFrame of its input.

    Args:
        fields: of the input.
        by_arrival: the input has SEQ, and tuples of one stime are in its order.
    """

    def __init__(
        self, step: SessionsStep | CumulateStep, fields: Sequence[Field], *, by_arrival: bool
    ) -> None:
        self._step = step
        tags = (_START, _AT, _END)
        whole = AggregateStep(1, 1, step.group_by, step.functions)
        self._aggregates = TaggedWindows(whole, fields, tags, by_arrival=by_arrival)
        names = [each.name for each in step.group_by]
        names += [each.output for each in step.functions]
        end = F.timestamp_micros(quoted(_END)).alias(WINDOW_END)
        start = quoted(WINDOW_START)
        self._found = [quoted(_AT).alias(STIME), start, end, *map(quoted, names)]

    def apply(self, frame: DataFrame, after: int, upto: int, *, small: bool) -> DataFrame:
        """The results with after < stime <= upto.

        Args:
            small: one core without a shuffle is quicker.
        """
        if small:
            frame = frame.coalesce(1)
        match self._step:
            case SessionsStep():
                placed = _sessions(frame, self._step)
                placed = placed.where(F.expr(within(f"`{_AT}`", after + 1, upto, constant=False)))
            case CumulateStep():
                placed = _growing(frame, self._step, after, upto)
        return self._aggregates.apply(placed).select(*self._found)


def _sessions(frame: DataFrame, step: SessionsStep) -> DataFrame:
    """The rows, each with the session, or the part of one, that it is in: see
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
        F.min(STIME).over(part).alias(_START),
        F.max(_NEXT).over(part).alias(_BEHIND),
    )
    is_whole = quoted(_TOO_LONG).isNull()
    is_end = is_whole | (last - F.pmod(last, longest) == cut)
    is_beginning = first - F.pmod(first, longest) == cut
    over = later(last, step.gap_us)
    at = F.when(is_beginning, quoted(_TOO_LONG)).otherwise(quoted(_BEHIND))
    return frame.withColumns(
        {
            _START: F.when(is_whole, first).otherwise(quoted(_START)),
            _AT: F.when(is_end, over).otherwise(at),
            _END: F.when(is_end, over).otherwise(cut + longest),
        }
    )


def _growing(frame: DataFrame, step: CumulateStep, after: int, upto: int) -> DataFrame:
    """The rows, each once for every window with it that ends in (after, upto]."""
    time, every, size = quoted(STIME), F.lit(step.step_us), F.lit(step.size_us)
    start = time - F.pmod(time, size)
    # Python's integers: they floor towards minus infinity, and do not overflow
    first = (after + 1) // step.step_us * step.step_us + step.step_us - 1
    final = (upto + 1) // step.step_us * step.step_us - 1
    least, greatest = (F.expr(each) for each in changing(STIME, first, final))
    begin = F.greatest(time - F.pmod(time, every) + F.lit(step.step_us - 1), least)
    end = F.least(start + F.lit(step.size_us - 1), greatest)
    # a sequence that runs backwards would fail
    ends = F.when(begin <= end, F.sequence(begin, end, every.cast(T.LongType())))
    placed = frame.select(F.col("*"), start.alias(_START), F.explode(ends).alias(_AT))
    return placed.withColumn(_END, quoted(_AT) + F.lit(1))

"""Top-N of partitions over DataFrames, from the former first tuples and the new tuples.

The tuples of a partition get their number in the order that is asked for. Then each place is one
pass along the time: it keeps the least number so far, and passes all others to the next place, as
in a bubble sort. So the cost grows with the places, not with the tuples of a partition.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.dataframes.columns import ordered, quoted
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.objects.query import order_by
from medusa.engine.objects.schema import BEGINNING, SEQ, STIME
from medusa.engine.operators.top import TopStep

_NEW: Final = "is new "
_TURN: Final = "turn "
_ROW: Final = "row "
_KEPT: Final = "kept "
_NUMBER: Final = "number "
"""Names of auxiliary columns; no field's name has a blank."""


class TopOf(Stage):
    """The first tuples of a DataFrame of its input. Args: by_arrival: whether the input has SEQ,
    which orders tuples of one stime.
    """

    def __init__(self, step: TopStep, *, by_arrival: bool) -> None:
        self._step = step
        self._in_order = [SEQ] if by_arrival else [each.name for each in step.fields]
        self._hidden = [SEQ] if by_arrival else []
        self._names = [each.name for each in step.fields]
        self._partition = [quoted(name) for name in step.partition_by]

    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the tuples of the places that change. frame: the new tuples."""
        numbered = self._numbered(frame, job.own)
        along = Window.partitionBy(*self._partition).orderBy(F.col(_TURN))
        places: list[Column] = []
        passing = F.col(_ROW)
        made = numbered
        for place in range(self._step.most):
            made, passing = self._pass(made, place, passing, along)
            places.append(F.col(f"{_KEPT}{place}"))
        at_last = made.withColumn(_KEPT, F.array(*places))
        return self._changes(at_last)

    def _numbered(self, frame: DataFrame, own: DataFrame | None) -> DataFrame:
        """The tuples with two columns: `row`, a struct that sorts by the requested order, and
        `turn`, their number in the order of time."""
        fields = [quoted(name) for name in self._names]
        own_columns = (F.lit(True).alias(_NEW), F.lit(0).alias(_KEPT))
        new = frame.select(quoted(STIME), *fields, *own_columns, *map(quoted, self._hidden))
        both = new
        if own is not None:
            both = new.unionByName(self._before(own, frame))
        last = self._step.newest_first
        in_order = [order_by(name, descending=last, nulls_first=last) for name in self._in_order]
        ties = [
            F.col(_NEW).asc(),
            F.col(_KEPT).asc(),
            quoted(STIME).asc(),
            *map(ordered, in_order),
        ]
        order = list(map(ordered, self._step.order_by))
        by_rank = Window.partitionBy(*self._partition).orderBy(*order, *ties)
        by_time = Window.partitionBy(*self._partition).orderBy(*ties)
        row = F.struct(F.row_number().over(by_rank).alias(_NUMBER), *fields)
        return both.select(
            quoted(STIME),
            *self._partition,
            F.col(_NEW),
            row.alias(_ROW),
            F.row_number().over(by_time).alias(_TURN),
        )

    def _before(self, own: DataFrame, frame: DataFrame) -> DataFrame:
        """The present places of the partitions that have new tuples."""
        step = self._step
        names = step.partition_by
        wanted = frame.select(*(quoted(name).alias(f"{_ROW}{name}") for name in names)).distinct()
        same = quoted(names[0]).eqNullSafe(quoted(f"{_ROW}{names[0]}"))
        for name in names[1:]:
            same = same & quoted(name).eqNullSafe(quoted(f"{_ROW}{name}"))
        place = quoted(step.place) if step.place else F.lit(1)
        near = own.join(wanted, same, "left_semi").withColumn(_TURN, place)
        row = F.struct(*(quoted(name) for name in self._names))
        keys = [*self._partition, F.col(_TURN)]
        found = near.groupBy(*keys).agg(F.max_by(row, quoted(STIME)).alias(_ROW))
        return found.select(
            F.lit(BEGINNING).cast(T.LongType()).alias(STIME),
            *(F.col(_ROW).getField(name).alias(name) for name in self._names),
            F.lit(False).alias(_NEW),
            F.col(_TURN).cast(T.IntegerType()).alias(_KEPT),
            *(F.lit(None).cast(T.LongType()).alias(name) for name in self._hidden),
        )

    def _pass(
        self, frame: DataFrame, place: int, passing: Column, along: WindowSpec
    ) -> tuple[DataFrame, Column]:
        """Compute one place, tuple by tuple: which tuple holds the place after each new tuple, and
        which one passes to the next place."""
        kept, left = f"{_KEPT}{place}", f"passing {place}"
        so_far = along.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        frame = frame.withColumn(kept, F.min(passing).over(so_far))
        before = F.lag(F.col(kept)).over(along)
        # the greater of the old tuple and the new one is passed on; none, if one of them is missing
        loser = F.when(before.isNotNull() & passing.isNotNull(), F.greatest(before, passing))
        return frame.withColumn(left, loser), F.col(f"`{left}`")

    def _changes(self, frame: DataFrame) -> DataFrame:
        """The places that have another tuple after a stime than before it."""
        step = self._step
        last = frame.groupBy(*self._partition, quoted(STIME), F.col(_NEW)).agg(
            F.max_by(F.col(_KEPT), F.col(_TURN)).alias(_KEPT)
        )
        in_order = Window.partitionBy(*self._partition).orderBy(quoted(STIME))
        before = F.lag(F.col(_KEPT)).over(in_order)
        found = last.withColumn("before ", before).where(F.col(_NEW))
        places = F.sequence(F.lit(0), F.lit(step.most - 1))
        found = found.withColumn("place ", F.explode(places))
        now = F.get(F.col(_KEPT), F.col("`place `"))
        then = F.get(F.col("`before `"), F.col("`place `"))
        changed = found.select(
            quoted(STIME), F.col("`place `"), now.alias("now "), then.alias("then ")
        ).where(
            F.col("`now `").isNotNull()
            & ~F.col("`now `").getField(_NUMBER).eqNullSafe(F.col("`then `").getField(_NUMBER))
        )
        columns = [F.col("`now `").getField(name).alias(name) for name in self._names]
        if step.place:
            columns.append((F.col("`place `") + F.lit(1)).alias(step.place))
        return changed.select(quoted(STIME), *columns)

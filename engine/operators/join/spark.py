"""Joins of two streams over DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.dataframes.columns import (
    column,
    later,
    output,
    quoted,
    within,
    without_negative_zero,
)
from medusa.engine.dataframes.rows import row_schema
from medusa.engine.dataframes.scans import reader_of
from medusa.engine.expressions.typed import fields_in
from medusa.engine.objects.query import JoinKind
from medusa.engine.objects.schema import BEGINNING, END, SEQ, STIME, Schema
from medusa.engine.operators.join.sides import (
    AS_OF,
    LEFT,
    RIGHT,
    equalities,
    has_equality,
    necessary_equalities,
)
from medusa.engine.operators.join.step import JoinStep
from medusa.engine.operators.shared.step import Interval
from medusa.engine.scalars.type_rules import FLOATS

_SPARK_KINDS: Final = {
    JoinKind.INNER: "inner",
    JoinKind.LEFT: "left",
    JoinKind.RIGHT: "right",
    JoinKind.FULL: "full",
    JoinKind.SEMI: "left_semi",
    JoinKind.ANTI: "left_anti",
}

MAX_PAIRS: Final = 2**24
"""Pairs that one partition of a job may give: some GB. A join whose condition many tuples meet
would otherwise fill the peer's disk."""

HASHED_BYTES: Final = 2**20
"""Parquet bytes of a side, up to which it is kept in a hash map. Equal rows, which compress well,
take a hundred times as much in a map, and Spark does not spill maps; it spills sorted rows."""

_ROWS_OF_PARTITION: Final = 2**33 - 1
"""The bits of `monotonically_increasing_id` that count the rows of a partition."""

_MULTIPLYING: Final = frozenset({JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL})
"""Kinds of joins that may emit more rows than they read."""

_LEFT_TIME: Final = f"{LEFT}{STIME}"
_RIGHT_TIME: Final = f"{RIGHT}{STIME}"

_IS_RIGHT: Final = "is right"
_NEAREST: Final = "nearest"
_UNTIL: Final = "valid until"
"""Names of auxiliary columns: no field's name has a blank, and columns of fields begin with a
side."""


class Joins:
    """The join of a task, on one session.

    Args:
        schemas: the schemas, by stream. sources: the source streams among them.
    """

    def __init__(
        self,
        session: SparkSession,
        step: JoinStep,
        schemas: Mapping[str, Schema],
        sources: frozenset[str],
    ) -> None:
        self._step = step
        self._left = _Side(session, step.left, schemas[step.left], LEFT, with_seq=False)
        by_arrival = step.right in sources and (step.kind in AS_OF or step.table)
        self._right = _Side(session, step.right, schemas[step.right], RIGHT, with_seq=by_arrival)
        self._stime = _stime_of(step).alias(STIME)
        self._outputs = [self._stime, *(output(*each) for each in step.outputs)]
        self._limited = _unless_too_many(step)
        self._pairs = self._condition()
        self._equalities = equalities(step.predicate) or ()
        self._by_value = has_equality(step.predicate)
        key = {f"{RIGHT}{name}" for name in step.key}
        self._meeting = [
            (column(one), column(two))
            for one, two in necessary_equalities(step.predicate)
            if step.kind in AS_OF or (step.table and key.issuperset(fields_in(two)))
        ]

    def frame(
        self,
        files: Mapping[str, Sequence[Path]],
        after: int,
        upto: int,
        interval: Interval,
        *,
        large: bool,
    ) -> DataFrame:
        """The results with after < stime <= upto.

        Args:
            large: whether the inputs are large enough for a shuffle.
        """
        left = self._left.frame(files, self._part(interval, after, of_left=True), large=large)
        right = self._right.frame(files, self._part(interval, after, of_left=False), large=large)
        long = self._is_long(files, self._step.right)
        if self._meeting and long and not self._is_long(files, self._step.left):
            right = self._met(left, right, large=large)
        if self._step.table:
            right = self._valid(right)
        if self._step.kind in AS_OF:
            made = self._nearest(left, right)
        else:
            if self._by_value and long:
                right = right.hint("merge")
            elif self._by_value and not large:
                # keep it in one partition: neither shuffle nor sort
                right = right.hint("shuffle_hash")
            made = left.join(right, self._pairs, _SPARK_KINDS[self._step.kind])
        made = made.select(*self._outputs)
        made = made.where(F.expr(within(STIME, after + 1, upto, constant=large)))
        return made.withColumn(STIME, self._limited) if self._step.kind in _MULTIPLYING else made

    @staticmethod
    def _is_long(files: Mapping[str, Sequence[Path]], stream: str) -> bool:
        return sum(path.stat().st_size for path in files.get(stream, ())) > HASHED_BYTES

    def _met(self, left: DataFrame, right: DataFrame, *, large: bool) -> DataFrame:
        """The right tuples that a left one can meet. An epoch has few left tuples, so a long
        history or a large table need not be sorted for them. For a table, either all tuples of a
        key are kept or none."""
        names = [f"meets {n}" for n in range(len(self._meeting))]
        values = [one.alias(name) for name, (one, _) in zip(names, self._meeting, strict=True)]
        asked = left.select(*values).hint("broadcast" if large else "shuffle_hash")
        equal = [two == F.col(name) for name, (_, two) in zip(names, self._meeting, strict=True)]
        return right.join(asked, reduce(and_, equal), "left_semi")

    def _part(self, interval: Interval, after: int, *, of_left: bool) -> Interval:
        """The part of the interval in which one side is read: often new tuples of one side are
        paired with new and older ones of the other."""
        step = self._step
        if step.table and not of_left:
            return Interval(BEGINNING, interval.hi)
        if after == BEGINNING:
            return interval
        horizon = step.left_reach_us if of_left else step.right_reach_us
        return Interval(max(interval.lo, after - horizon), interval.hi)

    def _valid(self, right: DataFrame) -> DataFrame:
        """The table's tuples with the time until which each is valid, without deletions."""
        keys = [quoted(f"{RIGHT}{name}") for name in self._step.key]
        in_order = Window.partitionBy(*keys).orderBy(quoted(_RIGHT_TIME), *self._right.ties())
        until = F.lead(quoted(_RIGHT_TIME)).over(in_order)
        frame = right.withColumn(_UNTIL, F.coalesce(until, F.lit(END).cast(T.LongType())))
        if not self._step.deleted:
            return frame
        return frame.where(~F.coalesce(quoted(f"{RIGHT}{self._step.deleted}"), F.lit(False)))

    def _condition(self) -> Column:
        step = self._step
        left, right = quoted(_LEFT_TIME), quoted(_RIGHT_TIME)
        if step.table:
            return column(step.predicate) & (right <= left) & (left < F.col(f"`{_UNTIL}`"))
        earliest = right >= left - F.lit(step.before_us).cast(T.LongType())
        latest = right <= left + F.lit(step.after_us).cast(T.LongType())
        return column(step.predicate) & earliest & latest

    def _nearest(self, left: DataFrame, right: DataFrame) -> DataFrame:
        """Each left tuple with the nearest right one: both sides are sorted together. A left tuple
        is placed at its nearer bound; a window function takes the right tuple of its key before
        that place (behind it, if the join looks forward)."""
        step = self._step
        keys = [f"key{n}" for n in range(len(self._equalities))]
        left_keys = [
            column(one).alias(key) for key, (one, _) in zip(keys, self._equalities, strict=True)
        ]
        right_keys = [
            column(two).alias(key) for key, (_, two) in zip(keys, self._equalities, strict=True)
        ]
        rows = F.struct(*(quoted(name) for name in self._right.names)).alias(_NEAREST)
        bound = -step.before_us if step.looks_forward else step.after_us
        lefts = left.select(
            (quoted(_LEFT_TIME) + F.lit(bound).cast(T.LongType())).alias(STIME),
            F.lit(False).alias(_IS_RIGHT),
            F.lit(None).cast(self._right.row).alias(_NEAREST),
            *(quoted(name) for name in self._left.names),
            *left_keys,
        )
        rights = right.select(
            quoted(_RIGHT_TIME).alias(STIME),
            F.lit(True).alias(_IS_RIGHT),
            rows,
            *(F.lit(None).cast(type_).alias(name) for name, type_ in self._left.types),
            *right_keys,
        )
        times = F.col(STIME).desc() if step.looks_forward else F.col(STIME)
        ties = self._right.order(_NEAREST, descending=step.looks_forward)
        in_order = (
            Window.partitionBy(*map(F.col, keys))
            .orderBy(times, F.col(_IS_RIGHT).desc(), *ties)
            .rowsBetween(Window.unboundedPreceding, Window.currentRow)
        )
        nearest = F.last(F.col(_NEAREST), ignorenulls=True).over(in_order)
        both = lefts.unionByName(rights).withColumn(_NEAREST, nearest).where(~F.col(_IS_RIGHT))
        found = F.col(_NEAREST)
        known = reduce(and_, (F.col(key).isNotNull() for key in keys), F.lit(True))
        earliest = found.getField(_RIGHT_TIME) >= quoted(_LEFT_TIME) - F.lit(step.before_us)
        latest = found.getField(_RIGHT_TIME) <= quoted(_LEFT_TIME) + F.lit(step.after_us)
        both = both.withColumn(_NEAREST, F.when(known & earliest & latest, found))
        if step.kind is JoinKind.ASOF:
            both = both.where(F.col(_NEAREST).isNotNull())
        rights_fields = [F.col(_NEAREST).getField(name).alias(name) for name in self._right.names]
        return both.select(*(quoted(name) for name in self._left.names), *rights_fields)


class _Side:
    """One stream of a join; each of its columns has the side in its name."""

    def __init__(
        self, session: SparkSession, stream: str, schema: Schema, prefix: str, *, with_seq: bool
    ) -> None:
        self._session = session
        self._stream = stream
        self._prefix = prefix
        self._fields = schema.fields
        self._with_seq = with_seq
        self._schema = row_schema(schema.fields, with_seq=with_seq)
        self._reader: DataFrameReader = reader_of(session, self._schema)
        self._empty: DataFrame | None = None
        floats = {each.name for each in schema.fields if each.type in FLOATS}
        self._columns = []
        for name in self._schema.names:
            plain = quoted(name)
            made = without_negative_zero(plain) if name in floats else plain
            self._columns.append(made.alias(f"{prefix}{name}"))
        self.types = [(f"{prefix}{each.name}", each.dataType) for each in self._schema]
        self.names = [name for name, _ in self.types]
        self.row = T.StructType([T.StructField(*each) for each in self.types])

    def frame(
        self, files: Mapping[str, Sequence[Path]], interval: Interval, *, large: bool
    ) -> DataFrame:
        paths = files.get(self._stream, ())
        if not paths:
            return self._none().select(*self._columns)
        frame = self._reader.parquet(*(f"file://{path.absolute()}" for path in paths))
        frame = frame.where(
            F.expr(within(STIME, interval.lo + 1, interval.hi, constant=large))
        ).select(*self._columns)
        return frame if large else frame.coalesce(1)

    def ties(self) -> list[Column]:
        """The columns that order this side's tuples of one stime, ascending."""
        names = [SEQ] if self._with_seq else [each.name for each in self._fields]
        return [quoted(f"{self._prefix}{name}").asc_nulls_last() for name in names]

    def order(self, row: str, *, descending: bool) -> list[Column]:
        """The terms that order this side's tuples of one stime."""
        names = [SEQ] if self._with_seq else [each.name for each in self._fields]
        fields = [F.col(row).getField(f"{self._prefix}{name}") for name in names]
        if descending:
            return [each.desc_nulls_first() for each in fields]
        return [each.asc_nulls_last() for each in fields]

    def _none(self) -> DataFrame:
        if self._empty is None:
            self._empty = self._session.createDataFrame([], self._schema).coalesce(1)
        return self._empty


def _unless_too_many(step: JoinStep) -> Column:
    """The stime of pairs, as a column that fails the job at the first pair beyond the limit of a
    partition. Spark counts the rows as it computes them, so this delays nothing."""
    before, after = step.before_us / 1e6, step.after_us / 1e6
    reason = (
        f"the join of {step.left} and {step.right}, from {before:g} s before to {after:g} s after, "
        f"gives more than {MAX_PAIRS:,} pairs at once: let more fields be equal, or narrow its "
        "bounds of time"
    )
    number = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROWS_OF_PARTITION))
    fail = F.raise_error(F.lit(reason)).cast(T.LongType())
    return F.when(number < F.lit(MAX_PAIRS), quoted(STIME)).otherwise(fail)


def _stime_of(step: JoinStep) -> Column:
    """The stime of a pair, or of a tuple alone: see `medusa.engine.objects.query.Join`."""
    left = later(quoted(_LEFT_TIME), step.left_waits_us)
    if step.table or step.kind in {JoinKind.SEMI, JoinKind.ANTI}:
        return left
    right = later(quoted(_RIGHT_TIME), step.right_waits_us)
    both = F.greatest(quoted(_LEFT_TIME), quoted(_RIGHT_TIME))
    if step.kind in {JoinKind.INNER, JoinKind.ASOF}:
        return both
    return (
        F.when(quoted(_RIGHT_TIME).isNull(), left)
        .when(quoted(_LEFT_TIME).isNull(), right)
        .otherwise(both)
    )

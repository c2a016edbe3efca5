"""Group aggregates over DataFrames, from the former totals and the new tuples.

Spark folds the new tuples of each group and stime, puts the group's former totals before them, and
adds up along the group's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.aggregates.extremes import MIN
from medusa.engine.aggregates.function import Folded
from medusa.engine.aggregates.sums import BITS, MASK, spark_carried
from medusa.engine.dataframes.columns import SPARK_TYPES, column, quoted, without_negative_zero
from medusa.engine.dataframes.rows import shaped
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.objects.schema import BEGINNING, DELETED, STIME, Field, FieldType
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.totals.step import State, TotalsStep, layout_of, totals_schema
from medusa.engine.scalars.type_rules import FLOATS

_SIGN: Final = "sign "
_NEW: Final = "is new "
_BEFORE: Final = "before "
"""Names of auxiliary columns; no field's name has a blank."""


class TotalsOf(Stage):
    """The totals of a DataFrame of its input.

    Args:
        fields: the fields of the input.
    """

    def __init__(self, step: TotalsStep, fields: Sequence[Field]) -> None:
        self._step = step
        self._fields = fields
        self._layout = layout_of(step)
        self._groups = [each.name for each in step.group_by]
        self._made = totals_schema("", step).fields

    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the tuples after a boundary.

        Args:
            frame: the tuples after the boundary; if the input is a table, all tuples.
        """
        own, frame = job.own, self._signed(frame, job.after)
        values = self._new_values(frame, own)
        partials = self._partials(frame, values)
        before = None if own is None else self._before(own, frame)
        totals = self._added(partials, before)
        return totals if values is None else totals.unionByName(shaped(values, self._made))

    # -- the new tuples ---------------------------------------------------------------------------

    def _signed(self, frame: DataFrame, after: int) -> DataFrame:
        """The arguments of the functions, for each new tuple and each tuple that it replaces."""
        if not self._step.changes:
            return frame.select(*self._arguments(), F.lit(1).alias(_SIGN))
        names = [each.name for each in self._fields]
        keys = [quoted(name) for name in self._step.changes]
        in_order = Window.partitionBy(*keys).orderBy(
            quoted(STIME), *(quoted(name).asc_nulls_last() for name in names)
        )
        before = F.lag(F.struct(*(quoted(name) for name in names))).over(in_order)
        changed = frame.withColumn(_BEFORE, before).where(quoted(STIME) > F.lit(after))
        comes = changed.where(self._lives(quoted)).select(*self._arguments(), F.lit(1).alias(_SIGN))
        old = changed.where(F.col(_BEFORE).isNotNull()).select(
            quoted(STIME), *(F.col(_BEFORE).getField(name).alias(name) for name in names)
        )
        goes = old.where(self._lives(quoted)).select(*self._arguments(), F.lit(-1).alias(_SIGN))
        return comes.unionByName(goes)

    def _lives(self, named: type[Column] | object) -> Column:
        if not self._step.deleted:
            return F.lit(True)
        return ~F.coalesce(quoted(self._step.deleted), F.lit(False))

    def _arguments(self) -> list[Column]:
        found = [quoted(STIME), *(quoted(name) for name in self._groups)]
        for number, each in enumerate(self._step.functions):
            if each.argument is not None:
                made = column(each.argument)
                if each.argument.type in FLOATS:
                    made = without_negative_zero(made)
                found.append(made.alias(_argument(number)))
        return found

    def _partials(self, frame: DataFrame, values: DataFrame | None) -> DataFrame:
        """The sums over the tuples of each group and stime, and the new values among them. The
        values are rows beside the tuples, with all other columns null: one aggregation counts
        both."""
        if values is not None:
            keys = [STIME, *self._groups, self._layout.part]
            frame = frame.unionByName(values.select(*map(quoted, keys)), allowMissingColumns=True)
        sign = F.col(_SIGN)
        found: list[Column] = []
        if self._layout.rows:
            found.append(F.sum(sign).alias(self._layout.rows))
        for number, (each, state) in enumerate(self._functions()):
            argument = F.col(_argument(number))
            counted = sign if each.argument is None else F.when(argument.isNotNull(), sign)
            if state.value:
                number_of = F.count_if(quoted(self._layout.part) == F.lit(number + 1))
            else:
                number_of = F.coalesce(F.sum(counted), F.lit(0).cast(T.LongType()))
            found.append(number_of.alias(state.number))
            found += self._sums(each, state, argument, sign)
        return frame.groupBy(quoted(STIME), *map(quoted, self._groups)).agg(*found)

    def _sums(
        self, each: TypedAggregate, state: State, argument: Column, sign: Column
    ) -> list[Column]:
        if state.high:
            wide = argument.cast(T.LongType())
            high = F.sum(F.shiftright(wide, BITS) * sign)
            low = F.sum(wide.bitwiseAND(F.lit(MASK)) * sign)
            return [high.alias(state.high), low.alias(state.low)]
        if state.total:
            values = F.sort_array(F.collect_list(argument.cast(T.DoubleType()) * sign))
            total = F.aggregate(values, F.lit(0.0), lambda total, value: total + value)
            return [total.alias(state.total)]
        if state.best:
            best = F.min if each.function is MIN else F.max
            return [best(argument).alias(state.best)]
        return []

    # -- different values --------------------------------------------------------------------------

    def _new_values(self, frame: DataFrame, own: DataFrame | None) -> DataFrame | None:
        """A tuple for each value that a group has for the first time; None: no function needs them.
        The values of all functions are rows of one DataFrame, with a column for each type, so that
        one aggregation finds all new ones.
        """
        if not any(state.value for _, state in self._functions()):
            return None
        part, typed = self._layout.part, self._typed_values()
        every = [
            F.struct(
                F.lit(number + 1).alias(part),
                *(
                    (F.col(_argument(number)) if number in numbers else F.lit(None))
                    .cast(type_)
                    .alias(name)
                    for name, (type_, numbers) in typed.items()
                ),
            )
            for number, (_, state) in enumerate(self._functions())
            if state.value
        ]
        rows = frame.select(quoted(STIME), *map(quoted, self._groups), F.inline(F.array(*every)))
        keys = [*self._groups, part, *typed]
        some = reduce(or_, (quoted(name).isNotNull() for name in typed))
        found = rows.where(some).groupBy(*map(quoted, keys)).agg(F.min(quoted(STIME)).alias(STIME))
        if own is not None:
            found = found.join(self._old_values(own), self._same(keys), "left_anti")
        return found.select(
            quoted(STIME),
            *map(quoted, self._groups),
            quoted(part),
            *(
                F.when(quoted(part) == F.lit(number + 1), quoted(name)).alias(
                    self._layout.states[number].value
                )
                for name, (_, numbers) in typed.items()
                for number in numbers
            ),
        )

    def _typed_values(self) -> dict[str, tuple[T.DataType, list[int]]]:
        """For each column of values: its type, and the numbers of the functions that read it."""
        found: dict[str, tuple[T.DataType, list[int]]] = {}
        types = {each.name: SPARK_TYPES[each.type] for each in self._made}
        for number, (_, state) in enumerate(self._functions()):
            if state.value:
                type_ = types[state.value]
                found.setdefault(f"value {type_.simpleString()}", (type_, []))[1].append(number)
        return found

    def _old_values(self, own: DataFrame) -> DataFrame:
        """The values that groups had before, under other names."""
        part = self._layout.part
        values = [
            F.coalesce(*(quoted(self._layout.states[n].value) for n in numbers)).alias(
                f"{_BEFORE}{name}"
            )
            for name, (_, numbers) in self._typed_values().items()
        ]
        keys = (quoted(name).alias(f"{_BEFORE}{name}") for name in (*self._groups, part))
        return own.where(quoted(part) != F.lit(0)).select(*keys, *values)

    @staticmethod
    def _same(names: Sequence[str]) -> Column:
        """Whether these columns are equal to their values before."""
        return reduce(and_, (quoted(n).eqNullSafe(quoted(f"{_BEFORE}{n}")) for n in names))

    # -- along the time ----------------------------------------------------------------------------

    def _added(self, partials: DataFrame, before: DataFrame | None) -> DataFrame:
        """The totals after each of the new tuples.

        Args:
            before: the groups' totals before these tuples.
        """
        columns = (STIME, *(each.name for each in self._made))
        names = [name for name in columns if name in set(partials.columns)]
        both = partials.select(*map(quoted, names), F.lit(True).alias(_NEW))
        if before is not None:
            both = both.unionByName(before.select(*map(quoted, names), F.lit(False).alias(_NEW)))
        along = (
            Window.partitionBy(*map(quoted, self._groups))
            .orderBy(quoted(STIME))
            .rowsBetween(Window.unboundedPreceding, Window.currentRow)
        )
        added = {name: self._along(name, along) for name in names if name in self._folds()}
        totals = both.withColumns(added).where(F.col(_NEW))
        totals = totals.withColumns(self._carried())
        results = {
            each.output: self._result(each, state).cast(SPARK_TYPES[each.type])
            for each, state in self._functions()
        }
        if self._step.changes:
            results[DELETED] = F.when(quoted(self._layout.rows) == F.lit(0), F.lit(True))
        return shaped(totals.withColumns({**results, self._layout.part: F.lit(0)}), self._made)

    def _before(self, own: DataFrame, frame: DataFrame) -> DataFrame:
        """The state of the groups of the new tuples, before all of these."""
        total = own.where(quoted(self._layout.part) == F.lit(0))
        wanted = frame.select(
            *(quoted(name).alias(f"{_BEFORE}{name}") for name in self._groups)
        ).distinct()
        total = total.join(wanted, self._same(self._groups), "left_semi")
        states = list(self._folds())
        last = F.max_by(F.struct(*map(quoted, states)), quoted(STIME)).alias("last ")
        found = total.groupBy(*map(quoted, self._groups)).agg(last)
        return found.select(
            F.lit(BEGINNING).cast(T.LongType()).alias(STIME),
            *map(quoted, self._groups),
            *(F.col("`last `").getField(name).alias(name) for name in states),
        )

    def _folds(self) -> dict[str, str]:
        """How each field of the state is summed up."""
        found = {self._layout.rows: "sum"} if self._layout.rows else {}
        for each, state in self._functions():
            found[state.number] = "sum"
            found |= {name: "sum" for name in (state.high, state.low, state.total) if name}
            if state.best:
                found[state.best] = "min" if each.function is MIN else "max"
        return found

    def _along(self, name: str, along: object) -> Column:
        fold = {"sum": F.sum, "min": F.min, "max": F.max}[self._folds()[name]]
        return fold(quoted(name)).over(along)  # type: ignore[arg-type]

    def _carried(self) -> dict[str, Column]:
        """Carry in the sums of integers, so that the lower half is below 2^32 again."""
        found: dict[str, Column] = {}
        for _, state in self._functions():
            if state.high:
                high, low = quoted(state.high), quoted(state.low)
                found[state.high], found[state.low] = spark_carried((high, low))
        return found

    def _result(self, each: TypedAggregate, state: State) -> Column:
        number, function, type_ = quoted(state.number), each.function, each.argument_type
        if not isinstance(function, Folded):
            return number
        fields = [quoted(name) for name in state.of(function.states(type_))]
        made = function.spark_result(fields, type_)
        return made if function.never_null else F.when(number > F.lit(0), made)

    def _functions(self) -> list[tuple[TypedAggregate, State]]:
        return list(zip(self._step.functions, self._layout.states, strict=True))


def _argument(number: int) -> str:
    return f"argument {number}"


__all__ = ["FieldType", "TotalsOf"]

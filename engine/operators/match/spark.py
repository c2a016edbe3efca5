"""Patterns over DataFrames.

A window gives each tuple those that follow it in its partition, as an array. For the tuples that
can be the first of a match, the array is folded: the automaton of
`medusa.engine.operators.match.automaton` goes on by one tuple at a time, in all its ways at once.
So a job has one sort and no join, and its number of rows does not depend on the pattern."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.dataframes.columns import SPARK_TYPES, column, field_column, quoted, within
from medusa.engine.dataframes.stage import Job, Stage
from medusa.engine.expressions.typed import Expression, FieldRef
from medusa.engine.objects.query import Contiguity
from medusa.engine.objects.schema import END, SEQ, STIME, Field, FieldType
from medusa.engine.operators.match.automaton import (
    START,
    Kept,
    Register,
    all_registers,
    ends_at_most,
    fields_read,
    may_end,
    most_tuples,
    moves,
    registers_of,
    remembered,
)
from medusa.engine.operators.match.step import MatchStep, TypedMeasure
from medusa.engine.scalars.type_rules import FLOATS, INTEGERS

_TUPLES: Final = "tuples "
_FOUND: Final = "found "
"""Names of auxiliary columns; no field's name has a blank."""

_WHOLE: Final = T.DecimalType(38, 0)
"""The type of sums of integers: a match has at most `MAX_TUPLES` of them."""

Way = Column
"""A partial match: its place in the pattern, the number of tuples of its variable, and its
registers."""


class Matches(Stage):
    """A pattern over a DataFrame of its input.

    Args:
        fields: the fields of the input.
        by_arrival: whether the input has SEQ, which orders tuples of one stime. tags: further
            columns by which the input is partitioned, and which the result has.
    """

    def __init__(
        self,
        step: MatchStep,
        fields: Sequence[Field],
        *,
        by_arrival: bool,
        tags: Sequence[str] = (),
    ) -> None:
        automaton = _Automaton(step)
        partition = [*(each.name for each in step.partition_by), *tags]
        self._keys = [quoted(name).alias(f"key{n}") for n, name in enumerate(partition)]
        order = [quoted(STIME).asc()]
        if by_arrival:
            order.append(quoted(SEQ).asc())
        else:
            order += [quoted(each.name).asc_nulls_last() for each in fields]
        following = (
            Window.partitionBy(*map(quoted, partition))
            .orderBy(*order)
            .rowsBetween(0, most_tuples(step) - 1)
        )
        row = F.struct(
            quoted(STIME).alias("at"),
            *(field_column(each).alias(name) for name, each in automaton.fields),
        )
        self._collected = F.collect_list(row).over(following).alias(_TUPLES)
        first = F.col(_TUPLES)[0]
        self._begins = automaton.begins(first)
        last = F.lit(END - step.within_us).cast(T.LongType())
        limit = F.least(first["at"], last) + F.lit(step.within_us).cast(T.LongType())
        found = automaton.run(F.col(_TUPLES), limit)
        # Spark computes the output of a generator once, not for each use of a part
        self._found = F.explode(F.array(found)).alias(_FOUND)
        ways = F.col(_FOUND)["best"]
        self._results = [
            F.col(_FOUND)["end"].alias(STIME),
            *(F.col(f"key{n}").alias(name) for n, name in enumerate(partition)),
            *(automaton.measured(each, ways).alias(each.output) for each in step.measures),
        ]

    def apply(self, frame: DataFrame, job: Job) -> DataFrame:
        """Return the matches of a job."""
        if job.small:
            frame = frame.coalesce(1)  # no shuffle
        due = within(STIME, job.after + 1, job.upto, constant=not job.small)
        return self.all(frame).where(F.expr(due))

    def all(self, frame: DataFrame) -> DataFrame:
        """Return all matches among the rows."""
        keys = [F.col(f"key{n}") for n in range(len(self._keys))]
        frame = frame.select(*self._keys, self._collected).where(self._begins)
        frame = frame.select(*keys, self._found).where(F.col(_FOUND)["best"].isNotNull())
        return frame.select(*self._results)


class _Automaton:
    """The automaton as columns. Attributes: fields: the fields of tuples that it reads, each with
    its name in the arrays.
    """

    def __init__(self, step: MatchStep) -> None:
        self._step = step
        self._variables = step.variables
        self._skips = step.contiguity is Contiguity.SKIP_TILL_NEXT_MATCH
        self.fields = [(f"f{n}", each) for n, each in enumerate(fields_read(step))]
        self._names = {each: name for name, each in self.fields}
        self._registers = {each: f"r{n}" for n, each in enumerate(all_registers(step))}
        made = [T.StructField("made", T.BooleanType())]  # a struct must have a field
        made += [T.StructField(name, _type_of(each)) for each, name in self._registers.items()]
        self._memory = T.StructType(made)
        self._way = T.StructType(
            [
                T.StructField("place", T.IntegerType()),
                T.StructField("count", T.IntegerType()),
                T.StructField("memory", self._memory),
            ]
        )
        self._none = F.array().cast(T.ArrayType(self._way))
        self._no_match = F.lit(None).cast(self._memory)

    def begins(self, row: Column) -> Column:
        """Whether a tuple can be the first of a match."""
        way = self._start()
        targets = [each.target for each in moves(self._variables, START)]
        return reduce(or_, (self._takes(n, way, row) for n in targets if n is not None))

    def run(self, rows: Column, limit: Column) -> Column:
        """The match that begins with the first of these tuples: `end`, the stime at which it is
        certain, and `best`, its registers; null: there is no match.

        Args:
            limit: the stime of the last tuple that it may have.
        """
        most = most_tuples(self._step)
        state = F.aggregate(
            rows,
            F.struct(
                F.array(self._start()).alias("ways"),
                self._no_match.alias("best"),
                F.lit(None).cast(T.LongType()).alias("end"),
            ),
            lambda state, row: (
                F.when(state["end"].isNotNull(), state)
                .when(row["at"] > limit, self._ended(state, limit, whole=True))
                .otherwise(self._moved(state, row))
            ),
            lambda state: (
                F.when(state["end"].isNotNull(), state)
                .when(F.size(rows) < F.lit(most), self._ended(state, limit, whole=True))
                .otherwise(self._ended(state, F.get(rows, F.lit(most - 1))["at"], whole=False))
            ),
        )
        return state

    def measured(self, measure: TypedMeasure, memory: Column) -> Column:
        """A result of a match."""
        kept = [memory[self._registers[each]] for each in registers_of(measure)]
        if measure.function == "avg":
            return kept[0].cast(T.DoubleType()) / kept[1]
        if measure.function == "sum" and measure.type is FieldType.LONG:
            return kept[0].try_cast(T.LongType())
        return kept[0]

    # -- ways --------------------------------------------------------------------------------------

    def _start(self) -> Way:
        values = [F.lit(True).alias("made")]
        for register, name in self._registers.items():
            zero = F.lit(0) if register.kept is Kept.COUNT else F.lit(None)
            values.append(zero.cast(_type_of(register)).alias(name))
        return _way(F.lit(START), F.lit(0), F.struct(*values))

    def _moved(self, state: Column, row: Column) -> Column:
        """The state after a tuple."""
        ways = F.flatten(F.transform(state["ways"], lambda way: self._next(way, row)))
        begin = F.struct(
            self._none.alias("ways"), state["best"].alias("best"), F.lit(False).alias("made")
        )
        kept = F.aggregate(ways, begin, _added)
        return _let(
            kept,
            lambda kept: F.struct(
                kept["ways"].alias("ways"),
                kept["best"].alias("best"),
                F.when(F.size(kept["ways"]) == 0, row["at"]).alias("end"),
            ),
        )

    def _ended(self, state: Column, at: Column, *, whole: bool) -> Column:
        """The state after the last tuple. Args: whole: whether all tuples within the pattern's time
        have been read.
        """
        ended = F.filter(state["ways"], lambda way: self._may_end(way, whole=whole))
        best = F.coalesce(F.get(ended, F.lit(0))["memory"], state["best"])
        return F.struct(self._none.alias("ways"), best.alias("best"), at.alias("end"))

    def _may_end(self, way: Way, *, whole: bool) -> Column:
        conditions = [
            (way["place"] == place) & (way["count"] >= variable.least)
            for place, variable in enumerate(self._variables)
            if may_end(self._variables, place) and (whole or not variable.forbidden)
        ]
        return reduce(or_, conditions, F.lit(False))

    def _next(self, way: Way, row: Column) -> Column:
        """The partial matches that follow from one with the next tuple, the preferred one first."""
        chosen = F.when(way["place"] == F.lit(START), self._next_at(START, way, row))
        for place in range(len(self._variables)):
            chosen = chosen.when(way["place"] == F.lit(place), self._next_at(place, way, row))
        return chosen

    def _next_at(self, place: int, way: Way, row: Column) -> Column:
        found = []
        for move in moves(self._variables, place):
            guard = F.lit(True)
            if place != START:
                variable = self._variables[place]
                if move.after_least:
                    guard = way["count"] >= variable.least
                elif variable.most is not None:
                    guard = way["count"] < variable.most
            if move.target is not None:
                taken = guard & self._takes(move.target, way, row)
                found.append(F.when(taken, self._taken(place, move.target, way, row)))
            elif not self._skips:
                found.append(F.when(guard, _candidate(way, made=F.lit(True))))
        ways = F.filter(F.array(*found), lambda each: each.isNotNull())
        if not self._skips or place == START:
            return ways
        stays = F.array(_candidate(way, made=F.lit(False)))
        forbidden = self._variables[place].forbidden
        if forbidden:
            meets = reduce(or_, (self._is_true(each, way, row) for each in forbidden))
            stays = F.filter(
                stays,
                lambda _: ~(meets & (way["count"] >= self._variables[place].least)),
            )
        return _let(ways, lambda ways: F.when(F.size(ways) > 0, ways).otherwise(stays))

    def _taken(self, place: int, target: int, way: Way, row: Column) -> Column:
        """The partial match after a variable has taken a tuple."""
        count = F.lit(1)
        if place == target:
            counted = F.lit(self._variables[target].counted)
            count = F.least(way["count"] + F.lit(1), counted)
        values = [F.lit(True).alias("made")]
        for register, name in self._registers.items():
            value = way["memory"][name]
            if register.variable in {None, target}:
                is_first = place == START if register.variable is None else place != target
                value = self._remembering(register, value, row, is_first=is_first)
            values.append(value.cast(_type_of(register)).alias(name))
        least = ends_at_most(self._variables, target)
        made = F.lit(False) if least is None else count >= F.lit(least)
        return _candidate(_way(F.lit(target), count, F.struct(*values)), made=made)

    def _remembering(
        self, register: Register, old: Column, row: Column, *, is_first: bool
    ) -> Column:
        """The value of a register after a tuple. is_first: whether it is the variable's first
        tuple."""
        if register.field is None:
            return old + F.lit(1).cast(T.LongType())
        value = row[self._names[register.field]]
        match register.kept:
            case Kept.FIRST:
                return value if is_first else old
            case Kept.LAST:
                return value
            case Kept.COUNT:
                return old + value.isNotNull().cast(T.LongType())
            case Kept.MIN:
                return F.least(old, value)
            case Kept.MAX:
                return F.greatest(old, value)
            case Kept.SUM:
                type_ = _type_of(register)
                zero = F.lit(0).cast(type_)
                total = (F.coalesce(old, zero) + value.cast(type_)).cast(type_)
                return F.when(value.isNull(), old).otherwise(total)

    # -- conditions --------------------------------------------------------------------------------

    def _takes(self, place: int, way: Way, row: Column) -> Column:
        return self._is_true(self._variables[place].condition, way, row)

    def _is_true(self, condition: Expression, way: Way, row: Column) -> Column:
        def read(field: FieldRef) -> Column:
            register = remembered(self._step, field)
            if register is None:
                return row[self._names[field]]
            return way["memory"][self._registers[register]]

        return F.coalesce(column(condition, read), F.lit(False))


def _way(place: Column, count: Column, memory: Column) -> Way:
    return F.struct(
        place.cast(T.IntegerType()).alias("place"),
        count.cast(T.IntegerType()).alias("count"),
        memory.alias("memory"),
    )


def _candidate(way: Way, *, made: Column) -> Column:
    return F.struct(way.alias("way"), made.alias("made"))


def _added(kept: Column, candidate: Column) -> Column:
    """Add a partial match to those that are preferred to it: the partial match is dropped if one of
    those is complete, or is at the same state."""
    way = candidate["way"]
    same = F.exists(
        kept["ways"],
        lambda each: (each["place"] == way["place"]) & (each["count"] == way["count"]),
    )
    made = F.struct(
        kept["ways"].alias("ways"), way["memory"].alias("best"), F.lit(True).alias("made")
    )
    more = F.struct(
        F.concat(kept["ways"], F.array(way)).alias("ways"),
        kept["best"].alias("best"),
        F.lit(False).alias("made"),
    )
    return F.when(kept["made"], kept).when(candidate["made"], made).when(same, kept).otherwise(more)


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """The expression that `body` returns for `value`; Spark computes `value` once, however often
    the expression contains it."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _type_of(register: Register) -> T.DataType:
    if register.kept is Kept.COUNT or register.field is None:
        return T.LongType()
    if register.kept is Kept.SUM:
        if register.field.type in INTEGERS:
            return _WHOLE
        assert register.field.type in FLOATS
        return T.DoubleType()
    return SPARK_TYPES[register.field.type]

"""Sums and averages.

The sum of integers is exact: it is kept in two halves, high 2^32 + low with 0 <= low < 2^32, so
that 2^31 tuples cannot make one overflow. Floats are added in ascending order in a pane, and pane
after pane in a window: the same bits wherever the cut is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import ClassVar, Final

from medusa.engine.aggregates.function import Fold, Folded, State, nan_last
from medusa.engine.objects.schema import STIME, FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.type_rules import FLOATS, INTEGER_RANGE, SOME_NUMBER
from medusa.engine.scalars.values import Value

BITS: Final = 32
"""Bits of the lower half of a sum."""

MASK: Final = 2**BITS - 1


def spark_halves(x: Column) -> tuple[Column, Column]:
    """The aggregates that Spark computes for the sum of integers."""
    wide = x.cast("long")
    return F.sum(F.shiftright(wide, BITS)), F.sum(wide.bitwiseAND(F.lit(MASK)))


def spark_carried(halves: Sequence[Column]) -> tuple[Column, Column]:
    """Carry from the lower half to the upper one, so that the lower one is below 2^32."""
    high, low = halves
    return high + F.shiftright(low, BITS), low.bitwiseAND(F.lit(MASK))


def spark_long(halves: Sequence[Column]) -> Column:
    """The long of two halves; null if it does not fit."""
    high, low = halves
    fits = (high >= F.lit(-(2**31))) & (high < F.lit(2**31))
    return F.when(fits, F.shiftleft(high, BITS).bitwiseOR(low))


def spark_double(halves: Sequence[Column]) -> Column:
    """The double that is nearest to two halves."""
    high, low = (half.cast("decimal(38,0)") for half in halves)
    return (high * F.lit(2**BITS).cast("decimal(11,0)") + low).cast("double")


def in_order(some: Column, at: Column, **states: Column) -> Column:
    """An array of structs of the states of panes, pane after pane.

    Args:
        some: whether a pane has a state. at: the stime of the pane.
    """
    named = (state.alias(name) for name, state in states.items())
    return F.sort_array(F.collect_list(F.when(some, F.struct(at.alias(STIME), *named))))


class _Total(Folded):
    def states(self, type_: FieldType) -> Sequence[State]:
        if type_ in FLOATS:
            return (State("", FieldType.DOUBLE, Fold.IN_ORDER),)
        return State("h", FieldType.LONG), State("l", FieldType.LONG)

    def spark_partial(self, x: Column, type_: FieldType) -> Sequence[Column]:
        if type_ not in FLOATS:
            return spark_halves(x)
        values = F.sort_array(F.collect_list(x.cast("double")))
        total = F.aggregate(values, F.lit(0.0), lambda total, value: total + value)
        return (F.when(F.count(x) > 0, total),)

    def spark_merged(
        self, states: Sequence[Column], at: Column, type_: FieldType
    ) -> Sequence[Column]:
        if type_ not in FLOATS:
            return super().spark_merged(states, at, type_)
        sums = in_order(states[0].isNotNull(), at, sum=states[0])
        total = F.aggregate(sums, F.lit(0.0), lambda total, each: total + each.getField("sum"))
        return (F.when(F.count(states[0]) > 0, total),)

    def partial(self, values: Sequence[Value], type_: FieldType) -> Sequence[Value]:
        if type_ in FLOATS:
            return (_added(sorted(values, key=nan_last)),)
        return divmod(sum(values), 2**BITS) if values else (None, None)

    def merged(self, panes: Sequence[Sequence[Value]], type_: FieldType) -> Sequence[Value]:
        if type_ not in FLOATS:
            return super().merged(panes, type_)
        return (_added([total for (total,) in panes if total is not None]),)


def _added(values: Iterable[float]) -> float | None:
    """Add floats one after the other: Python's `sum` of floats also adds the rounding errors."""
    found = [*values]
    return reduce(lambda total, value: total + value, found, 0.0) if found else None


class Sum(_Total):
    def type_of(self, argument: FieldType | None) -> FieldType | None:
        if argument not in self.takes:
            return None
        return FieldType.DOUBLE if argument in FLOATS else FieldType.LONG

    def spark_result(self, found: Sequence[Column], type_: FieldType) -> Column:
        return found[0] if type_ in FLOATS else spark_long(spark_carried(found))

    def of(self, states: Sequence[Value], type_: FieldType) -> Value:
        if type_ in FLOATS or states[0] is None:
            return states[0]
        total = (states[0] << BITS) + states[1]
        return total if total in INTEGER_RANGE[FieldType.LONG] else None


class Average(_Total):
    repeats: ClassVar[int] = 5

    def states(self, type_: FieldType) -> Sequence[State]:
        return (*super().states(type_), State("n", FieldType.LONG))

    def spark_partial(self, x: Column, type_: FieldType) -> Sequence[Column]:
        return (*super().spark_partial(x, type_), F.count(x))

    def spark_merged(
        self, states: Sequence[Column], at: Column, type_: FieldType
    ) -> Sequence[Column]:
        if type_ not in FLOATS:
            return super().spark_merged(states, at, type_)
        return (*super().spark_merged(states, at, type_), F.sum(states[-1]))

    def spark_result(self, found: Sequence[Column], type_: FieldType) -> Column:
        *sums, number = found
        return (sums[0] if type_ in FLOATS else spark_double(spark_carried(sums))) / number

    def partial(self, values: Sequence[Value], type_: FieldType) -> Sequence[Value]:
        return (*super().partial(values, type_), len(values))

    def merged(self, panes: Sequence[Sequence[Value]], type_: FieldType) -> Sequence[Value]:
        if type_ not in FLOATS:
            return super().merged(panes, type_)
        sums = super().merged([each[:1] for each in panes], type_)
        return (*sums, sum(number for _, number in panes))

    def of(self, states: Sequence[Value], type_: FieldType) -> Value:
        *sums, number = states
        if sums[0] is None:
            return None
        total = sums[0] if type_ in FLOATS else float((sums[0] << BITS) + sums[1])
        return total / number


SUM: Final = Sum(
    name="sum",
    takes=SOME_NUMBER,
    argument="numbers",
    gives="The sum: of integers a long, null if it does not fit; of floats a double.",
    example=Example("sum(x)", 9, values=(2, 7, None)),
)
AVG: Final = Average(
    name="avg",
    takes=SOME_NUMBER,
    argument="numbers",
    result=FieldType.DOUBLE,
    gives="The average.",
    example=Example("avg(x)", 4.5, values=(2, 7, None)),
)

ROWS: Final = (SUM, AVG)

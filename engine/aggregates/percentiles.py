"""Percentiles: the values at a place of their order.

    percentile(x, p)          n values in ascending order, from 0; the position (n - 1) p = i + f,
                              0 <= f < 1: x_i if f is 0 or x_i = x_(i + 1), else
                              x_i + (x_(i + 1) - x_i) f, in doubles. median(x): p is 0.5
    percentile_disc(x, p)     the value ceil(n p), from 1; for p = 0 the least
    approx_percentile(x, p)   about the same value: see `medusa.engine.aggregates.buckets`

With `desc` behind x the same of the values in descending order.
"""

from __future__ import annotations

from typing import ClassVar, Final

from medusa.engine.aggregates.buckets import BUCKETS, estimate, spark_estimate
from medusa.engine.aggregates.constants import FRACTION, MILLION, millionths
from medusa.engine.aggregates.function import NUMBERS_OF, Bag, Constant, Entries, OfBag
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import SPARK_NAMES, Column, F, long_of
from medusa.engine.scalars.type_rules import ORDERED, SOME_NUMBER
from medusa.engine.scalars.values import Value


class _Between(OfBag):
    """A percentile that interpolates: where its position is between two values, so is the
    result."""

    ordered: ClassVar[bool] = True
    within_group: ClassVar[bool] = True

    def spark_of(self, bag: Bag, constant: Constant, *, descending: bool) -> Column:
        fraction = millionths(constant)
        fraction = MILLION - fraction if descending else fraction
        position = (bag.total - long_of(1)) * long_of(fraction)
        place, rest = _quotient(position), position % long_of(MILLION)
        beyond = F.when(rest > long_of(0), long_of(1)).otherwise(long_of(0))
        share = rest.cast("double") / F.lit(float(MILLION))

        def between(found: Column) -> Column:
            low, high = (found.getField(name).cast("double") for name in ("low", "high"))
            return F.when(low == high, low).otherwise(low + (high - low) * share)

        return F.get(F.transform(F.array(_spark_at(bag, place, place + beyond)), between), F.lit(0))

    def of(self, entries: Entries, constant: Constant, *, descending: bool) -> Value:
        fraction = millionths(constant)
        fraction = MILLION - fraction if descending else fraction
        place, rest = divmod((_total(entries) - 1) * fraction, MILLION)
        low = float(_at(entries, place))
        high = float(_at(entries, place + (rest > 0)))
        return low if low == high else low + (high - low) * (rest / MILLION)


class _Median(_Between):
    ordered: ClassVar[bool] = False

    def spark_of(self, bag: Bag, _constant: Constant, *, descending: bool) -> Column:
        return super().spark_of(bag, 0.5, descending=descending)

    def of(self, entries: Entries, _constant: Constant, *, descending: bool) -> Value:
        return super().of(entries, 0.5, descending=descending)


class _Discrete(OfBag):
    ordered: ClassVar[bool] = True
    within_group: ClassVar[bool] = True
    chosen: ClassVar[bool] = True

    def spark_of(self, bag: Bag, constant: Constant, *, descending: bool) -> Column:
        place = _quotient(
            bag.total * long_of(millionths(constant)) + long_of(MILLION - 1)
        ) - long_of(1)
        place = F.greatest(place, long_of(0))
        place = bag.total - long_of(1) - place if descending else place
        return _spark_at(bag, place, place).getField("low")

    def of(self, entries: Entries, constant: Constant, *, descending: bool) -> Value:
        total = _total(entries)
        place = max(-(-total * millionths(constant) // MILLION) - 1, 0)
        return _at(entries, total - 1 - place if descending else place)


class _Approximate(_Discrete):
    chosen: ClassVar[bool] = False
    repeats: ClassVar[int] = 8

    def spark_of(self, bag: Bag, constant: Constant, *, descending: bool) -> Column:
        return spark_estimate(super().spark_of(bag, constant, descending=descending))

    def of(self, entries: Entries, constant: Constant, *, descending: bool) -> Value:
        return estimate(super().of(entries, constant, descending=descending))


def _quotient(number: Column) -> Column:
    """Divide a number that is not negative by a million."""
    return F.call_function("div", number, long_of(MILLION))


def _spark_at(bag: Bag, low: Column, high: Column) -> Column:
    """The values at two places of the sorted list, counted from 0; low <= high. Null if there are
    no values."""
    nothing = F.lit(None).cast(SPARK_NAMES[bag.type])

    def add(found: Column, entry: Column) -> Column:
        seen, key = found.getField("seen"), entry.getField("key")
        return F.struct(
            (seen + entry.getField("number")).alias("seen"),
            F.when(seen <= low, key).otherwise(found.getField("low")).alias("low"),
            F.when(seen <= high, key).otherwise(found.getField("high")).alias("high"),
        )

    begun = F.struct(long_of(0).alias("seen"), nothing.alias("low"), nothing.alias("high"))
    return F.aggregate(bag.entries, begun, add)


def _total(entries: Entries) -> int:
    return sum(number for _, number in entries)


def _at(entries: Entries, place: int) -> Value:
    for key, number in entries:
        if place < number:
            return key
        place -= number
    raise AssertionError(place)


MEDIAN: Final = _Median(
    name="median",
    takes=SOME_NUMBER,
    argument="numbers",
    result=FieldType.DOUBLE,
    kind=NUMBERS_OF,
    gives="The median: `percentile(x, 0.5)`.",
    example=Example("median(x)", 3.0, values=(1, 2, None, 4, 7)),
)
PERCENTILE: Final = _Between(
    name="percentile",
    other_names=("percentile_cont",),
    takes=SOME_NUMBER,
    argument="numbers",
    result=FieldType.DOUBLE,
    kind=NUMBERS_OF,
    constant=FRACTION,
    gives="SQL's `percentile_cont`, exact: between two values where the place is between them.",
    example=Example(
        "percentile(x, 0.25)", 1.75, values=(1, 2, None, 4, 7), duckdb="quantile_cont(x, 0.25)"
    ),
)
PERCENTILE_DISC: Final = _Discrete(
    name="percentile_disc",
    takes=ORDERED,
    argument="numbers, strings, timestamps",
    kind=NUMBERS_OF,
    constant=FRACTION,
    gives="One of the values: SQL's `percentile_disc`.",
    example=Example(
        "percentile_disc(x, 0.25)", 1, values=(1, 2, None, 4, 7), duckdb="quantile_disc(x, 0.25)"
    ),
)
APPROX_PERCENTILE: Final = _Approximate(
    name="approx_percentile",
    takes=SOME_NUMBER,
    argument="numbers",
    result=FieldType.DOUBLE,
    kind=BUCKETS,
    constant=FRACTION,
    gives="A number within 1 % of `percentile_disc`.",
    example=Example(
        "approx_percentile(x, 0.5)",
        2.0155038759689923,
        values=(1, 2, None, 4, 7),
        differs="DuckDB's approx_quantile is a t-digest, whose answers depend on order",
    ),
)

ROWS: Final = (MEDIAN, PERCENTILE, PERCENTILE_DISC, APPROX_PERCENTILE)

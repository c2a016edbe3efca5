"""Variances and standard deviations.

Variances of integers are computed from exact sums. With n values x,

    N = n sum(x^2) - sum(x)^2 = u 2^64 + v, 0 <= v < 2^64
    var_pop = (double(u) 2^64 + double(v)) / double(n n);   var_samp: n (n - 1) in place of n n

Variances of floats are computed from triples (n, mean, m2), which are combined one after the other:
first each value of a pane as (1, value, value - value), in ascending order, then pane after pane:
so the variance is NaN if a value is infinite or NaN. (n, a, s) and (m, b, t), with d = b - a and
doubles from the left, become

    n + m,   a + d m / (n + m),   s + t + d d (n m) / (n + m);   the second alone if n is 0

and var_pop is m2 / n, var_samp m2 / (n - 1). Source: Chan, Golub and LeVeque, Updating formulae and
a pairwise algorithm for computing sample variances (COMPSTAT 1982), equation 1.5. A standard
deviation is the square root of its variance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from medusa.engine.aggregates.function import Fold, Folded, State, nan_last
from medusa.engine.aggregates.sums import BITS, MASK, in_order
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F
from medusa.engine.scalars.type_rules import FLOATS, SOME_NUMBER
from medusa.engine.scalars.values import Value

SUMS: Final = ("n", "h", "l", "hhh", "hhl", "hlh", "hll", "llh", "lll")
"""The sums that are kept of integers x = h 2^32 + l, 0 <= l < 2^32: of 1, h, l, and of the halves
of h h, h l and l l, where the lower half is from 0 to 2^32 - 1. So 2^31 tuples cannot make a sum
overflow."""

TRIPLE: Final = ("n", "mean", "m2")
"""The state for floats: their number, their mean, and the sum of the squares around it."""

Triple = tuple[int, float, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Variance(Folded):
    """A variance or a standard deviation.

    Attributes:
        less: 1: of a sample; 0: of the population.
        root: whether the result is the standard deviation.
    """

    less: int = 0
    root: bool = False
    named: ClassVar[bool] = True
    repeats: ClassVar[int] = 15

    def states(self, type_: FieldType) -> Sequence[State]:
        if type_ not in FLOATS:
            return [State(name, FieldType.LONG) for name in SUMS]
        types = (FieldType.LONG, FieldType.DOUBLE, FieldType.DOUBLE)
        return [State(name, type_, Fold.IN_ORDER) for name, type_ in zip("nas", types, strict=True)]

    def spark_partial(self, x: Column, type_: FieldType) -> Sequence[Column]:
        return [_fold_values(x)] if type_ in FLOATS else _sums(x)

    def spark_merged(
        self, states: Sequence[Column], at: Column, type_: FieldType
    ) -> Sequence[Column]:
        if type_ not in FLOATS:
            return super().spark_merged(states, at, type_)
        # a pane without values has no state; nor has any part of a pane but one
        some = states[0] > F.lit(0)
        return [_fold(in_order(some, at, **dict(zip(TRIPLE, states, strict=True))))]

    def spark_states(self, found: Sequence[Column], type_: FieldType) -> Sequence[Column]:
        return _fields(found[0]) if type_ in FLOATS else found

    def spark_result(self, found: Sequence[Column], type_: FieldType) -> Column:
        n, _, spread = _fields(found[0]) if type_ in FLOATS else (found[0], None, _spread(found))
        degrees = n - F.lit(self.less)
        divisor = degrees if type_ in FLOATS else n * degrees
        made = F.when(degrees > F.lit(0), spread / divisor.cast("double"))
        return F.sqrt(made) if self.root else made

    def partial(self, values: Sequence[Value], type_: FieldType) -> Sequence[Value]:
        if type_ in FLOATS:
            ordered = sorted(values, key=nan_last)
            return _put_together((1, value, value - value) for value in ordered)
        return _halves(values)

    def merged(self, panes: Sequence[Sequence[Value]], type_: FieldType) -> Sequence[Value]:
        if type_ not in FLOATS:
            return super().merged(panes, type_)
        return _put_together((n, a, s) for n, a, s in panes if n)

    def of(self, states: Sequence[Value], type_: FieldType) -> Value:
        n = states[0]
        degrees = n - self.less
        if not n or degrees <= 0:
            return None
        if type_ in FLOATS:
            found = states[2] / float(degrees)
        else:
            total, squares = _whole(states)
            u, v = divmod(n * squares - total * total, 2**64)
            found = (float(u) * 2.0**64 + float(v)) / float(n * degrees)
        return math.sqrt(found) if self.root else found


# -- in Spark --------------------------------------------------------------------------------------


def _fields(triple: Column) -> list[Column]:
    return [triple.getField(name) for name in TRIPLE]


def _sums(x: Column) -> list[Column]:
    """The sums `SUMS`."""
    wide = x.cast("long")
    high, low = F.shiftright(wide, BITS), wide.bitwiseAND(F.lit(MASK))
    squares, crossed, lows = high * high, high * low, low * low  # the low half has no sign
    parts = [
        high,
        low,
        F.shiftright(squares, BITS),
        squares.bitwiseAND(F.lit(MASK)),
        F.shiftright(crossed, BITS),
        crossed.bitwiseAND(F.lit(MASK)),
        F.shiftrightunsigned(lows, BITS),
        lows.bitwiseAND(F.lit(MASK)),
    ]
    return [F.count(x), *map(F.sum, parts)]


def _spread(sums: Sequence[Column]) -> Column:
    """n sum(x^2) - sum(x)^2 as a double: u 2^64 + v, of exact u and v.

    With sum(x) = p 2^32 + q, 0 <= q < 2^32: each product fits a decimal of 38 digits, and each
    quotient a long, for up to 2^31 tuples.
    """
    n, high, low, high_squares, low_squares, high_crossed, low_crossed, high_lows, low_lows = sums
    p = _wide(high + F.shiftright(low, BITS))
    q = _wide(low.bitwiseAND(F.lit(MASK)))
    n = _wide(n)
    squares = _wide(high_squares) * _number(2**32) + _wide(low_squares)
    # the sum of h l, times 2^33, is added beside the high half
    crossed = n * _wide(low_crossed) - p * q
    lows = n * _wide(high_lows)  # times 2^32
    rest = (
        F.pmod(crossed, _number(2**31)) * _number(2**33)
        + F.pmod(lows, _number(2**32)) * _number(2**32)
        + n * _wide(low_lows)
        - q * q
    )
    u = (
        n * squares
        - p * p
        + n * _wide(high_crossed) * _number(2)
        + _quotient(crossed, 2**31)
        + _quotient(lows, 2**32)
        + _quotient(rest, 2**64)
    )
    v = F.pmod(rest, _number(2**64))
    return u.cast("double") * F.lit(2.0**64) + v.cast("double")


def _wide(number: Column) -> Column:
    return number.cast("decimal(38,0)")


def _number(value: int) -> Column:
    return _wide(F.lit(str(value)))


def _quotient(number: Column, divisor: int) -> Column:
    """The floor of the quotient, which fits a long."""
    by = _number(divisor)
    return _wide(F.call_function("div", number - F.pmod(number, by), by))


def _fold_values(x: Column) -> Column:
    """(n, mean, m2) of the values in ascending order; n is 0 if there are none.

    The distance of a single value from its mean is 0.0; that of an infinity or NaN is NaN.
    """
    values = F.sort_array(F.collect_list(x.cast("double")))
    one = F.lit(1).cast("long")
    return _fold(
        F.transform(
            values,
            lambda x: F.struct(one.alias("n"), x.alias("mean"), (x - x).alias("m2")),
        )
    )


def _fold(triples: Column) -> Column:
    """Combine the triples, one after the other."""

    def add(one: Column, other: Column) -> Column:
        n, a, s = _fields(one)
        m, b, t = _fields(other)
        d, both = b - a, (n + m).cast("double")
        mean = a + d * m.cast("double") / both
        spread = s + t + d * d * (n.cast("double") * m.cast("double")) / both
        first = n == F.lit(0)
        return F.struct(
            (n + m).alias("n"),
            F.when(first, b).otherwise(mean).alias("mean"),
            F.when(first, t).otherwise(spread).alias("m2"),
        )

    nothing = F.struct(
        F.lit(0).cast("long").alias("n"), F.lit(0.0).alias("mean"), F.lit(0.0).alias("m2")
    )
    return F.aggregate(triples, nothing, add)


# -- in Python -------------------------------------------------------------------------------------


def _put_together(triples: Iterable[Triple]) -> Triple:
    n, a, s = 0, 0.0, 0.0
    for m, b, t in triples:
        if not n:
            n, a, s = m, b, t
        else:
            d, both = b - a, float(n + m)
            s = s + t + d * d * (float(n) * float(m)) / both
            a = a + d * float(m) / both
            n += m
    return n, a, s


def _halves(values: Sequence[int]) -> list[int | None]:
    """The sums `SUMS`; without values all but the number are null."""
    if not values:
        return [0, *(None for _ in SUMS[1:])]
    found = [len(values)]
    parts = [divmod(value, 2**BITS) for value in values]
    found += map(sum, zip(*parts, strict=True))
    for products in zip(*((h * h, h * low, low * low) for h, low in parts), strict=True):
        found += map(sum, zip(*(divmod(each, 2**BITS) for each in products), strict=True))
    return [*found]


def _whole(state: Sequence[int]) -> tuple[int, int]:
    """The sum of integers, and that of their squares."""
    _, high, low, *products = state
    squares, crossed, lows = (
        (high << BITS) + low for high, low in zip(products[::2], products[1::2], strict=True)
    )
    return (high << BITS) + low, (squares << 2 * BITS) + (crossed << BITS + 1) + lows


def _row(name: str, gives: str, result: float, *others: str, less: int, root: bool) -> Variance:
    return Variance(
        name=name,
        other_names=others,
        takes=SOME_NUMBER,
        argument="numbers",
        result=FieldType.DOUBLE,
        less=less,
        root=root,
        gives=f"{gives}; NaN if a value is infinite or NaN{', null of one value' * less}.",
        example=Example(f"{name}(x)", result, values=(2, 4, 4, 4, 5, 5, 7, 9, None)),
    )


_ROOT_OF_SAMPLE: Final = math.sqrt(32 / 7)

VAR_POP: Final = _row("var_pop", "The variance", 4.0, less=0, root=False)
VAR_SAMP: Final = _row(
    "var_samp", "The variance of a sample", 32 / 7, "variance", less=1, root=False
)
STDDEV_POP: Final = _row("stddev_pop", "The standard deviation", 2.0, less=0, root=True)
STDDEV_SAMP: Final = _row(
    "stddev_samp",
    "The standard deviation of a sample",
    _ROOT_OF_SAMPLE,
    "stddev",
    less=1,
    root=True,
)

ROWS: Final = (VAR_POP, VAR_SAMP, STDDEV_POP, STDDEV_SAMP)

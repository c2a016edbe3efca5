"""Variances as Spark columns; `medusa.engine.language.aggregates` defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medusa.engine.language.operators import FLOATS
from medusa.engine.objects.query import Function
from medusa.engine.objects.schema import STIME, FieldType

_BITS: Final = 32
_MASK: Final = 2**_BITS - 1
_DOUBLE: Final = T.DoubleType()
_WIDE: Final = T.DecimalType(38, 0)

TRIPLE: Final = ("n", "mean", "m2")
"""How many floats, their mean, and the sum of the squares around it."""

_SAMPLES: Final = frozenset({Function.VAR_SAMP, Function.STDDEV_SAMP})
_ROOTS: Final = frozenset({Function.STDDEV_POP, Function.STDDEV_SAMP})


def moments_of(argument: Column, type_: FieldType) -> list[Column]:
    """What Spark aggregates for the variance of tuples: of integers, the fields of a pane; of
    floats, one struct `TRIPLE` of them."""
    return [_fold_values(argument)] if type_ in FLOATS else _sums(argument)


def combined_moments(states: Sequence[Column], type_: FieldType) -> list[Column]:
    """What Spark aggregates for the variance of panes, given their fields."""
    if type_ not in FLOATS:
        return [F.sum(state) for state in states]
    named = (state.alias(name) for state, name in zip(states, TRIPLE, strict=True))
    # a pane without values, and every part of a pane but one, has none
    placed = F.when(states[0] > F.lit(0), F.struct(F.col(f"`{STIME}`"), *named))
    return [_fold(F.sort_array(F.collect_list(placed)))]


def variance(function: Function, found: Sequence[Column], type_: FieldType) -> Column:
    """The result, given the columns that Spark has aggregated."""
    if type_ in FLOATS:
        n, spread = found[0].getField("n"), found[0].getField("m2")
    else:
        n, spread = found[0], _spread(found)
    degrees = n - F.lit(1) if function in _SAMPLES else n
    divisor = degrees if type_ in FLOATS else n * degrees
    made = F.when(degrees > F.lit(0), spread / divisor.cast(_DOUBLE))
    return F.sqrt(made) if function in _ROOTS else made


def _sums(argument: Column) -> list[Column]:
    """The sums `medusa.engine.operators.shared.panes.MOMENTS`."""
    x = argument.cast(T.LongType())
    high, low = F.shiftright(x, _BITS), x.bitwiseAND(F.lit(_MASK))
    squares, crossed, lows = high * high, high * low, low * low  # the last without a sign
    parts = [
        high,
        low,
        F.shiftright(squares, _BITS),
        squares.bitwiseAND(F.lit(_MASK)),
        F.shiftright(crossed, _BITS),
        crossed.bitwiseAND(F.lit(_MASK)),
        F.shiftrightunsigned(lows, _BITS),
        lows.bitwiseAND(F.lit(_MASK)),
    ]
    return [F.count(argument), *map(F.sum, parts)]


def _spread(sums: Sequence[Column]) -> Column:
    """n sum(x^2) - sum(x)^2 as a double: u 2^64 + v, of exact u and v.

    With sum(x) = p 2^32 + q, 0 <= q < 2^32: each product fits a decimal of 38 digits, and each
    quotient a long, for up to 2^31 tuples.
    """
    n, high, low, high_squares, low_squares, high_crossed, low_crossed, high_lows, low_lows = sums
    p = _wide(high + F.shiftright(low, _BITS))
    q = _wide(low.bitwiseAND(F.lit(_MASK)))
    n = _wide(n)
    squares = _wide(high_squares) * _number(2**32) + _wide(low_squares)
    crossed = n * _wide(low_crossed) - p * q  # times 2^33, beside the high half
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
    return u.cast(_DOUBLE) * F.lit(2.0**64) + v.cast(_DOUBLE)


def _wide(number: Column) -> Column:
    return number.cast(_WIDE)


def _number(value: int) -> Column:
    return F.lit(str(value)).cast(_WIDE)


def _quotient(number: Column, divisor: int) -> Column:
    """The floor of the quotient, which fits a long."""
    by = _number(divisor)
    return _wide(F.call_function("div", number - F.pmod(number, by), by))


def _fold_values(argument: Column) -> Column:
    """(n, mean, m2) of the values in ascending order; n is 0 if there are none.

    One value is no way from its mean, 0.0; an infinity and NaN have no such way, NaN.
    """
    values = F.sort_array(F.collect_list(argument.cast(_DOUBLE)))
    one = F.lit(1).cast(T.LongType())
    return _fold(
        F.transform(
            values,
            lambda x: F.struct(one.alias("n"), x.alias("mean"), (x - x).alias("m2")),
        )
    )


def _fold(triples: Column) -> Column:
    """The triples put together, one after the other."""

    def add(one: Column, other: Column) -> Column:
        n, a, s = (one.getField(name) for name in TRIPLE)
        m, b, t = (other.getField(name) for name in TRIPLE)
        d, both = b - a, (n + m).cast(_DOUBLE)
        mean = a + d * m.cast(_DOUBLE) / both
        spread = s + t + d * d * (n.cast(_DOUBLE) * m.cast(_DOUBLE)) / both
        first = n == F.lit(0)
        return F.struct(
            (n + m).alias("n"),
            F.when(first, b).otherwise(mean).alias("mean"),
            F.when(first, t).otherwise(spread).alias("m2"),
        )

    nothing = F.struct(
        F.lit(0).cast(T.LongType()).alias("n"), F.lit(0.0).alias("mean"), F.lit(0.0).alias("m2")
    )
    return F.aggregate(triples, nothing, add)

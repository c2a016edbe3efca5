"""The interpreter's variances; `medusa.engine.language.aggregates` defines them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from medusa.engine.objects.query import Function
from medusa.engine.reference.values import Value

Triple = tuple[int, float, float]
"""How many floats, their mean, and the sum of the squares around it."""

_HALF: Final = 2**32
_SAMPLES: Final = frozenset({Function.VAR_SAMP, Function.STDDEV_SAMP})
_ROOTS: Final = frozenset({Function.STDDEV_POP, Function.STDDEV_SAMP})


def put_together(triples: Iterable[Triple]) -> Triple:
    """The triples put together, one after the other."""
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


def triple(values: Iterable[float]) -> Triple:
    """Of floats in ascending order, NaN behind the others."""
    ordered = sorted(values, key=lambda value: (math.isnan(value), value))
    return put_together((1, value, value - value) for value in ordered)


def halves(values: Sequence[int]) -> list[int]:
    """The sums `medusa.engine.operators.shared.panes.MOMENTS`."""
    parts = [divmod(value, _HALF) for value in values]
    products = [(h * h, h * low, low * low) for h, low in parts]
    found = [len(values), sum(h for h, _ in parts), sum(low for _, low in parts)]
    for number in range(3):
        split = [divmod(each[number], _HALF) for each in products]
        found += [sum(high for high, _ in split), sum(low for _, low in split)]
    return found


def sums(state: Sequence[int]) -> tuple[int, int, int]:
    """How many integers, their sum and that of their squares, given the sums of `halves`."""
    n, high, low, *products = state
    squares, crossed, lows = (
        high * _HALF + low for high, low in zip(products[::2], products[1::2], strict=True)
    )
    return n, high * _HALF + low, squares * _HALF**2 + 2 * crossed * _HALF + lows


def variance_of_integers(function: Function, n: int, sum_: int, squares: int) -> Value:
    u, v = divmod(n * squares - sum_ * sum_, 2**64)
    degrees = n - (function in _SAMPLES)
    return _result(function, float(u) * 2.0**64 + float(v), n * degrees)


def variance_of_floats(function: Function, found: Triple) -> Value:
    n, _, spread = found
    return _result(function, spread, n - (function in _SAMPLES))


def variance(function: Function, values: Sequence[Any]) -> Value:
    """Of the values of a pane; null if there are too few."""
    if not values:
        return None
    if isinstance(values[0], float):
        return variance_of_floats(function, triple(values))
    return variance_of_integers(function, *sums(halves(values)))


def _result(function: Function, spread: float, divisor: int) -> Value:
    if divisor <= 0:
        return None
    found = spread / float(divisor)
    return math.sqrt(found) if function in _ROOTS else found

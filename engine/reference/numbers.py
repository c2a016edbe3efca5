"""The interpreter's operations on numbers; `fitted` makes them fit the result's type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

_DIGITS: Final = Context(prec=400)
"""More than a double has before and behind the places to which it is rounded."""


def _whole(towards: Callable[[float], int]) -> Callable[[float], int | None]:
    return lambda number: towards(number) if math.isfinite(number) else None


def _round(number: float, digits: int) -> float:
    if isinstance(number, int) or not math.isfinite(number):
        return number
    step = Decimal(1).scaleb(-digits)
    return float(Decimal(repr(number)).quantize(step, ROUND_HALF_UP, _DIGITS))


def _root(number: float) -> float | None:
    return number if math.isnan(number) else math.sqrt(number) if number >= 0 else None


def _shift_left(value: int, bits: int, width: int) -> int | None:
    if bits not in range(width):
        return None
    moved = value << bits & (1 << width) - 1
    return moved - (1 << width) if moved >> width - 1 else moved


def _shift_right(value: int, bits: int, width: int) -> int | None:
    return value >> bits if bits in range(width) else None


NUMBERS: Final[Mapping[str, Callable[..., Any]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: None if b == 0 else a / b,
    "%": lambda a, b: None if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1),
    "neg": lambda a: -a,
    "abs": abs,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "round": _round,
    "sqrt": _root,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
}
"""By operator; no operand is null."""

SHIFTS: Final[Mapping[str, Callable[[int, int, int], int | None]]] = {
    "shiftleft": _shift_left,
    "shiftright": _shift_right,
}
"""By operator; each takes the width of the result, too."""

"""The constants that aggregate functions take behind their arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

MOST_FREQUENT: Final = 1_000
"""The greatest k of top_k."""

SEPARATOR_LIMIT: Final = 64
"""Most characters between the values of string_agg."""

WIDTH_LIMIT: Final = 2**31
"""The greatest width of a histogram's bins."""

MILLION: Final = 1_000_000
"""A percentile has six decimals at most, so that positions are exact."""


@dataclass(frozen=True, slots=True)
class ConstantKind:
    """The values that a constant may have.

    Attributes:
        what: the constant, in words.
        example: a constant as a query's text has it.
        value: the value of the example.
    """

    what: str
    example: str
    value: int | float | str
    fits: Callable[[object], bool]


def _is_fraction(given: object) -> bool:
    number = isinstance(given, int | float) and 0 <= given <= 1
    return number and not Decimal(repr(given)) * MILLION % 1


def _is_separator(given: object) -> bool:
    return isinstance(given, str) and len(given) <= SEPARATOR_LIMIT and given.isprintable()


def _up_to(most: int) -> Callable[[object], bool]:
    return lambda given: isinstance(given, int) and 1 <= given <= most


FRACTION: Final = ConstantKind(
    "a number from 0 to 1 with at most six decimals", "0.95", 0.95, _is_fraction
)
NUMBER: Final = ConstantKind(
    f"a whole number from 1 to {MOST_FREQUENT:,}", "10", 10, _up_to(MOST_FREQUENT)
)
SEPARATOR: Final = ConstantKind(
    f"a text of at most {SEPARATOR_LIMIT} printable characters", "', '", ", ", _is_separator
)
WIDTH: Final = ConstantKind(
    f"a whole number from 1 to {WIDTH_LIMIT:,}", "100", 100, _up_to(WIDTH_LIMIT)
)


def millionths(fraction: int | float | str | None) -> int:
    """The fraction of a percentile as a number of millionths."""
    assert isinstance(fraction, int | float), "checked"
    return int(Decimal(repr(fraction)) * MILLION)

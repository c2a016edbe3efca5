"""Lengths of time as people write them: `10 seconds`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from medusa.engine.scalars.time_units import UNITS_US
from medusa.overlay.errors import InvalidInputError

Span = str | timedelta
"""A length of time: `"90 seconds"`, `"-1 hour"`, or a timedelta."""

_SPAN: Final = re.compile(r"\s*(-?)(\d{1,19})\s*([A-Za-z]+)\s*", re.ASCII)


def span_us(span: Span) -> int:
    """Microseconds.

    Raises:
        InvalidInputError: the text is not a whole number and a unit of fixed length.
    """
    if isinstance(span, timedelta):
        return span // timedelta(microseconds=1)
    found = _SPAN.fullmatch(span) if isinstance(span, str) else None
    unit = "" if found is None else found[3].lower().removesuffix("s")
    if found is None or unit not in UNITS_US:
        raise InvalidInputError(
            f"{str(span)[:40]!a} is no length of time: write a whole number and one of "
            f"{', '.join(UNITS_US)}, like '10 seconds'"
        )
    return int(found[1] + found[2]) * UNITS_US[unit]


def in_units(microseconds: int) -> tuple[int, str]:
    """The length as a whole number of a unit: the longest unit, up to a day, that divides it."""
    units = [unit for unit in UNITS_US if unit != "week"]
    unit = next(each for each in reversed(units) if microseconds % UNITS_US[each] == 0)
    return (0, "second") if microseconds == 0 else (microseconds // UNITS_US[unit], unit)


def span_text(microseconds: int) -> str:
    """The text that `span_us` reads as this."""
    number, unit = in_units(microseconds)
    return f"{number} {unit}{'' if number == 1 else 's'}"

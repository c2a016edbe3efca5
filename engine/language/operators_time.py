"""Operators on moments, a part of the table in `medusa.engine.language.operators`.

A timestamp is a count of microseconds since 1970-01-01, UTC, of 64 bits; the calendar is the
Gregorian one, also for the time before it (years -290,308 to 294,247; year 0 is 1 BC).

    timestamp + interval   and - interval; null if the moment does not fit. INTERVAL '5' MINUTE or
                          INTERVAL 5 MINUTES: a whole number of microseconds to weeks
    year quarter month day hour minute second dayofweek dayofyear
                          int; second without its fraction; dayofweek: 1 is Sunday
    extract(unit from t)  the same, by name
    date_trunc            (constant unit, timestamp): the begin of its microsecond to week (from
                          Monday), month, quarter or year; null if that does not fit a timestamp
    timestampdiff         (unit, from, to): whole units, microseconds to weeks, towards zero; null
                          if the difference in microseconds does not fit a long
    unix_micros unix_seconds  since 1970, rounded down
    date_format           (timestamp, constant pattern) of yyyy MM dd HH mm ss SSS SSSSSS, signs
                          -/:. ,_ and words in quotes; null before year 1 and after year 9999
    to_timestamp          (text, constant pattern): each letter at most once, with yyyy, MM and dd;
                          no pattern: yyyy-MM-dd, then perhaps a blank or T and HH:mm, then perhaps
                          :ss, a fraction (digits behind the sixth are cut off), and Z or +HH:mm
                          (below 18 hours). Null if the text is not exactly that, or there is no
                          such day or time
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from medusa.engine.language.time_units import (
    CALENDAR_UNITS,
    PARTS,
    UNITS_US,
    FormatError,
    MomentFormat,
    read_format,
    read_parsed_format,
    unit_of,
)
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.type_rules import Literals, Nulls, Operator, either, fixed

PLUS_INTERVAL: Final = "+ interval"
"""The operator of a timestamp and an interval, in microseconds."""

_MOMENT: Final = FieldType.TIMESTAMP
_STRING: Final = FieldType.STRING


def _check_trunc(values: Literals) -> str | None:
    return _unknown(values[0], {*UNITS_US, *CALENDAR_UNITS})


def _check_fixed(values: Literals) -> str | None:
    wrong = _unknown(values[0], {*UNITS_US})
    if wrong and unit_of(str(values[0])) in CALENDAR_UNITS:
        return f"{wrong}: a {unit_of(str(values[0]))} has no fixed length"
    return wrong


def _unknown(value: object, units: set[str]) -> str | None:
    if isinstance(value, str) and unit_of(value) in units:
        return None
    return f"the unit must be one of {', '.join(sorted(units))}"


def _check_format(read: Callable[[str], MomentFormat]) -> Callable[[Literals], str | None]:
    def check(values: Literals) -> str | None:
        for value in values:
            if not isinstance(value, str):
                return "the pattern must be a string"
            try:
                read(value)
            except FormatError as error:
                return f"the pattern {error}"
        return None

    return check


_PART: Final = Operator("one timestamp", fixed((_MOMENT,), FieldType.INT), Nulls.IF_ANY)
_SINCE: Final = Operator("one timestamp", fixed((_MOMENT,), FieldType.LONG), Nulls.IF_ANY)

TIME_OPERATORS: Final[dict[str, Operator]] = {
    PLUS_INTERVAL: Operator(
        "a timestamp and an interval",
        fixed((_MOMENT, FieldType.LONG), _MOMENT),
        Nulls.POSSIBLE,
    ),
    **dict.fromkeys(sorted(PARTS), _PART),
    "unix_micros": _SINCE,
    "unix_seconds": _SINCE,
    "date_trunc": Operator(
        "a constant unit and a timestamp",
        fixed((_STRING, _MOMENT), _MOMENT),
        Nulls.POSSIBLE,
        (0,),
        _check_trunc,
    ),
    "timestampdiff": Operator(
        "a constant unit and two timestamps",
        fixed((_STRING, _MOMENT, _MOMENT), FieldType.LONG),
        Nulls.POSSIBLE,
        (0,),
        _check_fixed,
    ),
    "date_format": Operator(
        "a timestamp and a constant pattern",
        fixed((_MOMENT, _STRING), _STRING),
        Nulls.POSSIBLE,
        (1,),
        _check_format(read_format),
    ),
    "to_timestamp": Operator(
        "a string, and perhaps a constant pattern",
        either(fixed((_STRING,), _MOMENT), fixed((_STRING, _STRING), _MOMENT)),
        Nulls.POSSIBLE,
        (1,),
        _check_format(read_parsed_format),
    ),
}

"""The interpreter's operations on moments: microseconds since 1970, UTC.

The calendar's arithmetic is that of H. Hinnant, "chrono-Compatible Low-Level Date Algorithms":
years begin in March, eras of 400 years have 146,097 days.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from medusa.engine.language.operators_time import PLUS_INTERVAL
from medusa.engine.language.time_units import (
    CALENDAR_UNITS,
    DAY_US,
    MONDAY_US,
    SECOND_US,
    UNITS_US,
    YEARS_FROM,
    YEARS_UNTIL,
    read_format,
    read_parsed_format,
    shape_of,
    unit_of,
)
from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.type_rules import INTEGER_RANGE

_LONGS: Final = INTEGER_RANGE[FieldType.LONG]

_ISO = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})"
    r"(?:[ T](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d+))?(?:(Z)|([+-])(\d{2}):(\d{2}))?)?)?",
    re.ASCII,
)
_MOST_ZONE_HOURS: Final = 17


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days since 1970."""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, day


def days_of(year: int, month: int, day: int) -> int:
    """The count of days since 1970 of a date."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _day(moment: int) -> tuple[int, int, int]:
    return civil(moment // DAY_US)


def _day_of_year(moment: int) -> int:
    return moment // DAY_US - days_of(_day(moment)[0], 1, 1) + 1


def _fitting(moment: int) -> int | None:
    return moment if moment in _LONGS else None


def _trunc(unit: str, moment: int) -> int | None:
    unit = unit_of(unit)
    if unit not in CALENDAR_UNITS:
        shift = MONDAY_US if unit == "week" else 0
        return _fitting(moment - (moment - shift) % UNITS_US[unit])
    year, month, _ = _day(moment)
    first = {"month": month, "quarter": (month - 1) // 3 * 3 + 1, "year": 1}[unit]
    return _fitting(days_of(year, first, 1) * DAY_US)


def _between(unit: str, first: int, last: int) -> int | None:
    apart = last - first
    if apart not in _LONGS:
        return None
    units = abs(apart) // UNITS_US[unit_of(unit)]
    return units if apart > 0 else -units


def _format(moment: int, pattern: str) -> str | None:
    if not YEARS_FROM <= moment < YEARS_UNTIL:
        return None
    year, month, day = _day(moment)
    micros = moment % SECOND_US
    texts = {
        "yyyy": f"{year:04}",
        "MM": f"{month:02}",
        "dd": f"{day:02}",
        "HH": f"{moment // UNITS_US['hour'] % 24:02}",
        "mm": f"{moment // UNITS_US['minute'] % 60:02}",
        "ss": f"{moment // SECOND_US % 60:02}",
        "SSS": f"{micros // 1_000:03}",
        "SSSSSS": f"{micros:06}",
    }
    parts = read_format(pattern).parts
    return "".join(texts[text] if lettered else text for text, lettered in parts)


def _read(text: str, pattern: str | None = None) -> int | None:
    if pattern is None:
        return _read_iso(text)
    made = read_parsed_format(pattern)
    match = re.fullmatch(shape_of(made), text, re.ASCII)
    if match is None:
        return None
    given = dict(zip(made.letters, match.groups(), strict=True))
    fraction = given.get("SSS") or given.get("SSSSSS") or ""
    clock = (int(given.get(letter, 0)) for letter in ("HH", "mm", "ss"))
    date = (int(given[letter]) for letter in ("yyyy", "MM", "dd"))
    return _moment((*date,), (*clock,), fraction)


def _read_iso(text: str) -> int | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, *zone = match.groups()
    clock = (int(hour or 0), int(minute or 0), int(second or 0))
    moment = _moment((int(year), int(month), int(day)), clock, fraction or "")
    if moment is None or sign is None:
        return moment
    hours, minutes = map(int, zone)
    if hours > _MOST_ZONE_HOURS or minutes > 59:
        return None
    shift = hours * UNITS_US["hour"] + minutes * UNITS_US["minute"]
    return moment + (shift if sign == "-" else -shift)


def _moment(date: tuple[int, ...], clock: tuple[int, ...], fraction: str) -> int | None:
    year, month, day = date
    hour, minute, second = clock
    if not (year > 0 and 0 < month <= 12 and day > 0 and hour < 24 and max(minute, second) < 60):
        return None
    days = days_of(year, month, day)
    if civil(days) != (year, month, day):
        return None
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second
    return seconds * SECOND_US + int(fraction[:6].ljust(6, "0"))


MOMENTS: Final[Mapping[str, Callable[..., Any]]] = {
    PLUS_INTERVAL: lambda moment, length: _fitting(moment + length),
    "year": lambda moment: _day(moment)[0],
    "quarter": lambda moment: (_day(moment)[1] + 2) // 3,
    "month": lambda moment: _day(moment)[1],
    "day": lambda moment: _day(moment)[2],
    "hour": lambda moment: moment // UNITS_US["hour"] % 24,
    "minute": lambda moment: moment // UNITS_US["minute"] % 60,
    "second": lambda moment: moment // SECOND_US % 60,
    "dayofweek": lambda moment: (moment // DAY_US + 4) % 7 + 1,
    "dayofyear": _day_of_year,
    "unix_micros": lambda moment: moment,
    "unix_seconds": lambda moment: moment // SECOND_US,
    "date_trunc": _trunc,
    "timestampdiff": _between,
    "date_format": _format,
    "to_timestamp": _read,
}
"""By operator; no operand is null."""

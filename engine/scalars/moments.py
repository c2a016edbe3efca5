"""Functions of moments.

A timestamp is a count of microseconds since 1970-01-01, UTC, of 64 bits; the calendar is the
Gregorian one, also for the time before it (years -290,308 to 294,247; year 0 is 1 BC).

    timestamp + interval   and - interval; null if the moment does not fit. INTERVAL '5' MINUTE or
                          INTERVAL 5 MINUTES: a whole number of microseconds to weeks
    date_format           of yyyy MM dd HH mm ss SSS SSSSSS, signs -/:. ,_ and words in quotes
    to_timestamp          with a pattern: each letter at most once, with yyyy, MM and dd; without
                          one: yyyy-MM-dd, then perhaps a blank or T and HH:mm, then perhaps :ss, a
                          fraction (digits behind the sixth are cut off), and Z or +HH:mm (below 18
                          hours). Null if the text is not exactly that, or there is no such day or
                          time

Spark's own functions are total over all timestamps, but for `date_trunc`: it fails where the result
does not fit. The session's time zone is UTC. In Python, the calendar's arithmetic is that of H.
Hinnant, "chrono-Compatible Low-Level Date Algorithms": years begin in March, eras of 400 years have
146,097 days.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from medusa.engine.objects.schema import FieldType
from medusa.engine.scalars.examples import Example
from medusa.engine.scalars.late import Column, F, long_of
from medusa.engine.scalars.scalar import Family, Make, Scalar, ShortForm
from medusa.engine.scalars.time_units import (
    CALENDAR_UNITS,
    DAY_US,
    MONDAY_US,
    PARTS,
    SECOND_US,
    UNITS_US,
    YEARS_FROM,
    YEARS_UNTIL,
    FormatError,
    MomentFormat,
    first_whole,
    read_format,
    read_parsed_format,
    shape_of,
    unit_of,
)
from medusa.engine.scalars.type_rules import INTEGER_RANGE, Literals, Nulls, either, fixed

PLUS_INTERVAL: Final = "+ interval"
"""The name of the function that adds an interval, in microseconds, to a timestamp."""

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


# -- in Spark --------------------------------------------------------------------------------------


_SPARK_ISO: Final = (
    r"\A(?!0000)\d{4}-\d{2}-\d{2}"
    r"([ T]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-7]):[0-5]\d)?)?)?\z"
)
"""A pattern of texts whose date and time Spark's cast reads as written."""

_FINER: Final = r"(\.\d{6})\d+"
"""A pattern of digits beyond the microseconds. Spark reads some of them, and overflows at
others."""


def moment(micros: int) -> Column:
    """A constant timestamp, microseconds since 1970."""
    return F.timestamp_micros(long_of(micros))


def _spark_trunc(unit: str, at: Column) -> Column:
    name = unit_of(unit)
    return F.when(at >= moment(first_whole(name)), F.date_trunc(name, at))


def _spark_between(unit: str, first: Column, last: Column) -> Column:
    apart = F.try_subtract(F.unix_micros(last), F.unix_micros(first))
    return F.call_function("div", apart, long_of(UNITS_US[unit_of(unit)]))


def _spark_format(at: Column, pattern: str) -> Column:
    in_range = (at >= moment(YEARS_FROM)) & (at < moment(YEARS_UNTIL))
    return F.when(in_range, F.date_format(at, _java(read_format(pattern))))


def _spark_read(text: Column, pattern: str | None = None) -> Column:
    if pattern is None:
        cut = F.regexp_replace(text, _FINER, "$1")
        return F.when(F.rlike(cut, F.lit(_SPARK_ISO)), cut.try_cast("timestamp"))
    made = read_parsed_format(pattern)
    parsed = F.try_to_timestamp(text, F.lit(_java(made)))
    return F.when(F.rlike(text, F.lit(rf"\A{shape_of(made)}\z")), parsed)


def _java(made: MomentFormat) -> str:
    """The pattern for Java's DateTimeFormatter."""
    return "".join(text if lettered else f"'{text}'" for text, lettered in made.parts)


# -- in Python -------------------------------------------------------------------------------------


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


def _part(
    name: str,
    gives: str,
    result: int,
    value: Callable[[int], int],
    spark: Callable[[Column], Column],
    *others: str,
) -> Scalar:
    return Scalar(
        name,
        f"{name}(t)",
        "one timestamp",
        fixed((_MOMENT,), FieldType.INT),
        Nulls.IF_ANY,
        spark=spark,
        value=value,
        gives=gives,
        examples=(Example(f"{name}({_EXAMPLE})", result),),
        other_names=others,
    )


def _since(
    name: str, unit_us: int, gives: str, spark: Callable[[Column], Column], sql: str
) -> Scalar:
    return Scalar(
        name,
        f"{name}(t)",
        "one timestamp",
        fixed((_MOMENT,), FieldType.LONG),
        Nulls.IF_ANY,
        spark=spark,
        value=lambda at: at // unit_us,
        gives=f"{gives} since 1970, rounded down.",
        examples=(Example(f"{name}({_EXAMPLE})", 1521894659 * SECOND_US // unit_us, duckdb=sql),),
    )


_EXAMPLE: Final = "cast('2018-03-24 12:30:59' as timestamp)"
_DUCKDB: Final = "TIMESTAMP '2018-03-24 12:30:59'"


def _extract(make: Make, operands: Sequence[Any]) -> Any:  # noqa: ANN401 - as `Make` has it
    unit, at = operands
    name = unit_of(str(getattr(unit, "value", "")))
    if name not in PARTS:
        raise ValueError(f"`extract` takes one of {', '.join(sorted(PARTS))}, from a timestamp")
    return make(name, [at])


LATER: Final = Scalar(
    PLUS_INTERVAL,
    "t + interval '5' minute",
    "a timestamp and an interval",
    fixed((_MOMENT, FieldType.LONG), _MOMENT),
    Nulls.POSSIBLE,
    spark=lambda at, length: F.timestamp_micros(F.try_add(F.unix_micros(at), length)),
    value=lambda at, length: _fitting(at + length),
)

MOMENTS: Final = Family(
    "Moments",
    (
        _part("year", "The year.", 2018, lambda t: _day(t)[0], F.year),
        _part(
            "quarter",
            "The quarter of the year, from 1.",
            1,
            lambda t: (_day(t)[1] + 2) // 3,
            F.quarter,
        ),
        _part("month", "The month, from 1.", 3, lambda t: _day(t)[1], F.month),
        _part(
            "day",
            "The day of the month, from 1.",
            24,
            lambda t: _day(t)[2],
            F.dayofmonth,
            "dayofmonth",
        ),
        Scalar(
            "dayofweek",
            "dayofweek(t)",
            "one timestamp",
            fixed((_MOMENT,), FieldType.INT),
            Nulls.IF_ANY,
            spark=F.dayofweek,
            value=lambda t: (t // DAY_US + 4) % 7 + 1,
            gives="The day of the week: 1 is Sunday.",
            examples=(
                Example(f"dayofweek({_EXAMPLE})", 7, differs="to DuckDB Sunday is 0, Saturday 6"),
            ),
        ),
        _part("dayofyear", "The day of the year, from 1.", 83, _day_of_year, F.dayofyear),
        _part("hour", "The hour.", 12, lambda t: t // UNITS_US["hour"] % 24, F.hour),
        _part(
            "minute",
            "The minute.",
            30,
            lambda t: t // UNITS_US["minute"] % 60,
            F.minute,
        ),
        _part(
            "second",
            "The second, without its fraction.",
            59,
            lambda t: t // SECOND_US % 60,
            F.second,
        ),
        ShortForm(
            "extract",
            "extract(hour from t)",
            "a unit and a timestamp",
            2,
            _extract,
            "The part of that name: `hour(t)` and so on.",
            (Example(f"extract(hour from {_EXAMPLE})", 12),),
        ),
        Scalar(
            "date_trunc",
            "date_trunc('hour', t)",
            "a constant unit and a timestamp",
            fixed((_STRING, _MOMENT), _MOMENT),
            Nulls.POSSIBLE,
            spark=_spark_trunc,
            value=_trunc,
            gives="The begin of its microsecond to week (from Monday), month, quarter or year; "
            "null if that is no timestamp.",
            examples=(Example(f"date_trunc('hour', {_EXAMPLE})", 1_521_892_800 * SECOND_US),),
            constants=(0,),
            check=_check_trunc,
            repeats=(1, 2),
        ),
        Scalar(
            "date_format",
            "date_format(t, 'yyyy-MM-dd HH:mm')",
            "a timestamp and a constant pattern",
            fixed((_MOMENT, _STRING), _STRING),
            Nulls.POSSIBLE,
            spark=_spark_format,
            value=_format,
            gives="The moment as a text; null before year 1 and after year 9999.",
            examples=(
                Example(
                    f"date_format({_EXAMPLE}, 'yyyy-MM-dd HH:mm')",
                    "2018-03-24 12:30",
                    duckdb=f"strftime({_DUCKDB}, '%Y-%m-%d %H:%M')",
                ),
            ),
            constants=(1,),
            check=_check_format(read_format),
            repeats=(3,),
        ),
        Scalar(
            "to_timestamp",
            "to_timestamp(text, 'yyyy-MM-dd')",
            "a string, and perhaps a constant pattern",
            either(fixed((_STRING,), _MOMENT), fixed((_STRING, _STRING), _MOMENT)),
            Nulls.POSSIBLE,
            spark=_spark_read,
            value=_read,
            gives="The moment that a text denotes; null if it denotes none. Without a pattern: "
            "`2018-03-24`, perhaps with a time, `12:30` or `12:30:59.5`.",
            examples=(
                Example(
                    "to_timestamp('24.03.2018', 'dd.MM.yyyy')",
                    1_521_849_600 * SECOND_US,
                    duckdb="strptime('24.03.2018', '%d.%m.%Y')",
                ),
                Example(
                    "to_timestamp('2018-03-24 12:30')",
                    1_521_894_600 * SECOND_US,
                    duckdb="TIMESTAMP '2018-03-24 12:30:00'",
                ),
            ),
            constants=(1,),
            check=_check_format(read_parsed_format),
            repeats=(2,),
        ),
        Scalar(
            "timestampdiff",
            "timestampdiff(minute, from, to)",
            "a constant unit and two timestamps",
            fixed((_STRING, _MOMENT, _MOMENT), FieldType.LONG),
            Nulls.POSSIBLE,
            spark=_spark_between,
            value=_between,
            gives="Whole units from one moment to another, microseconds to weeks, towards zero; "
            "null if the difference in microseconds is no long.",
            examples=(
                Example(
                    f"timestampdiff(hour, cast('2018-03-24' as timestamp), {_EXAMPLE})",
                    12,
                    duckdb=f"date_sub('hour', TIMESTAMP '2018-03-24', {_DUCKDB})",
                ),
            ),
            constants=(0,),
            check=_check_fixed,
        ),
        _since("unix_micros", 1, "Microseconds", F.unix_micros, f"epoch_us({_DUCKDB})"),
        _since(
            "unix_seconds",
            SECOND_US,
            "Seconds",
            F.unix_seconds,
            f"epoch_us({_DUCKDB}) // 1000000",
        ),
    ),
)

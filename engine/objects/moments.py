"""Moments as texts: the forms that Medusa reads everywhere, and the one that it writes.

A moment is a count of microseconds since 1970, UTC, of 64 bits; the calendar is the Gregorian one.
Medusa reads ISO 8601 in the forms that people and programs write, with and without a zone; it cuts
off digits beyond the microsecond, and refuses forms that could mean two moments.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from medusa.engine.objects.schema import BEGINNING, END

MOMENT_FORM: Final = (
    r"(?P<year>\d{4}|[+-]\d{4,6})-(?P<day>"
    r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|[12]\d))"
    r"(?:[Tt ](?P<hour>[01]\d|2[0-3])"
    r"(?::(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d)(?:[.,](?P<fraction>\d+))?)?)?"
    r"(?P<zone> ?(?:[Zz]|UTC|GMT|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?))?)?"
)
"""A regular expression, for Python and RE2, for a moment as text; it allows February 29 days."""

CYCLE_YEARS: Final = 400
CYCLE_US: Final = 146_097 * 86_400 * 1_000_000
"""The time after which the calendar repeats: in years, and in microseconds."""

_FORM: Final = re.compile(MOMENT_FORM, re.ASCII)
_ZONE: Final = re.compile(r"([+-])(\d\d):?(\d\d)?")
_ANCHOR: Final = 2000
"""The first year of the cycle of 400 years in which Python's own calendar computes a moment."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

AMBIGUOUS_NUMBER: Final = r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
"""A regular expression, for Python and RE2, for a number that may be a date without its signs, or
seconds."""

TOO_FAR: Final = "times are within 292,000 years of 1970"
_NO_DAY: Final = "there is no such day, or time of day"

_REASONS: Final = (
    (
        r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b.*",
        "either the day or the month may be first in it: write year-month-day, 2026-03-29",
    ),
    (
        r"[^ ]+[Tt ]\d\d:\d\d:60.*",
        "a leap second, and days have none here: write second 59, or the next minute",
    ),
    (
        r"\d{4}-\d\d-\d\d[Tt ]\d\d:.*[A-Za-z]{2,}.*",
        "zones have many names: write the offset, +01:00",
    ),
    (r"\d{4}-\d\d-\d\d([Tt ]\d\d:.*)?", _NO_DAY),
)

FORMS: Final = (
    "a time is 2026-03-29T01:00:00.25Z, with an offset such as +01:00 for Z, or without, which "
    "means UTC"
)


def moment_of(text: str) -> int:
    """The moment that a text denotes, microseconds since 1970.

    Raises:
        ValueError: the text denotes no moment, or may denote two; the message has the reason.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(_reason_against(text))
    year, day, hour, minute, second, fraction, zone = match.groups()
    cycle, of_cycle = divmod(int(year), CYCLE_YEARS)
    clock = f"{hour or '00'}:{minute or '00'}:{second or '00'}"
    try:
        near = datetime.fromisoformat(f"{_ANCHOR + of_cycle}-{day} {clock}+00:00")
    except ValueError:
        raise ValueError(_NO_DAY) from None
    moment = (near - _EPOCH) // _MICROSECOND + int((fraction or "")[:6].ljust(6, "0"))
    moment += (cycle - _ANCHOR // CYCLE_YEARS) * CYCLE_US - _shift_of(zone or "")
    if not BEGINNING <= moment <= END:
        raise ValueError(TOO_FAR)
    return moment


def _shift_of(zone: str) -> int:
    """Return how far local time is ahead, microseconds."""
    match = _ZONE.search(zone)
    if match is None:
        return 0
    minutes = int(match[2]) * 60 + int(match[3] or 0)
    return minutes * 60_000_000 * (-1 if match[1] == "-" else 1)


def _reason_against(text: str) -> str:
    """Why a text is no moment, and what to write."""
    if re.fullmatch(AMBIGUOUS_NUMBER, text, re.ASCII):
        date = f"{text[:4]}-{text[4:6]}-{text[6:]}"
        return f"is it a date (write {date}), or a number of seconds (write {text}.0)?"
    for form, reason in _REASONS:
        if re.fullmatch(form, text, re.ASCII | re.DOTALL):
            return reason
    return FORMS


def moment_text(moment: int) -> str:
    """A moment in the form of RFC 3339; years beyond four digits have a sign, as in ISO 8601."""
    cycles = (moment - BEGINNING) // CYCLE_US - (_MOST_CYCLES // 2)
    near = _EPOCH + (moment - cycles * CYCLE_US) * _MICROSECOND
    year = near.year + cycles * CYCLE_YEARS
    signed = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{signed}-{near:%m-%dT%H:%M:%S.%fZ}"


def boundary_in_words(boundary: int) -> str:
    """A boundary for people: a moment, or a number if it is beyond the calendar."""
    if boundary == BEGINNING:
        return "its beginning"
    if boundary == END:
        return "its end"
    return moment_text(boundary) if _EARLIEST_US < boundary < _LATEST_US else str(boundary)


_EARLIEST_US: Final = 10**15
"""The earliest plausible time, a moment in 2001: a stream whose numbers are smaller may count
something else than time."""

_LATEST_US: Final = 10 * _EARLIEST_US
"""The latest plausible time, a moment in 2286."""

_MOST_CYCLES: Final = (END - BEGINNING) // CYCLE_US

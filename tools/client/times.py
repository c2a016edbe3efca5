"""Times (stime) and durations as people write and read them."""

from __future__ import annotations

import datetime
from typing import Final

from medusa.engine.objects.moments import moment_of, moment_text
from medusa.engine.objects.schema import BEGINNING, END
from medusa.overlay.errors import InvalidInputError

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def parse_time(text: str) -> int:
    """Microseconds since the epoch from `beginning`, `end`, a date and time, or microseconds.

    Raises:
        InvalidInputError: it is none of these.
    """
    if text == "beginning":
        return BEGINNING
    if text == "end":
        return END
    try:
        number = int(text)
    except ValueError:
        return _parse_moment(text)
    if not BEGINNING <= number <= END:
        raise InvalidInputError(f"time {text!r}: beyond 64 bits of microseconds")
    return number


def _parse_moment(text: str) -> int:
    try:
        return moment_of(text)
    except ValueError as error:
        raise InvalidInputError(
            f"time {text!r}: expected a date and time (2018-03-24T15:00:00Z; UTC unless it says), "
            f"microseconds since 1970, `beginning` or `end`: {error}"
        ) from None


def show_time(microseconds: int) -> str:
    """A boundary, to the second: `-` before all tuples, `ended` after all."""
    if microseconds == BEGINNING:
        return "-"
    if microseconds == END:
        return "ended"
    day, clock = moment_text(microseconds).split("T")
    return f"{day} {clock[:8]}"


def show_clock(seconds: float, *, day: bool = False) -> str:
    """A time of day, UTC, with its date if asked; `-` beyond all calendars.

    Args:
        seconds: a time, seconds since the epoch.
    """
    try:
        moment = _EPOCH + datetime.timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return "-"
    return f"{moment:%Y-%m-%d %H:%M:%S}" if day else f"{moment:%H:%M:%S}"


def show_duration(seconds: float) -> str:
    """`0.2 s`, `12 s`, `3m05s`, `2h10m`, `4d03h`: two units at most."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600:02}h"

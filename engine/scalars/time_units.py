"""Units of time, and the patterns of texts that denote moments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SECOND_US: Final = 1_000_000
DAY_US: Final = 86_400 * SECOND_US

UNITS_US: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND_US,
    "minute": 60 * SECOND_US,
    "hour": 3_600 * SECOND_US,
    "day": DAY_US,
    "week": 7 * DAY_US,
}
"""Units of fixed length, in microseconds."""

CALENDAR_UNITS: Final = frozenset({"month", "quarter", "year"})
"""Units of varying length: a moment can be truncated to them, but they are no intervals."""

PARTS: Final = frozenset(
    {
        "year",
        "quarter",
        "month",
        "day",
        "dayofweek",
        "dayofyear",
        "hour",
        "minute",
        "second",
    }
)
"""The parts of a moment that can be extracted, by operators of these names."""

LEAST_MOMENT: Final = -(2**63)
"""The least timestamp, microseconds since 1970."""

_LEAST_OF_CALENDAR: Final = -106_751_981 * DAY_US
"""The first day of the year -290,307: months, quarters and years before do not begin in range."""

YEARS_FROM: Final = -62_135_596_800 * SECOND_US
YEARS_UNTIL: Final = 253_402_300_800 * SECOND_US
"""Moments whose year has four digits: from 0001-01-01 up to, and without, 10000-01-01."""

MAX_FORMAT: Final = 64
"""Characters of a format of moments: a date and a time."""

_LETTERS: Final = {
    "yyyy": r"(?!0000)\d{4}",
    "MM": r"\d{2}",
    "dd": r"\d{2}",
    "HH": r"\d{2}",
    "mm": r"\d{2}",
    "ss": r"\d{2}",
    "SSS": r"\d{3}",
    "SSSSSS": r"\d{6}",
}

_RUN = re.compile(r"'[^']+'|([A-Za-z])\1*|[-/:. ,_]|.", re.DOTALL)
_QUOTED = re.compile(r"'[A-Za-z0-9 ]+'")
_PLAIN: Final = frozenset("-/:. ,_")
_NEEDS: Final = {"mm": "HH", "ss": "mm", "SSS": "ss", "SSSSSS": "ss"}


class FormatError(ValueError):
    """The pattern of moments is not of the subset; the message has the reason and the character."""


@dataclass(frozen=True, slots=True)
class MomentFormat:
    """A pattern of moments, cut into letters (`MM`) and texts that stand for themselves.

    Attributes:
        parts: (text, whether it is letters).
    """

    parts: tuple[tuple[str, bool], ...]

    @property
    def letters(self) -> tuple[str, ...]:
        return tuple(text for text, lettered in self.parts if lettered)


def unit_of(word: str) -> str:
    """The unit that `word` names: in capitals or not, singular or plural."""
    return word.lower().removesuffix("s")


def first_whole(unit: str) -> int:
    """The least moment for which the beginning of its `unit` fits a timestamp."""
    if unit in CALENDAR_UNITS:
        return _LEAST_OF_CALENDAR
    length, shift = UNITS_US[unit], MONDAY_US if unit == "week" else 0
    return LEAST_MOMENT + (shift - LEAST_MOMENT) % length


MONDAY_US: Final = 4 * DAY_US
"""The first Monday after the epoch, which was a Thursday."""


def read_format(pattern: str) -> MomentFormat:
    """Read a pattern by which moments are written as text.

    Raises:
        FormatError: the pattern is not of the subset.
    """
    if not 0 < len(pattern) <= MAX_FORMAT:
        raise FormatError(f"has {len(pattern)} characters; 1 to {MAX_FORMAT} are allowed")
    parts = []
    for match in _RUN.finditer(pattern):
        text = match.group()
        if text in _LETTERS:
            parts.append((text, True))
        elif text in _PLAIN or _QUOTED.fullmatch(text):
            parts.append((text.strip("'"), False))
        else:
            known = ", ".join(_LETTERS)
            raise FormatError(
                f"has {text[:20]!a} at its character {match.start() + 1}; there are {known}, "
                "signs of -/:. ,_ and words in quotes"
            )
    return MomentFormat(tuple(parts))


def read_parsed_format(pattern: str) -> MomentFormat:
    """Read a pattern by which texts are read as moments: it has a date, and perhaps a time. Raises:
    FormatError: it is not of the subset, or does not determine the moment.
    """
    made = read_format(pattern)
    letters = made.letters
    for letter in ("yyyy", "MM", "dd"):
        if letter not in letters:
            raise FormatError(f"has no {letter}")
    for letter in letters:
        if letters.count(letter) > 1 or {"SSS", "SSSSSS"} <= set(letters):
            raise FormatError(f"has {letter} twice")
        if _NEEDS.get(letter, letter) not in letters:
            raise FormatError(f"has {letter} without {_NEEDS[letter]}")
    return made


def shape_of(made: MomentFormat) -> str:
    """A regular expression that fits texts of the pattern alone, of Java and of Python.

    The letters are groups, in their order. `\\d` in it is to be an ASCII digit.
    """
    return "".join(
        f"({_LETTERS[text]})" if lettered else re.sub(r"([^A-Za-z0-9])", r"\\\1", text)
        for text, lettered in made.parts
    )

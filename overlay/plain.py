"""Makes untrusted text and numbers safe to show: they cannot steer a terminal or break a screen."""

from __future__ import annotations

import enum
import math
from typing import Final, TypeVar, cast

from msgspec import Struct

from medusa.overlay.errors import printable

T = TypeVar("T")

MAX_TEXT: Final = 500
"""Characters of one text: some lines of a screen."""

MAX_FLOAT: Final = 1e18
"""Greatest sensible number, either way: a million years in microseconds is below it."""

MAX_INT: Final = 2**63 - 1
"""The greatest integer that other programs read from JSON, and the greatest boundary."""


def plain(value: T) -> T:
    """The same message with short, printable texts and finite numbers in range. A number out of
    range becomes the nearest in range, NaN becomes 0."""
    return cast("T", _plain(value))


def _plain(value: object) -> object:
    match value:
        case bool() | enum.Enum():
            return value
        case str():
            return printable(value[:MAX_TEXT])
        case int():
            return max(-MAX_INT - 1, min(value, MAX_INT))
        case float():
            return 0.0 if math.isnan(value) else max(-MAX_FLOAT, min(value, MAX_FLOAT))
        case tuple() | list():
            return type(value)(map(_plain, value))
        case dict():
            return {_plain(key): _plain(each) for key, each in value.items()}
        case Struct():
            fields = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
            return type(value)(**fields)
        case _:
            return value

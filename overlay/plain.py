"""What strangers say, made fit for people: nothing in it steers a terminal or breaks a screen."""

from __future__ import annotations

import enum
import math
from typing import Final, TypeVar, cast

from msgspec import Struct

from overlay.errors import printable

T = TypeVar("T")

MAX_TEXT: Final = 500
"""Characters of one text: some lines of a screen."""

MAX_FLOAT: Final = 1e18
"""Greatest number of any sense, either way: a million years in microseconds is below it."""

MAX_INT: Final = 2**63 - 1
"""What other programs read from JSON, and the greatest boundary."""


def plain(value: T) -> T:
    """The same message with texts that are short and printable, and numbers that are finite and in
    range: what is not becomes the nearest that is, and NaN 0."""
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

"""Paths into JSON: `$.name[0]['other name']`, the part of JSONPath that names one value.

A name that has a dot, a blank or another sign stands in brackets and quotes, `['id.orig_h']` or
`["a 1"]`. It has no backslash, which readers of paths take differently, and not its own quotes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

MAX_PATH: Final = 256
"""Characters of a path: names of a few fields."""

MAX_STEPS: Final = 32
"""Names and indices of a path: documents are not nested deeper."""

_STEP = re.compile(
    r"""\.([^\s.\[\]'"*?@:,()\\\x00-\x1f]+)|\[(0|[1-9][0-9]{0,8})\]"""
    r"""|\['([^'\\\x00-\x1f]+)'\]|\["([^"\\\x00-\x1f]+)"\]"""
)


class PathError(ValueError):
    """The text is no path; the message has the reason and the character."""


def read_path(text: str) -> tuple[str | int, ...]:
    """The names (of members) and indices (of elements, from 0) of a path, from the outside in.

    Raises: PathError: the text is no path.
    """
    if len(text) > MAX_PATH:
        raise PathError(f"has {len(text)} characters, at most {MAX_PATH} allowed")
    if not text.startswith("$"):
        raise PathError("does not begin with $")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise PathError(f"has at its character {at + 1}: neither .name, ['a name'] nor [0]")
        index = match[2]
        steps.append(match[1] or match[3] or match[4] if index is None else int(index))
        at = match.end()
    if not steps:
        raise PathError("names no member, as $.name and $['a name'] do")
    if len(steps) > MAX_STEPS:
        raise PathError(f"has {len(steps)} names and indices, at most {MAX_STEPS} allowed")
    return tuple(steps)


def in_brackets(steps: Sequence[str | int]) -> str:
    """A path of these names and indices, with every name in brackets and none behind a dot."""
    return "".join(["$", *map(_bracketed, steps)])


def _bracketed(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    quote = '"' if "'" in step else "'"
    return f"[{quote}{step}{quote}]"

"""Paths into JSON: `$.name[0].other`, the part of JSONPath that names one value."""

from __future__ import annotations

import re
from typing import Final

MAX_PATH: Final = 256
"""Characters of a path."""

MAX_STEPS: Final = 32
"""Names and indices of a path."""

_STEP = re.compile(r"""\.([^\s.\[\]'"*?@:,()\\\x00-\x1f]+)|\[(0|[1-9][0-9]{0,8})\]""")


class PathError(ValueError):
    """The text is no path; says the reason and the character."""


def read_path(text: str) -> tuple[str | int, ...]:
    """The names (of members) and indices (of elements, from 0) of a path, from the outside in.

    Raises:
        PathError: it is none.
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
            raise PathError(f"has at its character {at + 1}: neither .name nor [0]")
        steps.append(match[1] if match[2] is None else int(match[2]))
        at = match.end()
    if not steps:
        raise PathError("names no member, as $.name does")
    if len(steps) > MAX_STEPS:
        raise PathError(f"has {len(steps)} names and indices, at most {MAX_STEPS} allowed")
    return tuple(steps)

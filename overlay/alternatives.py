"""The end of a refusal of an unknown name: the names that there are, and which one may be meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

MAX_SHOWN: Final = 200
"""Characters of the list in a message of one line."""

MAX_ASKED: Final = 80
"""Characters of the unknown name that are compared: the cost grows with their square."""


def alternatives(asked: str, known: Iterable[str], types: Mapping[str, str] | None = None) -> str:
    """Return "there are a, b", with "(is b meant?)" after it where a known name is similar.

    Args:
        asked: the name that was not found.
        known: the names that there are.
        types: the types of each name, shown after it; None: the names are shown alone.
    """
    names = [*known]
    text = ", ".join(f"{name} {types[name]}" if types else name for name in names) or "none"
    if len(text) > MAX_SHOWN:
        text = text[: MAX_SHOWN - 3] + "..."
    folded = {name.lower(): name for name in names}
    similar = get_close_matches(asked[:MAX_ASKED].lower(), folded, 1)
    return f"there are {text}" + (f" (is {folded[similar[0]]} meant?)" if similar else "")

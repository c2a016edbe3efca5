"""Hostile SQL scripts, by families: hostile_scripts.toml says what they are and how it is read."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

Script = tuple[str, str]
"""The description of a script, and its SQL."""

WINDOW: Final = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
BOUND: Final = "t.stime BETWEEN s.stime - INTERVAL '1' MINUTE AND s.stime"
SHORT: Final = {"«WINDOW»": WINDOW, "«BOUND»": BOUND, "«SURROGATE»": "\ud800"}

_SHOWN: Final = 40
"""Characters of a value in the name of a script."""

_REPEATED: Final = re.compile(r"⟦(?:(\d+)×)?(.*?)(?:¦(.*?))?⟧", re.DOTALL)

_GROUPS: Final[dict[str, list[dict[str, Any]]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
FAMILIES: Final = tuple(_GROUPS)


@cache
def scripts(family: str) -> tuple[Script, ...]:
    """Return the scripts of a family."""
    made: list[Script] = []
    for group in _GROUPS[family]:
        for value in group.get("each", [""]):
            each = _spelled(str(value), 0)
            times = value if isinstance(value, int) else 0
            for row in group["scripts"]:
                shown = ascii(each[:_SHOWN])[1:-1]
                text = _spelled(row[-1], times).replace("«each»", each)
                made.append((row[0].replace("«each»", shown), text))
    return tuple(made)


def _spelled(text: str, times: int) -> str:
    """Return a text with all repetitions and short forms spelled out."""

    def repeated(found: re.Match[str]) -> str:
        count = range(int(found[1] or times))
        texts = (found[2].replace("«n»", str(n)).replace("«n+1»", str(n + 1)) for n in count)
        return (found[3] or "").join(texts)

    text = _REPEATED.sub(repeated, text)
    for short, long in SHORT.items():
        text = text.replace(short, long)
    return text

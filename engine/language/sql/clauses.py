"""Finds the clause of a script that became a box, by the name of the box."""

from __future__ import annotations

import re
from typing import Final

_CLAUSES: Final = {
    "where": "WHERE",
    "having": "HAVING",
    "group": "GROUP BY",
    "totals": "GROUP BY",
    "over": "OVER",
    "number": "ROW_NUMBER",
    "top": "ROW_NUMBER",
    "prepare": "SELECT",
    "select": "SELECT",
    "measures": "MEASURES",
    "union": "UNION",
    "join": "JOIN",
}
"""The clause that made a box, by the last word of the box's name."""

_STEP: Final = re.compile(r"(?P<stream>.+)\.(?P<step>[a-z]+)(_\d+)?")


def clause_of(box: str) -> str:
    """The clause that made a box, as `WHERE of made`; `stream made` if it made the stream
    itself."""
    found = _STEP.fullmatch(box)
    if found is None or found["step"] not in _CLAUSES:
        return f"stream {box[:64]}"
    return f"{_CLAUSES[found['step']]} of {found['stream'][:64]}"

"""What a checker found wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

EVIDENCE: Final = 6
"""Lines of evidence of one violation: the first few tell."""


class Violation(Struct, frozen=True):
    """
    Attributes:
        check: whose rule is broken. text: how. evidence: lines from the history.
    """

    check: str
    text: str
    evidence: tuple[str, ...] = ()


def found(check: str, text: str, evidence: Iterable[object] = ()) -> Violation:
    lines = [str(each) for each in evidence]
    more = [f"... {len(lines) - EVIDENCE} more"] if len(lines) > EVIDENCE else []
    return Violation(check, text, (*lines[:EVIDENCE], *more))

"""Boundaries in receipts: the beginning and the end of all time are clamped to 62 bits."""

from __future__ import annotations

from medusa.contracts.deals import MAX_TIME
from medusa.engine.objects.schema import BEGINNING, END


def clamped(boundary: int) -> int:
    """A boundary, microseconds of stime, for a receipt."""
    return max(-MAX_TIME, min(MAX_TIME, boundary))


def stime_of(written: int) -> int:
    """The boundary that `clamped` has turned into that number."""
    return BEGINNING if written <= -MAX_TIME else END if written >= MAX_TIME else written

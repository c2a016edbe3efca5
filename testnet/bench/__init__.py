"""Measurements against references, made in the same run: `python -m testnet.bench`.

A module of this package that measures has `measure() -> list[dict]`; each dict is an entry of
bench.json:

    name        what was measured
    value       the median, in `unit`
    reference   the same of what it is compared with, in `unit`; None where there is nothing
    ratio       value / reference; None without a reference
    goal        what the ratio should be (the value, where there is no ratio): ">= 0.2", "<= 300",
                or None
"""

from __future__ import annotations

from typing import Any

Entry = dict[str, Any]


def entry(
    name: str,
    value: float | None,
    unit: str,
    goal: str | None = None,
    reference: float | None = None,
) -> Entry:
    """A figure."""
    ratio = None if reference is None or value is None else value / reference
    fields = ("name", "value", "unit", "reference", "ratio", "goal")
    return dict(zip(fields, (name, value, unit, reference, ratio, goal), strict=True))

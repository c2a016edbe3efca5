"""Measurements against references, made in the same run: `python -m medusa.testnet.bench`.

Each measuring module of this package has `measure() -> list[dict]`; each dict is an entry of
bench.json:

    name        what was measured
    value       the median, in `unit`
    reference   the reference's median, in `unit`; None if there is none
    ratio       value / reference; None without a reference
    goal        the intended ratio (or value, without a ratio): ">= 0.2", "<= 300", or None
"""

from __future__ import annotations

from typing import Any

Entry = dict[str, Any]
"""A figure of bench.json; for a failed part, its name and the reason."""


def entry(
    name: str,
    value: float | None,
    unit: str,
    goal: str | None = None,
    reference: float | None = None,
) -> Entry:
    """An entry of bench.json."""
    ratio = None if reference is None or value is None else value / reference
    fields = ("name", "value", "unit", "reference", "ratio", "goal")
    return dict(zip(fields, (name, value, unit, reference, ratio, goal), strict=True))

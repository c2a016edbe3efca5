"""The interpreter's ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.objects.query import Rank
from engine.objects.schema import STIME
from engine.tasks.plan import RankStep
from testnet.simulation.expressions import Row


def ranked(step: RankStep | Rank, rows: Sequence[Row]) -> list[Row]:
    """The first rows of each window and partition. rows: in the order of their stream."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        end = row[STIME] // step.size_us * step.size_us + step.size_us - 1
        groups.setdefault((end, *(row[name] for name in step.partition_by)), []).append(row)
    found: list[Row] = []
    for (end, *_), members in groups.items():
        ordered = members
        for name, descending in reversed(step.order_by):
            ordered = _by(ordered, name, descending=descending)
        for place, row in enumerate(ordered[: step.most], start=1):
            made = {key: value for key, value in row.items() if key != "seq"}
            found.append({**made, STIME: end, **({step.place: place} if step.place else {})})
    return found


def _by(rows: list[Row], name: str, *, descending: bool) -> list[Row]:
    """The rows by one field, nulls last; equal ones as they were."""
    present = [row for row in rows if row[name] is not None]
    present.sort(key=lambda row: row[name], reverse=descending)
    return [*present, *(row for row in rows if row[name] is None)]

"""The reference of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from medusa.engine.evaluation.expressions import Row
from medusa.engine.evaluation.job import Job, in_order
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.rank import RankStep


def ranked(step: RankStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """The first rows of each window and partition. rows: in the order of their stream."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        end = row[STIME] // step.size_us * step.size_us + step.size_us - 1
        groups.setdefault((end, *(row[name] for name in step.partition_by)), []).append(row)
    found: list[Row] = []
    for (end, *_), members in groups.items():
        ordered = in_order(step.order_by, members[::-1] if step.newest_first else members)
        for place, row in enumerate(ordered[: step.most], start=1):
            made = {key: value for key, value in row.items() if key != "seq"}
            found.append({**made, STIME: end, **({step.place: place} if step.place else {})})
    return found

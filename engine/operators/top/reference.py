"""The reference of the first tuples of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from medusa.engine.evaluation.expressions import Row
from medusa.engine.evaluation.job import Job, in_order
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.top import TopStep


def top(step: TopStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the tuples of places that change after a boundary."""
    names = [field.name for field in step.fields]
    places: dict[tuple[Any, ...], dict[int, Row]] = {}
    for row in sorted(job.own, key=lambda row: row[STIME]):
        key = tuple(row[name] for name in step.partition_by)
        places.setdefault(key, {})[row[step.place] if step.place else 1] = row
    kept = {key: [found[place] for place in sorted(found)] for key, found in places.items()}
    made: list[Row] = []
    at: dict[tuple[int, tuple[Any, ...]], list[Row]] = {}
    for row in rows:
        if row[STIME] > job.after:
            key = tuple(row[name] for name in step.partition_by)
            at.setdefault((row[STIME], key), []).append(row)
    for stime, key in sorted(at, key=lambda each: each[0]):
        before = kept.get(key, [])
        new = at[stime, key][::-1] if step.newest_first else at[stime, key]
        now = in_order(step.order_by, [*before, *new])  # of equal tuples the older ones come first
        kept[key] = now[: step.most]
        for place, row in enumerate(kept[key]):
            if place < len(before) and before[place] is row:
                continue
            found = {STIME: stime, **{name: row[name] for name in names}}
            made.append(found | ({step.place: place + 1} if step.place else {}))
    return made

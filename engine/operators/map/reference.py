"""The reference of maps."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.engine.evaluation.expressions import Row, evaluate
from medusa.engine.evaluation.job import Job
from medusa.engine.evaluation.values import nulls_last
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.map import MapStep


def mapped(step: MapStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the rows with the map's fields, in canonical order."""
    made = [_mapped(step, row, job) for row in rows]
    return sorted(made, key=lambda row: (row[STIME], *map(nulls_last, row.values())))


def _mapped(step: MapStep, row: Row, job: Job) -> Row:
    made = {name: evaluate(each, row, job.functions) for name, each in step.outputs}
    return {STIME: row[STIME]} | made

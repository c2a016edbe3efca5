"""The reference of maps."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.engine.evaluation.expressions import Row, evaluate
from medusa.engine.evaluation.job import Job
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.map import MapStep


def mapped(step: MapStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the rows with the map's fields, in canonical order."""
    made = [_mapped(step, row, job) for row in rows]
    return sorted(made, key=lambda row: (row[STIME], *((v is None, v) for v in row.values())))


def _mapped(step: MapStep, row: Row, job: Job) -> Row:
    """The fields of a map. -0.0 becomes 0.0, so that equal rows have equal bytes."""
    made = {STIME: row[STIME]}
    for name, each in step.outputs:
        value = evaluate(each, row, job.functions)
        made[name] = value + 0.0 if isinstance(value, float) else value
    return made

"""The reference of filters."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.engine.evaluation.expressions import Row, evaluate
from medusa.engine.evaluation.job import Job
from medusa.engine.operators.filter import FilterStep


def filtered(step: FilterStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the rows that leave by the step's port."""
    return [row for row in rows if _port(step, row, job) == step.port]


def _port(step: FilterStep, row: Row, job: Job) -> int:
    for port, each in enumerate(step.predicates):
        if evaluate(each, row, job.functions) is True:
            return port
    return len(step.predicates)

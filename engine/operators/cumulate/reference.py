"""The reference of cumulating windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from medusa.engine.evaluation.expressions import Row
from medusa.engine.evaluation.job import Job
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.cumulate import CumulateStep
from medusa.engine.operators.shared.reference_spans import Span, spans


def cumulate(step: CumulateStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the results over these rows."""
    return spans(step.group_by, step.functions, rows, partial(_growing, step))


def _growing(step: CumulateStep, rows: Sequence[Row]) -> Iterator[Span]:
    """(stime, start, end, rows) of each window of a group."""
    for number, members in groupby(rows, lambda row: row[STIME] // step.size_us):
        window, start = list(members), number * step.size_us
        for end in range(start + step.step_us, start + step.size_us + 1, step.step_us):
            part = [row for row in window if row[STIME] < end]
            if part:
                yield end - 1, start, end, part

"""The reference of count windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from medusa.engine.evaluation.expressions import Row
from medusa.engine.evaluation.job import Job
from medusa.engine.objects.schema import STIME
from medusa.engine.operators.shared.reference_windows import folded
from medusa.engine.operators.tuple_windows.step import TupleWindowsStep, layout_of


def tuple_windows(step: TupleWindowsStep, rows: Sequence[Row], job: Job) -> list[Row]:
    """Return the new tuples with their numbers, and the windows that end with one of them."""
    layout = layout_of(step)
    groups = [each.name for each in step.group_by]
    outputs = [each.output for each in step.functions]
    blank: Row = dict.fromkeys([layout.number, *(name for _, name in layout.kept), *outputs])
    last: dict[tuple[Any, ...], list[tuple[int, Row]]] = {}
    for row in sorted((r for r in job.own if r[layout.part]), key=lambda r: r[layout.number]):
        before = {each.name: row[name] for each, name in layout.kept}
        tuples = last.setdefault(tuple(row[name] for name in groups), [])
        tuples.append((row[layout.number], {STIME: row[STIME], **before}))
        del tuples[: -step.size]
    made: list[Row] = []
    for row in rows:
        group = tuple(row[name] for name in groups)
        tuples = last.setdefault(group, [])
        number = tuples[-1][0] + 1 if tuples else 1
        tuples.append((number, row))
        del tuples[: -step.size]
        head = {**blank, STIME: row[STIME], **dict(zip(groups, group, strict=True))}
        kept = {name: row[each.name] for each, name in layout.kept}
        part = 1 + number % step.size
        made.append({**head, layout.part: part, layout.number: number, **kept})
        ends = (number - step.size) % step.advance == 0
        if ends and (step.partial or number >= step.size):
            members = [each for _, each in tuples]
            results = {each.output: folded(each, members) for each in step.functions}
            ending = {layout.number: number} if step.number else {}
            made.append({**head, layout.part: 0, **ending, **results})
    return made

"""Queries and tasks over lists of rows, in plain Python and independent of Spark: the tests compare
the engine with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from medusa.engine.evaluation.expressions import Functions, Row
from medusa.engine.evaluation.job import Job
from medusa.engine.evaluation.values import nulls_last, plain_floats
from medusa.engine.expressions.user_functions import declared
from medusa.engine.language.check import ordered_boxes
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING, STIME, Schema
from medusa.engine.operators.shared.step import Interval, Part
from medusa.engine.operators.typing import type_box
from medusa.engine.reference.steps import computed
from medusa.engine.tasks.plan import Task


def canonical(rows: Sequence[Row], schema: Schema, *, arrival: bool = False) -> list[Row]:
    """Rows in the order of the stream: stime, then arrival number or payload."""

    def key(row: Row) -> tuple[Any, ...]:
        if arrival:
            return (row[STIME], row["seq"])
        return (row[STIME], *(nulls_last(row[field.name]) for field in schema.fields))

    return sorted(rows, key=key)


def run_query(
    query: Query,
    sources: Mapping[str, list[Row]],
    schemas: Mapping[str, Schema],
    functions: Functions | None = None,
) -> dict[str, list[Row]]:
    """The rows of every stream of the network, computed box by box. Args: functions: the functions
    of users that it calls.
    """
    streams = {name: plain_floats(rows) for name, rows in sources.items()}
    for box in ordered_boxes(query):
        steps = type_box(box, schemas, functions=declared(query)).steps
        for stream in box.outputs:
            # the rows of a union of the inputs
            rows = [row for name in box.inputs for row in streams[name]]
            if stream in steps:
                rows = _run_step(
                    steps[stream].parts(stream, box.inputs, None), streams, schemas, functions
                )
            streams[stream] = canonical(_without_seq(rows), schemas[stream])
    return streams


def _run_step(
    parts: Sequence[Part],
    streams: Mapping[str, list[Row]],
    schemas: Mapping[str, Schema],
    functions: Functions | None,
) -> list[Row]:
    """Return an output over whole streams. parts: the parts that make the output; the last one is
    the output itself."""
    known = dict(streams)
    for part in parts:
        left, right = part.inputs[0], part.inputs[-1]
        rows = known[left]
        if left in schemas:
            arrived = bool(rows) and "seq" in rows[0]
            rows = canonical(rows, schemas[left], arrival=arrived)
        fields = _fields(schemas[left]) if left in schemas else []
        job = Job(fields, BEGINNING, functions=functions)
        assert part.step is not None, "a part of a step"
        if part.step.sided:
            job = replace(job, right=known[right], right_fields=_fields(schemas[right]))
        known[part.stream] = computed(part.step, rows, job)
    return known[parts[-1].stream]


def _without_seq(rows: Sequence[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key != "seq"} for row in rows]


def run_task(
    task: Task, inputs: Mapping[str, list[Row]], after: int, upto: int, interval: Interval
) -> list[Row]:
    """The output over (after, upto] from the inputs over `interval`."""
    job = Job(_fields(task.input_schemas[0]), after, own=inputs.get(task.output, []))
    if task.sided:
        schemas = dict(zip(task.inputs, task.input_schemas, strict=True))
        left, right = task.inputs[0], task.inputs[-1]
        fields = _fields(schemas[right])
        job = replace(job, right=_read(task, inputs, right, interval), right_fields=fields)
        rows = _read(task, inputs, left, interval)
    else:
        rows = [row for name in task.inputs for row in _read(task, inputs, name, interval)]
        arrival = len(task.inputs) == 1 and task.inputs[0] in task.source_inputs
        arrival = arrival and bool(task.steps) and task.steps[0].in_order
        if not arrival:
            rows = _without_seq(rows)
        rows = canonical(rows, task.input_schemas[0], arrival=arrival)
    for step in task.steps:
        rows = computed(step, rows, job)
        if step.reach is not None:
            rows = [row for row in rows if after < row[STIME] <= upto]
        if step.mapping is not None:
            job = replace(job, fields=[name for name, _ in step.mapping])
    return canonical(rows, task.output_schema)


def _read(task: Task, inputs: Mapping[str, list[Row]], name: str, interval: Interval) -> list[Row]:
    """Return the rows of an input that a job reads."""
    lo = BEGINNING if name in task.tables else interval.lo
    return [row for row in inputs.get(name, []) if lo < row[STIME] <= interval.hi]


def _fields(schema: Schema) -> list[str]:
    return [field.name for field in schema.fields]

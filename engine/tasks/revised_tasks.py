"""The tasks that make the revisions of other tasks' outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from msgspec import structs

from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.folding import widths
from medusa.engine.language.tables import made_of_tables
from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.shared.panes import panes_name
from medusa.engine.operators.shared.step import CASE
from medusa.engine.streams.revisions.columns import revisions_name, revisions_schema
from medusa.engine.tasks.plan import Task
from medusa.overlay.errors import InvalidInputError


def revised_streams(query: Query, inputs: Mapping[str, StreamEntry]) -> Mapping[str, int]:
    """The streams of a query that have revisions, and how far behind its boundary each may be
    revised, microseconds. Empty if no input is revised."""
    found = frozenset((name, e.revised_us) for name, e in inputs.items() if e.is_revised)
    return _revised(query, found) if found else {}


@lru_cache(maxsize=16)  # called for each stream of a query
def _revised(query: Query, inputs: frozenset[tuple[str, int]]) -> Mapping[str, int]:
    found = dict(inputs)
    for box in ordered_boxes(query):
        most = max((found[name] for name in box.inputs if name in found), default=None)
        if most is not None:
            found |= dict.fromkeys(box.outputs, most)
    made_of = (*widths(query), *made_of_tables(query))
    return found | {panes_name(name): found[name] for name in made_of if name in found}


def with_revisions(tasks: Sequence[Task], revised: Mapping[str, int]) -> tuple[Task, ...]:
    """The tasks, and after each task of a revised stream the task of its revisions.

    Args: revised: the result of `revised_streams`. Raises: InvalidInputError: a table is made from
    tuples that may be revised.
    """
    found: list[Task] = []
    for task in tasks:
        found.append(task)
        if any(name in revised for name in task.inputs):
            for step in task.steps:
                step.check_unrevised(task.output, task.inputs[0])
        if task.output in revised:
            _check_repeats(task)
            found.append(_revisions_of(task, revised))
    return tuple(found)


def _check_repeats(task: Task) -> None:
    """Refuse a task that cannot compute, for a revised tuple, the results that it has computed
    before."""
    for function in task.functions:
        if not function.deterministic:
            raise InvalidInputError(
                f"{task.name} calls {function.name} of tuples that may be revised: what it has "
                "made of them could not be taken back, unless the function is declared "
                "deterministic"
            )


def _revisions_of(task: Task, revised: Mapping[str, int]) -> Task:
    """Without state, a revision's result depends on its tuple alone. With a window, a join or a
    pattern, it depends on other tuples too, so the task's inputs are among the inputs."""
    beside = [
        (name, schema)
        for name, schema in zip(task.inputs, task.input_schemas, strict=True)
        if name in revised
    ]
    names = [revisions_name(name) for name, _ in beside]
    schemas = [revisions_schema(s, source=name in task.source_inputs) for name, s in beside]
    sources = [revisions_name(name) for name, _ in beside if name in task.source_inputs]
    with_main = task.has_state
    return Task(
        name=revisions_name(task.output),
        query=task.query,
        inputs=(*(task.inputs if with_main else ()), *names),
        steps=(),
        output=revisions_name(task.output),
        input_schemas=(*(task.input_schemas if with_main else ()), *schemas),
        output_schema=revisions_schema(task.output_schema, source=False),
        source_inputs=frozenset(sources) | (task.source_inputs if with_main else frozenset()),
        after=task.after,
        until=task.until,
        of=task,
        history_us=max(revised[name] for name, _ in beside),
    )


def by_arrival(task: Task) -> bool:
    """Whether a task's results depend on its input's order of arrival."""
    (first, *_) = task.inputs
    in_order = bool(task.steps) and task.steps[0].in_order
    return in_order and len(task.inputs) == 1 and first in task.source_inputs


def numbered_inputs(task: Task) -> frozenset[str]:
    """The inputs whose order of arrival matters to a task's results."""
    if by_arrival(task):
        return frozenset(task.inputs)
    return task.source_inputs & (task.steps[0].numbered_sides if task.steps else frozenset())


def scenario_task(task: Task) -> Task:
    """The task for several cases at once: each is computed as if there were no others. Its inputs
    (one merged input for windows and single tuples) and its output have a field with the case's
    number."""
    if task.sided:
        return replace(
            task,
            steps=tuple(step.by_case() for step in task.steps),
            input_schemas=tuple(_with_case(each) for each in task.input_schemas),
            output_schema=_with_case(task.output_schema),
            source_inputs=numbered_inputs(task),
        )
    first = task.input_schemas[0]
    fields = tuple(
        structs.replace(each[0], size=None, nullable=any(field.nullable for field in each))
        for each in zip(*(schema.fields for schema in task.input_schemas), strict=True)
    )
    name = task.inputs[0]
    return replace(
        task,
        inputs=(name,),
        steps=tuple(step.by_case() for step in task.steps),
        input_schemas=(Schema(first.name, (*fields, CASE), first.time),),
        output_schema=_with_case(task.output_schema),
        source_inputs=frozenset((name,)) if by_arrival(task) else frozenset(),
    )


def _with_case(schema: Schema) -> Schema:
    return structs.replace(schema, fields=(*schema.fields, CASE))

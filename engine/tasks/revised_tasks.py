"""The tasks that make the revisions of other tasks' outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from msgspec import structs

from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.joins import AS_OF, LEFT, ONE_SIDED, RIGHT
from medusa.engine.language.panes import panes_name, widths
from medusa.engine.language.steps import CumulateStep, SessionsStep
from medusa.engine.language.tables import totals_of
from medusa.engine.language.typed import FieldRef, Operation
from medusa.engine.objects.definitions import PANES, StreamEntry
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import SCENARIO, Field, FieldType, Schema
from medusa.engine.streams.revisions.columns import revisions_name, revisions_schema
from medusa.engine.tasks.plan import (
    AggregateStep,
    FilterStep,
    JoinStep,
    MapStep,
    MatchStep,
    RankStep,
    SpanStep,
    Step,
    Task,
    TopStep,
    TotalsStep,
    TupleWindowsStep,
    WindowStep,
)
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
    made_of = (*widths(query), *totals_of(query))
    return found | {panes_name(name): found[name] for name in made_of if name in found}


def with_revisions(tasks: Sequence[Task], revised: Mapping[str, int]) -> tuple[Task, ...]:
    """The tasks, and after each task of a revised stream the task of its revisions.

    Args:
        revised: of `revised_streams`.

    Raises:
        InvalidInputError: a table is made of tuples that may be revised.
    """
    found: list[Task] = []
    for task in tasks:
        found.append(task)
        _check_kept(task, revised)
        if task.output in revised:
            _check_repeats(task)
            found.append(_revisions_of(task, revised))
    return tuple(found)


def _check_kept(task: Task, revised: Mapping[str, int]) -> None:
    """Refuse totals, first tuples and windows of tuples of what may be revised: they go on from
    what they were."""
    if not task.recalls or not any(name in revised for name in task.inputs):
        return
    source, last = task.inputs[0], task.steps[-1]
    name = task.output if isinstance(last, TopStep) else task.output.removesuffix(f"/{PANES}")
    if isinstance(last, TupleWindowsStep):
        raise InvalidInputError(
            f"{name} numbers the tuples of {source}, which may be revised, and then each later one "
            "would have another number: say a window, or of a join a buffer, of time"
        )
    mend = "declare it without a key" + ("" if isinstance(last, TopStep) else ", or as a table")
    raise InvalidInputError(
        f"{name} is a table of what {source} has so far, whose tuples may be revised: {mend}"
    )


def _check_repeats(task: Task) -> None:
    """Refuse a task that may not make of a tuple, as it is revised, what it has made of it."""
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
    steps = task.steps
    return (
        len(task.inputs) == 1
        and task.inputs[0] in task.source_inputs
        and bool(steps)
        and isinstance(steps[0], WindowStep | SpanStep | MatchStep | TupleWindowsStep | TopStep)
    )


def numbered_inputs(task: Task) -> frozenset[str]:
    """The inputs whose order of arrival matters to a task's results."""
    if by_arrival(task):
        return frozenset(task.inputs)
    if task.join is not None and task.join.kind in AS_OF:
        return task.source_inputs & {task.join.right}
    return frozenset()


def scenario_task(task: Task) -> Task:
    """The task for several cases at once: each is computed as if there were no others. Its inputs,
    which are merged for windows and single tuples, and its output have a field with the case's
    number."""
    if task.join is not None:
        return replace(
            task,
            steps=tuple(_apart(step) for step in task.steps),
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
        steps=tuple(_apart(step) for step in task.steps),
        input_schemas=(Schema(first.name, (*fields, _CASE), first.time),),
        output_schema=_with_case(task.output_schema),
        source_inputs=frozenset((name,)) if by_arrival(task) else frozenset(),
    )


_CASE = Field(SCENARIO, FieldType.LONG)


def _with_case(schema: Schema) -> Schema:
    return structs.replace(schema, fields=(*schema.fields, _CASE))


def _apart(step: Step) -> Step:
    match step:
        case FilterStep():
            return step
        case MapStep(outputs):
            return MapStep((*outputs, (SCENARIO, FieldRef(SCENARIO, FieldType.LONG))))
        case AggregateStep() | SessionsStep() | CumulateStep():
            return replace(step, group_by=(*step.group_by, _CASE))
        case MatchStep():
            return replace(step, partition_by=(*step.partition_by, _CASE))
        case RankStep():
            partition_by = (*step.partition_by, SCENARIO)
            return replace(step, fields=(*step.fields, _CASE), partition_by=partition_by)
        case TotalsStep() | TopStep() | TupleWindowsStep():
            raise AssertionError("what reads its own output is not revised")
        case JoinStep():
            left = FieldRef(f"{LEFT}{SCENARIO}", FieldType.LONG)
            right = FieldRef(f"{RIGHT}{SCENARIO}", FieldType.LONG)
            same = Operation("=", (left, right), FieldType.BOOL)
            predicate = Operation("and", (step.predicate, same), FieldType.BOOL)
            sides = (left,) if step.kind in ONE_SIDED else (left, right)
            case = Operation("coalesce", sides, FieldType.LONG)
            return replace(step, predicate=predicate, outputs=(*step.outputs, (SCENARIO, case)))

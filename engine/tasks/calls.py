"""Tasks whose last step calls functions of users, as parts that call none.

The engine's executor computes a task up to the arguments of the calls; the functions' processes
compute columns from them (`medusa.engine.functions`); a last task of the executor computes the
step's results from these columns. A call whose argument is another call needs a further stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from medusa.engine.expressions.typed import Call, Expression, FieldRef, calls_in, without_calls
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import STIME, Field, FieldType, Schema
from medusa.engine.operators.map import MapStep
from medusa.engine.operators.shared.step import Step
from medusa.engine.tasks.plan import Task


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A call over columns of a table.

    Attributes:
        arguments: columns with its arguments. output: the column for its results.
    """

    function: UserFunction
    arguments: tuple[str, ...]
    output: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A task without calls, and the calls over its results, to which they add columns."""

    task: Task
    calls: tuple[NamedCall, ...]


@dataclass(frozen=True, slots=True)
class Stages:
    """A task in parts, each of which reads the results of the part before.

    Attributes:
        last: reads the last stage, and makes the whole task's results.
    """

    stages: tuple[Stage, ...]
    last: Task

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The parts that an executor computes."""
        return (*(stage.task for stage in self.stages), self.last)


def stages_of(task: Task) -> Stages | None:
    """The parts of a task of one edition; None: it calls no function."""
    if not task.steps or not (waiting := list(task.steps[-1].calls)):
        return None
    *steps, step = task.steps
    carried = {each.name: each for each in step.carried(task.output_schema)}
    made: dict[Call, FieldRef] = {}
    stages: list[Stage] = []
    before = task
    while waiting:
        ready = [call for call in waiting if _is_ready(call, made)]
        waiting = [call for call in waiting if call not in ready]
        columns: dict[str, Expression] = dict(carried)
        named = []
        for call in ready:
            output = f"call {len(made)}"
            named.append(NamedCall(call.function, _arguments(call, output, made, columns), output))
            made[call] = FieldRef(output, call.type)
        number = len(stages)
        stages.append(_stage(task, before, steps, MapStep(tuple(columns.items())), named))
        carried |= {ref.name: ref for ref in made.values()}
        before = _reader(task, stages[-1], f"{task.name}/call {number}")
        steps = []
    return Stages(tuple(stages), replace(before, steps=step.with_results(made, task.output_schema)))


def _is_ready(call: Call, made: Mapping[Call, FieldRef]) -> bool:
    """Whether all calls among its arguments have been made."""
    return all(inner in made for each in call.operands for inner in calls_in(each))


def _arguments(
    call: Call, output: str, made: Mapping[Call, FieldRef], columns: dict[str, Expression]
) -> tuple[str, ...]:
    """The columns with a call's arguments; arguments that are no plain fields are added to
    `columns`."""
    names = []
    for number, operand in enumerate(call.operands):
        expression = without_calls(operand, made)
        name = f"{output} argument {number}"
        if isinstance(expression, FieldRef) and expression.name != STIME:
            name = expression.name
        columns[name] = expression
        names.append(name)
    return tuple(names)


def _stage(
    task: Task, before: Task, steps: Sequence[Step], last: MapStep, calls: Sequence[NamedCall]
) -> Stage:
    """A stage that ends with the columns of its calls."""
    fields = [Field(name, each.type, nullable=True) for name, each in last.outputs]
    name = f"{task.name}/arguments"
    part = replace(
        before,
        name=name,
        steps=(*steps, last),
        output=name,
        output_schema=Schema(name, tuple(fields)),
        editions=(),
        former=(),
    )
    return Stage(part, tuple(calls))


def _reader(task: Task, stage: Stage, name: str) -> Task:
    """A task without steps that reads a stage's results."""
    fields = stage.task.output_schema.fields
    results = (Field(each.output, each.function.result, nullable=True) for each in stage.calls)
    schema = Schema(name, (*fields, *results))
    return replace(
        task,
        inputs=(name,),
        input_schemas=(schema,),
        source_inputs=frozenset(),
        steps=(),
        editions=(),
        former=(),
    )


def is_projection(steps: Sequence[Step]) -> bool:
    """Whether steps only choose and rename fields."""
    return len(steps) == 1 and steps[0].projection is not None


def is_time(expression: Expression) -> bool:
    """Whether the expression is `stime`, which a log has as a number, as a timestamp."""
    return isinstance(expression, FieldRef) and (expression.name, expression.type) == (
        STIME,
        FieldType.TIMESTAMP,
    )

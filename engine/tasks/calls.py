"""Tasks whose last step calls functions of users, as parts that call none.

The engine's executor computes a task up to the arguments of the calls; the functions' processes
make columns of them (`medusa.engine.functions`); a last task of the executor makes the step's
results of these columns. A call whose argument is another call takes one such stage more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from medusa.engine.language.steps import FilterStep, MapStep, Step
from medusa.engine.language.typed import Call, Constant, Expression, FieldRef, Operation, calls_in
from medusa.engine.language.user_functions import calls_of
from medusa.engine.objects.functions import UserFunction
from medusa.engine.objects.schema import STIME, Field, FieldType, Schema
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
    """A task without calls, and the calls over its results; their columns are added to these."""

    task: Task
    calls: tuple[NamedCall, ...]


@dataclass(frozen=True, slots=True)
class Stages:
    """A task in parts, each of which reads what the one before it gives.

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
    if not task.steps or not (waiting := list(calls_of(task.steps[-1]))):
        return None
    *steps, step = task.steps
    carried = dict(_fields(task, step))
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
        stages.append(_stage(task, before, [*steps, MapStep(tuple(columns.items()))], named))
        carried |= {ref.name: ref for ref in made.values()}
        before = _reader(task, stages[-1], f"{task.name}/call {number}")
        steps = []
    return Stages(tuple(stages), replace(before, steps=_rewritten(task, step, made)))


def _fields(task: Task, step: Step) -> dict[str, FieldRef]:
    """The fields that a step reads, or leaves in its output, beside the stime."""
    if isinstance(step, FilterStep):
        return {each.name: FieldRef(each.name, each.type) for each in task.output_schema.fields}
    assert isinstance(step, MapStep), "the steps that may call functions"
    found: dict[str, FieldRef] = {}
    waiting = [each for _, each in step.outputs]
    while waiting:
        match waiting.pop():
            case FieldRef(name=name, type=type_):
                if name != STIME:
                    found[name] = FieldRef(name, type_)
            case Operation(operands=operands) | Call(operands=operands):
                waiting += operands
            case Constant():
                pass
    return dict(sorted(found.items()))


def _is_ready(call: Call, made: Mapping[Call, FieldRef]) -> bool:
    """Whether all calls among its arguments have been made."""
    return all(inner in made for each in call.operands for inner in calls_in(each))


def _arguments(
    call: Call, output: str, made: Mapping[Call, FieldRef], columns: dict[str, Expression]
) -> tuple[str, ...]:
    """The columns with a call's arguments; those that no field is are added to `columns`."""
    names = []
    for number, operand in enumerate(call.operands):
        expression = _without_calls(operand, made)
        name = f"{output} argument {number}"
        if isinstance(expression, FieldRef) and expression.name != STIME:
            name = expression.name
        columns[name] = expression
        names.append(name)
    return tuple(names)


def _stage(task: Task, before: Task, steps: Sequence[Step], calls: Sequence[NamedCall]) -> Stage:
    last = steps[-1]
    assert isinstance(last, MapStep), "the columns of the calls"
    fields = [Field(name, each.type, nullable=True) for name, each in last.outputs]
    name = f"{task.name}/arguments"
    part = replace(
        before,
        name=name,
        steps=tuple(steps),
        output=name,
        output_schema=Schema(name, tuple(fields)),
        editions=(),
        former=(),
    )
    return Stage(part, tuple(calls))


def _reader(task: Task, stage: Stage, name: str) -> Task:
    """The task that reads a stage's results; without steps yet."""
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


def _rewritten(task: Task, step: Step, made: Mapping[Call, FieldRef]) -> tuple[Step, ...]:
    """The step with the calls' columns in their place."""
    if isinstance(step, FilterStep):
        predicates = tuple(_without_calls(each, made) for each in step.predicates)
        fields = task.output_schema.fields
        same = MapStep(tuple((each.name, FieldRef(each.name, each.type)) for each in fields))
        return (FilterStep(predicates, step.port), same)
    assert isinstance(step, MapStep), "the steps that may call functions"
    return (MapStep(tuple((name, _without_calls(each, made)) for name, each in step.outputs)),)


def _without_calls(expression: Expression, made: Mapping[Call, FieldRef]) -> Expression:
    match expression:
        case FieldRef(name=name, type=type_):
            return FieldRef(name, type_)
        case Constant():
            return expression
        case Call():
            return made[expression]
        case Operation(operator=operator, operands=operands, type=type_):
            return Operation(
                operator, tuple(_without_calls(each, made) for each in operands), type_
            )


def is_projection(steps: Sequence[Step]) -> bool:
    """Whether steps only choose and rename fields."""
    match steps:
        case [MapStep(outputs=outputs)]:
            return all(isinstance(each, FieldRef) for _, each in outputs)
        case _:
            return False


def is_time(expression: Expression) -> bool:
    """Whether it is the stime, a number in a log, as a timestamp."""
    return isinstance(expression, FieldRef) and (expression.name, expression.type) == (
        STIME,
        FieldType.TIMESTAMP,
    )

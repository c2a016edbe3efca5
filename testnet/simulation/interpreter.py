"""An interpreter of queries and tasks over lists of rows, independent of Spark: the tests compare
the engine with it, and it computes tasks under simulation.

In a simulation it replaces Spark: many peers of one process each have theirs. A job takes virtual
time, and a configured CPU time for each row; both are the same in every run of a seed.
"""

from __future__ import annotations

import random
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import trio

from engine.language.check import ordered_boxes
from engine.language.operators import INTEGER_RANGE, INTEGERS
from engine.language.panes import Layout, layout
from engine.language.parse_expression import parse_expression
from engine.language.steps import Constant, Expression, FieldRef, Form, TypedAggregate
from engine.objects.query import Aggregate, Filter, Function, Map, Query, Union
from engine.objects.schema import STIME, FieldType, Schema
from engine.streams.epochs import reading
from engine.tasks.execution import Result
from engine.tasks.plan import AggregateStep, FilterStep, MapStep, Task
from engine.tasks.windows import Interval
from overlay.events import Events

Value: TypeAlias = Any
"""The value of a field: a number, a text, a truth value, or None."""

Row: TypeAlias = dict[str, Any]
"""A tuple: stime (int) and the fields; of a source stream also `seq`."""


def evaluate(expression: Expression, row: Row) -> Value:
    if isinstance(expression, FieldRef):
        return row[expression.name]
    if isinstance(expression, Constant):
        return expression.value
    name, operands = expression.operator, expression.operands
    if name == "case":
        for condition, value in zip(operands[:-1:2], operands[1::2], strict=True):
            if evaluate(condition, row) is True:
                return evaluate(value, row)
        return evaluate(operands[-1], row)
    values = [evaluate(operand, row) for operand in operands]
    if name in _LENIENT:
        return _LENIENT[name](values)
    if any(value is None for value in values):
        return None
    return _fitted(_STRICT[name](*values), expression.type)


def _fitted(value: Value, type_: FieldType) -> Value:
    if value is None:
        return None
    if type_ in INTEGERS:
        return int(value) if int(value) in INTEGER_RANGE[type_] else None
    if type_ is FieldType.SINGLE:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    if type_ is FieldType.DOUBLE:
        return float(value)
    return str(value) if type_ is FieldType.STRING else value


def _and(values: Sequence[Any]) -> Value:
    return False if False in values else None if None in values else True


def _or(values: Sequence[Any]) -> Value:
    return True if True in values else None if None in values else False


def _in(values: Sequence[Any]) -> Value:
    if values[0] is None:
        return None
    return _or([None if each is None else values[0] == each for each in values[1:]])


def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or not count:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


_LENIENT: dict[str, Callable[[Sequence[Any]], Any]] = {
    "and": _and,
    "or": _or,
    "in": _in,
    "is_null": lambda values: values[0] is None,
    "coalesce": lambda values: next((each for each in values if each is not None), None),
}

_STRICT: dict[str, Callable[..., Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: None if b == 0 else a / b,
    "%": lambda a, b: None if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1),
    "neg": lambda a: -a,
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "not": lambda a: not a,
    "cast": lambda a: a,
    "lower": str.lower,
    "length": len,
    "concat": lambda *parts: "".join(parts),
    "substring_index": _substring_index,
}


def canonical(rows: Sequence[Row], schema: Schema, *, arrival: bool = False) -> list[Row]:
    """Rows in the order of the stream: stime, then arrival number or payload."""

    def key(row: Row) -> tuple[Any, ...]:
        if arrival:
            return (row[STIME], row["seq"])
        payload = [row[field.name] for field in schema.fields]
        return (row[STIME], *((value is not None, value) for value in payload))

    return sorted(rows, key=key)


def run_query(
    query: Query, sources: Mapping[str, list[Row]], schemas: Mapping[str, Schema]
) -> dict[str, list[Row]]:
    """Every stream of the network, box by box."""
    streams = dict(sources)
    for box in ordered_boxes(query):
        if isinstance(box, Union):
            rows = [row for name in box.inputs for row in streams[name]]
            made = {box.output: rows}
        else:
            fields = {field.name: field.type for field in schemas[box.input].fields}
            rows = streams[box.input]
            if isinstance(box, Filter):
                made = _run_filter(box, rows, fields)
            elif isinstance(box, Map):
                typed = [(name, parse_expression(text, fields)) for name, text in box.expressions]
                made = {box.output: [_mapped(typed, row) for row in rows]}
            else:
                made = {box.output: _run_aggregate(box, rows, fields)}
        for name, rows in made.items():
            plain = [{k: v for k, v in row.items() if k != "seq"} for row in rows]
            streams[name] = canonical(plain, schemas[name])
    return streams


def _run_filter(
    box: Filter, rows: list[Row], fields: Mapping[str, FieldType]
) -> dict[str, list[Row]]:
    predicates = [parse_expression(text, fields) for text in box.predicates]
    made: dict[str, list[Row]] = {name: [] for name in box.outputs}
    for row in rows:
        hits = [n for n, each in enumerate(predicates) if evaluate(each, row) is True]
        port = hits[0] if hits else len(predicates)
        if port < len(box.outputs):
            made[box.outputs[port]].append(row)
    return made


def _mapped(outputs: Sequence[tuple[str, Expression]], row: Row) -> Row:
    return {STIME: row[STIME], **{name: evaluate(each, row) for name, each in outputs}}


def _run_aggregate(box: Aggregate, rows: list[Row], fields: Mapping[str, FieldType]) -> list[Row]:
    functions = [
        (
            each.function,
            None if each.argument is None else parse_expression(each.argument, fields),
            each.output,
        )
        for each in box.functions
    ]
    return aggregate(rows, box.size_us, box.advance_us, box.group_by, functions)


def aggregate(
    rows: list[Row],
    size: int,
    advance: int,
    group_by: Sequence[str],
    functions: Sequence[tuple[Function, Expression | None, str]],
) -> list[Row]:
    windows: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        start = row[STIME] // advance * advance
        while start + size > row[STIME]:
            windows.setdefault((start, *(row[name] for name in group_by)), []).append(row)
            start -= advance
    return [
        {
            STIME: start + size - 1,
            "window_start": start,
            **dict(zip(group_by, group, strict=True)),
            **{output: _folded(function, each, members) for function, each, output in functions},
        }
        for (start, *group), members in windows.items()
    ]


def _folded(function: Function, argument: Expression | None, rows: list[Row]) -> Value:
    if argument is None:
        return len(rows)
    values = [evaluate(argument, row) for row in rows]
    if function in {Function.FIRSTVAL, Function.LASTVAL}:
        return values[0 if function is Function.FIRSTVAL else -1]
    present = [value for value in values if value is not None]
    counts = {Function.COUNT: len(present), Function.COUNT_DISTINCT: len(set(present))}
    if function in counts:
        return counts[function]
    return _FOLDS[function](present) if present else None


def _sum(values: list[Any]) -> Value:
    total = sum(values)
    return total if isinstance(total, float) or total in INTEGER_RANGE[FieldType.LONG] else None


_FOLDS: dict[Function, Callable[[list[Any]], Any]] = {
    Function.MIN: min,
    Function.MAX: max,
    Function.SUM: _sum,
    Function.AVG: lambda values: float(sum(values)) / len(values),
}


def run_task(
    task: Task, inputs: Mapping[str, list[Row]], after: int, upto: int, interval: Interval
) -> list[Row]:
    """The output over (after, upto] from the inputs over `interval`."""
    lo, hi = interval.lo, interval.hi
    rows = [row for name in task.inputs for row in inputs[name] if lo < row[STIME] <= hi]
    arrival = len(task.inputs) == 1 and task.inputs[0] in task.source_inputs
    direct = bool(task.steps) and isinstance(task.steps[0], AggregateStep)
    if not (arrival and direct):
        rows = [{k: v for k, v in row.items() if k != "seq"} for row in rows]
    rows = canonical(rows, task.input_schemas[0], arrival=arrival and direct)
    for step in task.steps:
        match step:
            case FilterStep():
                rows = [row for row in rows if _port(step, row) == step.port]
            case MapStep():
                rows = [_mapped(step.outputs, row) for row in rows]
                rows.sort(key=lambda row: (row[STIME], *((v is not None, v) for v in row.values())))
            case AggregateStep():
                rows = [row for row in _FORMS[step.form](step, rows) if after < row[STIME] <= upto]
    return canonical(rows, task.output_schema)


def _whole(step: AggregateStep, rows: list[Row]) -> list[Row]:
    functions = [(each.function, each.argument, each.output) for each in step.functions]
    return aggregate(rows, step.size_us, step.advance_us, _groups(step), functions)


def _groups(step: AggregateStep) -> list[str]:
    return [field.name for field in step.group_by]


def _partial(step: AggregateStep, rows: list[Row]) -> list[Row]:
    """Tuples to the partial results of panes, which `engine.language.panes` defines."""
    made, names = layout(step.group_by, step.functions), _groups(step)
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        start = row[STIME] // step.size_us * step.size_us
        values = [evaluate(argument, row) for _, argument in made.values]
        keys = [(0, *values)]
        if made.part is not None:
            others = [
                (n + 1, *(value if n == m else None for m, value in enumerate(values)))
                for n in range(len(values))
            ]
            keys = [(0, *(None for _ in values)), *others]
        for key in keys:
            parts.setdefault((start, *(row[name] for name in names), *key), []).append(row)
    return [
        {
            STIME: start + step.size_us - 1,
            **dict(zip(names, rest, strict=False)),
            **({} if made.part is None else {made.part: rest[len(names)]}),
            **dict(zip((n for n, _ in made.values), rest[len(names) + 1 :], strict=True)),
            **_states(step, made, members if rest[len(names)] == 0 else []),
        }
        for (start, *rest), members in parts.items()
    ]


def _states(step: AggregateStep, made: Layout, rows: list[Row]) -> Row:
    found: Row = {}
    for each, names in zip(step.functions, made.states, strict=True):
        if each.function is Function.COUNT_DISTINCT:
            continue
        folded: list[Value] = [None]
        if rows or each.function is Function.COUNT:
            folded = [_folded(each.function, each.argument, rows)]
        if each.function in {Function.SUM, Function.AVG} and each.argument is not None:
            values = [v for row in rows if (v := evaluate(each.argument, row)) is not None]
            total = sum(values) if values else None
            halves = each.argument.type is FieldType.LONG
            folded = list(divmod(total, _HALF)) if halves and total is not None else [total]
            if halves and total is None:
                folded = [None, None]
            if each.function is Function.AVG:
                folded.append(len(values))
        found |= dict(zip(names, folded, strict=True))
    return found


_HALF: Final = 2**32


def _combined(step: AggregateStep, rows: list[Row]) -> list[Row]:
    """The partial results of panes to results."""
    made, names = layout(step.group_by, step.functions), _groups(step)
    windows: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        start = row[STIME] // step.advance_us * step.advance_us
        while start + step.size_us > row[STIME]:
            windows.setdefault((start, *(row[name] for name in names)), []).append(row)
            start -= step.advance_us
    return [
        {
            STIME: start + step.size_us - 1,
            "window_start": start,
            **dict(zip(names, group, strict=True)),
            **{
                each.output: _result(each, state, made, members)
                for each, state in zip(step.functions, made.states, strict=True)
            },
        }
        for (start, *group), members in windows.items()
    ]


def _result(
    each: TypedAggregate, names: Sequence[str], made: Layout, panes: Sequence[Row]
) -> Value:
    own = [row for row in panes if made.part is None or row[made.part] == 0]
    if each.function in {Function.FIRSTVAL, Function.LASTVAL}:
        return own[0 if each.function is Function.FIRSTVAL else -1][names[0]]
    present = [row for row in panes if row[names[0]] is not None]
    values = [row[names[0]] for row in present]
    if each.function is Function.COUNT_DISTINCT:
        return len(set(values))
    if each.function is Function.COUNT:
        return sum(values)
    if not values:
        return None
    if each.function in {Function.MIN, Function.MAX}:
        return _FOLDS[each.function](values)
    total = sum(values)
    if len(names) > 1 and names[1].endswith("l"):
        total = sum(row[names[0]] * _HALF + row[names[1]] for row in present)
    if each.function is Function.SUM:
        return _sum([total])
    return float(total) / sum(row[names[-1]] for row in present)


_FORMS: Final[dict[Form, Callable[[AggregateStep, list[Row]], list[Row]]]] = {
    Form.WHOLE: _whole,
    Form.PARTIAL: _partial,
    Form.COMBINED: _combined,
}


def _port(step: FilterStep, row: Row) -> int:
    hits = [n for n, each in enumerate(step.predicates) if evaluate(each, row) is True]
    return hits[0] if hits else len(step.predicates)


FILES_HELD: Final = 64
"""Epoch files whose rows one task caches: windows read the same files repeatedly."""


@dataclass(frozen=True)
class InterpreterConfig:
    """The costs of simulated jobs.

    Attributes:
        job_s: mean virtual seconds of a job, exponentially distributed.
        cpu_s, cpu_row_s: reported CPU seconds of a job, and of each row.
        rng: draws the times.
    """

    job_s: float = 0.0
    cpu_s: float = 0.001
    cpu_row_s: float = 0.0
    rng: random.Random = field(default_factory=random.Random)


class InterpretingExecutor:
    """Implements `engine.tasks.execution.Executor`. jobs: number of jobs so far."""

    state = "running"
    trouble = ""

    def __init__(self, config: InterpreterConfig) -> None:
        self.config = config
        self.jobs = 0

    async def prepare(self, tasks: Sequence[Task] = ()) -> None:
        await trio.lowlevel.checkpoint()

    def compile(self, task: Task) -> InterpretedTask:
        """A task, to be run epoch by epoch."""
        return InterpretedTask(self, task)


class InterpretedTask:
    """Implements `engine.tasks.execution.Computation`."""

    def __init__(self, executor: InterpretingExecutor, task: Task) -> None:
        self._executor = executor
        self._task = task
        self._rows: OrderedDict[Path, list[Row]] = OrderedDict()

    async def run(
        self, files: Mapping[str, Sequence[Path]], after: int, upto: int, interval: Interval
    ) -> Result:
        config = self._executor.config
        inputs = {name: self._read(paths, interval) for name, paths in files.items()}
        made = run_task(self._task, inputs, after, upto, interval)
        made = [row for row in made if after < row["stime"] <= upto]
        self._executor.jobs += 1
        if config.job_s:
            await trio.sleep(config.rng.expovariate(1 / config.job_s))
        else:
            await trio.lowlevel.checkpoint()
        rows = sum(len(each) for each in inputs.values())
        table = _table(made, self._task.output_schema.derived)
        return Result(table, config.cpu_s + rows * config.cpu_row_s)

    def _read(self, paths: Sequence[Path], interval: Interval) -> list[Row]:
        found = [row for path in paths for row in self._of(path)]
        return [row for row in found if interval.lo < row["stime"] <= interval.hi]

    def _of(self, path: Path) -> list[Row]:
        rows = self._rows.get(path)
        if rows is None:
            with reading(path) as file:
                table = file.read(use_threads=False)
            rows = table.cast(_plain(table.schema)).to_pylist()
            self._rows[path] = rows
            if len(self._rows) > FILES_HELD:
                self._rows.popitem(last=False)
        return rows


@lru_cache(maxsize=256)
def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with times as numbers, as the interpreter has them."""
    return pa.schema(
        [
            pa.field(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type)
            for each in schema
        ]
    )


def _table(rows: list[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=_plain(schema)).cast(schema)


@asynccontextmanager
async def open_interpreter(
    config: InterpreterConfig, _logs: Path, _events: Events
) -> AsyncIterator[InterpretingExecutor]:
    """An executor without resources; `functools.partial` with a config makes an `OpenExecutor`."""
    yield InterpretingExecutor(config)

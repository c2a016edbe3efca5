"""Queries and tasks over lists of rows, in plain Python and independent of Spark: the tests compare
the engine with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from medusa.engine.aggregates.rows import aggregate_named
from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.parse_expression import parse_expression
from medusa.engine.language.typed import Expression
from medusa.engine.language.user_functions import Declared, declared
from medusa.engine.objects.query import (
    Aggregate,
    Box,
    Cumulate,
    Filter,
    Join,
    Map,
    Match,
    Query,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
)
from medusa.engine.objects.schema import BEGINNING, END, STIME, FieldType, Schema
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.cumulate import CumulateStep
from medusa.engine.operators.filter import FilterStep
from medusa.engine.operators.join.step import JoinStep
from medusa.engine.operators.map import MapStep
from medusa.engine.operators.match.step import MatchStep
from medusa.engine.operators.rank import RankStep
from medusa.engine.operators.registry import AnyStep
from medusa.engine.operators.sessions import SessionsStep
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.shared.step import Step
from medusa.engine.operators.top import TopStep
from medusa.engine.operators.totals.step import TotalsStep, result_steps
from medusa.engine.operators.tuple_windows.step import TupleWindowsStep
from medusa.engine.operators.tuple_windows.step import result_steps as results_of_tuples
from medusa.engine.operators.typing import type_box
from medusa.engine.reference.expressions import Functions, Row, evaluate
from medusa.engine.reference.joins import joined
from medusa.engine.reference.matches import matched
from medusa.engine.reference.ranks import ranked
from medusa.engine.reference.spans import spans
from medusa.engine.reference.tables import top, totals
from medusa.engine.reference.tuple_windows import tuple_windows
from medusa.engine.reference.windows import FORMS, aggregate
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.windows import Interval


def canonical(rows: Sequence[Row], schema: Schema, *, arrival: bool = False) -> list[Row]:
    """Rows in the order of the stream: stime, then arrival number or payload."""

    def key(row: Row) -> tuple[Any, ...]:
        if arrival:
            return (row[STIME], row["seq"])
        payload = [row[field.name] for field in schema.fields]
        return (row[STIME], *((value is None, value) for value in payload))

    return sorted(rows, key=key)


def run_query(
    query: Query,
    sources: Mapping[str, list[Row]],
    schemas: Mapping[str, Schema],
    functions: Functions | None = None,
) -> dict[str, list[Row]]:
    """Every stream of the network, box by box.

    Args:
        functions: those of users that it calls.
    """
    streams = dict(sources)
    known = declared(query)
    for box in ordered_boxes(query):
        made = _run_box(box, streams, schemas, functions, known)
        for name, rows in made.items():
            plain = [{k: v for k, v in row.items() if k != "seq"} for row in rows]
            streams[name] = canonical(plain, schemas[name])
    return streams


def _run_box(
    box: Box,
    streams: Mapping[str, list[Row]],
    schemas: Mapping[str, Schema],
    functions: Functions | None,
    known: Declared,
) -> dict[str, list[Row]]:
    """Return the output of a box over whole streams, by output."""
    match box:
        case Union():
            return {box.output: [row for name in box.inputs for row in streams[name]]}
        case Join():
            step = type_box(box, schemas).steps[box.output]
            assert isinstance(step, JoinStep), "of a join"
            sides = (streams[box.left], streams[box.right])
            fields_of = (_fields(schemas[box.left]), _fields(schemas[box.right]))
            return {box.output: joined(step, sides, fields_of)}
        case Filter():
            fields = _types(schemas[box.input])
            conditions = [parse_expression(text, fields, None, known) for text in box.predicates]
            return _run_filter(box, conditions, streams[box.input], functions)
        case Map():
            fields = _types(schemas[box.input])
            typed = [
                (name, parse_expression(text, fields, None, known))
                for name, text in box.expressions
            ]
            return {box.output: [_mapped(typed, row, functions) for row in streams[box.input]]}
        case _:
            return {box.output: _run_state(box, streams[box.input], schemas)}


def _run_state(
    box: Aggregate | Sessions | Cumulate | TupleWindows | Rank | Match | Totals | Top,
    rows: list[Row],
    schemas: Mapping[str, Schema],
) -> list[Row]:
    match box:
        case Totals() | Top() | TupleWindows():
            return _run_table(box, rows, schemas)
        case Rank():
            rank = type_box(box, schemas).steps[box.output]
            assert isinstance(rank, RankStep), "of a rank"
            return ranked(rank, rows)
        case Aggregate():
            return _run_aggregate(box, rows, _types(schemas[box.input]))
        case Match():
            pattern = type_box(box, schemas).steps[box.output]
            assert isinstance(pattern, MatchStep), "of a match"
            return matched(pattern, rows, _fields(schemas[box.input]))
        case Sessions() | Cumulate():
            step = type_box(box, schemas).steps[box.output]
            assert isinstance(step, SessionsStep | CumulateStep), "of sessions or windows that grow"
            return spans(step, rows)


def _types(schema: Schema) -> dict[str, FieldType]:
    return {field.name: field.type for field in schema.fields}


def _run_table(
    box: Totals | Top | TupleWindows, rows: list[Row], schemas: Mapping[str, Schema]
) -> list[Row]:
    step = type_box(box, schemas).steps[box.output]
    ordered = canonical(rows, schemas[box.input], arrival="seq" in rows[0] if rows else False)
    if isinstance(step, TopStep):
        return top(step, ordered, (), BEGINNING)
    if isinstance(step, TupleWindowsStep):
        windows = tuple_windows(step, ordered, ())
        return _stepped(results_of_tuples(step), windows, BEGINNING, END)
    assert isinstance(step, TotalsStep), "of totals"
    found = totals(step, ordered, (), BEGINNING)
    return _stepped(result_steps(step), found, BEGINNING, END)


def _run_filter(
    box: Filter, predicates: Sequence[Expression], rows: list[Row], functions: Functions | None
) -> dict[str, list[Row]]:
    made: dict[str, list[Row]] = {name: [] for name in box.outputs}
    for row in rows:
        hits = [n for n, each in enumerate(predicates) if evaluate(each, row, functions) is True]
        port = hits[0] if hits else len(predicates)
        if port < len(box.outputs):
            made[box.outputs[port]].append(row)
    return made


def _mapped(
    outputs: Sequence[tuple[str, Expression]], row: Row, functions: Functions | None = None
) -> Row:
    """The fields of a map. 0.0 is there for -0.0, so that equal rows have equal bytes."""
    made = {STIME: row[STIME]}
    for name, each in outputs:
        value = evaluate(each, row, functions)
        made[name] = value + 0.0 if isinstance(value, float) else value
    return made


def _run_aggregate(box: Aggregate, rows: list[Row], fields: Mapping[str, FieldType]) -> list[Row]:
    functions = []
    for each in box.functions:
        argument = None if each.argument is None else parse_expression(each.argument, fields)
        function = aggregate_named(each.function)
        type_ = function.type_of(None if argument is None else argument.type)
        assert type_ is not None, "a checked query"
        said = (each.parameter, each.descending)
        functions.append(TypedAggregate(function, argument, each.output, type_, *said))
    return aggregate(rows, box.size_us, box.advance_us, box.group_by, functions)


def run_task(
    task: Task, inputs: Mapping[str, list[Row]], after: int, upto: int, interval: Interval
) -> list[Row]:
    """The output over (after, upto] from the inputs over `interval`."""
    lo, hi = interval.lo, interval.hi
    if task.sided:
        join = task.steps[0]
        assert isinstance(join, JoinStep), "the step with sides"
        found = _joined(task, join, inputs, interval)
        rows = [row for row in found if after < row[STIME] <= upto]
        return canonical(_stepped(task.steps[1:], rows, after, upto), task.output_schema)
    lo = BEGINNING if task.tables else lo
    rows = [row for name in task.inputs for row in inputs[name] if lo < row[STIME] <= hi]
    arrival = len(task.inputs) == 1 and task.inputs[0] in task.source_inputs
    direct = bool(task.steps) and task.steps[0].in_order
    if not (arrival and direct):
        rows = [{k: v for k, v in row.items() if k != "seq"} for row in rows]
    rows = canonical(rows, task.input_schemas[0], arrival=arrival and direct)
    if task.recalls:
        *before, last = task.steps
        rows = _stepped(before, rows, after, upto, _fields(task.input_schemas[0]))
        own = inputs.get(task.output, [])
        if isinstance(last, TopStep):
            return canonical(top(last, rows, own, after), task.output_schema)
        if isinstance(last, TupleWindowsStep):
            return canonical(tuple_windows(last, rows, own), task.output_schema)
        assert isinstance(last, TotalsStep), "the table of a task"
        return canonical(totals(last, rows, own, after), task.output_schema)
    fields = _fields(task.input_schemas[0])
    return canonical(_stepped(task.steps, rows, after, upto, fields), task.output_schema)


def _stepped(
    steps: Sequence[Step], rows: list[Row], after: int, upto: int, fields: Sequence[str] = ()
) -> list[Row]:
    """The rows after the steps. fields: of the rows."""
    for step in cast("Sequence[AnyStep]", steps):
        match step:
            case FilterStep():
                rows = [row for row in rows if _port(step, row) == step.port]
            case MapStep():
                rows = [_mapped(step.outputs, row) for row in rows]
                rows.sort(key=lambda row: (row[STIME], *((v is None, v) for v in row.values())))
                fields = [name for name, _ in step.outputs]
            case AggregateStep():
                rows = [row for row in FORMS[step.form](step, rows) if after < row[STIME] <= upto]
            case MatchStep():
                made = matched(step, rows, fields)
                rows = [row for row in made if after < row[STIME] <= upto]
            case SessionsStep() | CumulateStep():
                rows = [row for row in spans(step, rows) if after < row[STIME] <= upto]
            case RankStep():
                rows = [row for row in ranked(step, rows) if after < row[STIME] <= upto]
            case JoinStep() | TotalsStep() | TopStep() | TupleWindowsStep():
                raise AssertionError("it is the first step of a task, or its last one")
    return rows


def _joined(
    task: Task, step: JoinStep, inputs: Mapping[str, list[Row]], interval: Interval
) -> list[Row]:
    schemas = dict(zip(task.inputs, task.input_schemas, strict=True))
    lows = (interval.lo, BEGINNING if step.table else interval.lo)
    left, right = (
        [row for row in inputs.get(name, []) if lo < row[STIME] <= interval.hi]
        for name, lo in zip((step.left, step.right), lows, strict=True)
    )
    return joined(step, (left, right), (_fields(schemas[step.left]), _fields(schemas[step.right])))


def _fields(schema: Schema) -> list[str]:
    return [field.name for field in schema.fields]


def _port(step: FilterStep, row: Row) -> int:
    hits = [n for n, each in enumerate(step.predicates) if evaluate(each, row) is True]
    return hits[0] if hits else len(step.predicates)

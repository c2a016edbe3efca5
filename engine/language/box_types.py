"""Boxes with typed expressions, and the schemas of what they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from medusa.engine.language import joins, matches, totals, tuple_windows
from medusa.engine.language.aggregate_types import aggregate_type
from medusa.engine.language.aggregates import CHOSEN, COUNTS
from medusa.engine.language.box_shapes import about, check_shape
from medusa.engine.language.operators import nullable
from medusa.engine.language.steps import (
    AggregateStep,
    CumulateStep,
    FilterStep,
    JoinStep,
    MapStep,
    RankStep,
    SessionsStep,
    SpanStep,
    Step,
    TopStep,
    TotalsStep,
    TupleWindowsStep,
    TypedAggregate,
)
from medusa.engine.language.typed import Expression, FieldRef, calls_in
from medusa.engine.language.user_functions import Declared, refuse_calls
from medusa.engine.objects.query import (
    WINDOW_END,
    WINDOW_START,
    Aggregate,
    AggregateFunction,
    Box,
    Cumulate,
    Filter,
    Join,
    Map,
    Match,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
)
from medusa.engine.objects.schema import DELETED, STIME, Field, FieldType, Schema, check_schema
from medusa.overlay.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class TypedBox:
    """A box that type-checks.

    Attributes:
        schemas: by output stream.
        steps: by output stream; a union has none.
    """

    box: Box
    schemas: Mapping[str, Schema]
    steps: Mapping[str, Step]


def type_box(
    box: Box,
    inputs: Mapping[str, Schema],
    nodes: Mapping[str, int] | None = None,
    functions: Declared | None = None,
) -> TypedBox:
    """The box with typed expressions.

    Args:
        inputs: schemas of its input streams at least.
        nodes: `FieldRef.nodes` of the input fields that an earlier step of the task makes.
        functions: those of users that its expressions may call.

    Raises:
        InvalidInputError: it does not type-check; names the box, the field and the reason.
    """
    check_shape(box)
    with about(f"box {box.name!a}"):
        for stream in box.inputs:
            if stream not in inputs:
                raise InvalidInputError(f"there is no stream {stream}")
        match box:
            case Filter():
                return _type_filter(box, _Input(inputs[box.input], nodes, functions))
            case Map():
                return _type_map(box, _Input(inputs[box.input], nodes, functions))
            case Union():
                return _type_union(box, [inputs[stream] for stream in box.inputs])
            case Join():
                return _type_join(box, inputs[box.left], inputs[box.right], functions)
            case _:
                return _type_state(box, _Input(inputs[box.input], nodes, functions), functions)


def _type_state(
    box: Aggregate | Sessions | Cumulate | TupleWindows | Rank | Match | Totals | Top,
    given: _Input,
    functions: Declared | None,
) -> TypedBox:
    """A box whose results depend on more than one tuple of its input."""
    match box:
        case Aggregate():
            return _type_aggregate(box, given)
        case Sessions() | Cumulate():
            return _type_spans(box, given)
        case Rank():
            return _type_rank(box, given.schema)
        case Totals():
            return _type_totals(box, given)
        case TupleWindows():
            return _type_tuple_windows(box, given)
        case Top():
            return _type_top(box, given.schema)
        case Match():
            return _type_match(box, given.schema, functions)


class _Input:
    """The input stream of a box, for its expressions.

    The parser is imported with the first expression: clients and idle peers start without sqlglot.
    """

    def __init__(
        self,
        schema: Schema,
        nodes: Mapping[str, int] | None = None,
        functions: Declared | None = None,
    ) -> None:
        self.schema = schema
        self.fields = {field.name: field for field in schema.fields}
        self._types = {field.name: field.type for field in schema.fields}
        self._nodes = nodes
        self._functions = functions

    def expression(self, text: str) -> Expression:
        from medusa.engine.language.parse_expression import parse_expression  # see above

        return parse_expression(text, self._types, self._nodes, self._functions)

    def predicate(self, text: str) -> Expression:
        from medusa.engine.language.parse_expression import parse_predicate  # see above

        return parse_predicate(text, self._types, self._nodes, self._functions)

    def may_be_null(self, name: str) -> bool:
        """Whether the field is nullable; `stime` is not."""
        return name in self.fields and self.fields[name].nullable

    def named(self, name: str, expression: Expression) -> Field:
        """The output field of an expression over this input."""
        if isinstance(expression, FieldRef) and expression.name in self.fields:
            return msgspec.structs.replace(self.fields[expression.name], name=name)
        return Field(name, expression.type, None, nullable(expression, self.may_be_null))


def _type_filter(box: Filter, given: _Input) -> TypedBox:
    predicates = []
    for number, text in enumerate(box.predicates):
        with about(f"expression {number}"):
            predicates.append(given.predicate(text))
    for call in (call for each in predicates for call in calls_in(each)):
        if len(box.outputs) > 1 and not call.function.deterministic:
            raise InvalidInputError(
                f"a filter with several outputs cannot call {call.function.name}, which may give "
                "another result for each of them: call it in a map, and filter by its result"
            )
    steps = {
        stream: FilterStep(tuple(predicates[: port + 1]), port)
        for port, stream in enumerate(box.outputs)
    }
    return TypedBox(box, {stream: _renamed(given.schema, stream) for stream in box.outputs}, steps)


def _type_map(box: Map, given: _Input) -> TypedBox:
    outputs: list[tuple[str, Expression]] = []
    for name, text in box.expressions:
        with about(f"output field {name[:64]!a}"):
            outputs.append((name, given.expression(text)))
    time = next((name for name, each in outputs if _is_time(each, given.schema)), None)
    made = Schema(box.output, tuple(given.named(*each) for each in outputs), time)
    check_schema(made)
    made = msgspec.structs.replace(made, key=_mapped_key(given.schema, outputs))
    return TypedBox(box, {box.output: made}, {box.output: MapStep(tuple(outputs))})


def _is_time(expression: Expression, schema: Schema) -> bool:
    return isinstance(expression, FieldRef) and expression.name == schema.time


def _mapped_key(schema: Schema, outputs: Sequence[tuple[str, Expression]]) -> tuple[str, ...]:
    """The key under its new names, if all of it passes unchanged."""
    names = {each.name: name for name, each in reversed(outputs) if isinstance(each, FieldRef)}
    key = tuple(names[field] for field in schema.key if field in names)
    return key if len(key) == len(schema.key) else ()


def _type_union(box: Union, schemas: Sequence[Schema]) -> TypedBox:
    first = schemas[0]
    shape = [(field.name, field.type) for field in first.fields]
    for stream, schema in zip(box.inputs, schemas, strict=True):
        other = [(field.name, field.type) for field in schema.fields]
        if other != shape:
            raise InvalidInputError(
                f"its inputs must have the same fields: {stream} has {_listed(other)}, "
                f"{box.inputs[0]} has {_listed(shape)}"
            )
    fields = tuple(_widest(each) for each in zip(*(s.fields for s in schemas), strict=True))
    time = first.time if all(schema.time == first.time for schema in schemas) else None
    return TypedBox(box, {box.output: Schema(box.output, fields, time)}, {})


def _type_aggregate(box: Aggregate, given: _Input) -> TypedBox:
    schema = given.schema
    if box.order_on not in {"", STIME, schema.time}:
        time = "arrival" if schema.time is None else schema.time
        raise InvalidInputError(
            f"its windows are ordered on {box.order_on[:64]!a}, but {box.input} is ordered by "
            f'{time}: order on {STIME}, or declare time="..." in the schema; of another field no '
            "boundary says which values may still come, so for ranges of it group totals"
        )
    groups = tuple(_group_field(given, name) for name in box.group_by)
    functions = tuple(_typed_function(each, given) for each in box.functions)
    fields = (
        Field(WINDOW_START, FieldType.TIMESTAMP),
        *groups,
        *(_aggregate_field(each, given) for each in functions),
    )
    made = Schema(box.output, fields)
    check_schema(made)
    made = msgspec.structs.replace(made, key=(WINDOW_START, *box.group_by))
    step = AggregateStep(box.size_us, box.advance_us, groups, functions)
    return TypedBox(box, {box.output: made}, {box.output: step})


def _type_totals(box: Totals, given: _Input) -> TypedBox:
    schema = given.schema
    if box.changes and not schema.key:
        raise InvalidInputError(f"{box.input} is no table: its schema has no key")
    groups = tuple(_group_field(given, name) for name in box.group_by)
    functions = tuple(_typed_function(each, given) for each in box.functions)
    made = totals.results_schema(box.output, groups, functions, changes=box.changes)
    check_schema(made)
    key = schema.key if box.changes else ()
    step = TotalsStep(groups, functions, key, DELETED if key and schema.deletes else "")
    check_schema(totals.totals_schema(box.output, step))
    return TypedBox(box, {box.output: made}, {box.output: step})


def _type_tuple_windows(box: TupleWindows, given: _Input) -> TypedBox:
    groups = tuple(_group_field(given, name) for name in box.group_by)
    functions = tuple(_typed_function(each, given) for each in box.functions)
    results = tuple(_aggregate_field(each, given) for each in functions)
    number = (Field(box.number, FieldType.LONG),) if box.number else ()
    made = Schema(box.output, (*groups, *results, *number))
    check_schema(made)
    fields = tuple_windows.fields_taken(functions, given.schema)
    parts = (box.size, box.advance, box.partial, groups, functions, fields, box.number)
    step = TupleWindowsStep(*parts)
    check_schema(tuple_windows.tuples_schema(box.output, step))
    return TypedBox(box, {box.output: made}, {box.output: step})


def _type_top(box: Top, schema: Schema) -> TypedBox:
    known = {field.name: field for field in schema.fields}
    for name in (*box.partition_by, *(each.field for each in box.order_by)):
        if name not in known:
            raise InvalidInputError(
                f"{name[:64]!a} is no field; there are {', '.join(known)[:200]}"
            )
    fields = (*schema.fields, *([Field(box.place, FieldType.INT)] if box.place else []))
    made = Schema(box.output, fields)
    check_schema(made)
    made = msgspec.structs.replace(made, key=totals.top_key(box.partition_by, box.place))
    parts = (box.partition_by, box.order_by, box.most, box.place, _newest_first(box, schema))
    step = TopStep(schema.fields, *parts)
    return TypedBox(box, {box.output: made}, {box.output: step})


def _type_spans(box: Sessions | Cumulate, given: _Input) -> TypedBox:
    groups = tuple(_group_field(given, name) for name in box.group_by)
    functions = tuple(_typed_function(each, given) for each in box.functions)
    fields = (
        Field(WINDOW_START, FieldType.TIMESTAMP),
        Field(WINDOW_END, FieldType.TIMESTAMP),
        *groups,
        *(_aggregate_field(each, given) for each in functions),
    )
    made = Schema(box.output, fields)
    check_schema(made)
    made = msgspec.structs.replace(made, key=(WINDOW_START, WINDOW_END, *box.group_by))
    step: SpanStep
    if isinstance(box, Sessions):
        step = SessionsStep(box.gap_us, box.longest_us, groups, functions)
    else:
        step = CumulateStep(box.step_us, box.size_us, groups, functions)
    return TypedBox(box, {box.output: made}, {box.output: step})


def _type_rank(box: Rank, schema: Schema) -> TypedBox:
    known = {field.name for field in schema.fields}
    for name in (*box.partition_by, *(each.field for each in box.order_by)):
        if name not in known:
            listed = _listed([(each.name, each.type) for each in schema.fields])
            raise InvalidInputError(
                f"it goes by {name[:64]!a}, which is no field; there are {listed}"
            )
    place = (Field(box.place, FieldType.LONG),) if box.place else ()
    made = Schema(box.output, (*schema.fields, *place), schema.time if box.size_us == 1 else None)
    check_schema(made)
    made = msgspec.structs.replace(made, key=schema.key)
    parts = (box.partition_by, box.order_by, box.most, box.place, _newest_first(box, schema))
    step = RankStep(box.size_us, schema.fields, *parts)
    return TypedBox(box, {box.output: made}, {box.output: step})


def _newest_first(box: Rank | Top, schema: Schema) -> bool:
    """Whether the order has the stream's time descending: then all of the stream's order is."""
    return any(each.field == schema.time and each.descending for each in box.order_by)


def _type_join(box: Join, left: Schema, right: Schema, functions: Declared | None) -> TypedBox:
    paired = joins.paired(box, left, right)
    pairs = _Input(paired, None, functions)
    with about("predicate"):
        predicate = pairs.predicate(box.predicate)
        joins.check_sides(predicate)
        refuse_calls(predicate, "the predicate of a join")
    results = pairs
    if box.kind in joins.ONE_SIDED:
        results = _Input(joins.left_alone(paired), None, functions)
    outputs: list[tuple[str, Expression]] = []
    for name, text in box.expressions:
        with about(f"output field {name[:64]!a}"):
            expression = results.expression(text)
            joins.check_sides(expression)
            refuse_calls(expression, "a join")
            outputs.append((name, expression))
    made = Schema(box.output, tuple(results.named(*each) for each in outputs))
    check_schema(made)
    if box.kind in joins.AS_OF and joins.equalities(predicate) is None:
        raise InvalidInputError(
            f"predicate: {box.kind.words} takes equalities of a left and a right value, joined "
            "by and"
        )
    key, deleted = joins.table_of(box, right)
    bounds = (box.before_us, box.after_us)
    step = JoinStep(box.kind, box.left, box.right, *bounds, predicate, tuple(outputs), key, deleted)
    return TypedBox(box, {box.output: made}, {box.output: step})


def _type_match(box: Match, schema: Schema, functions: Declared | None) -> TypedBox:
    def predicate(text: str, seen: Schema) -> Expression:
        found = _Input(seen, None, functions).predicate(text)
        refuse_calls(found, "a pattern")
        return found

    made, step = matches.type_match(box, schema, predicate)
    return TypedBox(box, {box.output: made}, {box.output: step})


def _group_field(given: _Input, name: str) -> Field:
    if name not in given.fields:
        known = _listed([(each.name, each.type) for each in given.schema.fields])
        raise InvalidInputError(f"it groups by {name[:64]!a}, which is no field; there are {known}")
    return given.fields[name]


def _typed_function(each: AggregateFunction, given: _Input) -> TypedAggregate:
    with about(f"output field {each.output[:64]!a}"):
        argument = None if each.argument is None else given.expression(each.argument)
        if argument is not None:
            refuse_calls(argument, f"{each.function}")
        type_ = aggregate_type(each.function, None if argument is None else argument.type)
        if type_ is None:
            what = "nothing" if argument is None else argument.type
            raise InvalidInputError(f"{each.function} does not take {what}")
        said = (each.parameter, each.descending)
        return TypedAggregate(each.function, argument, each.output, type_, *said)


def _aggregate_field(each: TypedAggregate, given: _Input) -> Field:
    size = None
    if isinstance(each.argument, FieldRef) and each.function in CHOSEN:
        size = given.named(each.output, each.argument).size
    return Field(each.output, each.type, size, nullable=each.function not in COUNTS)


def _widest(fields: Sequence[Field]) -> Field:
    """One field that takes the values of all of these."""
    sizes = [field.size for field in fields if field.size is not None]
    return Field(
        fields[0].name,
        fields[0].type,
        max(sizes) if len(sizes) == len(fields) else None,
        any(field.nullable for field in fields),
    )


def _renamed(schema: Schema, name: str) -> Schema:
    return Schema(name, schema.fields, schema.time, schema.key)


def _listed(fields: Sequence[tuple[str, FieldType]]) -> str:
    text = ", ".join(f"{name} {type_}" for name, type_ in fields)
    return text if len(text) <= 200 else text[:197] + "..."

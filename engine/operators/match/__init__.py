"""Sequences of tuples that fit a pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from medusa.engine.aggregates.rows import aggregate_named
from medusa.engine.expressions.typed import Expression, FieldRef
from medusa.engine.expressions.user_functions import refuse_calls
from medusa.engine.objects.query import Contiguity, Match, Measure
from medusa.engine.objects.schema import STIME, Field, FieldType, Schema, check_schema
from medusa.engine.operators.match.pattern import (
    ANY_TUPLE,
    PREVIOUS,
    check_pattern,
    conditioned,
    pattern_text,
    read_pattern,
)
from medusa.engine.operators.match.step import MatchStep, TypedMeasure, Variable
from medusa.engine.operators.shared.operator import (
    MAX_WINDOW_US,
    BoxClass,
    Inputs,
    Operator,
    State,
    TypedBox,
    seconds,
)
from medusa.engine.operators.shared.parameters import (
    Parameters,
    Written,
    numbered,
    read_groups,
    us_to_seconds,
)
from medusa.engine.operators.shared.python import call, constant, dictionary, span
from medusa.engine.operators.shared.texts import measure_of, measure_text
from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError


class MatchOperator(Operator[Match, MatchStep]):
    word = "match"
    state = State.INPUT
    box_class = BoxClass.CONVERGENT

    def check(self) -> None:
        if not 0 < self.box.within_us <= MAX_WINDOW_US:
            raise InvalidInputError("within must be more than 0 and at most 366 days")
        check_pattern(self.box)

    def typed(self, inputs: Inputs) -> TypedBox[MatchStep]:
        box, schema = self.box, inputs.schemas[self.box.input]
        fields = {each.name: each for each in schema.fields}
        for name in box.partition_by:
            if name not in fields:
                raise InvalidInputError(
                    f"it is partitioned by {name[:64]!a}, which is no field; "
                    f"{alternatives(name, fields)}"
                )
        partition = tuple(fields[name] for name in box.partition_by)
        variables = _variables(box, schema, inputs)
        measures = tuple(_measure(each, variables, fields) for each in box.measures)
        results = (_measured(each, fields, variables) for each in measures)
        made = Schema(box.output, (*partition, *results))
        check_schema(made)
        step = MatchStep(partition, variables, box.within_us, box.contiguity, measures)
        return TypedBox({box.output: made}, {box.output: step})

    def in_words(self, stream: str, width_us: int | None) -> str:
        box = self.box
        by = f" by {', '.join(box.partition_by)}" if box.partition_by else ""
        return (
            f"match of {pattern_text(box.steps)}{by}, within {seconds(box.within_us)}, contiguity "
            f"{box.contiguity}"
        )

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Match:
        pattern = parameters.take("pattern")
        within = parameters.take_seconds("within")
        if pattern is None or within is None:
            raise InvalidInputError(
                "a match needs a pattern, and within, its longest time in seconds"
            )
        contiguity = parameters.take("contiguity") or Contiguity.STRICT
        if contiguity not in set(Contiguity):
            known = ", ".join(Contiguity)
            raise InvalidInputError(f"contiguity {contiguity[:40]!a} is not one of {known}")
        variables = parameters.take_numbered("variable")
        conditions = parameters.take_numbered("condition")
        steps = conditioned(read_pattern(pattern), variables, conditions)
        calls = parameters.take_numbered("measure")
        names = parameters.take_numbered("measure-name")
        if len(calls) != len(names):
            raise InvalidInputError(f"it has {len(calls)} measures and {len(names)} measure-names")
        groups = read_groups(parameters, "partition-by")
        measures = tuple(measure_of(each, name) for each, name in zip(calls, names, strict=True))
        parts = (groups, steps, within, measures, Contiguity(contiguity))
        return Match(name, inputs[0], outputs[0], *parts)

    def parameters(self) -> Written:
        box = self.box
        conditions = [each for each in box.steps if each.condition != ANY_TUPLE]
        found = [
            ("pattern", pattern_text(box.steps)),
            ("within", us_to_seconds(box.within_us)),
            ("contiguity", str(box.contiguity)),
            *numbered("variable", [each.variable for each in conditions]),
            *numbered("condition", [each.condition for each in conditions]),
            *numbered("measure", [measure_text(each) for each in box.measures]),
            *numbered("measure-name", [each.output for each in box.measures]),
        ]
        if box.partition_by:
            found.append(("partition-by", ",".join(box.partition_by)))
        return found

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.operators.match.sql import match_sql  # loads sqlglot

        return match_sql(self.box)

    def python(self, streams: Sequence[str]) -> str:
        box = self.box
        where = {each.variable: each.condition for each in box.steps if each.condition != ANY_TUPLE}
        measures = {each.output: measure_text(each) for each in box.measures}
        arguments = [constant(pattern_text(box.steps)), f"within={span(box.within_us)}"]
        if box.partition_by:
            arguments.append(f"partition_by=[{', '.join(map(constant, box.partition_by))}]")
        arguments += [
            f"{name}={dictionary(texts)}"
            for name, texts in (("where", where), ("measures", measures))
            if texts
        ]
        if box.contiguity is not Contiguity.STRICT:
            arguments.append(f"contiguity={constant(box.contiguity.value)}")
        return call(f"{streams[0]}.match", arguments)


def _predicate(text: str, seen: Schema, inputs: Inputs) -> Expression:
    found = inputs.fields(seen).predicate(text)
    refuse_calls(found, "a pattern")
    return found


def _variables(box: Match, schema: Schema, inputs: Inputs) -> tuple[Variable, ...]:
    found: list[Variable] = []
    seen = [*schema.fields, *_fields_of(PREVIOUS, schema)]
    for step in box.steps:
        if not step.negated:
            seen += _fields_of(step.variable, schema)
        try:
            condition = _predicate(step.condition, Schema(box.output, tuple(seen)), inputs)
        except InvalidInputError as error:
            raise InvalidInputError(f"condition of {step.variable}: {error}") from None
        if step.negated:
            last = found[-1]
            forbidden = (*last.forbidden, condition)
            found[-1] = Variable(
                last.name, last.condition, last.least, last.most, last.reluctant, forbidden
            )
        else:
            found.append(Variable(step.variable, condition, step.least, step.most, step.reluctant))
    return tuple(found)


def _fields_of(variable: str, schema: Schema) -> list[Field]:
    """The fields of the last tuple of a variable; all are nullable, because it may have no
    tuple."""
    return [
        msgspec.structs.replace(each, name=f"{variable}.{each.name}", nullable=True)
        for each in (*schema.fields, Field(STIME, FieldType.TIMESTAMP))
    ]


def _measure(
    measure: Measure, variables: Sequence[Variable], fields: dict[str, Field]
) -> TypedMeasure:
    names = [each.name for each in variables]
    if measure.variable and measure.variable not in names:
        raise InvalidInputError(f"!{measure.variable} takes no tuples that could be measured")
    place = names.index(measure.variable) if measure.variable else None
    argument = None
    if measure.field:
        types = {STIME: FieldType.TIMESTAMP} | {name: each.type for name, each in fields.items()}
        if measure.field not in types:
            raise InvalidInputError(
                f"measure {measure.output[:64]!a}: there is no field {measure.field[:64]!a}; "
                f"{alternatives(measure.field, types)}"
            )
        argument = FieldRef(measure.field, types[measure.field])
    function = aggregate_named(measure.function)
    type_ = function.type_of(None if argument is None else argument.type)
    if type_ is None:
        given = "nothing" if argument is None else argument.type
        raise InvalidInputError(
            f"measure {measure.output[:64]!a}: {measure.function} does not take {given}"
        )
    return TypedMeasure(measure.function, place, argument, measure.output, type_)


def _measured(
    measure: TypedMeasure, fields: dict[str, Field], variables: Sequence[Variable]
) -> Field:
    """The output field of a measure."""
    if measure.function == "count":
        return Field(measure.output, measure.type)
    given = fields.get(measure.argument.name) if measure.argument is not None else None
    size = None
    if measure.function not in {"sum", "avg"} and given is not None:
        size = given.size
    taken = measure.variable is None or variables[measure.variable].least > 0
    nullable = not taken or (given is not None and given.nullable)
    may_not_fit = measure.function == "sum" and measure.type is FieldType.LONG
    return Field(measure.output, measure.type, size, nullable or may_not_fit)


# -- automaton -------------------------------------------------------------------------------------

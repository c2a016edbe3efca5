"""Maps: other fields of the same tuples."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from medusa.engine.expressions.typed import (
    Call,
    Expression,
    FieldRef,
    nodes_of,
    parts_of,
    without_calls,
)
from medusa.engine.objects.query import Map
from medusa.engine.objects.schema import SCENARIO, STIME, FieldType, Schema, check_schema
from medusa.engine.operators.shared.operator import (
    BoxClass,
    Inputs,
    Operator,
    State,
    TypedBox,
    about,
)
from medusa.engine.operators.shared.parameters import Parameters, Written, numbered
from medusa.engine.operators.shared.python import call, named_arguments
from medusa.engine.operators.shared.step import Near, Step, Windows
from medusa.overlay.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class MapStep(Step):
    """A projection: (output field, expression) pairs; stime is kept."""

    outputs: tuple[tuple[str, Expression], ...]

    word: ClassVar[str] = "map"

    def nodes(self, before: Mapping[str, int]) -> int:
        return sum(self.nodes_after(before).values())

    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        return {name: nodes_of(expression, before) for name, expression in self.outputs}

    @property
    def in_order(self) -> bool:
        return False

    @property
    def reach(self) -> Windows | Near | None:
        return None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return tuple(each for _, each in self.outputs)

    def by_case(self) -> MapStep:
        return MapStep((*self.outputs, (SCENARIO, FieldRef(SCENARIO, FieldType.LONG))))

    @property
    def mapping(self) -> tuple[tuple[str, Expression], ...] | None:
        return self.outputs

    @property
    def projection(self) -> tuple[tuple[str, FieldRef], ...] | None:
        chosen = [(name, each) for name, each in self.outputs if isinstance(each, FieldRef)]
        return tuple(chosen) if len(chosen) == len(self.outputs) else None

    def carried(self, made: Schema) -> tuple[FieldRef, ...]:
        parts = (part for each in self.expressions for part in parts_of(each))
        read = {part.name: part.type for part in parts if isinstance(part, FieldRef)}
        return tuple(FieldRef(name, type_) for name, type_ in sorted(read.items()) if name != STIME)

    def with_results(self, results: Mapping[Call, FieldRef], made: Schema) -> tuple[Step, ...]:
        return (MapStep(tuple((name, without_calls(e, results)) for name, e in self.outputs)),)


class MapOperator(Operator[Map, MapStep]):
    word = "map"
    state = State.NONE
    box_class = BoxClass.REPEATABLE

    def check(self) -> None:
        if not self.box.expressions:
            raise InvalidInputError("a map needs at least one output field")

    def typed(self, inputs: Inputs) -> TypedBox[MapStep]:
        box, given = self.box, inputs.of(self.box.input)
        outputs: list[tuple[str, Expression]] = []
        for name, text in box.expressions:
            with about(f"output field {name[:64]!a}"):
                outputs.append((name, given.expression(text)))
        time = next((name for name, each in outputs if _is_time(each, given.schema)), None)
        made = Schema(box.output, tuple(given.named(*each) for each in outputs), time)
        check_schema(made)
        made = msgspec.structs.replace(made, key=_mapped_key(given.schema, outputs))
        return TypedBox({box.output: made}, {box.output: MapStep(tuple(outputs))})

    def in_words(self, stream: str, width_us: int | None) -> str:
        return f"map: {', '.join(f'{text} as {name}' for name, text in self.box.expressions)}"

    @property
    def changes_read(self) -> tuple[str, ...]:
        return ()

    def makes_table(self, tables: Collection[str]) -> bool:
        return self.box.input in tables

    def unchanged(self, field: str) -> str | None:
        return next((name for name, text in self.box.expressions if text.strip() == field), None)

    @property
    def fields_made(self) -> int:
        return len(self.box.expressions)

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Map:
        texts = parameters.take_numbered("expression")
        names = parameters.take_numbered("output-field-name")
        if len(texts) != len(names):
            raise InvalidInputError(
                f"it has {len(texts)} expressions and {len(names)} output field names"
            )
        return Map(name, inputs[0], outputs[0], tuple(zip(names, texts, strict=True)))

    def parameters(self) -> Written:
        return [
            *numbered("output-field-name", [name for name, _ in self.box.expressions]),
            *numbered("expression", [text for _, text in self.box.expressions]),
        ]

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts  # loads sqlglot
        from medusa.engine.operators.shared import sql

        expressions, schema = self.box.expressions, schemas[self.box.input]
        if sql.is_same(expressions, schema):
            # a UNION in parentheses is not taken for the map's input
            (name, text), *more = expressions
            expressions = ((name, f"({text})"), *more)
        return f"SELECT {sql.items_sql(expressions)} FROM {sql_texts.object_sql(self.box.input)}"

    def python(self, streams: Sequence[str]) -> str:
        return call(f"{streams[0]}.map", named_arguments(dict(self.box.expressions)))


def _is_time(expression: Expression, schema: Schema) -> bool:
    return isinstance(expression, FieldRef) and expression.name == schema.time


def _mapped_key(schema: Schema, outputs: Sequence[tuple[str, Expression]]) -> tuple[str, ...]:
    """The key under its new names, if all its fields pass unchanged; else no key."""
    names = {each.name: name for name, each in reversed(outputs) if isinstance(each, FieldRef)}
    key = tuple(names[field] for field in schema.key if field in names)
    return key if len(key) == len(schema.key) else ()

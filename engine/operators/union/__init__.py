"""Unions: the tuples of several streams in one order. A task merges its inputs anyway, so a union
has no step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Never

from medusa.engine.objects.query import Union
from medusa.engine.objects.schema import Field, Schema
from medusa.engine.operators.shared.operator import (
    BoxClass,
    Inputs,
    Operator,
    State,
    TypedBox,
    listed,
)
from medusa.engine.operators.shared.parameters import Parameters, Written
from medusa.engine.operators.shared.python import call
from medusa.overlay.errors import InvalidInputError

MAX_INPUTS: Final = 256
"""Inputs of a union: each may be a log to wait for."""


class UnionOperator(Operator[Union, Never]):
    word = "union"
    most_inputs = MAX_INPUTS
    state = State.NONE
    box_class = BoxClass.DETERMINISTIC
    has_step = False

    def check(self) -> None:
        if not 0 < len(self.box.inputs) <= MAX_INPUTS:
            raise InvalidInputError(f"a union takes 1 to {MAX_INPUTS} inputs")

    def typed(self, inputs: Inputs) -> TypedBox[Never]:
        box = self.box
        schemas = [inputs.schemas[stream] for stream in box.inputs]
        first = schemas[0]
        shape = [(field.name, field.type) for field in first.fields]
        for stream, schema in zip(box.inputs, schemas, strict=True):
            other = [(field.name, field.type) for field in schema.fields]
            if other != shape:
                raise InvalidInputError(
                    f"its inputs must have the same fields: {stream} has {listed(other)}, "
                    f"{box.inputs[0]} has {listed(shape)}"
                )
        fields = tuple(_widest(each) for each in zip(*(s.fields for s in schemas), strict=True))
        time = first.time if all(schema.time == first.time for schema in schemas) else None
        return TypedBox({box.output: Schema(box.output, fields, time)}, {})

    def unchanged(self, field: str) -> str | None:
        return field

    def needs_log(self, *, after_state: bool) -> bool:
        return True

    def in_words(self, stream: str, width_us: int | None) -> str:
        return "union: into order"

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Union:
        return Union(name, inputs, outputs[0])

    def parameters(self) -> Written:
        return []

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts  # loads sqlglot

        return " UNION ALL ".join(
            f"SELECT * FROM {sql_texts.object_sql(e)}" for e in self.box.inputs
        )

    def python(self, streams: Sequence[str]) -> str:
        return call(f"{streams[0]}.union", streams[1:])


def _widest(fields: Sequence[Field]) -> Field:
    """Return one field that takes the values of all of these."""
    sizes = [field.size for field in fields if field.size is not None]
    return Field(
        fields[0].name,
        fields[0].type,
        max(sizes) if len(sizes) == len(fields) else None,
        any(field.nullable for field in fields),
    )

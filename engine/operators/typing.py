"""A box, checked and typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from medusa.engine.expressions.user_functions import Declared
from medusa.engine.objects.query import Box
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.registry import AnyStep, operator_of
from medusa.engine.operators.shared.operator import (
    B,
    Inputs,
    Operator,
    S_co,
    TypedBox,
    about,
    refuse_repeated,
    renamed,
)
from medusa.overlay.errors import InvalidInputError

MAX_BOX_NAME: Final = 64
"""Characters: error messages and screens show it."""


class TypedBoxes:
    """Boxes that the reader of a script has typed: over the same inputs nobody types them again."""

    def __init__(self) -> None:
        self._made: dict[Box, tuple[list[Schema], TypedBox[AnyStep]]] = {}

    def add(self, box: Box, inputs: Mapping[str, Schema], made: TypedBox[AnyStep]) -> None:
        """Add a box. inputs: the schemas of its input streams at least."""
        self._made[box] = (_fields_read(box, inputs), made)

    def typed(
        self, box: Box, inputs: Mapping[str, Schema], functions: Declared
    ) -> TypedBox[AnyStep]:
        """The box with typed expressions: as noted by `add`; else, or if the box was typed over
        other inputs or with other functions, by `type_box`.

        Raises:
            InvalidInputError: as `type_box`.
        """
        read, made = self._made.get(box, ([], None))
        if made is None or read != _fields_read(box, inputs):
            return type_box(box, inputs, functions=functions)
        calls = (call.function for step in made.steps.values() for call in step.calls)
        if any(functions.get(each.name) != each for each in calls):
            return type_box(box, inputs, functions=functions)
        return made


def _fields_read(box: Box, inputs: Mapping[str, Schema]) -> list[Schema]:
    """The schemas by which a box is typed; their names do not matter."""
    return [renamed(inputs[stream], "") for stream in box.inputs]


def check_shape(box: Box) -> None:
    """Check names, ports and windows, which need no schema.

    Raises:
        InvalidInputError: names the box and the reason.
    """
    with about(f"box {box.name[:MAX_BOX_NAME]!a}"):
        if not 0 < len(box.name) <= MAX_BOX_NAME or not box.name.isprintable():
            raise InvalidInputError(f"its name must have 1 to {MAX_BOX_NAME} printable characters")
        streams = (*box.inputs, *box.outputs)
        for stream in streams:
            if not stream or not stream.isprintable():
                raise InvalidInputError(f"{stream[:80]!a} is not the name of a stream")
        refuse_repeated("stream", streams)
        operator_of(box).check()


def type_box(
    box: Box,
    inputs: Mapping[str, Schema],
    nodes: Mapping[str, int] | None = None,
    functions: Declared | None = None,
) -> TypedBox[AnyStep]:
    """The box with typed expressions.

    Args:
        inputs: schemas, at least of its input streams.
        nodes: `FieldRef.nodes` of the input fields that an earlier step of the task makes.
        functions: the functions of users that its expressions may call.

    Raises:
        InvalidInputError: it does not type-check; names the box, the field and the reason.
    """
    return typed(operator_of(box), Inputs(inputs, nodes, functions))


def typed(operator: Operator[B, S_co], inputs: Inputs) -> TypedBox[S_co]:
    """The box of an operator with typed expressions. Raises: InvalidInputError: see `type_box`."""
    box = operator.box
    check_shape(box)
    with about(f"box {box.name!a}"):
        for stream in box.inputs:
            if stream not in inputs.schemas:
                raise InvalidInputError(f"there is no stream {stream}")
        return operator.typed(inputs)

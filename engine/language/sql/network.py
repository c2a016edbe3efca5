"""Collects the boxes of a script's statements, and checks each as it is added."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from medusa.engine.expressions.printing import name_text
from medusa.engine.expressions.user_functions import Declared
from medusa.engine.language.check import MAX_BOXES
from medusa.engine.language.sql.errors import Source
from medusa.engine.objects.query import Box, Filter, Map, Union
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.registry import AnyStep, operator_of
from medusa.engine.operators.shared.operator import TypedBox
from medusa.engine.operators.typing import MAX_BOX_NAME, TypedBoxes, type_box

MAX_OUTPUTS: Final = 4096
"""Expressions for the output fields of all boxes of a query: a `*` stands for up to 256 of them.
Typing one takes some 0.1 ms."""

_LAST: Final = "/"


class Boxes:
    """The boxes of one query.

    Args:
        known: the schemas of streams that exist before the query. tables: the streams among these
            that are tables. functions: the functions of users.

    Attributes:
        schemas: the schemas of all streams, those of the boxes included.
        tables: the streams that are tables: of each key the newest tuple counts.
    """

    def __init__(
        self,
        source: Source,
        known: Mapping[str, Schema],
        tables: Collection[str] = (),
        functions: Declared | None = None,
    ) -> None:
        self.schemas = dict(known)
        self.tables = set(tables)
        self._source = source
        self._functions = functions
        self._boxes: list[Box] = []
        self._typed: dict[str, TypedBox[AnyStep]] = {}
        self._named: set[str] = set()
        self._found: set[str] = set()
        self._prefix = ""
        self._outputs = 0

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Return all boxes, each after those whose output it reads."""
        return tuple(self._boxes)

    def note_typed(self, known: TypedBoxes) -> None:
        """Add the boxes, as they were typed here, to `known`."""
        for box in self._boxes:
            typed = self._typed.get(box.outputs[0])
            if typed is not None:
                known.add(box, self.schemas, typed)

    def calls(self, node: exp.Expr) -> bool:
        """Whether a part of the text calls a function of a user."""
        known = self._functions or {}
        return any(each.name.lower() in known for each in node.find_all(exp.Anonymous))

    def begin(self, stream: str) -> None:
        """Note that the steps of this stream follow: the names of their streams begin with its
        name."""
        self._prefix = stream
        self._found = set()

    def add(self, box: Box, at: exp.Expr | int) -> Schema:
        """Add a step, with a new name and output; or find an equal step. Args: box: a box with one
        output; its name is a word for its work.
            at: the part of the text that it stands for.

        Returns:
            The schema of its output.

        Raises:
            PointedError: it does not type-check.
        """
        for made in self._boxes:
            if _blank(made) == _blank(box):
                self._found.add(made.outputs[0])
                return self.schemas[made.outputs[0]]
        stream = self._free(f"{self._prefix}/{box.name}")
        name = stream.removeprefix(self._prefix.rpartition(_LAST)[0] + _LAST).replace(_LAST, ".")
        box = msgspec.structs.replace(_made(box, stream), name=name[-MAX_BOX_NAME:])
        return self._add(box, at)[0]

    def add_split(self, box: Filter, at: exp.Expr | int) -> None:
        """Add a filter that keeps its name and its outputs."""
        self._named.update(box.outputs)
        self._add(box, at)

    def finish(self, schema: Schema, stream: str, name: str, at: exp.Expr | int) -> Schema:
        """Give the last step of a statement the statement's stream as its output.

        Args:
            schema: the schema of the step's output. stream: the new name of the output. name: the
                new name of the box.
        """
        for number, box in enumerate(self._boxes):
            if box.outputs != (schema.name,):
                continue
            if schema.name not in self._named:
                self._rename(schema.name, stream)
                self._boxes[number] = msgspec.structs.replace(self._boxes[number], name=name)
                self._named.add(stream)
                return self.schemas[stream]
            if schema.name in self._found:  # an earlier statement made the same stream
                self._named.add(stream)
                made = msgspec.structs.replace(_made(box, stream), name=name)
                return self._add(made, at)[0]
        self._named.add(stream)  # the output has a name already: it is another stream, unchanged
        if schema.name in self.tables:
            same = tuple((each.name, name_text(each.name)) for each in schema.fields)
            return self._add(Map(name, schema.name, stream, same), at)[0]
        return self._add(Union(name, (schema.name,), stream), at)[0]

    def _add(self, box: Box, at: exp.Expr | int) -> list[Schema]:
        self._check_size(box, at)
        with self._source.pointing(at):
            typed = type_box(box, self.schemas, functions=self._functions)
        self.schemas.update(typed.schemas)
        self._boxes.append(box)
        self._typed[box.outputs[0]] = typed
        if operator_of(box).makes_table(self.tables):
            self.tables.update(box.outputs)
        return [typed.schemas[stream] for stream in box.outputs]

    def _check_size(self, box: Box, at: exp.Expr | int) -> None:
        """Refuse a box whose expressions would take long to type, before typing them."""
        if len(self._boxes) == MAX_BOXES:
            raise self._source.refusal(
                f"the query is more than {MAX_BOXES} boxes: make several queries of it", at
            )
        self._outputs += operator_of(box).fields_made
        if self._outputs > MAX_OUTPUTS:
            raise self._source.refusal(
                f"the query computes more than {MAX_OUTPUTS:,} fields: make several queries of it, "
                "or select fewer",
                at,
            )

    def _free(self, stream: str) -> str:
        if stream not in self.schemas:
            return stream
        number = 2
        while f"{stream}_{number}" in self.schemas:
            number += 1
        return f"{stream}_{number}"

    def _rename(self, old: str, new: str) -> None:
        schema = self.schemas.pop(old)
        self.schemas[new] = msgspec.structs.replace(schema, name=new)
        (step,) = self._typed.pop(old).steps.values() or (None,)
        self._typed[new] = TypedBox({new: self.schemas[new]}, {} if step is None else {new: step})
        for box in self._boxes:
            if old in box.inputs:  # a join's step has the names of its inputs
                self._typed.pop(box.outputs[0], None)
        self._boxes = [box.renamed(lambda n: new if n == old else n) for box in self._boxes]
        if old in self.tables:
            self.tables.remove(old)
            self.tables.add(new)


def _blank(box: Box) -> Box:
    return msgspec.structs.replace(_made(box, ""), name="")


def _made(box: Box, stream: str) -> Box:
    """The box with another name of its one output."""
    own = box.outputs[0]
    return box.renamed(lambda name: stream if name == own else name)

"""The streams of a document of Borealis, as far as they are known while its boxes are read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Box
from medusa.engine.objects.schema import STIME, FieldType, Schema
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.typing import type_box
from medusa.engine.xml.tree import Node
from medusa.overlay.errors import InvalidInputError

SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class OldBox:
    """A `<box>` as a document of Borealis has it.

    Attributes:
        parameters: its `<parameter>` elements. tables: the streams of its `<access>` elements.
    """

    node: Node
    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[Node, ...]
    tables: tuple[str, ...]

    def given(self, name: str) -> str | None:
        """The value of that parameter; None: the box does not have it."""
        found = (each for each in self.parameters if each.attributes.get("name") == name)
        return next((each.attributes.get("value") for each in found), None)

    def refuse_ports(self, inputs: int, outputs: int = 1) -> None:
        """Raises: InvalidInputError: the box has another number of inputs or outputs."""
        for what, has, wanted in (
            ("input", self.inputs, inputs),
            ("output", self.outputs, outputs),
        ):
            if len(has) != wanted:
                raise self.node.error(
                    f"a box of type {self.kind} has {wanted} {what}, not {len(has)}"
                )


@dataclass(frozen=True, slots=True)
class OldTable:
    """A `<table>`: its stream, its fields with the key, and whether boxes change it."""

    node: Node
    name: str
    schema: Schema
    made: bool

    @property
    def source(self) -> StreamDefinition | None:
        """The stream to which its rows are posted; None: boxes make them."""
        return None if self.made else StreamDefinition(self.name, self.schema.name, table=True)


@dataclass(frozen=True, slots=True)
class Starts:
    """A field that has the start of a tumbling window, in tuples that the window made. The window
    has that many microseconds; the tuple's stime is its last one."""

    field: str
    size_us: int


@dataclass(slots=True)
class Streams:
    """The streams of a document that have been read.

    Attributes:
        schemas: the schemas, by stream.
        slack: the streams whose order allows late tuples: their sources have a slack.
        tables: the tables, by stream.
        remarks: see `medusa.engine.language.document.Document`.
    """

    schemas: dict[str, Schema]
    slack: set[str]
    tables: Mapping[str, OldTable] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    _starts: dict[str, Starts] = field(default_factory=dict)

    def schema(self, stream: str) -> Schema:
        """Raises: InvalidInputError: there is no such stream."""
        if stream not in self.schemas:
            raise InvalidInputError(f"there is no stream {stream}")
        return self.schemas[stream]

    def remark(self, text: str) -> None:
        if text not in self.remarks:
            self.remarks.append(text)

    def learn(self, box: Box) -> None:
        """Note the outputs of a box of ours. Raises: InvalidInputError: the box does not
        type-check."""
        made = type_box(box, self.schemas).schemas
        inputs, outputs = box.inputs, box.outputs
        starts = {self._starts.get(stream) for stream in inputs}
        (passed,) = starts if len(starts) == 1 else (None,)
        for stream in outputs:
            self.schemas[stream] = made[stream]
            if self.slack.issuperset(inputs):
                self.slack.add(stream)
            if passed is not None and (name := operator_of(box).unchanged(passed.field)):
                self._starts[stream] = Starts(name, passed.size_us)

    def starts(self, stream: str, starts: Starts) -> None:
        """Note that this field of the stream has the starts of windows."""
        self._starts[stream] = starts

    def check_order(self, stream: str, name: str, spans_us: Sequence[int]) -> None:
        """Whether ranges of a field are ranges of the stream's time.

        Args:
            spans_us: the lengths by which the ranges are cut, such as size and advance of a window.

        Raises:
            InvalidInputError: a range of the field is no range of the time; names the field and the
                stream.
        """
        schema = self.schema(stream)
        if name in {STIME, schema.time}:
            return
        starts = self._starts.get(stream)
        if starts is not None and starts.field == name:
            if any(span % starts.size_us for span in spans_us):
                raise InvalidInputError(
                    f"{name} is the start of a window of {starts.size_us / SECOND_US:g} s, and "
                    f"{stream} is ordered by the windows' ends: take multiples of that, or order "
                    f"on {STIME}"
                )
            return
        time = "arrival" if schema.time is None else schema.time
        raise InvalidInputError(
            f"it is ordered on {name[:64]!a}, but {stream} is ordered by {time}: order on {STIME}, "
            'or declare time="..." in the schema'
        )


def inferred_time(schema: Schema, ordered: Collection[str]) -> str | None:
    """The time of a schema that declares none: the one of its fields that the boxes of the document
    are ordered on, an int or a double of seconds or a timestamp."""
    types = (FieldType.INT, FieldType.SINGLE, FieldType.DOUBLE, FieldType.TIMESTAMP)
    found = [each for each in schema.fields if each.name in ordered and each.type in types]
    return found[0].name if len(found) == 1 and not found[0].nullable else None


def ordered_fields(boxes: Sequence[OldBox]) -> frozenset[str]:
    """The fields that the boxes' parameters name as their order."""
    names = ("order-on-field", "left-order-on-field", "right-order-on-field", "order-on")
    return frozenset(
        value.strip() for box in boxes for name in names if (value := box.given(name)) is not None
    )

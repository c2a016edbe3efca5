"""Top-N of partitions so far, as tables. A task of a top reads its own output as a table, as group
aggregates do (`medusa.engine.operators.totals.step`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import msgspec

from medusa.engine.objects.query import OrderBy, Top
from medusa.engine.objects.schema import Field, FieldType, Schema, check_schema
from medusa.engine.operators.shared.operator import BoxClass, Inputs, Operator, State, TypedBox
from medusa.engine.operators.shared.order import check_order, newest_first
from medusa.engine.operators.shared.parameters import Parameters, Written, order_written, read_order
from medusa.engine.operators.shared.python import first_python
from medusa.engine.operators.shared.step import RecallingStep
from medusa.engine.operators.shared.texts import order_text
from medusa.overlay.errors import InvalidInputError

MOST_PLACES: Final = 32
"""The most places of a partition: each place costs a pass over the new tuples."""


@dataclass(frozen=True, slots=True)
class TopStep(RecallingStep):
    """The first tuples of partitions: see `medusa.engine.objects.query.Top`.

    Attributes:
        fields: the fields of the input, all of which the output has. newest_first: whether the last
            of equal tuples of one stime comes first.
    """

    fields: tuple[Field, ...]
    partition_by: tuple[str, ...]
    order_by: tuple[OrderBy, ...]
    most: int
    place: str
    newest_first: bool

    word: ClassVar[str] = "top"

    def nodes(self, before: Mapping[str, int]) -> int:
        del before
        return self.most * len(self.fields)

    @property
    def in_order(self) -> bool:
        return True

    def check_unrevised(self, output: str, source: str) -> None:
        raise InvalidInputError(
            f"{output} is a table of what {source} has so far, whose tuples may be revised: "
            "declare it without a key"
        )


class TopOperator(Operator[Top, TopStep]):
    word = "top"
    state = State.OUTPUT
    box_class = BoxClass.DETERMINISTIC

    def check(self) -> None:
        box = self.box
        if not 1 <= box.most <= MOST_PLACES:
            raise InvalidInputError(f"it keeps {box.most} places; 1 to {MOST_PLACES} are allowed")
        if not box.order_by or not box.partition_by:
            raise InvalidInputError("it needs an order, and fields by which it is partitioned")
        if not box.place and box.most > 1:
            raise InvalidInputError("its tuples are told apart by their place: name the field")

    def typed(self, inputs: Inputs) -> TypedBox[TopStep]:
        box, schema = self.box, inputs.schemas[self.box.input]
        check_order(box, schema)
        place = (Field(box.place, FieldType.INT),) if box.place else ()
        made = Schema(box.output, (*schema.fields, *place))
        check_schema(made)
        key = (*box.partition_by, *(each.name for each in place))
        made = msgspec.structs.replace(made, key=key)
        parts = (box.partition_by, box.order_by, box.most, box.place, newest_first(box, schema))
        return TypedBox({box.output: made}, {box.output: TopStep(schema.fields, *parts)})

    def in_words(self, stream: str, width_us: int | None) -> str:
        order = ", ".join(map(order_text, self.box.order_by))
        by = " and ".join(self.box.partition_by)
        return f"a table of the first {self.box.most:,} so far of each {by}, by {order}"

    def makes_table(self, tables: Collection[str]) -> bool:
        return True

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Top:
        return Top(name, inputs[0], outputs[0], *read_order(parameters))

    def parameters(self) -> Written:
        return order_written(self.box)

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts  # loads sqlglot
        from medusa.engine.operators.shared import sql

        table = sql_texts.object_sql(self.box.input)
        return sql.first_sql(self.box, schemas[self.box.input], table)

    def python(self, streams: Sequence[str]) -> str:
        return first_python(self.box, streams[0])

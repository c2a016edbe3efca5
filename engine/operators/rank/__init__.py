"""Top-N of windows of stime: the first tuples in an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import msgspec

from medusa.engine.objects.query import WINDOW_START, OrderBy, Rank
from medusa.engine.objects.schema import SCENARIO, STIME, Field, FieldType, Schema, check_schema
from medusa.engine.operators.shared.operator import (
    MAX_WINDOW_US,
    BoxClass,
    Inputs,
    Operator,
    State,
    TypedBox,
    refuse_repeated,
    seconds,
)
from medusa.engine.operators.shared.order import check_order, newest_first
from medusa.engine.operators.shared.parameters import (
    Parameters,
    Written,
    order_written,
    read_order,
    us_to_seconds,
)
from medusa.engine.operators.shared.python import first_python, span
from medusa.engine.operators.shared.step import CASE, Step, Windows
from medusa.engine.operators.shared.texts import order_text
from medusa.overlay.errors import InvalidInputError

MAX_RANKS: Final = 1_000
"""Tuples of a window and partition that a rank emits: a list that a person reads."""


@dataclass(frozen=True, slots=True)
class RankStep(Step):
    """The first tuples of windows [k * size, (k + 1) * size) of stime; see
    `medusa.engine.objects.query.Rank`.

    Attributes:
        fields: the fields of the input, which the output has before the place. newest_first:
            whether equal tuples are in the reverse of the stream's order.
    """

    size_us: int
    fields: tuple[Field, ...]
    partition_by: tuple[str, ...]
    order_by: tuple[OrderBy, ...]
    most: int
    place: str
    newest_first: bool

    word: ClassVar[str] = "rank"

    def nodes(self, before: Mapping[str, int]) -> int:
        del before
        return 1

    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        return {}

    @property
    def in_order(self) -> bool:
        return True

    @property
    def reach(self) -> Windows:
        return Windows(self.size_us, self.size_us)

    def by_case(self) -> RankStep:
        partition_by = (*self.partition_by, SCENARIO)
        return replace(self, fields=(*self.fields, CASE), partition_by=partition_by)


class RankOperator(Operator[Rank, RankStep]):
    word = "rank"
    state = State.INPUT
    box_class = BoxClass.CONVERGENT

    def check(self) -> None:
        box = self.box
        if not 0 < box.size_us <= MAX_WINDOW_US:
            raise InvalidInputError(f"its window of {box.size_us / 1e6:g} s is not up to 366 days")
        if not 0 < box.most <= MAX_RANKS:
            raise InvalidInputError(
                f"it gives the first {box.most:,} tuples; 1 to {MAX_RANKS:,} can be"
            )
        refuse_repeated("field of its order", [each.field for each in box.order_by])
        refuse_repeated("field of its partitions", box.partition_by)

    def typed(self, inputs: Inputs) -> TypedBox[RankStep]:
        box, schema = self.box, inputs.schemas[self.box.input]
        check_order(box, schema)
        place = (Field(box.place, FieldType.LONG),) if box.place else ()
        time = schema.time if box.size_us == 1 else None
        made = Schema(box.output, (*schema.fields, *place), time)
        check_schema(made)
        made = msgspec.structs.replace(made, key=schema.key)
        parts = (box.partition_by, box.order_by, box.most, box.place, newest_first(box, schema))
        step = RankStep(box.size_us, schema.fields, *parts)
        return TypedBox({box.output: made}, {box.output: step})

    def in_words(self, stream: str, width_us: int | None) -> str:
        box = self.box
        order = ", ".join(map(order_text, box.order_by)) or "arrival"
        by = "".join(f" and {name}" for name in box.partition_by)
        window = "instant" if box.size_us == 1 else f"window of {seconds(box.size_us)}"
        return f"the first {box.most:,} of each {window}{by}, by {order}"

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Rank:
        size = parameters.take_seconds("window-size")
        order = read_order(parameters)
        return Rank(name, inputs[0], outputs[0], 1 if size is None else size, *order)

    def parameters(self) -> Written:
        size = self.box.size_us
        window = [("window-size", us_to_seconds(size))] if size > 1 else []
        return [*order_written(self.box), *window]

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts  # loads sqlglot
        from medusa.engine.operators.shared import sql

        box, schema = self.box, schemas[self.box.input]
        table = sql_texts.object_sql(box.input)
        if box.size_us == 1:
            return sql.first_sql(box, schema, table, STIME)
        windows = (
            f"TUMBLE(TABLE {table}, {sql.time_sql(schema)}, {sql_texts.interval_sql(box.size_us)})"
        )
        return sql.first_sql(box, schema, windows, WINDOW_START)

    def python(self, streams: Sequence[str]) -> str:
        size = self.box.size_us
        window = f".window({span(size)})" if size > 1 else ".instants()"
        return first_python(self.box, streams[0] + window)

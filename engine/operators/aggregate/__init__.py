"""Group aggregates over windows of stime that are aligned to the epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from medusa.engine.expressions.unsaid import span_text
from medusa.engine.objects.query import WINDOW_START, Aggregate
from medusa.engine.objects.schema import STIME, Field, FieldType, Schema, check_schema
from medusa.engine.operators.aggregate.folding import why
from medusa.engine.operators.aggregate.step import AggregateStep
from medusa.engine.operators.shared.aggregation import (
    MAX_OVERLAP,
    check_functions,
    functions_in_words,
    group_fields,
    groups_in_words,
    result_fields,
    typed_functions,
)
from medusa.engine.operators.shared.operator import (
    MAX_WINDOW_US,
    BoxClass,
    ExplainedWindow,
    Inputs,
    Operator,
    State,
    TypedBox,
    seconds,
)
from medusa.engine.operators.shared.panes import has_room, pane_us
from medusa.engine.operators.shared.parameters import (
    Parameters,
    Written,
    functions_written,
    read_functions,
    read_groups,
    us_to_seconds,
)
from medusa.engine.operators.shared.python import call, functions_python, grouped_python, span
from medusa.overlay.errors import InvalidInputError


class AggregateOperator(Operator[Aggregate, AggregateStep]):
    word = "aggregate"
    state = State.INPUT
    box_class = BoxClass.CONVERGENT

    def check(self) -> None:
        size, advance = self.box.size_us, self.box.advance_us
        if not 0 < size <= MAX_WINDOW_US:
            raise InvalidInputError(f"its window of {size / 1e6:g} s is not between 0 and 366 days")
        if not 0 < advance <= MAX_WINDOW_US:
            raise InvalidInputError(
                f"it advances by {advance / 1e6:g} s; it must be more than 0 and up to 366 days"
            )
        if size > advance * MAX_OVERLAP:
            raise InvalidInputError(
                f"more than {MAX_OVERLAP} of its windows overlap: advance by more"
            )
        check_functions(self.box.functions)

    def typed(self, inputs: Inputs) -> TypedBox[AggregateStep]:
        box, given = self.box, inputs.of(self.box.input)
        schema = given.schema
        if box.order_on not in {"", STIME, schema.time}:
            time = "arrival" if schema.time is None else schema.time
            raise InvalidInputError(
                f"its windows are ordered on {box.order_on[:64]!a}, but {box.input} is ordered by "
                f'{time}: order on {STIME}, or declare time="..." in the schema; of another field '
                "no boundary says which values may still come, so for ranges of it group totals"
            )
        groups = group_fields(box.group_by, given)
        functions = typed_functions(box.functions, given)
        start = Field(WINDOW_START, FieldType.TIMESTAMP)
        made = Schema(box.output, (start, *groups, *result_fields(functions, given)))
        check_schema(made)
        made = msgspec.structs.replace(made, key=(WINDOW_START, *box.group_by))
        step = AggregateStep(box.size_us, box.advance_us, groups, functions)
        return TypedBox({box.output: made}, {box.output: step})

    def in_words(self, stream: str, width_us: int | None) -> str:
        box, by = self.box, groups_in_words(self.box.group_by)
        if stream != box.output and width_us is not None:
            over = f"partial results of panes of {seconds(width_us)}{by}"
        else:
            over = f"windows of {seconds(box.size_us)} every {seconds(box.advance_us)}{by}"
            if width_us is not None:
                over += f", of {box.size_us // width_us:,} panes each"
        return f"{over}: {functions_in_words(box.functions)}"

    @property
    def gap(self) -> str:
        size, advance = self.box.size_us, self.box.advance_us
        if advance <= size:
            return ""
        return f"{span_text(size)} long, and one begins each {span_text(advance)}"

    @property
    def panes_us(self) -> int | None:
        return pane_us(self.box.size_us, self.box.advance_us) if has_room(self.box) else None

    def check_panes(self, width_us: int) -> None:
        box = self.box
        if width_us < 1 or box.size_us % width_us or box.advance_us % width_us:
            raise InvalidInputError(
                f"box {box.name!a} is folded from panes of {width_us / 1e6:g} s: its window and "
                "its advance must be multiples of that; or make another query"
            )
        if not has_room(box):
            raise InvalidInputError(f"box {box.name!a} is too large for panes")

    def explained(self, width_us: int | None) -> ExplainedWindow:
        box = self.box
        pane_s = None if width_us is None else width_us / 1e6
        lengths = (box.size_us / 1e6, box.advance_us / 1e6)
        return ExplainedWindow(box.name, *lengths, pane_s, why(box, width_us))

    @classmethod
    def is_meant(cls, parameters: Parameters) -> bool:
        return parameters.says("window-size-by") != "TUPLES"

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Aggregate:
        functions = read_functions(parameters)
        parameters.take_choice("window-size-by", "VALUES", "TUPLES")
        size = parameters.take_seconds("window-size")
        if size is None:
            raise InvalidInputError("parameter window-size is missing")
        advance = parameters.take_seconds("advance")
        parameters.take_all_fixed()
        order_on = parameters.take("order-on-field")
        lengths = (size, size if advance is None else advance)
        groups = read_groups(parameters)
        return Aggregate(name, inputs[0], outputs[0], *lengths, groups, functions, order_on or "")

    def parameters(self) -> Written:
        box = self.box
        order = [("order-on-field", box.order_on)] if box.order_on else []
        return [
            *functions_written(box.functions, box.group_by),
            ("window-size", us_to_seconds(box.size_us)),
            ("advance", us_to_seconds(box.advance_us)),
            *order,
        ]

    def kept_parameters(self, given: Collection[str]) -> Written:
        # windows that do not overlap keep that property, unless a new advance is given
        tumbling = self.box.size_us == self.box.advance_us
        follows = {"advance"} if tumbling and "window-size" in given else set()
        return [each for each in self.parameters() if each[0] not in follows]

    def check_modified(self, given: Collection[str]) -> None:
        box = self.box
        if box.advance_us > box.size_us and "advance" not in given:
            raise InvalidInputError(
                f"box {box.name!a}: windows of {box.size_us / 1e6:g} s that advance by "
                f"{box.advance_us / 1e6:g} s would leave gaps: if they shall, say advance as well"
            )

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts  # loads sqlglot
        from medusa.engine.operators.shared import sql

        box, schema = self.box, schemas[self.box.input]
        size, advance = sql_texts.interval_sql(box.size_us), sql_texts.interval_sql(box.advance_us)
        table = f"TABLE {sql_texts.object_sql(box.input)}, {sql.time_sql(schema)}"
        windows = (
            f"TUMBLE({table}, {size})" if size == advance else f"HOP({table}, {advance}, {size})"
        )
        groups = sql.fields_sql(box.group_by, box.input)
        return sql.windows_sql(box, [WINDOW_START, *groups], windows)

    def python(self, streams: Sequence[str]) -> str:
        size, advance = self.box.size_us, self.box.advance_us
        windows = call(f"{streams[0]}.window", map(span, dict.fromkeys((size, advance))))
        return functions_python(grouped_python(windows, self.box.group_by), self.box.functions)

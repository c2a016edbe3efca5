"""Group aggregates over windows of stime that are aligned to the epoch."""

from __future__ import annotations

import msgspec

from medusa.engine.language.unsaid import span_text
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
        return TypedBox(box, {box.output: made}, {box.output: step})

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

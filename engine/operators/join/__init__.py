"""Joins of two streams, or of a stream and a table."""

from __future__ import annotations

from medusa.engine.language.typed import Expression
from medusa.engine.language.user_functions import refuse_calls
from medusa.engine.objects.query import Join
from medusa.engine.objects.schema import Schema, check_schema
from medusa.engine.operators.join.sides import (
    AS_OF,
    ONE_SIDED,
    check_sides,
    equalities,
    left_alone,
    paired,
    table_of,
)
from medusa.engine.operators.join.step import JoinStep
from medusa.engine.operators.shared.operator import (
    MAX_WINDOW_US,
    BoxClass,
    Inputs,
    Operator,
    State,
    TypedBox,
    about,
    seconds,
)
from medusa.overlay.errors import InvalidInputError


class JoinOperator(Operator[Join, JoinStep]):
    word = "join"
    state = State.INPUT
    box_class = BoxClass.DETERMINISTIC

    def check(self) -> None:
        box = self.box
        before, after = box.before_us, box.after_us
        if before + after < 0:
            raise InvalidInputError(
                f"no pair is within its bounds of time: {before / 1e6:g} s before, "
                f"{after / 1e6:g} s after"
            )
        if max(abs(before), abs(after)) > MAX_WINDOW_US:
            raise InvalidInputError("its bounds of time are more than 366 days")
        if box.kind in AS_OF and before > 0 and after > 0:
            raise InvalidInputError(
                f"{box.kind.words} looks one way: back with after 0 or less, forward with before "
                f"0 or less; here before is {before / 1e6:g} s and after {after / 1e6:g} s"
            )
        if not box.expressions:
            raise InvalidInputError("a join needs at least one output field")

    def typed(self, inputs: Inputs) -> TypedBox[JoinStep]:
        box = self.box
        left, right = (inputs.schemas[stream] for stream in (box.left, box.right))
        pairs_of = paired(box, left, right)
        pairs = inputs.fields(pairs_of)
        with about("predicate"):
            predicate = pairs.predicate(box.predicate)
            check_sides(predicate)
            refuse_calls(predicate, "the predicate of a join")
        results = pairs
        if box.kind in ONE_SIDED:
            results = inputs.fields(left_alone(pairs_of))
        outputs: list[tuple[str, Expression]] = []
        for name, text in box.expressions:
            with about(f"output field {name[:64]!a}"):
                expression = results.expression(text)
                check_sides(expression)
                refuse_calls(expression, "a join")
                outputs.append((name, expression))
        made = Schema(box.output, tuple(results.named(*each) for each in outputs))
        check_schema(made)
        if box.kind in AS_OF and equalities(predicate) is None:
            raise InvalidInputError(
                f"predicate: {box.kind.words} takes equalities of a left and a right value, joined "
                "by and"
            )
        key, deleted = table_of(box, right)
        bounds = (box.before_us, box.after_us)
        step = JoinStep(
            box.kind, box.left, box.right, *bounds, predicate, tuple(outputs), key, deleted
        )
        return TypedBox(box, {box.output: made}, {box.output: step})

    def needs_log(self, *, after_state: bool) -> bool:
        return True

    def in_words(self, stream: str, width_us: int | None) -> str:
        box = self.box
        fields = ", ".join(f"{text} as {name}" for name, text in box.expressions)
        if box.table:
            return (
                f"{box.kind} join of {box.left} and the table {box.right} at its time, where "
                f"{box.predicate}: {fields}"
            )
        return (
            f"{box.kind} join of {box.left} and {box.right}, from {seconds(-box.before_us)} to "
            f"{seconds(box.after_us)}, where {box.predicate}: {fields}"
        )

    @property
    def tables_read(self) -> tuple[str, ...]:
        return (self.box.right,) if self.box.table else ()

    @property
    def fields_made(self) -> int:
        return len(self.box.expressions)

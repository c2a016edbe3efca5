"""Joins of two streams, or of a stream and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from medusa.engine.expressions.typed import Expression
from medusa.engine.expressions.user_functions import refuse_calls
from medusa.engine.objects.query import Join, JoinKind
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
from medusa.engine.operators.shared.parameters import Parameters, Written, numbered, signed_seconds
from medusa.engine.operators.shared.python import call, constant, dictionary, span
from medusa.overlay.errors import InvalidInputError


class JoinOperator(Operator[Join, JoinStep]):
    word = "join"
    most_inputs = 2
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
        return TypedBox({box.output: made}, {box.output: step})

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

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Join:
        predicate = parameters.take("predicate")
        kind = parameters.take("kind") or JoinKind.INNER
        if kind not in set(JoinKind):
            raise InvalidInputError(f"kind {kind[:40]!a} is not one of {', '.join(JoinKind)}")
        texts = parameters.take_numbered("out-field")
        names = parameters.take_numbered("out-field-name")
        if len(texts) != len(names):
            raise InvalidInputError(
                f"it has {len(texts)} out-fields and {len(names)} out-field-names"
            )
        bounds = [parameters.take_signed(each) for each in ("before", "after")]
        table = parameters.take_flag("table")
        if not table and None in bounds:
            raise InvalidInputError(
                "a join needs before and after, the bounds of time in seconds, or table"
            )
        before, after = (each or 0 for each in bounds)
        fields = tuple(zip(names, texts, strict=True))
        parts = (JoinKind(kind), before, after, predicate or "true", fields, table)
        return Join(name, inputs[0], inputs[-1], outputs[0], *parts)

    def parameters(self) -> Written:
        box = self.box
        bounds = [
            ("before", signed_seconds(box.before_us)),
            ("after", signed_seconds(box.after_us)),
        ]
        return [
            ("predicate", box.predicate),
            ("kind", str(box.kind)),
            *([("table", "1")] if box.table else bounds),
            *numbered("out-field-name", [name for name, _ in box.expressions]),
            *numbered("out-field", [each for _, each in box.expressions]),
        ]

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.operators.join.sql import join_sql  # loads sqlglot

        return join_sql(self.box, schemas)

    def python(self, streams: Sequence[str]) -> str:
        box, left, right = self.box, streams[0], streams[-1]
        select = f"select={dictionary(dict(box.expressions))}"
        on = f"on={constant(box.predicate)}"
        as_of = box.kind in AS_OF and 0 in {box.before_us, box.after_us}
        usual = JoinKind.ASOF if as_of else JoinKind.INNER
        kind = [] if box.kind is usual else [f"kind={constant(box.kind.value)}"]
        if box.table:
            return call(f"{left}.table_join", [right, on, *kind, select])
        given = [right, *([] if box.predicate == "true" else [on])]
        if as_of:
            within = f"within={span(max(box.before_us, box.after_us))}"
            kind += ['direction="forward"'] if box.after_us > 0 else []
            return call(f"{left}.asof_join", [*given, within, *kind, select])
        within = f"within=({span(-box.before_us)}, {span(box.after_us)})"
        return call(f"{left}.join", [*given, within, *kind, select])

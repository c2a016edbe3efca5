"""Sessions: aggregates of tuples that come shortly after one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from medusa.engine.objects.query import WINDOW_END, WINDOW_START, Sessions, longest_session
from medusa.engine.objects.schema import Field, Schema
from medusa.engine.operators.shared.aggregation import (
    TypedAggregate,
    check_functions,
    functions_in_words,
    group_fields,
    groups_in_words,
    nodes_of_all,
    nodes_of_groups,
    typed_functions,
)
from medusa.engine.operators.shared.operator import (
    MAX_WINDOW_US,
    BoxClass,
    Inputs,
    Operator,
    State,
    TypedBox,
    seconds,
)
from medusa.engine.operators.shared.parameters import (
    Parameters,
    Written,
    functions_written,
    read_functions,
    read_groups,
    us_to_seconds,
)
from medusa.engine.operators.shared.python import call, functions_python, grouped_python, span
from medusa.engine.operators.shared.spans import spans_schema
from medusa.engine.operators.shared.step import CASE, Near, Step
from medusa.overlay.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class SessionsStep(Step):
    """Sessions of each group; see `medusa.engine.objects.query.Sessions`."""

    gap_us: int
    longest_us: int
    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]

    word: ClassVar[str] = "sessions"

    def nodes(self, before: Mapping[str, int]) -> int:
        return nodes_of_all(self.functions, before)

    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        return nodes_of_groups(self.group_by, before)

    @property
    def in_order(self) -> bool:
        return True

    @property
    def reach(self) -> Near:
        # A session that is too long is shown by a tuple at most a gap behind its longest end; it
        # begins a gap after the tuple before it.
        span_us = self.longest_us + 2 * self.gap_us
        return Near(span_us, span_us)

    def by_case(self) -> SessionsStep:
        return replace(self, group_by=(*self.group_by, CASE))


class SessionsOperator(Operator[Sessions, SessionsStep]):
    word = "sessions"
    state = State.INPUT
    box_class = BoxClass.CONVERGENT

    def check(self) -> None:
        gap, longest = self.box.gap_us, self.box.longest_us
        if not 0 < longest <= MAX_WINDOW_US:
            raise InvalidInputError(
                f"its longest session of {longest / 1e6:g} s is not between 0 and 366 days"
            )
        if not 0 < gap <= longest:
            raise InvalidInputError(
                f"its gap of {gap / 1e6:g} s must be more than 0 and at most its longest session, "
                f"{longest / 1e6:g} s"
            )
        check_functions(self.box.functions)

    def typed(self, inputs: Inputs) -> TypedBox[SessionsStep]:
        box, given = self.box, inputs.of(self.box.input)
        groups = group_fields(box.group_by, given)
        functions = typed_functions(box.functions, given)
        made = spans_schema(box.output, groups, functions, given)
        step = SessionsStep(box.gap_us, box.longest_us, groups, functions)
        return TypedBox({box.output: made}, {box.output: step})

    def in_words(self, stream: str, width_us: int | None) -> str:
        gap, longest = seconds(self.box.gap_us), seconds(self.box.longest_us)
        return (
            f"sessions with gaps of {gap} at most, cut if longer than {longest}"
            f"{groups_in_words(self.box.group_by)}: {functions_in_words(self.box.functions)}"
        )

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Sessions:
        functions, groups = read_functions(parameters), read_groups(parameters)
        gap, longest = (parameters.take_seconds(each) for each in ("gap", "longest"))
        if gap is None:
            raise InvalidInputError("parameter gap is missing: the seconds of silence that end one")
        longest = longest_session(gap) if longest is None else longest
        return Sessions(name, inputs[0], outputs[0], gap, longest, groups, functions)

    def parameters(self) -> Written:
        return [
            *functions_written(self.box.functions, self.box.group_by),
            ("gap", us_to_seconds(self.box.gap_us)),
            ("longest", us_to_seconds(self.box.longest_us)),
        ]

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts  # loads sqlglot
        from medusa.engine.operators.shared import sql

        box, schema = self.box, schemas[self.box.input]
        groups = sql.fields_sql(box.group_by, box.input)
        partition = f" PARTITION BY {', '.join(groups)}" if groups else ""
        table = f"TABLE {sql_texts.object_sql(box.input)}{partition}, {sql.time_sql(schema)}"
        windows = f"SESSION({table}, {sql_texts.interval_sql(box.gap_us)})"
        return sql.windows_sql(box, [WINDOW_START, WINDOW_END, *groups], windows)

    @property
    def options_sql(self) -> list[tuple[str, str]]:
        from medusa.engine.expressions import sql_texts  # loads sqlglot

        if self.box.longest_us == longest_session(self.box.gap_us):
            return []
        return [("within", sql_texts.interval_sql(self.box.longest_us))]

    def python(self, streams: Sequence[str]) -> str:
        gap, longest = self.box.gap_us, self.box.longest_us
        lengths = [gap] if longest == longest_session(gap) else [gap, longest]
        windows = call(f"{streams[0]}.sessions", map(span, lengths))
        return functions_python(grouped_python(windows, self.box.group_by), self.box.functions)

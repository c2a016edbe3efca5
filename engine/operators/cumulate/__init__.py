"""Cumulating windows: each is emitted at every step, with all of its tuples so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from medusa.engine.objects.query import WINDOW_END, WINDOW_START, Cumulate
from medusa.engine.objects.schema import Field, Schema
from medusa.engine.operators.shared.aggregation import (
    MAX_OVERLAP,
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
class CumulateStep(Step):
    """Windows that grow; see `medusa.engine.objects.query.Cumulate`."""

    step_us: int
    size_us: int
    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]

    word: ClassVar[str] = "cumulate"

    def nodes(self, before: Mapping[str, int]) -> int:
        return nodes_of_all(self.functions, before)

    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        return nodes_of_groups(self.group_by, before)

    @property
    def in_order(self) -> bool:
        return True

    @property
    def reach(self) -> Near:
        return Near(self.size_us - 1, self.size_us - 1)

    def by_case(self) -> CumulateStep:
        return replace(self, group_by=(*self.group_by, CASE))


class CumulateOperator(Operator[Cumulate, CumulateStep]):
    word = "cumulate"
    state = State.INPUT
    box_class = BoxClass.CONVERGENT

    def check(self) -> None:
        step, size = self.box.step_us, self.box.size_us
        if not 0 < size <= MAX_WINDOW_US:
            raise InvalidInputError(f"its window of {size / 1e6:g} s is not between 0 and 366 days")
        if step <= 0 or size % step:
            raise InvalidInputError(
                f"its step of {step / 1e6:g} s does not divide its size of {size / 1e6:g} s"
            )
        if size > step * MAX_OVERLAP:
            raise InvalidInputError(
                f"a window grows in {MAX_OVERLAP} steps at most: take longer ones"
            )
        check_functions(self.box.functions)

    def typed(self, inputs: Inputs) -> TypedBox[CumulateStep]:
        box, given = self.box, inputs.of(self.box.input)
        groups = group_fields(box.group_by, given)
        functions = typed_functions(box.functions, given)
        made = spans_schema(box.output, groups, functions, given)
        step = CumulateStep(box.step_us, box.size_us, groups, functions)
        return TypedBox({box.output: made}, {box.output: step})

    def in_words(self, stream: str, width_us: int | None) -> str:
        step, size = seconds(self.box.step_us), seconds(self.box.size_us)
        return (
            f"windows that grow every {step} up to {size}{groups_in_words(self.box.group_by)}: "
            f"{functions_in_words(self.box.functions)}"
        )

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Cumulate:
        functions, groups = read_functions(parameters), read_groups(parameters)
        size, step = (parameters.take_seconds(each) for each in ("window-size", "step"))
        if size is None or step is None:
            raise InvalidInputError("parameters window-size and step are needed, both in seconds")
        return Cumulate(name, inputs[0], outputs[0], step, size, groups, functions)

    def parameters(self) -> Written:
        return [
            *functions_written(self.box.functions, self.box.group_by),
            ("window-size", us_to_seconds(self.box.size_us)),
            ("step", us_to_seconds(self.box.step_us)),
        ]

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts  # loads sqlglot
        from medusa.engine.operators.shared import sql

        box, schema = self.box, schemas[self.box.input]
        lengths = f"{sql_texts.interval_sql(box.step_us)}, {sql_texts.interval_sql(box.size_us)}"
        table = f"TABLE {sql_texts.object_sql(box.input)}, {sql.time_sql(schema)}"
        groups = sql.fields_sql(box.group_by, box.input)
        times = [WINDOW_START, WINDOW_END]
        return sql.windows_sql(box, [*times, *groups], f"CUMULATE({table}, {lengths})")

    def python(self, streams: Sequence[str]) -> str:
        lengths = (self.box.step_us, self.box.size_us)
        windows = call(f"{streams[0]}.cumulate", map(span, lengths))
        return functions_python(grouped_python(windows, self.box.group_by), self.box.functions)

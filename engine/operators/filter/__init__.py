"""Filters: a tuple leaves by the first output whose condition is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from medusa.engine.expressions.typed import (
    Call,
    Expression,
    FieldRef,
    calls_in,
    nodes_of,
    without_calls,
)
from medusa.engine.objects.query import Filter
from medusa.engine.objects.schema import Schema
from medusa.engine.operators.map import MapStep
from medusa.engine.operators.shared.operator import (
    BoxClass,
    Inputs,
    Operator,
    State,
    TypedBox,
    about,
    renamed,
)
from medusa.engine.operators.shared.parameters import Parameters, Written, numbered
from medusa.engine.operators.shared.python import call, constant
from medusa.engine.operators.shared.step import Near, Step, Windows
from medusa.overlay.errors import InvalidInputError

MAX_PORTS: Final = 256
"""Outputs of a filter: each may be a log to write."""


@dataclass(frozen=True, slots=True)
class FilterStep(Step):
    """Keeps the tuples of one port of a filter.

    Attributes:
        predicates: the filter's predicates, at least up to the port's own. port: a tuple is kept if
            predicate `port` is true and no earlier one is (null is not true); if `port ==
            len(predicates)`, it is kept if no predicate is true.
    """

    predicates: tuple[Expression, ...]
    port: int

    word: ClassVar[str] = "filter"

    def nodes(self, before: Mapping[str, int]) -> int:
        return sum(nodes_of(predicate, before) for predicate in self.predicates)

    def nodes_after(self, before: Mapping[str, int]) -> Mapping[str, int]:
        return before

    @property
    def in_order(self) -> bool:
        return False

    @property
    def reach(self) -> Windows | Near | None:
        return None

    @property
    def expressions(self) -> tuple[Expression, ...]:
        return self.predicates

    def by_case(self) -> FilterStep:
        return self

    def carried(self, made: Schema) -> tuple[FieldRef, ...]:
        return tuple(FieldRef(each.name, each.type) for each in made.fields)

    def with_results(self, results: Mapping[Call, FieldRef], made: Schema) -> tuple[Step, ...]:
        predicates = tuple(without_calls(each, results) for each in self.predicates)
        same = tuple((each.name, FieldRef(each.name, each.type)) for each in made.fields)
        return (FilterStep(predicates, self.port), MapStep(same))


class FilterOperator(Operator[Filter, FilterStep]):
    word = "filter"
    most_outputs = MAX_PORTS
    state = State.NONE
    box_class = BoxClass.REPEATABLE

    def check(self) -> None:
        box = self.box
        wanted = len(box.predicates) + box.pass_on_false
        if not box.predicates:
            raise InvalidInputError("a filter needs at least one expression")
        if wanted > MAX_PORTS:
            raise InvalidInputError(f"a filter has at most {MAX_PORTS} outputs, not {wanted}")
        if len(box.outputs) != wanted:
            raise InvalidInputError(
                f"it has {len(box.outputs)} outputs for {len(box.predicates)} expressions"
                f"{' and the false port' if box.pass_on_false else ''}; {wanted} are needed"
            )

    def typed(self, inputs: Inputs) -> TypedBox[FilterStep]:
        box, given = self.box, inputs.of(self.box.input)
        predicates = []
        for number, text in enumerate(box.predicates):
            with about(f"expression {number}"):
                predicates.append(given.predicate(text))
        for called in (called for each in predicates for called in calls_in(each)):
            if len(box.outputs) > 1 and not called.function.deterministic:
                raise InvalidInputError(
                    f"a filter with several outputs cannot call {called.function.name}, which may "
                    "give another result for each of them: call it in a map, and filter by its "
                    "result"
                )
        steps = {
            stream: FilterStep(tuple(predicates[: port + 1]), port)
            for port, stream in enumerate(box.outputs)
        }
        made = {stream: renamed(given.schema, stream) for stream in box.outputs}
        return TypedBox(made, steps)

    def unchanged(self, field: str) -> str | None:
        return field

    def needs_log(self, *, after_state: bool) -> bool:
        return len(self.box.outputs) > 1

    def in_words(self, stream: str, width_us: int | None) -> str:
        port = self.box.outputs.index(stream)
        before = [f"({text}) is not true" for text in self.box.predicates[:port]]
        return f"filter: {' and '.join([*before, *self.box.predicates[port : port + 1]])}"

    @classmethod
    def read(
        cls, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
    ) -> Filter:
        predicates = parameters.take_numbered("expression", "nexpression")
        flag = parameters.take_flag("pass-on-false-port")
        return Filter(name, inputs[0], outputs, tuple(predicates), flag)

    def parameters(self) -> Written:
        flag = [("pass-on-false-port", "1")] if self.box.pass_on_false else []
        return [*numbered("expression", self.box.predicates), *flag]

    def select_sql(self, schemas: Mapping[str, Schema]) -> str:
        from medusa.engine.expressions import sql_texts
        from medusa.engine.expressions.printing import expression_sql  # loads sqlglot

        conditions = list(map(expression_sql, self.box.predicates))
        table = sql_texts.object_sql(self.box.input)
        if len(conditions) == 1 and not self.box.pass_on_false:
            return f"SELECT * FROM {table} WHERE {conditions[0]}"
        rest = " ELSE" if self.box.pass_on_false else ""
        return f"SPLIT {table} BY {', '.join(conditions)}{rest}"

    def python(self, streams: Sequence[str]) -> str:
        conditions = list(map(constant, self.box.predicates))
        if len(conditions) == 1 and not self.box.pass_on_false:
            return call(f"{streams[0]}.filter", conditions)
        rest = ["rest=True"] if self.box.pass_on_false else []
        made = call(f"{streams[0]}.split", [*conditions, *rest])
        return made if len(self.box.outputs) > 1 else f"{made}[0]"

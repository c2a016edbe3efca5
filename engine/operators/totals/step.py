"""Tables that a query keeps up to date: group aggregates, and top-N of partitions.

The state of both boxes is the tuples that they have made. A task of one reads its own output as a
table, up to the boundary from which it continues. So the boundary stays its whole position; folding
(`medusa.engine.streams.log.folding`) removes only tuples that no reader needs.

Totals have two tasks, like windows that are folded from panes: `OUT/panes` has totals with the
values behind them, and `OUT` has the results alone. The former has for each group a tuple at each
stime at which the group has a new tuple, with part 0; and for each value that `count_distinct` has
seen in it, once, a tuple with the number of the function as its part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from medusa.engine.aggregates import function as aggregates
from medusa.engine.expressions.typed import Constant, FieldRef, Operation
from medusa.engine.objects.definitions import PANES
from medusa.engine.objects.schema import DELETED, Field, FieldType, Schema
from medusa.engine.operators.filter import FilterStep
from medusa.engine.operators.map import MapStep
from medusa.engine.operators.shared.aggregation import TypedAggregate, nodes_of_all
from medusa.engine.operators.shared.panes import made_of_table, panes_name
from medusa.engine.operators.shared.step import Part, RecallingStep
from medusa.engine.scalars.type_rules import FLOATS
from medusa.overlay.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class TotalsStep(RecallingStep):
    """Totals of groups, with the state that they are computed from.

    Attributes:
        changes: the key of the input, if it is read as a table; else empty.
        deleted: the input's field that says that a key is deleted; "": there is none.
    """

    group_by: tuple[Field, ...]
    functions: tuple[TypedAggregate, ...]
    changes: tuple[str, ...] = ()
    deleted: str = ""

    word: ClassVar[str] = "totals"

    def nodes(self, before: Mapping[str, int]) -> int:
        return nodes_of_all(self.functions, before)

    @property
    def in_order(self) -> bool:
        return False

    def tables(self, inputs: Sequence[str]) -> frozenset[str]:
        return frozenset(inputs) if self.changes else frozenset()

    def parts(self, stream: str, inputs: tuple[str, ...], width_us: int | None) -> Sequence[Part]:
        name = panes_name(stream)
        table = Part(name, inputs, self, totals_schema(name, self), kept=True)
        return [table, *made_of_table(stream, name, result_steps(self))]

    def check_unrevised(self, output: str, source: str) -> None:
        raise InvalidInputError(
            f"{output.removesuffix(f'/{PANES}')} is a table of what {source} has so far, whose "
            "tuples may be revised: declare it without a key, or as a table"
        )


@dataclass(frozen=True, slots=True)
class State:
    """The state of one function: names of fields. Attributes: number: the number of values that are
    not null; for `count_distinct`, of different values. high, low: the sum of integers, high 2^32 +
    low, 0 <= low < 2^32; "" without one. total: the sum of floats. best: the least or the greatest
    value. value: the field of a value of `count_distinct`, in tuples of this function's part.
    """

    number: str
    high: str = ""
    low: str = ""
    total: str = ""
    best: str = ""
    value: str = ""

    def of(self, states: Sequence[aggregates.State]) -> list[str]:
        """Return the fields that have the states of the function's row."""
        halves = {"h": self.high, "l": self.low, "n": self.number}
        own = self.total or self.best or self.number
        return [halves.get(each.name, own) for each in states]


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of `OUT/panes`, besides the groups and the results.

    Attributes:
        part: the number of a function with values, from 1; 0: the tuple has totals.
        rows: the number of tuples of the group, if the input is a table; else "".
        states: the states, by function.
    """

    part: str
    rows: str
    states: tuple[State, ...]


def layout_of(step: TotalsStep) -> Layout:
    """The fields of a step's state, under names that no group and no result has."""
    taken = {each.name.lower() for each in step.group_by}
    taken |= {each.output.lower() for each in step.functions}
    prefix = "t"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    states = tuple(_state(f"{prefix}{n}", each) for n, each in enumerate(step.functions))
    return Layout(f"{prefix}part", f"{prefix}rows" if step.changes else "", states)


def _state(name: str, each: TypedAggregate) -> State:
    number = f"{name}n"
    type_ = None if each.argument is None else each.argument.type
    match each.function.name:
        case "sum" | "avg" if type_ in FLOATS:
            return State(number, total=f"{name}x")
        case "sum" | "avg":
            return State(number, high=f"{name}h", low=f"{name}l")
        case "min" | "max":
            return State(number, best=f"{name}b")
        case "count_distinct":
            return State(number, value=f"{name}v")
        case _:
            return State(number)


def totals_schema(name: str, step: TotalsStep) -> Schema:
    """The schema of `OUT/panes`."""
    layout = layout_of(step)
    fields: list[Field] = [*step.group_by, Field(layout.part, FieldType.INT)]
    if layout.rows:
        fields.append(Field(layout.rows, FieldType.LONG, nullable=True))
    for each, state in zip(step.functions, layout.states, strict=True):
        fields += _state_fields(each, state)
    fields += [Field(each.output, each.type, nullable=True) for each in step.functions]
    if step.changes:
        fields.append(Field(DELETED, FieldType.BOOL, nullable=True))
    values = [state.value for state in layout.states if state.value]
    key = (*(each.name for each in step.group_by), layout.part, *values)
    return Schema(name, tuple(fields), key=key)


def _state_fields(each: TypedAggregate, state: State) -> Iterator[Field]:
    type_ = FieldType.LONG if each.argument is None else each.argument.type
    yield Field(state.number, FieldType.LONG, nullable=True)
    for name, kind in (
        (state.high, FieldType.LONG),
        (state.low, FieldType.LONG),
        (state.total, FieldType.DOUBLE),
        (state.best, type_),
        (state.value, type_),
    ):
        if name:
            yield Field(name, kind, nullable=True)


def result_steps(step: TotalsStep) -> tuple[FilterStep | MapStep, ...]:
    """Return the steps from `OUT/panes` to the results."""
    layout = layout_of(step)
    names = [(each.name, each.type) for each in step.group_by]
    names += [(each.output, each.type) for each in step.functions]
    if step.changes:
        names.append((DELETED, FieldType.BOOL))
    mapped = MapStep(tuple((name, FieldRef(name, type_)) for name, type_ in names))
    if not any(state.value for state in layout.states):
        return (mapped,)
    part = FieldRef(layout.part, FieldType.INT)
    is_total = Operation("=", (part, Constant(0, FieldType.INT)), FieldType.BOOL)
    return (FilterStep((is_total,), 0), mapped)

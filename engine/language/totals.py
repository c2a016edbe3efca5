"""Tables that a query keeps up to date: totals of groups, and the first tuples of partitions.

Both boxes have one state: the tuples that they have made. A task of one reads its own output as a
table, up to the boundary from which it goes on. So the boundary stays its whole position; what is
folded of its output (`medusa.engine.streams.log.folding`) is what nobody needs any more.

Totals are two tasks, as the windows are that are folded from panes: totals with what they are made
of, `OUT/panes`, and of these the results alone. The former has for each group a tuple at each stime
at which the group has a new tuple, with part 0; and for each value that `count_distinct` has seen
in it, once, a tuple with the number of the function as its part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from medusa.engine.language.operators import FLOATS
from medusa.engine.language.steps import FilterStep, MapStep, TotalsStep, TypedAggregate
from medusa.engine.language.typed import Constant, FieldRef, Operation
from medusa.engine.objects.query import Function, Top, Totals
from medusa.engine.objects.schema import DELETED, Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError

ADDED: Final = frozenset({Function.COUNT, Function.SUM, Function.AVG})
"""The functions of a table: a tuple that goes is taken away from them."""

KNOWN: Final = ADDED | {Function.MIN, Function.MAX, Function.COUNT_DISTINCT}
"""The functions of totals. They are made of what they were and of the new tuples."""

MOST_PLACES: Final = 32
"""The first tuples of a partition that are kept: each place is a pass over the new tuples."""


@dataclass(frozen=True, slots=True)
class State:
    """What one function is made of.

    Attributes:
        number: of values that are not null; of `count_distinct`, of different ones.
        high, low: the sum of integers, high 2^32 + low, 0 <= low < 2^32; "" without one.
        total: the sum of floats. best: the least or the greatest value.
        value: the field of a value of `count_distinct`, in tuples of this function's part.
    """

    number: str
    high: str = ""
    low: str = ""
    total: str = ""
    best: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of `OUT/panes`, besides the groups and the results.

    Attributes:
        part: the number of a function with values, from 1; 0: the tuple has totals.
        rows: the number of tuples of the group, if the input is a table; else "".
        states: by function.
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
    match each.function:
        case Function.SUM | Function.AVG if type_ in FLOATS:
            return State(number, total=f"{name}x")
        case Function.SUM | Function.AVG:
            return State(number, high=f"{name}h", low=f"{name}l")
        case Function.MIN | Function.MAX:
            return State(number, best=f"{name}b")
        case Function.COUNT_DISTINCT:
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
    """From `OUT/panes` to the results."""
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


def results_schema(
    name: str, groups: Sequence[Field], functions: Sequence[TypedAggregate], *, changes: bool
) -> Schema:
    """The schema of totals."""
    counts = {Function.COUNT, Function.COUNT_DISTINCT}
    fields = [
        *groups,
        *(Field(e.output, e.type, nullable=e.function not in counts) for e in functions),
        *([Field(DELETED, FieldType.BOOL, nullable=True)] if changes else []),
    ]
    return Schema(name, tuple(fields), key=tuple(each.name for each in groups))


def check_totals(box: Totals) -> None:
    """Check groups and functions. Raises: InvalidInputError: names the mistake."""
    if not box.group_by:
        raise InvalidInputError("totals need at least one group")
    if not box.functions:
        raise InvalidInputError("totals need at least one function")
    known = ADDED if box.changes else KNOWN
    for each in box.functions:
        if each.function not in known:
            of = "of a table" if box.changes else "without a window"
            raise InvalidInputError(
                f"{each.function} {of} is not there; there are {', '.join(sorted(known))}"
            )


def check_top(box: Top) -> None:
    """Check the number of places. Raises: InvalidInputError: it is out of range."""
    if not 1 <= box.most <= MOST_PLACES:
        raise InvalidInputError(f"it keeps {box.most} places; 1 to {MOST_PLACES} are allowed")
    if not box.order_by or not box.partition_by:
        raise InvalidInputError("it needs an order, and fields by which it is partitioned")
    if not box.place and box.most > 1:
        raise InvalidInputError("its tuples are told apart by their place: name the field")


def top_key(partition_by: Sequence[str], place: str) -> tuple[str, ...]:
    """The key of the first tuples of partitions."""
    return (*partition_by, *([place] if place else []))

"""Windows folded from panes: each tuple is read once, however many windows it is in.

After Li, Maier, Tufte, Papadimos and Tucker, No Pane, No Gain (SIGMOD Record 2005). A pane is a
tumbling window whose width divides the size and the advance of a window. A first task makes partial
results of each pane, by group; a second one combines those of a window. The partial results are the
tuples of an ordinary stream of the query, `OUTPUT/panes`. So both tasks have no state but a suffix
of their input, and they move, fail over, fork and are revised like any others.

The partial result of a group in a pane is one tuple, with the fields that each function's row says
(`medusa.engine.aggregates.function`). Keys that are counted (`Kind`) are fields of the group: a
tuple for each. So are the registers and buckets of sketches, at most 4,096 and 12,035 tuples for a
group.

Results of functions that need one tuple a pane and group cannot stand beside values that make
several. Then the tuples of a pane are in parts: part 0 has those functions, part n the values of
the nth argument. Several arguments whose values are counted have parts of their own, too, and so
have several ways to count them: all combinations of their values could be as many as the tuples.

A window of tuples that counts how often values occur is computed as if it had one pane: so equal
values are counted as one entry before the entries are sorted.

A last field tells the panes of two editions apart. A query that is modified may have windows open
that overlap: for as long as a window lasts, its panes are made by the old parameters and by the new
ones (`medusa.engine.tasks.query_editions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Final

from medusa.engine.aggregates.function import Constant, Counted, End, Folded, Kind, State
from medusa.engine.aggregates.rows import aggregate_named
from medusa.engine.expressions.typed import Expression
from medusa.engine.objects.definitions import PANES, REVISIONS
from medusa.engine.objects.query import Aggregate
from medusa.engine.objects.schema import MAX_FIELDS, Field, FieldType
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.shared.step import Part, Step
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import ObjectName

_SECOND_US: Final = 1_000_000
_WIDTHS_US: Final = tuple(_SECOND_US * s for s in (10, 60, 600, 3_600, 21_600, 86_400))
"""Greatest widths of a pane, microseconds. The last pane is read when its window closes: at 10 s
that takes no longer than an epoch that catches up."""

MOST_PANES: Final = 1_440
"""The panes of a window are made wider if there were more than this, where the advance allows it:
as many as a day has minutes. All panes are read when the window closes."""

LIMIT_PANES: Final = 100_000
"""The most panes of a window: if it had more, it would have few tuples in each."""

OVERLAP: Final = 3
"""If this many windows hold a tuple, they are folded from panes: with two, the second task costs as
much as it saves."""

LONG: Final = 12
"""Windows that overlap less are folded, too, if they have this many panes: to read all their tuples
at once would delay the result."""


def panes_name(stream: str) -> str:
    """The name of the stream of panes from which an aggregate's output is folded."""
    return f"{stream}/{PANES}"


def made_of_table(stream: str, table: str, steps: Sequence[Step]) -> Iterator[Part]:
    """The parts that make a stream from the table beside it. steps: one or two."""
    *before, last = steps
    for step in before:
        part = f"{table}/part"
        yield Part(part, (table,), step)
        table = part
    yield Part(stream, (table,), last)


def pane_us(size_us: int, advance_us: int) -> int | None:
    """The width of the panes of a window, microseconds: the greatest divisor of its size and its
    advance that `_WIDTHS_US` allows. None: the window is better computed from its tuples."""
    common = gcd(size_us, advance_us)
    widest = next((w for w in _WIDTHS_US if size_us <= MOST_PANES * w), _WIDTHS_US[-1])
    least = -(-common // widest)
    parts = next((n for n in range(least, 2 * least + 1_000) if common % n == 0), None)
    if parts is None:
        return None
    width = common // parts
    overlaps = size_us >= OVERLAP * advance_us
    panes = size_us // width
    return width if (overlaps or panes >= LONG) and 1 < panes <= LIMIT_PANES else None


def has_room(box: Aggregate) -> bool:
    """Whether the panes have a name and fields within the limits."""
    try:
        ObjectName.parse(panes_name(box.output)).child(REVISIONS)
    except InvalidInputError:
        return False
    fields = sum(aggregate_named(each.function).most_fields for each in box.functions)
    return len(box.group_by) + fields + 2 <= MAX_FIELDS


@dataclass(frozen=True, slots=True)
class Keyed:
    """An argument of a function that stores a tuple for each key of its values. Attributes: name:
    the field of the key. state: the field of the kind's state; None: the kind has none. constant:
    the function's constant, if the keys depend on it.
    """

    kind: Kind
    name: str
    argument: Expression
    state: str | None
    constant: Constant

    @property
    def type(self) -> FieldType:
        """Return the type of the field `name`."""
        return self.kind.key_type(self.argument.type)

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.name,) if self.state is None else (self.name, self.state)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a stream of panes, behind the group-by fields: the part, the fields of `values`
    (first the keys, then their states), the fields of the other functions.

    Attributes:
        part: the field that tells the parts of a pane apart; None: a pane has one part. values: the
            arguments with a tuple for each key; the tuples of the nth are in part n + 1. states: by
            function of the window, the fields of its partial results, fields of `values` included.
            former: the last field: whether the former edition of a modified query made the pane,
            for windows that still read it.
    """

    part: str | None
    values: tuple[Keyed, ...]
    states: tuple[tuple[str, ...], ...]
    former: str
    fields: tuple[Field, ...]


@lru_cache(maxsize=256)
def layout(group_by: tuple[Field, ...], functions: tuple[TypedAggregate, ...]) -> Layout:
    """The layout of the panes of a window with these groups and functions."""
    prefix = "p"
    while any(each.name.lower().startswith(prefix) for each in group_by):
        prefix += "_"  # no group-by field has such a name
    values = _keyed(prefix, functions)
    in_parts = len(values) > 1 or (bool(values) and any(map(_needs_one, functions)))
    part = f"{prefix}part" if in_parts else None
    fields = [] if part is None else [Field(part, FieldType.INT)]
    fields += [Field(each.name, each.type, nullable=True) for each in values.values()]
    fields += [
        Field(each.state, each.kind.state.type, nullable=True)
        for each in values.values()
        if each.state is not None and each.kind.state is not None
    ]
    states: list[tuple[str, ...]] = []
    for number, each in enumerate(functions):
        if isinstance(each.function, Counted):
            states.append(values[_key(each, each.function)].fields)
            continue
        made = [
            Field(f"{prefix}{number}{state.name}", state.type, nullable=True)
            for state in states_of(each)
        ]
        fields += made
        states.append(tuple(field.name for field in made))
    former = f"{prefix}former"
    fields.append(Field(former, FieldType.BOOL))
    return Layout(part, tuple(values.values()), tuple(states), former, tuple(fields))


_Key = tuple[Kind, Expression | None, Constant]


def _key(each: TypedAggregate, function: Counted) -> _Key:
    """The key of a function's keyed tuples: functions with equal results share these tuples."""
    return function.kind, each.argument, each.parameter if function.kind.by_constant else None


def _keyed(prefix: str, functions: tuple[TypedAggregate, ...]) -> dict[_Key, Keyed]:
    """The arguments of these functions that have a tuple for each key, in order."""
    found: dict[_Key, Keyed] = {}
    for each in functions:
        if isinstance(each.function, Counted) and _key(each, each.function) not in found:
            assert each.argument is not None
            kind, _, constant = key = _key(each, each.function)
            number = len(found)
            state = None if kind.state is None else f"{prefix}r{number}"
            found[key] = Keyed(kind, f"{prefix}v{number}", each.argument, state, constant)
    return found


def _needs_one(each: TypedAggregate) -> bool:
    """Whether its partial result needs all tuples of a pane and group, in their order."""
    function = each.function
    ordered = isinstance(function, Folded) and function.needs_order(each.argument_type)
    return ordered or isinstance(function, End)


def states_of(each: TypedAggregate) -> Sequence[State]:
    """The fields of the partial result of a function that makes one tuple of a pane and group."""
    if isinstance(each.function, Folded):
        return each.function.states(each.argument_type)
    return (State("", each.argument_type),)

"""Windows folded from panes: each tuple is read once, however many windows it is in.

After Li, Maier, Tufte, Papadimos and Tucker, No Pane, No Gain (SIGMOD Record 2005). A pane is a
tumbling window whose width divides the size and the advance of a window. A first task makes partial
results of each pane, by group; a second one combines those of a window. The partial results are the
tuples of an ordinary stream of the query, `OUTPUT/panes`. So both tasks have no state but a suffix
of their input, and they move, fail over, fork and are revised like any others.

The partial result of a group in a pane is one tuple, with the fields below for each function.
Values that are counted once each (`count_distinct`) are fields of the group: a tuple for each. So
are the registers of sketches (`approx_count_distinct`), at most 4,096 tuples for a group.

    count                     how many
    sum, avg of integers      the sum; of longs in two halves, which do not overflow; avg: how many
    sum, avg of floats        the sum; avg: how many. They are added in ascending order in a pane,
                              and pane after pane in a window: the same bits wherever the cut is
    min, max                  the least, the greatest
    firstval, lastval         of the pane's first and last tuple: panes follow each other
    approx_count_distinct     the greatest rank of the register: see `engine.language.distinct`

Results of functions that need one tuple a pane and group cannot stand beside values that make
several. Then the tuples of a pane are in parts: part 0 has those functions, part n the values of
the nth argument. So it is with several arguments of `count_distinct` and `approx_count_distinct`,
too: all combinations of their values could be as many as the tuples.

A last field tells the panes of two editions apart. A query that is modified may have windows open
that overlap: for as long as a window lasts, its panes are made by the old parameters and by the new
ones (`engine.tasks.query_editions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from typing import Final

import msgspec

from engine.language.operators import FLOATS
from engine.language.steps import AggregateStep, Expression, Form, TypedAggregate
from engine.objects.definitions import PANES, REVISIONS
from engine.objects.query import Aggregate, Function, Query
from engine.objects.schema import MAX_FIELDS, Field, FieldType, Schema
from overlay.errors import InvalidInputError
from overlay.names import ObjectName

_SECOND_US: Final = 1_000_000
_WIDTHS_US: Final = tuple(_SECOND_US * s for s in (10, 60, 600, 3_600, 21_600, 86_400))
"""Greatest widths of a pane, microseconds. The last pane is read when its window closes: at 10 s
that takes no longer than an epoch that catches up."""

MOST_PANES: Final = 1_440
"""Panes of a window from which on they are wider, where the advance allows it: the minutes of a
day. All are read when the window closes."""

LIMIT_PANES: Final = 100_000
"""Panes of a window at most: beyond, its tuples are not many more than they."""

OVERLAP: Final = 3
"""Windows that hold a tuple from which on they are folded: for two, a second task costs as much as
it saves."""

LONG: Final = 12
"""Panes from which on windows are folded that overlap less: else their tuples, read in one go,
would hold up the result."""


def panes_name(stream: str) -> str:
    """The stream of the panes that an aggregate's output is folded from."""
    return f"{stream}/{PANES}"


def pane_us(size_us: int, advance_us: int) -> int | None:
    """The width of the panes of a window, microseconds: the greatest divisor of its size and its
    advance that `_WIDTHS_US` allows. None: it is better made of its tuples."""
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


def with_panes(query: Query, most: int) -> Query:
    """The query with the widths of its panes decided: they are part of its definition, so that each
    peer makes the same tasks of it.

    Args:
        most: tasks that it may have.
    """
    decided: list[tuple[str, int]] = []
    for box in query.boxes:
        if isinstance(box, Aggregate) and len(query.boxes) + len(decided) < most:
            width = pane_us(box.size_us, box.advance_us)
            if width is not None and has_room(box):
                decided.append((box.name, width))
    return msgspec.structs.replace(query, panes=tuple(decided))


def has_room(box: Aggregate) -> bool:
    """Whether the panes have a name and fields within the limits."""
    try:
        ObjectName.parse(panes_name(box.output)).child(REVISIONS)
    except InvalidInputError:
        return False
    return len(box.group_by) + 3 * len(box.functions) + 2 <= MAX_FIELDS


def check_panes(query: Query) -> None:
    """Check the widths of a query's panes.

    Raises:
        InvalidInputError: one is for no window of the query, or does not divide it.
    """
    windows = {box.name: box for box in query.boxes if isinstance(box, Aggregate)}
    for name, width in query.panes:
        box = windows.get(name)
        if box is None:
            raise InvalidInputError(f"query {query.name}: panes of {name[:64]!a}, no aggregate")
        if width < 1 or box.size_us % width or box.advance_us % width:
            raise InvalidInputError(
                f"query {query.name}: box {name!a} is folded from panes of {width / 1e6:g} s: its "
                "window and its advance must be multiples of that; or make another query"
            )
        if not has_room(box):
            raise InvalidInputError(f"query {query.name}: box {name!a} is too large for panes")
    if len(dict(query.panes)) < len(query.panes):
        raise InvalidInputError(f"query {query.name}: panes of one box are named twice")


def widths(query: Query) -> Mapping[str, int]:
    """The width of the panes by the stream that is folded from them, microseconds."""
    given = dict(query.panes)
    boxes = [box for box in query.boxes if isinstance(box, Aggregate)]
    return {box.output: given[box.name] for box in boxes if box.name in given}


DISTINCT: Final = frozenset({Function.COUNT_DISTINCT, Function.APPROX_COUNT_DISTINCT})
"""The functions that make several tuples of a pane and group."""


@dataclass(frozen=True, slots=True)
class Counted:
    """An argument whose values are counted once each.

    Attributes:
        name: the field of the value, or of its register in a sketch.
        rank: the field of the greatest rank of the register; None: there is no sketch.
    """

    name: str
    argument: Expression
    rank: str | None

    @property
    def type(self) -> FieldType:
        """Of the field `name`."""
        return self.argument.type if self.rank is None else FieldType.SHORT

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.name,) if self.rank is None else (self.name, self.rank)


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a stream of panes, behind the group-by fields: the part, those of `values`
    (first their names, then the ranks), those of the other functions.

    Attributes:
        part: the field that tells the parts of a pane apart; None: there is one.
        values: the arguments whose values are counted once each; those of the nth are in part
            n + 1.
        states: by function of the window, the fields of its partial results, those among `values`
            included.
        former: the last field: whether the former edition of a modified query made the pane, for
            windows that its tuples are in yet.
    """

    part: str | None
    values: tuple[Counted, ...]
    states: tuple[tuple[str, ...], ...]
    former: str
    fields: tuple[Field, ...]


@lru_cache(maxsize=256)
def layout(group_by: tuple[Field, ...], functions: tuple[TypedAggregate, ...]) -> Layout:
    """The layout of the panes of a window with these groups and functions."""
    prefix = "p"
    while any(each.name.lower().startswith(prefix) for each in group_by):
        prefix += "_"  # no group-by field has such a name
    values = _counted(prefix, functions)
    others = [each for each in functions if each.function not in DISTINCT]
    in_parts = len(values) > 1 or (bool(values) and any(map(_needs_one, others)))
    part = f"{prefix}part" if in_parts else None
    fields = [] if part is None else [Field(part, FieldType.INT)]
    fields += [Field(each.name, each.type, nullable=True) for each in values.values()]
    ranks = [each.rank for each in values.values() if each.rank is not None]
    fields += [Field(rank, FieldType.BYTE, nullable=True) for rank in ranks]
    states: list[tuple[str, ...]] = []
    for number, each in enumerate(functions):
        if each.function in DISTINCT:
            states.append(values[each.function, each.argument].fields)
            continue
        made = list(_states(f"{prefix}{number}", each))
        fields += made
        states.append(tuple(field.name for field in made))
    former = f"{prefix}former"
    fields.append(Field(former, FieldType.BOOL))
    return Layout(part, tuple(values.values()), tuple(states), former, tuple(fields))


def _counted(
    prefix: str, functions: tuple[TypedAggregate, ...]
) -> dict[tuple[Function, Expression | None], Counted]:
    """The values that these functions count once each, in order, by function and argument."""
    found: dict[tuple[Function, Expression | None], Counted] = {}
    for each in functions:
        key = (each.function, each.argument)
        if each.function in DISTINCT and key not in found:
            assert each.argument is not None
            number = len(found)
            sketch = each.function is Function.APPROX_COUNT_DISTINCT
            rank = f"{prefix}r{number}" if sketch else None
            found[key] = Counted(f"{prefix}v{number}", each.argument, rank)
    return found


def _needs_one(each: TypedAggregate) -> bool:
    """Whether its partial result needs all tuples of a pane and group, in their order."""
    if each.function in {Function.FIRSTVAL, Function.LASTVAL}:
        return True
    sums = each.function in {Function.SUM, Function.AVG}
    return sums and each.argument is not None and each.argument.type in FLOATS


def _states(name: str, each: TypedAggregate) -> Iterator[Field]:
    """The fields of one function's partial results."""
    match each.function:
        case Function.COUNT:
            yield Field(name, FieldType.LONG, nullable=True)
        case Function.SUM | Function.AVG:
            assert each.argument is not None
            if each.argument.type is FieldType.LONG:
                yield Field(f"{name}h", FieldType.LONG, nullable=True)
                yield Field(f"{name}l", FieldType.LONG, nullable=True)
            else:
                floats = each.argument.type in FLOATS
                type_ = FieldType.DOUBLE if floats else FieldType.LONG
                yield Field(name, type_, nullable=True)
            if each.function is Function.AVG:
                yield Field(f"{name}n", FieldType.LONG, nullable=True)
        case _:
            assert each.argument is not None
            yield Field(name, each.argument.type, nullable=True)


def split(step: AggregateStep, width_us: int) -> tuple[AggregateStep, AggregateStep]:
    """A window's step as that of its panes, and that which combines them."""
    panes = replace(step, size_us=width_us, advance_us=width_us, form=Form.PARTIAL)
    return panes, replace(step, form=Form.COMBINED, grain_us=width_us)


def panes_schema(name: str, step: AggregateStep) -> Schema:
    """The schema of a stream of panes."""
    return Schema(name, panes_fields(step))


def panes_fields(step: AggregateStep) -> tuple[Field, ...]:
    """The fields of panes."""
    return (*step.group_by, *layout(step.group_by, step.functions).fields)

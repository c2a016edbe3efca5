"""Borealis' joins as boxes of ours: each side has a buffer, of a number of seconds or of tuples.

A tuple is paired with the tuples in the other side's buffer at its arrival: so a join has two
halves. At one time the tuples of the left side come first.

* A buffer by VALUES is a bound of time. If both sides have one, one join has both bounds.
* A buffer by TUPLES is a table with the last n tuples of its side: they are numbered, and of each
  remainder of the number by n the newest one counts. A tuple of the other side is joined with the
  table as of its own time; a left tuple with the table of the microsecond before, since right
  tuples of its own time come after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from medusa.engine.borealis.streams import OldBox, Streams
from medusa.engine.borealis.windows import number
from medusa.engine.objects.query import (
    AggregateCall,
    Box,
    Join,
    JoinKind,
    Map,
    Top,
    TupleWindows,
    Union,
    order_by,
)
from medusa.engine.objects.schema import DELETED, STIME, Schema
from medusa.engine.operators.shared.parameters import Parameters
from medusa.engine.operators.tuple_windows import MOST_TUPLES
from medusa.overlay.errors import InvalidInputError

NEVER: Final = f"left.{STIME} = right.{STIME} and false"
"""The predicate of a join that has no pair."""

_NEXT_US: Final = 1
"""The least difference between two different times, microseconds."""

_SIDES: Final = ("left", "right")


@dataclass(frozen=True, slots=True)
class _Buffer:
    """The tuples that a join keeps of one side.

    Attributes:
        size: microseconds, or tuples if the buffer counts them.
    """

    side: str
    stream: str
    size: int
    by_tuples: bool


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The parts that all pairs share: the predicate, and the (name, expression) pairs of the
    results."""

    predicate: str
    fields: tuple[tuple[str, str], ...]


def read_two_sides(old: OldBox, streams: Streams) -> list[Box]:
    """The boxes of a join of Borealis.

    Raises:
        InvalidInputError: names the reason.
    """
    if len(old.inputs) not in {1, 2}:
        raise InvalidInputError(f"a join has two inputs, not {len(old.inputs)}")
    old.refuse_ports(inputs=len(old.inputs))
    taken = Parameters(old.node, old.parameters)
    predicate = taken.take("predicate") or "true"
    sides = (old.inputs[0], old.inputs[-1])
    left, right = (
        _buffer(taken, side, stream, streams) for side, stream in zip(_SIDES, sides, strict=True)
    )
    if (timeout := number(taken.take("timeout"), "timeout")) is not None and timeout > 0:
        raise InvalidInputError(
            "timeout: which tuples of a buffer are too old would depend on when each came; the "
            "buffers' sizes by VALUES say how far apart in time a pair may be"
        )
    texts = taken.take_numbered("out-field")
    names = taken.take_numbered("out-field-name")
    taken.finish()
    if len(texts) != len(names):
        raise InvalidInputError(f"it has {len(texts)} out-fields and {len(names)} out-field-names")
    fields = tuple(zip(names, texts, strict=True)) or _both(left.stream, right.stream, streams)
    pairs = _Pairs(predicate, fields)
    if not left.by_tuples and not right.by_tuples:
        return [_bounded(old.name, old.outputs[0], (left, right), pairs)]
    return _halves(old, left, right, pairs, streams)


def _bounded(
    name: str,
    output: str,
    sides: tuple[_Buffer, _Buffer],
    pairs: _Pairs,
    bounds_us: tuple[int, int] | None = None,
) -> Join:
    """A join with bounds of time. bounds_us: before and after; None: the buffers' sizes."""
    left, right = sides
    before, after = bounds_us or (right.size, left.size)
    streams = (left.stream, right.stream)
    return Join(
        name, *streams, output, JoinKind.INNER, before, after, pairs.predicate, pairs.fields
    )


def _halves(
    old: OldBox, left: _Buffer, right: _Buffer, pairs: _Pairs, streams: Streams
) -> list[Box]:
    """The boxes of a join whose buffers differ: one half pairs right tuples with the left buffer,
    the other pairs left tuples with the right buffer, and a union has the results of both. Each
    half is named after its buffer's side."""
    boxes: list[Box] = []
    halves = []
    for kept, other, bounds in (
        (left, right, (0, left.size)),
        (right, left, (right.size, -_NEXT_US)),
    ):
        if kept.by_tuples:
            boxes += _of_last(old, kept, other, pairs, streams)
        # if the right buffer keeps nothing, no later left tuple finds a pair
        elif sum(bounds) >= 0:
            boxes.append(_bounded(*_named(old, kept), (left, right), pairs, bounds))
        else:
            continue
        halves.append(_named(old, kept)[1])
    return [*boxes, Union(old.name, tuple(halves), old.outputs[0])]


def _named(old: OldBox, kept: _Buffer) -> tuple[str, str]:
    """The name and the output of the half that reads this buffer."""
    return f"{old.name}/{kept.side}", f"{old.outputs[0]}/{kept.side}"


def _of_last(
    old: OldBox, kept: _Buffer, other: _Buffer, pairs: _Pairs, streams: Streams
) -> list[Box]:
    """Pair each tuple of one side with the last tuples of the other.

    Args:
        kept: the buffer of the last tuples. other: the side whose tuples are paired with them.
    """
    # names in the first expression are read as by the parser: see
    # medusa.engine.operators.shared.operator.FieldScope
    from medusa.engine.expressions.printing import name_text
    from medusa.engine.language.sides import renamed

    name, output = _named(old, kept)
    names = _Names(streams.schema(kept.stream))
    functions = tuple(
        AggregateCall("lastval", name_text(field), kept_as) for field, kept_as in names.kept.items()
    )
    made = f"{output}/numbered"
    numbered = TupleWindows(
        f"{name}/numbered", kept.stream, made, 1, 1, (), functions, number=names.number
    )
    fields = [(each, name_text(each)) for each in (*names.kept.values(), names.number)]
    slots = _slots((f"{name}/slots", made, f"{output}/slots"), names, kept, fields)
    newest = (order_by(names.number, descending=True),)
    last = Top(f"{name}/last", f"{output}/slots", f"{output}/last", (names.slot,), newest, 1)
    sides = {kept.side: ("right", names.kept), other.side: ("left", {})}
    joined = Join(
        name,
        other.stream,
        last.output,
        output,
        JoinKind.INNER,
        0,
        0,
        renamed(pairs.predicate, sides),
        tuple((field, renamed(text, sides)) for field, text in pairs.fields),
        table=True,
    )
    return [numbered, slots, last, joined]


def _slots(
    of: tuple[str, str, str], names: _Names, kept: _Buffer, fields: Sequence[tuple[str, str]]
) -> Box:
    """The numbered tuples with their place in the table; those of the right side come a microsecond
    later, behind the left ones of their time.

    Args:
        of: the box's name, its input, its output. fields: the fields' names in the table, and in an
            expression.
    """
    name, source, output = of
    if kept.side == "left":
        slot = f"cast({names.number} % {kept.size} as int)"
        return Map(name, source, output, (*fields, (names.slot, slot)))
    slot = f"cast(left.{names.number} % {kept.size} as int)"
    expressions = (*((each, f"left.{text}") for each, text in fields), (names.slot, slot))
    return Join(name, source, source, output, JoinKind.ANTI, 0, _NEXT_US, NEVER, expressions)


class _Names:
    """The fields of the last tuples of a stream.

    Attributes:
        kept: the table's field for each field of the stream, `stime` included. The copies have
            other names, because a table's own `stime` and `deleted` mean something else.
    """

    def __init__(self, schema: Schema) -> None:
        taken = {each.name.lower() for each in schema.fields} | {STIME, DELETED}

        def free(word: str) -> str:
            while word in taken:
                word += "_"
            taken.add(word)
            return word

        self.kept = {
            each.name: free(DELETED) if each.name == DELETED else each.name
            for each in schema.fields
        }
        self.kept[STIME] = free("at")
        self.number, self.slot = free("number"), free("slot")


def _buffer(taken: Parameters, side: str, stream: str, streams: Streams) -> _Buffer:
    """The buffer of a side of a join."""
    by = taken.take(f"{side}-order-by")
    if by not in {"VALUES", "TUPLES"}:
        raise InvalidInputError(f"{side}-order-by is VALUES or TUPLES")
    by_tuples = by == "TUPLES"
    what = f"{side}-buffer-size"
    size = taken.take_count(what) if by_tuples else taken.take_seconds(what)
    if size is None:
        raise InvalidInputError(f"parameter {what} is missing")
    if by_tuples and not 1 <= size <= MOST_TUPLES:
        raise InvalidInputError(f"{what} is {size:,} tuples; 1 to {MOST_TUPLES:,} are allowed")
    field = taken.take(f"{side}-order-on-field")
    if field is not None:
        streams.check_order(stream, field, () if by_tuples else (size,))
    return _Buffer(side, stream, size, by_tuples)


def _both(left: str, right: str, streams: Streams) -> tuple[tuple[str, str], ...]:
    """The fields of both sides, the left side's first."""
    sides = zip(_SIDES, (streams.schema(left), streams.schema(right)), strict=True)
    fields = [
        (each.name, f"{side}.{each.name}") for side, schema in sides for each in schema.fields
    ]
    names = [name.lower() for name, _ in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(
            f"both inputs have a field {', '.join(twice)[:200]}: say out-field.N and "
            "out-field-name.N"
        )
    return tuple(fields)

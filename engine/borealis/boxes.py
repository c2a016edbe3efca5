"""Boxes of Borealis and Aurora as boxes of ours; docs/borealis.md lists them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from medusa.engine.borealis.changes import CHANGES
from medusa.engine.borealis.joins import NEVER, read_two_sides
from medusa.engine.borealis.streams import OldBox, Streams
from medusa.engine.borealis.tables import read_select
from medusa.engine.borealis.windows import (
    number,
    read_resample,
    read_windows,
    refuse_slack,
)
from medusa.engine.objects.query import Box, Filter, Join, JoinKind, Union
from medusa.engine.objects.schema import STIME, FieldType, Schema
from medusa.engine.operators.reading import read_box
from medusa.engine.operators.shared.parameters import Parameters, read_groups
from medusa.engine.scalars.casts import can_cast
from medusa.engine.xml.tree import Node
from medusa.overlay.errors import InvalidInputError

_RUNNING: Final = (
    "here a result depends on the streams' tuples and their times alone, so boxes never wait for "
    "each other"
)

_REFUSED: Final = {
    "filter_array": "a field has one value; send an array's elements as tuples, and use a filter",
    "sunion": "every union waits for the boundaries of its inputs and puts their tuples in one "
    "order: use a union without the control streams",
    "soutput": "every output is corrected for the readers that ask for it (bound): leave the box "
    "out, and give its output stream to the box before it",
    "scontrol": "a query's parameters are changed by <modify>: leave the box out",
    "joinstatic": "join with a <table>",
    "combine": "it is user code in C++: say it with map, union and join",
    "delay_sel": "it is user code in C++: say it with delay and random_drop",
    "lock": f"{_RUNNING}: leave the box out; a join with a table reads it as of a tuple's time",
    "unlock": f"{_RUNNING}: leave the box out; a join with a table reads it as of a tuple's time",
}
"""Boxes of Borealis that Medusa refuses, each with the nearest replacement."""

_HASHED: Final = 2**31
"""The number of values of the hash by which tuples are dropped."""


def boxes_of(old: OldBox, streams: Streams) -> list[Box]:
    """Boxes of ours that together compute what one box of Borealis does; each comes after the boxes
    that it reads.

    Raises:
        InvalidInputError: the box has no equivalent here, or is wrong; the message names line and
            reason.
    """
    if old.kind in _REFUSED:
        raise old.node.error(f"there is no {old.kind} here: {_REFUSED[old.kind]}")
    with old.node.about():
        old = _without_queue(old)
        if old.tables and old.kind != "select":
            raise InvalidInputError(
                f"a {old.kind} reads no table: select, insert, delete and update do"
            )
        read = _READERS.get(old.kind)
        if read is None:
            boxes: list[Box] = [read_box(old.node, old.inputs, old.outputs, old.parameters)]
        else:
            boxes = read(old, streams)
        for box in boxes:
            streams.learn(box)
        return boxes


def _without_queue(old: OldBox) -> OldBox:
    """The box without the parameters of Borealis' update queues, if they change nothing."""
    queue = {"update_queue", "queue_type"}
    for name in sorted(queue):
        if old.given(name) not in {None, "0"}:
            raise InvalidInputError(
                f"{name} {old.given(name)}: an update queue drops what its box has not got to yet, "
                "which is not the same at each peer; a table keeps the newest tuple of each key"
            )
    kept = tuple(each for each in old.parameters if each.attributes.get("name") not in queue)
    return replace(old, parameters=kept)


# -- one tuple ------------------------------------------------------------------------------------


def _read_filter(old: OldBox, streams: Streams) -> list[Box]:
    """A filter; in older documents its only expression is called `predicate`."""
    return [_as_ours(old, "filter", {"predicate": "expression.0"})]


def _read_revision_box(old: OldBox, streams: Streams) -> list[Box]:
    """Read a box for revisions. It becomes no box of Medusa, because each of Medusa's boxes takes
    revisions. Its mode says where Borealis looks up the past."""
    key = old.given("anchor")
    wanted = () if key is None else tuple(each.strip() for each in key.split(","))
    for stream in old.inputs:
        if wanted and set(streams.schema(stream).key) != set(wanted):
            raise InvalidInputError(
                f'anchor {key}: give the schema of {stream} key="{",".join(wanted)}", which tells '
                "tuples apart"
            )
    kept = tuple(
        each
        for each in old.parameters
        if each.attributes.get("name") not in {"anchor", "processing-mode"}
    )
    plain = replace(
        old,
        kind=old.kind.removeprefix("revision"),
        node=_typed(old.node, old.kind.removeprefix("revision")),
        parameters=kept,
    )
    return read_windows(plain, streams) if plain.kind == "aggregate" else [_ours(plain)]


def _read_bsort(old: OldBox, streams: Streams) -> list[Box]:
    """A sort by the time of a stream, which is in that order anyway."""
    old.refuse_ports(inputs=1)
    taken = Parameters(old.node, old.parameters)
    order = taken.take("order-on")
    if order is None:
        raise InvalidInputError("parameter order-on is missing")
    read_groups(taken)
    refuse_slack(old, taken.take("slack"), streams)
    taken.finish()
    streams.check_order(old.inputs[0], order.strip(), ())
    return [Union(old.name, old.inputs, old.outputs[0])]


def _read_random_drop(old: OldBox, streams: Streams) -> list[Box]:
    """A filter by a hash of the tuple: the same tuples are dropped wherever it is computed."""
    old.refuse_ports(inputs=1)
    taken = Parameters(old.node, old.parameters)
    least = _least_hash(taken)
    if (batch := number(taken.take("max_batch_size"), "max_batch_size")) is not None and batch < 1:
        raise InvalidInputError("max_batch_size is at least 1")
    taken.finish()
    schema = streams.schema(old.inputs[0])
    named = [each.name for each in schema.fields if can_cast(each.type, FieldType.STRING)]
    values = [f"unix_micros({STIME})", *named]
    return [_dropping(old, values, schema, least)]


def _read_window_drop(old: OldBox, streams: Streams) -> list[Box]:
    """A filter that keeps or drops all tuples of a window and group."""
    old.refuse_ports(inputs=1)
    taken = Parameters(old.node, old.parameters)
    least = _least_hash(taken)
    size, slide = taken.take_seconds("window-size"), taken.take_seconds("window-slide")
    if (taken.take("window-size-by") or "VALUES") != "VALUES":
        raise InvalidInputError("window-size-by: only windows by VALUES are dropped")
    if not size:
        raise InvalidInputError("parameter window-size is missing")
    if slide not in {None, size}:
        raise InvalidInputError(
            "a tuple of windows that overlap is in kept and in dropped ones: window-slide must be "
            "window-size; drop windows behind their aggregate, with random_drop"
        )
    order = taken.take("order-on-field")
    if order is not None:
        streams.check_order(old.inputs[0], order, (size,))
    groups = read_groups(taken)
    taken.finish()
    time = f"unix_micros({STIME})"
    start = f"({time} - mod(mod({time}, {size}) + {size}, {size}))"
    return [_dropping(old, [start, *groups], streams.schema(old.inputs[0]), least)]


def _least_hash(taken: Parameters) -> int:
    rate = number(taken.take("drop_rate"), "drop_rate")
    if rate is None or not 0 <= rate <= 1:
        raise InvalidInputError("drop_rate is the share of tuples to drop, from 0 to 1")
    return round(rate * _HASHED)


def _dropping(old: OldBox, values: Sequence[str], schema: Schema, least: int) -> Box:
    """A filter that passes a tuple if the hash of these values is at least `least`."""
    types = {each.name: each.type for each in schema.fields}
    texts = [
        each if types.get(each) is FieldType.STRING else f"cast({each} as string)"
        for each in values
    ]
    text = " || '/' || ".join(f"coalesce({each}, '')" for each in texts)
    hashed = f"hash64({text})"
    predicate = f"bitand({hashed}, {_HASHED - 1}) >= {least}"
    return Filter(old.name, old.inputs[0], old.outputs, (predicate,))


# -- two streams ----------------------------------------------------------------------------------


def _read_join(old: OldBox, streams: Streams) -> list[Box]:
    """A join of Borealis, unless its parameters are ours."""
    if old.given("before") is not None or old.given("table") is not None:
        return [_ours(old)]
    return read_two_sides(old, streams)


def _read_waitfor(old: OldBox, streams: Streams) -> list[Box]:
    """Each tuple of the first input that finds a tuple of the second within the timeout."""
    old.refuse_ports(inputs=2)
    taken = Parameters(old.node, old.parameters)
    predicate, timeout = taken.take("predicate"), taken.take_seconds("timeout")
    taken.finish()
    if predicate is None or timeout is None:
        raise InvalidInputError(
            "a waitfor needs a predicate, and a timeout: the seconds that a tuple waits at most"
        )
    left, right = old.inputs
    return [
        Join(
            old.name,
            left,
            right,
            old.outputs[0],
            JoinKind.SEMI,
            0,
            timeout,
            predicate,
            _fields(streams.schema(left)),
        )
    ]


def _read_delay(old: OldBox, streams: Streams) -> list[Box]:
    """Read a delay: an anti join whose predicate is never true emits each tuple that many seconds
    later."""
    old.refuse_ports(inputs=1)
    taken = Parameters(old.node, old.parameters)
    delay = taken.take_seconds("delay")
    taken.finish()
    if not delay:
        raise InvalidInputError("parameter delay is missing: seconds")
    (source,) = old.inputs
    fields = _fields(streams.schema(source))
    return [Join(old.name, source, source, old.outputs[0], JoinKind.ANTI, 0, delay, NEVER, fields)]


def _fields(schema: Schema) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, f"left.{each.name}") for each in schema.fields)


# -- as ours --------------------------------------------------------------------------------------


def _ours(old: OldBox) -> Box:
    return read_box(old.node, old.inputs, old.outputs, old.parameters)


def _as_ours(old: OldBox, kind: str, names: dict[str, str]) -> Box:
    """Read a box of Borealis as a box of Medusa that does the same, but names some parameters
    otherwise."""
    parameters = []
    for each in old.parameters:
        name = each.attributes.get("name", "")
        renamed = {**each.attributes, "name": names[name]} if name in names else each.attributes
        parameters.append(Node(each.tag, renamed, each.line, each.children))
    return read_box(_typed(old.node, kind), old.inputs, old.outputs, parameters)


def _typed(node: Node, kind: str) -> Node:
    return Node(node.tag, {**node.attributes, "type": kind}, node.line, node.children)


_READERS: Final[dict[str, Callable[[OldBox, Streams], list[Box]]]] = {
    "filter": _read_filter,
    "revisionfilter": _read_revision_box,
    "revisionmap": _read_revision_box,
    "revisionaggregate": _read_revision_box,
    "bsort": _read_bsort,
    "aggregate": read_windows,
    "tumble": read_windows,
    "slide": read_windows,
    "xsection": read_windows,
    "latch": read_windows,
    "resample": read_resample,
    "select": read_select,
    "random_drop": _read_random_drop,
    "window_drop": _read_window_drop,
    "join": _read_join,
    "aurorajoin": _read_join,
    "sjoin": _read_join,
    "waitfor": _read_waitfor,
    "delay": _read_delay,
}
"""The readers of boxes whose parameters differ from ours."""

KINDS: Final = frozenset({*_READERS, *_REFUSED, *CHANGES, "map", "union"})
"""The kinds of boxes of Borealis and Aurora, refused ones included."""

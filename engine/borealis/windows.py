"""Borealis' boxes with windows, as boxes of Medusa, and the form of their results.

With `order-by`, which Borealis demands, the results have Borealis' form: the fields of `group-by`,
the field of the order with the window's start, the functions. Counts are ints; sums and averages
have the type of their argument, or int if the argument is a smaller integer. Without
`order-by` the results have the form of our dialect: `window_start` first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from medusa.engine.borealis.streams import SECOND_US, OldBox, Starts, Streams
from medusa.engine.expressions.aggregates import call_of, function_of
from medusa.engine.objects.query import (
    WINDOW_START,
    Aggregate,
    AggregateCall,
    Box,
    Join,
    JoinKind,
    Map,
    Rank,
    Sessions,
    Totals,
)
from medusa.engine.objects.schema import STIME, FieldType, Schema
from medusa.engine.operators.aggregate import AggregateOperator
from medusa.engine.operators.reading import read_box
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.shared.operator import Inputs
from medusa.engine.operators.shared.parameters import (
    Parameters,
    read_functions,
    read_groups,
    us_to_seconds,
)
from medusa.engine.operators.totals import TotalsOperator
from medusa.engine.operators.typing import typed
from medusa.engine.xml.tree import Node
from medusa.overlay.errors import InvalidInputError

_SMALL: Final = frozenset({FieldType.BYTE, FieldType.SHORT, FieldType.INT})

_AS_ARGUMENT: Final = frozenset({"sum", "avg"})

_STARTS: Final = {
    FieldType.TIMESTAMP: WINDOW_START,
    FieldType.LONG: f"unix_micros({WINDOW_START})",
    FieldType.INT: f"cast(unix_seconds({WINDOW_START}) as int)",
    FieldType.SINGLE: f"cast(unix_micros({WINDOW_START}) / 1000000.0 as single)",
    FieldType.DOUBLE: f"unix_micros({WINDOW_START}) / 1000000.0",
}
"""Expressions for the start of a window, as a time of each type."""

_NUMBER: Final = re.compile(r"[+-]?\d{1,12}(\.\d{0,12})?", re.ASCII)

INSTANT_US: Final = 1
"""The size of a window that has the tuples of one stime only."""


def read_windows(old: OldBox, streams: Streams) -> list[Box]:
    """The boxes of an aggregate, tumble, slide, xsection or latch.

    Raises:
        InvalidInputError: names the reason.
    """
    old.refuse_ports(inputs=1)
    taken = Parameters(old.node, old.parameters)
    by = taken.take("window-size-by") or "VALUES"
    if by == "TUPLES" and old.kind == "aggregate":
        return _read_tuples(old, taken, streams)
    if by != "VALUES":
        raise InvalidInputError(
            f"window-size-by {by[:40]!a}: the windows of a {old.kind} are by VALUES"
            f"{' or TUPLES' if old.kind == 'aggregate' else ''}"
        )
    if taken.take("order-by") not in {None, "FIELD"}:
        raise InvalidInputError(
            "order-by TUPLENUM: which place a tuple has depends on all before it; windows by "
            "VALUES are ranges of the time: order-by FIELD"
        )
    size, advance = _window(old, taken, streams)
    order = taken.take("order-on-field") or ""
    ordered = old.given("order-by") is not None
    if order:
        streams.check_order(old.inputs[0], order, (size, advance))
    _check_closing(old, taken, streams)
    groups, functions = read_groups(taken), read_functions(taken)
    taken.finish()
    windows = Aggregate(old.name, old.inputs[0], old.outputs[0], size, advance, groups, functions)
    make = _latch if old.kind == "latch" else _formed
    return make(windows, streams, order if ordered else "")


def _read_tuples(old: OldBox, taken: Parameters, streams: Streams) -> list[Box]:
    """Read count windows, and a map that gives them Borealis' form. With order-by FIELD the form
    has the field's value in the window's first tuple, with TUPLENUM it has no such value."""
    sizes = [(name, taken.take(name)) for name in ("window-size", "advance")]
    by_field, order = taken.take("order-by"), taken.take("order-on-field") or ""
    if by_field not in {None, "FIELD", "TUPLENUM"}:
        raise InvalidInputError("order-by is FIELD or TUPLENUM")
    if order:
        streams.check_order(old.inputs[0], order, ())
    _check_closing(old, taken, streams)
    groups, functions = read_groups(taken), read_functions(taken)
    taken.finish()
    given = [("window-size-by", "TUPLES"), *((name, size) for name, size in sizes if size)]
    given += [("group-by", ",".join(groups))]
    first = by_field == "FIELD" and bool(order)
    if first:
        functions = (AggregateCall("firstval", order, order), *functions)
    for number, each in enumerate(functions):
        given.append((f"aggregate-function.{number}", call_of(each)))
        given.append((f"aggregate-function-output-name.{number}", each.output))
    nodes = [
        Node("parameter", {"name": name, "value": value}, old.node.line) for name, value in given
    ]
    if by_field is None:
        return [read_box(old.node, old.inputs, old.outputs, nodes)]
    # over windows of time the same functions have the same types
    probe = Aggregate(old.name, old.inputs[0], old.outputs[0], 1, 1, groups, functions)
    step = typed(AggregateOperator(probe), Inputs(streams.schemas)).steps[probe.output]
    fields = (
        *((group, group) for group in groups),
        *((each.output, _result(each)) for each in step.functions),
    )
    inner = f"{old.outputs[0]}/windows"
    named = Node(
        old.node.tag, {**old.node.attributes, "name": f"{old.name}/windows"}, old.node.line
    )
    windows = read_box(named, old.inputs, (inner,), nodes)
    return [windows, Map(old.name, inner, old.outputs[0], fields)]


def _window(old: OldBox, taken: Parameters, streams: Streams) -> tuple[int, int]:
    """Size and advance of the windows of a kind of box, microseconds."""
    size, advance = taken.take_seconds("window-size"), taken.take_seconds("advance")
    if old.kind == "xsection":
        if size is not None or advance is not None:
            raise InvalidInputError(
                "the windows of an xsection are the tuples of one value of the order; with a "
                "window-size it is an aggregate"
            )
        schema = streams.schema(old.inputs[0])
        time = None if schema.time is None else schema.field(schema.time)
        seconds = time is not None and time.type is FieldType.INT
        return (SECOND_US, SECOND_US) if seconds else (INSTANT_US, INSTANT_US)
    if size is None:
        raise InvalidInputError("parameter window-size is missing")
    if old.kind == "slide":
        return size, SECOND_US if advance is None else advance
    if old.kind in {"tumble", "latch"} and advance not in {None, size}:
        raise InvalidInputError(
            f"the windows of a {old.kind} follow one another: advance is window-size, "
            f"{us_to_seconds(size)}; others are an aggregate's"
        )
    return size, size if advance is None else advance


def _check_closing(old: OldBox, taken: Parameters, streams: Streams) -> None:
    """Check the parameters that decide when a window of Borealis closes, and which tuples it
    has."""
    for fixed in ("drop-empty-outputs", "independent-window-alignment"):
        taken.take_fixed(fixed)
    if taken.take_flag("drop-mode"):
        raise InvalidInputError(
            "drop-mode is of Borealis' load shedding: say what to shed with window_drop or "
            "random_drop"
        )
    taken.take_flag("last-agg")
    refuse_slack(old, taken.take("slack"), streams)
    if (timeout := number(taken.take("timeout"), "timeout")) and timeout > 0:
        streams.remark(
            f"box {old.name}: its windows close, whole, once the boundary of their stream has "
            f'passed them, and not by the timeout of {timeout:g} s: give the <input> idle="clock" '
            "if they are to close while no tuple comes"
        )


def refuse_slack(old: OldBox, given: str | None, streams: Streams) -> None:
    """Check a slack, which Borealis counts in tuples: here it is the streams', in seconds.

    Raises:
        InvalidInputError: the text is no slack, or a source of the box has none.
    """
    slack = number(given, "slack")
    if slack is None:
        return
    if slack < 0 or slack != int(slack):
        raise InvalidInputError(f"slack {slack:g} is not a number of tuples")
    late = [stream for stream in old.inputs if stream not in streams.slack]
    if slack and late:
        raise InvalidInputError(
            f"{slack:g} tuples of slack: how many tuples come in between is not the same at each "
            f'peer. Give the <input> that {late[0]} is made of slack="S", the seconds that a tuple '
            "may come behind later ones"
        )


def number(text: str | None, what: str) -> float | None:
    """The value as a number with a fraction; None: it is not given. Raises: InvalidInputError: the
    value is no number."""
    if text is None:
        return None
    if _NUMBER.fullmatch(text.strip()) is None:
        raise InvalidInputError(f"{what} {text[:40]!a} is not a number")
    return float(text)


def _formed(windows: Aggregate, streams: Streams, order: str) -> list[Box]:
    """The windows, and a map that gives them Borealis' form.

    Args:
        order: the field of the order in the results; empty: the results keep their form.
    """
    if not order:
        return [windows]
    step = typed(AggregateOperator(windows), Inputs(streams.schemas)).steps[windows.output]
    start = _start(streams.schema(windows.input), order)
    return _in_form(windows, streams, (order, start), step.functions)


def _in_form(
    windows: Aggregate,
    streams: Streams,
    order: tuple[str, str],
    functions: Sequence[TypedAggregate],
) -> list[Box]:
    """Rename the windows, and add a map whose output has their former name.

    Args:
        order: the field of the order in the results, and its expression.
        functions: the calls whose results the map passes on.
    """
    inner = replace(windows, name=f"{windows.name}/windows", output=f"{windows.output}/windows")
    fields = (
        *((group, group) for group in windows.group_by),
        order,
        *((each.output, _result(each)) for each in functions),
    )
    if windows.size_us == windows.advance_us:
        streams.starts(windows.output, Starts(order[0], windows.size_us))
    return [inner, Map(windows.name, inner.output, windows.output, fields)]


def _start(schema: Schema, order: str) -> str:
    field = schema.field(order)
    return WINDOW_START if field is None else _STARTS[field.type]


def _result(each: TypedAggregate) -> str:
    """The result of a call, converted to its type in Borealis."""
    if each.function.never_null:
        return f"cast({each.output} as int)"
    if each.function.name in _AS_ARGUMENT and each.argument is not None:
        type_ = each.argument.type
        return f"cast({each.output} as {FieldType.INT if type_ in _SMALL else type_})"
    return each.output


def _latch(windows: Aggregate, streams: Streams, order: str) -> list[Box]:
    """Read a latch: windows whose functions are over all tuples so far, that is, the totals at the
    end of each window."""
    totals = Totals(
        f"{windows.name}/totals",
        windows.input,
        f"{windows.output}/totals",
        windows.group_by,
        windows.functions,
    )
    step = typed(TotalsOperator(totals), Inputs(streams.schemas)).steps[totals.output]
    last = tuple(AggregateCall("lastval", each.output, each.output) for each in windows.functions)
    latched = replace(windows, input=totals.output, functions=last)
    if not order:
        return [totals, latched]
    start = _start(streams.schema(windows.input), order)
    return [totals, *_in_form(latched, streams, (order, start), step.functions)]


def read_resample(old: OldBox, streams: Streams) -> list[Box]:
    """Read a resample. For each tuple t of the first input it computes a function of the tuples u
    of the second one with |u - t| <= window-size. The boxes are a join that makes these pairs, and
    a session window over the pairs of each t. Equal t count once.

    Raises:
        InvalidInputError: names the reason.
    """
    old.refuse_ports(inputs=2)
    taken = Parameters(old.node, old.parameters)
    span = taken.take_seconds("window-size")
    if span is None:
        raise InvalidInputError("parameter window-size is missing: the seconds on both sides")
    order = ""
    for side, stream in zip(("left", "right"), old.inputs, strict=True):
        taken.take(f"{side}-order-by")
        field = taken.take(f"{side}-order-on-field") or STIME
        streams.check_order(stream, field, (span,))
        order = order or field
        refuse_slack(old, taken.take(f"{side}-slack"), streams)
    groups = read_groups(taken)
    call = taken.take("aggregate-function")
    functions = read_functions(taken)
    if call is not None:
        functions = (function_of(call, "agg_0"), *functions)
    taken.finish()
    left, right = (streams.schema(stream) for stream in old.inputs)
    kept = [(f"left_{each.name}", f"left.{each.name}") for each in left.fields]
    kept.append((f"left_{STIME}", f"left.{STIME}"))
    equal = [f"left.{group} = right.{group}" for group in groups]
    once = Rank(
        f"{old.name}/once",
        old.inputs[0],
        f"{old.outputs[0]}/once",
        INSTANT_US,
        tuple(each.name for each in left.fields),
        (),
        1,
    )
    pairs = Join(
        f"{old.name}/pairs",
        once.output,
        old.inputs[1],
        f"{old.outputs[0]}/pairs",
        JoinKind.INNER,
        span,
        span,
        " and ".join(equal) or "true",
        (*kept, *((each.name, f"right.{each.name}") for each in right.fields)),
    )
    gap = max(span, INSTANT_US)
    each_t = Sessions(
        f"{old.name}/sessions",
        pairs.output,
        f"{old.outputs[0]}/sessions",
        gap,
        gap,
        tuple(name for name, _ in kept),
        functions,
    )
    fields = (
        *((group, f"left_{group}") for group in groups),
        (order, f"left_{order}"),
        *((each.output, each.output) for each in functions),
    )
    return [once, pairs, each_t, Map(old.name, each_t.output, old.outputs[0], fields)]

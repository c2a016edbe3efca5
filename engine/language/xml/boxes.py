"""Boxes in XML: their parameters, which both dialects share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from medusa.engine.language.aggregates import function_of
from medusa.engine.language.box_texts import measure_of, order_of
from medusa.engine.language.xml.tree import Node
from medusa.engine.objects.query import (
    Aggregate,
    AggregateCall,
    Box,
    Contiguity,
    Cumulate,
    Filter,
    Join,
    JoinKind,
    Map,
    Match,
    OrderBy,
    Rank,
    Sessions,
    Top,
    Totals,
    TupleWindows,
    Union,
    longest_session,
)
from medusa.engine.operators.match.pattern import conditioned, read_pattern
from medusa.engine.operators.typing import check_shape
from medusa.overlay.errors import InvalidInputError

_SECONDS = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)

_NUMBERED = re.compile(r"(.+)\.(0|[1-9]\d{0,3})", re.ASCII)

_BY_BOUNDARY: Final = (
    "windows close when the stream's boundary passes them, and late tuples are the stream's "
    "declared slack; another value would change the result"
)

_BY_CLOCK: Final = "that would make it an arbitrary box, whose results no other peer could repeat"

_FIXED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "order-by": (("FIELD",), "windows are ranges of the stream's time"),
    "slack": (("0",), _BY_BOUNDARY),
    "timeout": (("0", "0.0"), f"{_BY_BOUNDARY}; {_BY_CLOCK}"),
    "drop-empty-outputs": (
        ("1", "true"),
        "a window without tuples emits nothing: since when there are windows depends on where "
        "reading began, and a group exists by its tuples",
    ),
    "independent-window-alignment": (
        ("1", "true"),
        "windows are aligned to the epoch: those that are aligned to the first tuple depend on "
        "where reading began",
    ),
}
"""Parameters of an aggregate, each with the only values it may have and the reason."""


def seconds_to_us(text: str) -> int:
    """Microseconds. Raises: InvalidInputError: no number of seconds with at most six decimals."""
    if _SECONDS.fullmatch(text.strip()) is None:
        raise InvalidInputError(f"{text[:40]!a} is not a number of seconds, like 60 or 0.25")
    return int(Decimal(text.strip()) * 1_000_000)


class Parameters:
    """The parameters of one box; `finish` refuses those that were not taken."""

    def __init__(self, box: Node, nodes: Sequence[Node]) -> None:
        self._box = box
        self._nodes: dict[str, Node] = {}
        self._known: list[str] = []
        for node in nodes:
            node.childless()
            name = node.checked(("name", "value"))["name"]
            if name in self._nodes:
                raise node.error(f"parameter {name[:64]!a} occurs twice")
            self._nodes[name] = node

    def take(self, name: str) -> str | None:
        self._known.append(name)
        node = self._nodes.pop(name, None)
        return None if node is None else node.attributes["value"]

    def take_seconds(self, name: str) -> int | None:
        node = self._nodes.get(name)
        value = self.take(name)
        if node is None or value is None:
            return None
        with node.about():
            return seconds_to_us(value)

    def take_signed(self, name: str) -> int | None:
        """Seconds that may be negative, as microseconds."""
        node = self._nodes.get(name)
        value = self.take(name)
        if node is None or value is None:
            return None
        with node.about():
            size = seconds_to_us(value.strip().removeprefix("-"))
        return -size if value.strip().startswith("-") else size

    def take_choice(self, name: str, *allowed: str) -> str:
        """Take one of some words, of which the first stands for none."""
        node = self._nodes.get(name)
        value = self.take(name)
        if node is None or value is None:
            return allowed[0]
        if value not in allowed:
            raise node.error(f"{name} is {' or '.join(allowed)}, not {value[:40]!a}")
        return value

    def take_count(self, name: str) -> int | None:
        """A number of tuples."""
        node = self._nodes.get(name)
        value = self.take(name)
        if node is None or value is None:
            return None
        if not re.fullmatch(r"\d{1,9}", value.strip(), re.ASCII):
            raise node.error(f"{name} is a number of tuples, not {value[:40]!a}")
        return int(value)

    def take_flag(self, name: str) -> bool:
        """1 or true, 0 or false; false if absent."""
        node = self._nodes.get(name)
        value = self.take(name)
        if node is not None and value not in {"0", "1", "true", "false"}:
            raise node.error(f"{name} must be 0 or 1")
        return value in {"1", "true"}

    def take_fixed(self, name: str) -> None:
        """Check a parameter of `_FIXED`."""
        node = self._nodes.get(name)
        value = self.take(name)
        allowed, reason = _FIXED[name]
        if node is not None and value not in allowed:
            raise node.error(f"{name} can only be {allowed[0]} here: {reason}")

    def take_numbered(self, *prefixes: str) -> list[str]:
        """The values of `prefix.0`, `prefix.1`... under one of the prefixes, without gaps."""
        self._known += [f"{prefix}.N" for prefix in prefixes]
        found: dict[int, Node] = {}
        for name in list(self._nodes):
            match = _NUMBERED.fullmatch(name)
            if match and match.group(1) in prefixes:
                node = self._nodes.pop(name)
                number = int(match.group(2))
                if number in found:
                    raise node.error(f"{prefixes[0]}.{number} occurs twice")
                found[number] = node
        for number in range(len(found)):
            if number not in found:
                raise self._box.error(f"{prefixes[0]}.{number} is missing: they count from 0")
        return [found[number].attributes["value"] for number in range(len(found))]

    def finish(self) -> None:
        for name, node in self._nodes.items():
            known = ", ".join(self._known) or "none"
            raise node.error(f"unknown parameter {name[:64]!a} of this box; there are {known}")


def read_box(
    node: Node, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Sequence[Node]
) -> Box:
    """The box in an element. Raises: InvalidInputError: names line, box and reason."""
    attributes = node.checked(("name", "type"))
    kind = attributes["type"]
    if kind not in _READERS:
        known = ", ".join(_READERS)
        raise node.error(f"unknown box type {kind[:64]!a}; there are {known}")
    if not inputs or not outputs:
        raise node.error("a box needs at least one input and one output")
    if kind == "join" and len(inputs) > 2:
        raise node.error(
            f"a join has two inputs, or one that it joins with itself, not {len(inputs)}"
        )
    if kind not in {"union", "join"} and len(inputs) != 1:
        raise node.error(f"a {kind} has one input, not {len(inputs)}")
    if kind != "filter" and len(outputs) != 1:
        raise node.error(f"a {kind} has one output, not {len(outputs)}")
    taken = Parameters(node, parameters)
    with node.about():
        box = _READERS[kind](attributes["name"], inputs, outputs, taken)
        taken.finish()
        check_shape(box)
    return box


def _read_filter(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    predicates = parameters.take_numbered("expression", "nexpression")
    flag = parameters.take_flag("pass-on-false-port")
    return Filter(name, inputs[0], outputs, tuple(predicates), flag)


def _read_map(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    texts = parameters.take_numbered("expression")
    names = parameters.take_numbered("output-field-name")
    if len(texts) != len(names):
        raise InvalidInputError(
            f"it has {len(texts)} expressions and {len(names)} output field names"
        )
    return Map(name, inputs[0], outputs[0], tuple(zip(names, texts, strict=True)))


def _read_union(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], _: Parameters) -> Box:
    return Union(name, inputs, outputs[0])


def _read_aggregate(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    functions = read_functions(parameters)
    if parameters.take_choice("window-size-by", "VALUES", "TUPLES") == "TUPLES":
        return _read_tuple_windows(name, (inputs[0], outputs[0]), functions, parameters)
    size = parameters.take_seconds("window-size")
    if size is None:
        raise InvalidInputError("parameter window-size is missing")
    advance = parameters.take_seconds("advance")
    for fixed in _FIXED:
        parameters.take_fixed(fixed)
    order_on = parameters.take("order-on-field")
    return Aggregate(
        name,
        inputs[0],
        outputs[0],
        size,
        size if advance is None else advance,
        read_groups(parameters),
        functions,
        order_on or "",
    )


def _read_tuple_windows(
    name: str,
    streams: tuple[str, str],
    functions: tuple[AggregateCall, ...],
    parameters: Parameters,
) -> Box:
    """Read an aggregate over count windows. streams: its input and its output."""
    size = parameters.take_count("window-size")
    if size is None:
        raise InvalidInputError("parameter window-size is missing: the tuples of a window")
    advance = parameters.take_count("advance")
    for fixed in _FIXED:
        parameters.take_fixed(fixed)
    return TupleWindows(
        name,
        *streams,
        size,
        size if advance is None else advance,
        read_groups(parameters),
        functions,
        parameters.take_flag("partial-windows"),
        parameters.take("number-field") or "",
    )


def read_functions(parameters: Parameters) -> tuple[AggregateCall, ...]:
    """`aggregate-function.N` and their names. Raises: InvalidInputError: names the mistake."""
    calls = parameters.take_numbered("aggregate-function")
    names = parameters.take_numbered("aggregate-function-output-name")
    if len(names) > len(calls):
        raise InvalidInputError(f"it has {len(names)} output names for {len(calls)} functions")
    names += [f"agg_{number}" for number in range(len(names), len(calls))]
    return tuple(function_of(call, output) for call, output in zip(calls, names, strict=True))


def read_groups(parameters: Parameters) -> tuple[str, ...]:
    """The fields of `group-by`."""
    groups = parameters.take("group-by") or ""
    return tuple(group.strip() for group in groups.split(",")) if groups.strip() else ()


def _read_sessions(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    functions, groups = read_functions(parameters), read_groups(parameters)
    gap, longest = (parameters.take_seconds(each) for each in ("gap", "longest"))
    if gap is None:
        raise InvalidInputError("parameter gap is missing: the seconds of silence that end one")
    longest = longest_session(gap) if longest is None else longest
    return Sessions(name, inputs[0], outputs[0], gap, longest, groups, functions)


def _read_cumulate(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    functions, groups = read_functions(parameters), read_groups(parameters)
    size, step = (parameters.take_seconds(each) for each in ("window-size", "step"))
    if size is None or step is None:
        raise InvalidInputError("parameters window-size and step are needed, both in seconds")
    return Cumulate(name, inputs[0], outputs[0], step, size, groups, functions)


def _read_totals(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    functions = read_functions(parameters)
    groups = read_groups(parameters)
    return Totals(
        name, inputs[0], outputs[0], groups, functions, changes=parameters.take_flag("table")
    )


def _read_rank(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    size = parameters.take_seconds("window-size")
    return Rank(name, inputs[0], outputs[0], 1 if size is None else size, *_read_order(parameters))


def _read_top(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    return Top(name, inputs[0], outputs[0], *_read_order(parameters))


def _read_order(
    parameters: Parameters,
) -> tuple[tuple[str, ...], tuple[OrderBy, ...], int, str]:
    """The fields of the partition, the order, how many tuples are kept, the field of the place."""
    most = (parameters.take("most") or "").strip()
    if not re.fullmatch(r"\d{1,9}", most, re.ASCII):
        raise InvalidInputError(f"most is a number of tuples, not {most[:40]!a}")
    partition = parameters.take("partition-by") or ""
    return (
        tuple(field.strip() for field in partition.split(",")) if partition.strip() else (),
        tuple(map(order_of, parameters.take_numbered("order-by"))),
        int(most),
        parameters.take("place-field") or "",
    )


def _read_join(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    predicate = parameters.take("predicate")
    kind = parameters.take("kind") or JoinKind.INNER
    if kind not in set(JoinKind):
        raise InvalidInputError(f"kind {kind[:40]!a} is not one of {', '.join(JoinKind)}")
    texts = parameters.take_numbered("out-field")
    names = parameters.take_numbered("out-field-name")
    if len(texts) != len(names):
        raise InvalidInputError(f"it has {len(texts)} out-fields and {len(names)} out-field-names")
    bounds = [parameters.take_signed(each) for each in ("before", "after")]
    table = parameters.take_flag("table")
    if not table and None in bounds:
        raise InvalidInputError(
            "a join needs before and after, the bounds of time in seconds, or table"
        )
    before, after = (each or 0 for each in bounds)
    fields = tuple(zip(names, texts, strict=True))
    return Join(
        name,
        inputs[0],
        inputs[-1],
        outputs[0],
        JoinKind(kind),
        before,
        after,
        predicate or "true",
        fields,
        table,
    )


def _read_match(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    pattern = parameters.take("pattern")
    within = parameters.take_seconds("within")
    if pattern is None or within is None:
        raise InvalidInputError("a match needs a pattern, and within, its longest time in seconds")
    contiguity = parameters.take("contiguity") or Contiguity.STRICT
    if contiguity not in set(Contiguity):
        known = ", ".join(Contiguity)
        raise InvalidInputError(f"contiguity {contiguity[:40]!a} is not one of {known}")
    variables = parameters.take_numbered("variable")
    conditions = parameters.take_numbered("condition")
    steps = conditioned(read_pattern(pattern), variables, conditions)
    calls = parameters.take_numbered("measure")
    names = parameters.take_numbered("measure-name")
    if len(calls) != len(names):
        raise InvalidInputError(f"it has {len(calls)} measures and {len(names)} measure-names")
    groups = parameters.take("partition-by") or ""
    return Match(
        name,
        inputs[0],
        outputs[0],
        tuple(group.strip() for group in groups.split(",")) if groups.strip() else (),
        steps,
        within,
        tuple(measure_of(call, output) for call, output in zip(calls, names, strict=True)),
        Contiguity(contiguity),
    )


_READERS: Final[dict[str, Callable[[str, tuple[str, ...], tuple[str, ...], Parameters], Box]]] = {
    "filter": _read_filter,
    "map": _read_map,
    "union": _read_union,
    "aggregate": _read_aggregate,
    "sessions": _read_sessions,
    "cumulate": _read_cumulate,
    "rank": _read_rank,
    "join": _read_join,
    "totals": _read_totals,
    "top": _read_top,
    "match": _read_match,
}

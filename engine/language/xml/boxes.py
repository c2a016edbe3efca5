"""Boxes in XML: their parameters, which both dialects share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from engine.language.aggregates import PARAMETERS, call_of, function_named, split_parameter
from engine.language.check import check_shape
from engine.language.xml.tree import Node
from engine.objects.query import (
    Aggregate,
    AggregateFunction,
    Box,
    Filter,
    Join,
    JoinKind,
    Map,
    Top,
    Totals,
    Union,
)
from overlay.errors import InvalidInputError

_SECONDS = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)

_NUMBERED = re.compile(r"(.+)\.(0|[1-9]\d{0,3})", re.ASCII)

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)

_BY_BOUNDARY: Final = (
    "windows close when the stream's boundary passes them, and late tuples are the stream's "
    "declared slack; another value would change the result"
)

_BY_CLOCK: Final = "that would make it an arbitrary box, whose results no other peer could repeat"

_FIXED: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "window-size-by": (("VALUES",), "windows are ranges of the stream's time"),
    "order-by": (("FIELD",), "windows are ranges of the stream's time"),
    "slack": (("0",), _BY_BOUNDARY),
    "timeout": (("0", "0.0"), f"{_BY_BOUNDARY}; {_BY_CLOCK}"),
    "drop-empty-outputs": (("1", "true"), "a window without tuples emits nothing"),
    "independent-window-alignment": (("1", "true"), "windows are aligned to the epoch"),
}
"""Parameters of an aggregate, each with the only values it may have and the reason."""


def seconds_to_us(text: str) -> int:
    """Microseconds. Raises: InvalidInputError: no number of seconds with at most six decimals."""
    if _SECONDS.fullmatch(text.strip()) is None:
        raise InvalidInputError(f"{text[:40]!a} is not a number of seconds, like 60 or 0.25")
    return int(Decimal(text.strip()) * 1_000_000)


def us_to_seconds(microseconds: int) -> str:
    """The shortest text that `seconds_to_us` reads as this."""
    whole, rest = divmod(microseconds, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


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


def parameters_of(box: Box) -> list[tuple[str, str]]:
    """The parameters of the box, as `read_box` takes them."""
    match box:
        case Filter():
            flag = [("pass-on-false-port", "1")] if box.pass_on_false else []
            return [*_numbered("expression", box.predicates), *flag]
        case Map():
            return [
                *_numbered("output-field-name", [name for name, _ in box.expressions]),
                *_numbered("expression", [text for _, text in box.expressions]),
            ]
        case Union():
            return []
        case Aggregate():
            return _aggregate_parameters(box)
        case Totals():
            return [
                *_functions(box.functions),
                ("group-by", ",".join(box.group_by)),
                *([("table", "1")] if box.changes else []),
            ]
        case Top():
            order = ",".join(f"{name} desc" if down else name for name, down in box.order_by)
            return [
                ("partition-by", ",".join(box.partition_by)),
                ("order-by", order),
                ("most", str(box.most)),
                *([("place", box.place)] if box.place else []),
            ]
        case Join():
            bounds = [
                ("before", _signed_seconds(box.before_us)),
                ("after", _signed_seconds(box.after_us)),
            ]
            return [
                ("predicate", box.predicate),
                ("kind", str(box.kind)),
                *([("table", "1")] if box.table else bounds),
                *_numbered("out-field-name", [name for name, _ in box.expressions]),
                *_numbered("out-field", [text for _, text in box.expressions]),
            ]


def type_of(box: Box) -> str:
    return type(box).__name__.lower()


def _numbered(prefix: str, values: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{prefix}.{number}", value) for number, value in enumerate(values)]


def _aggregate_parameters(box: Aggregate) -> list[tuple[str, str]]:
    found = [
        *_functions(box.functions),
        ("window-size", us_to_seconds(box.size_us)),
        ("advance", us_to_seconds(box.advance_us)),
    ]
    if box.order_on:
        found.append(("order-on-field", box.order_on))
    if box.group_by:
        found.append(("group-by", ",".join(box.group_by)))
    return found


def _functions(functions: Sequence[AggregateFunction]) -> list[tuple[str, str]]:
    return [
        *_numbered("aggregate-function", [call_of(each) for each in functions]),
        *_numbered("aggregate-function-output-name", [each.output for each in functions]),
    ]


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
    functions = _read_functions(parameters)
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
        _listed(parameters.take("group-by")),
        functions,
        order_on or "",
    )


def _read_functions(parameters: Parameters) -> tuple[AggregateFunction, ...]:
    calls = parameters.take_numbered("aggregate-function")
    names = parameters.take_numbered("aggregate-function-output-name")
    if len(names) > len(calls):
        raise InvalidInputError(f"it has {len(names)} output names for {len(calls)} functions")
    names += [f"agg_{number}" for number in range(len(names), len(calls))]
    return tuple(_function(call, output) for call, output in zip(calls, names, strict=True))


def _listed(text: str | None) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip() for name in text.split(",")) if text and text.strip() else ()


def _read_totals(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    functions = _read_functions(parameters)
    groups = _listed(parameters.take("group-by"))
    return Totals(
        name, inputs[0], outputs[0], groups, functions, changes=parameters.take_flag("table")
    )


def _read_top(
    name: str, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Parameters
) -> Box:
    order = [_ordered(text) for text in _listed(parameters.take("order-by"))]
    most = parameters.take("most") or ""
    if not (most.isascii() and most.isdigit() and len(most) <= 9):
        raise InvalidInputError(f"most {most[:40]!a} is not a number of places")
    partition = _listed(parameters.take("partition-by"))
    place = parameters.take("place") or ""
    return Top(name, inputs[0], outputs[0], partition, tuple(order), int(most), place)


def _ordered(text: str) -> tuple[str, bool]:
    name, _, direction = text.partition(" ")
    if direction.strip() not in {"", "asc", "desc"}:
        raise InvalidInputError(f"order-by {text[:80]!a}: a field, and asc or desc")
    return name, direction.strip() == "desc"


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


def _signed_seconds(microseconds: int) -> str:
    sign = "-" if microseconds < 0 else ""
    return sign + us_to_seconds(abs(microseconds))


def _function(text: str, output: str) -> AggregateFunction:
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text[:80]!a} is not an aggregate like count() or sum(bytes)")
    name, argument = match.groups()
    function = function_named(name)
    parameter = None
    if function in PARAMETERS:
        argument, parameter = split_parameter(argument)
    blank = not argument.strip() or argument.strip() == "*"
    return AggregateFunction(function, None if blank else argument, output, parameter)


_READERS: Final[dict[str, Callable[[str, tuple[str, ...], tuple[str, ...], Parameters], Box]]] = {
    "filter": _read_filter,
    "map": _read_map,
    "union": _read_union,
    "aggregate": _read_aggregate,
    "join": _read_join,
    "totals": _read_totals,
    "top": _read_top,
}

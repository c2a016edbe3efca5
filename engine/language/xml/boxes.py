"""Boxes in XML: their parameters, which both dialects share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from engine.language.aggregates import PARAMETERS, call_of, function_named, split_parameter
from engine.language.check import check_shape
from engine.language.matches import conditioned, pattern_text, read_pattern
from engine.language.xml.tree import Node
from engine.objects.query import (
    Aggregate,
    AggregateFunction,
    Box,
    Contiguity,
    Filter,
    Function,
    Join,
    JoinKind,
    Map,
    Match,
    Measure,
    PatternStep,
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
        case Join():
            return [
                ("predicate", box.predicate),
                ("kind", str(box.kind)),
                ("before", _signed_seconds(box.before_us)),
                ("after", _signed_seconds(box.after_us)),
                *_numbered("out-field-name", [name for name, _ in box.expressions]),
                *_numbered("out-field", [text for _, text in box.expressions]),
            ]
        case Match():
            return _match_parameters(box)


def type_of(box: Box) -> str:
    return type(box).__name__.lower()


def _numbered(prefix: str, values: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{prefix}.{number}", value) for number, value in enumerate(values)]


def _aggregate_parameters(box: Aggregate) -> list[tuple[str, str]]:
    calls = [call_of(each) for each in box.functions]
    found = [
        *_numbered("aggregate-function", calls),
        *_numbered("aggregate-function-output-name", [each.output for each in box.functions]),
        ("window-size", us_to_seconds(box.size_us)),
        ("advance", us_to_seconds(box.advance_us)),
    ]
    if box.order_on:
        found.append(("order-on-field", box.order_on))
    if box.group_by:
        found.append(("group-by", ",".join(box.group_by)))
    return found


def _match_parameters(box: Match) -> list[tuple[str, str]]:
    conditions = [each for each in box.steps if each.condition != PatternStep("").condition]
    found = [
        ("pattern", pattern_text(box.steps)),
        ("within", us_to_seconds(box.within_us)),
        ("contiguity", str(box.contiguity)),
        *_numbered("variable", [each.variable for each in conditions]),
        *_numbered("condition", [each.condition for each in conditions]),
        *_numbered("measure", [_measure_text(each) for each in box.measures]),
        *_numbered("measure-name", [each.output for each in box.measures]),
    ]
    if box.partition_by:
        found.append(("partition-by", ",".join(box.partition_by)))
    return found


def _measure_text(measure: Measure) -> str:
    named = ".".join(filter(None, (measure.variable, measure.field or "*")))
    return f"{measure.function}({named})"


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
    calls = parameters.take_numbered("aggregate-function")
    names = parameters.take_numbered("aggregate-function-output-name")
    if len(names) > len(calls):
        raise InvalidInputError(f"it has {len(names)} output names for {len(calls)} functions")
    names += [f"agg_{number}" for number in range(len(names), len(calls))]
    size = parameters.take_seconds("window-size")
    if size is None:
        raise InvalidInputError("parameter window-size is missing")
    advance = parameters.take_seconds("advance")
    for fixed in _FIXED:
        parameters.take_fixed(fixed)
    order_on = parameters.take("order-on-field")
    groups = parameters.take("group-by") or ""
    return Aggregate(
        name,
        inputs[0],
        outputs[0],
        size,
        size if advance is None else advance,
        tuple(group.strip() for group in groups.split(",")) if groups.strip() else (),
        tuple(_function(call, output) for call, output in zip(calls, names, strict=True)),
        order_on or "",
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
    if None in bounds:
        raise InvalidInputError("a join needs before and after, the bounds of time in seconds")
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
        tuple(_measure(call, output) for call, output in zip(calls, names, strict=True)),
        Contiguity(contiguity),
    )


def _measure(text: str, output: str) -> Measure:
    match = _CALL.fullmatch(text)
    if match is None:
        raise InvalidInputError(f"{text[:80]!a} is not a measure like last(B.price) or count(B.*)")
    name, argument = (each.strip() for each in match.groups())
    variable, _, field = argument.rpartition(".")
    function = {"first": Function.FIRSTVAL, "last": Function.LASTVAL}.get(name.lower())
    return Measure(
        function or function_named(name), variable, "" if field == "*" else field, output
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
    "match": _read_match,
}

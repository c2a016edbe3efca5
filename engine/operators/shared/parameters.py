"""The parameters of boxes in XML, which both dialects share, read and written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from medusa.engine.expressions.aggregates import call_of, function_of
from medusa.engine.objects.query import AggregateCall, OrderBy, Rank, Top
from medusa.engine.operators.shared.texts import order_of, order_text
from medusa.engine.xml.tree import Node
from medusa.overlay.alternatives import alternatives
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
    """Seconds as text, to microseconds. Raises: InvalidInputError: the text is no number of seconds
    with at most six decimals."""
    if _SECONDS.fullmatch(text.strip()) is None:
        raise InvalidInputError(f"{text[:40]!a} is not a number of seconds, like 60 or 0.25")
    return int(Decimal(text.strip()) * 1_000_000)


class Parameters:
    """The parameters of one box; `finish` refuses parameters that nobody has read."""

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

    def says(self, name: str) -> str | None:
        """A parameter's value, without taking it."""
        node = self._nodes.get(name)
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
        """Take one of some words; the first is the default."""
        node = self._nodes.get(name)
        value = self.take(name)
        if node is None or value is None:
            return allowed[0]
        if value not in allowed:
            raise node.error(f"{name} is {' or '.join(allowed)}, not {value[:40]!a}")
        return value

    def take_count(self, name: str) -> int | None:
        """Take a number of tuples."""
        node = self._nodes.get(name)
        value = self.take(name)
        if node is None or value is None:
            return None
        if not re.fullmatch(r"\d{1,9}", value.strip(), re.ASCII):
            raise node.error(f"{name} is a number of tuples, not {value[:40]!a}")
        return int(value)

    def take_flag(self, name: str) -> bool:
        """Take a flag: 1 or true, 0 or false; false if it is absent."""
        node = self._nodes.get(name)
        value = self.take(name)
        if node is not None and value not in {"0", "1", "true", "false"}:
            raise node.error(f"{name} must be 0 or 1")
        return value in {"1", "true"}

    def take_all_fixed(self) -> None:
        """Check the parameters of windows that can have one value each."""
        for name in _FIXED:
            self.take_fixed(name)

    def take_fixed(self, name: str) -> None:
        """Check one parameter that can have one value only."""
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
            known = alternatives(name, self._known)
            raise node.error(f"unknown parameter {name[:64]!a} of this box; {known}")


def read_functions(parameters: Parameters) -> tuple[AggregateCall, ...]:
    """The functions: `aggregate-function.N` and the names of their outputs. Raises:
    InvalidInputError: names the mistake."""
    calls = parameters.take_numbered("aggregate-function")
    names = parameters.take_numbered("aggregate-function-output-name")
    if len(names) > len(calls):
        raise InvalidInputError(f"it has {len(names)} output names for {len(calls)} functions")
    names += [f"agg_{number}" for number in range(len(names), len(calls))]
    return tuple(function_of(call, output) for call, output in zip(calls, names, strict=True))


def read_groups(parameters: Parameters, name: str = "group-by") -> tuple[str, ...]:
    """The fields of a parameter."""
    groups = parameters.take(name) or ""
    return tuple(group.strip() for group in groups.split(",")) if groups.strip() else ()


def read_order(
    parameters: Parameters,
) -> tuple[tuple[str, ...], tuple[OrderBy, ...], int, str]:
    """The parameters of a rank: the fields of the partition, the order, the number of tuples, the
    field of the place."""
    most = (parameters.take("most") or "").strip()
    if not re.fullmatch(r"\d{1,9}", most, re.ASCII):
        raise InvalidInputError(f"most is a number of tuples, not {most[:40]!a}")
    return (
        read_groups(parameters, "partition-by"),
        tuple(map(order_of, parameters.take_numbered("order-by"))),
        int(most),
        parameters.take("place-field") or "",
    )


Written = list[tuple[str, str]]
"""Parameters as XML has them: names and values."""


def numbered(prefix: str, values: Sequence[str]) -> Written:
    """Parameters with the names `prefix.0`, `prefix.1`..."""
    return [(f"{prefix}.{number}", value) for number, value in enumerate(values)]


def functions_written(functions: Sequence[AggregateCall], groups: Sequence[str]) -> Written:
    """The functions and the groups as parameters."""
    return [
        *numbered("aggregate-function", [call_of(each) for each in functions]),
        *numbered("aggregate-function-output-name", [each.output for each in functions]),
        *([("group-by", ",".join(groups))] if groups else []),
    ]


def order_written(box: Rank | Top) -> Written:
    """Write the parameters of a rank: the number, the partition, and the order."""
    found = [("most", str(box.most)), *numbered("order-by", list(map(order_text, box.order_by)))]
    if box.partition_by:
        found.append(("partition-by", ",".join(box.partition_by)))
    if box.place:
        found.append(("place-field", box.place))
    return found


def us_to_seconds(microseconds: int) -> str:
    """The shortest text that `seconds_to_us` reads as this time."""
    whole, rest = divmod(microseconds, 1_000_000)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


def signed_seconds(microseconds: int) -> str:
    sign = "-" if microseconds < 0 else ""
    return sign + us_to_seconds(abs(microseconds))

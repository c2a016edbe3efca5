"""A modification of a query: new parameters of its boxes, in messages and in XML."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct

from medusa.engine.language.check import MAX_BOXES
from medusa.engine.objects.availability import Availability
from medusa.engine.objects.functions import unpinned
from medusa.engine.objects.query import Box, Query
from medusa.engine.operators.reading import kind_meant, read_box
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.parameters import Parameters
from medusa.engine.xml.tree import Node, parse_xml
from medusa.overlay.alternatives import alternatives
from medusa.overlay.errors import InvalidInputError


class BoxChange(Struct, frozen=True):
    """New values for parameters of one box.

    Attributes:
        box: its name. parameters: (name, value) pairs as in XML; the others stay.
        whole: the box loses all parameters that are not among these.
    """

    box: str
    parameters: tuple[tuple[str, str], ...]
    whole: bool = False


class ModifyQuery(Struct, frozen=True):
    """Change parameters of boxes of a running query, from one boundary on.

    Attributes:
        changes: all take effect at the same boundary. at: that boundary, microseconds: the changes
            concern tuples with stime > at; None: the earliest safe boundary.
        alone: peers of the query that cannot be reached are gone for good.
    """

    query: str
    changes: tuple[BoxChange, ...]
    at: int | None = None
    alone: bool = False


class Modified(Struct, frozen=True):
    """The modification survives any crash; ADR 13 says what a network split may do.

    Attributes:
        since: the boundary at which it takes effect, microseconds.
    """

    query: str
    since: int


MAX_PARAMETERS: Final = 1024
"""Parameters of one box: a filter of 256 ports and a map of 256 fields have fewer."""


_PARAMETER: Final = "parameter"


_ALIASES: Final = {"nexpression": "expression"}
"""Names of parameters in the first paper's dialect, and the names in `Operator.parameters` that
they mean."""


class _ChangeNode(Node):
    """A parameter or a box of a message: its errors have its name, because a message has no
    lines."""

    def error(self, reason: str) -> InvalidInputError:
        name = self.attributes["name"][:64]
        return InvalidInputError(f"{self.tag} {name!a}: {reason}")

    @contextmanager
    def about(self) -> Iterator[None]:
        try:
            yield
        except InvalidInputError as error:
            if str(error).startswith(f"{self.tag} "):
                raise
            raise self.error(str(error)) from None


def modified_query(query: Query, changes: Sequence[BoxChange]) -> Query:
    """The query with the changes; equal to `query` if it has these values already.

    Raises:
        InvalidInputError: no such box or parameter, or an invalid value.
    """
    if not 0 < len(changes) <= MAX_BOXES:
        raise InvalidInputError(f"{query.name}: say what of which box is to be modified")
    boxes = {box.name: box for box in query.boxes}
    seen: set[str] = set()
    for change in changes:
        if change.box not in boxes:
            known = alternatives(change.box, boxes)
            raise InvalidInputError(f"{query.name} has no box {change.box[:64]!a}; {known}")
        if change.box in seen:
            raise InvalidInputError(f"box {change.box[:64]!a} is named twice: name it once")
        seen.add(change.box)
        boxes[change.box] = _modified_box(boxes[change.box], change)
    return msgspec.structs.replace(query, boxes=tuple(boxes.values()))


def in_words(changes: Sequence[BoxChange]) -> str:
    """The boxes and parameters that the changes name, as text for people."""
    parts = (
        f"box {change.box[:64]!a}, {', '.join(name[:64] for name, _ in change.parameters[:8])}"
        for change in changes[:8]
    )
    return "; ".join(parts)


class ParameterChange(Struct, frozen=True):
    """How one parameter of a box differs. before, after: None: the box does not have it."""

    box: str
    parameter: str
    before: str | None
    after: str | None

    def in_words(self) -> str:
        values = " -> ".join(str(each or "nothing") for each in (self.before, self.after))
        return f"box {self.box}, {self.parameter}: {values}"


def _as_box(name: str) -> str:
    return f"box {name[:64]!a}"


def differences(
    query: Query, edited: Query, named: Callable[[str], str] = _as_box
) -> tuple[ParameterChange, ...]:
    """The parameters of the boxes in which an edited query differs.

    Args:
        named: turns a box's name into the words of the text that was edited.

    Raises:
        InvalidInputError: the edited query also has other boxes, streams, outputs or readers.
    """
    before = {box.name: box for box in query.boxes}
    after = {box.name: box for box in edited.boxes}
    refused = [f"there is no {named(name)} any more" for name in before.keys() - after.keys()]
    refused += [f"there is a new {named(name)}" for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        one, two = before[name], after[name]
        if operator_of(one).word != operator_of(two).word:
            refused.append(f"{named(name)} is made in another way")
        elif (one.inputs, one.outputs) != (two.inputs, two.outputs):
            refused.append(f"{named(name)} reads or makes other streams")
    refused += _others(query, edited)
    if refused:
        raise InvalidInputError(
            f"{query.name}: a modification changes conditions, expressions and windows where they "
            f"are, and here {'; '.join(sorted(refused)[:8])}: create another query beside it"
        )
    return tuple(
        ParameterChange(name, parameter, one.get(parameter), two.get(parameter))
        for name, box in before.items()
        for one, two in [
            (dict(operator_of(box).parameters()), dict(operator_of(after[name]).parameters()))
        ]
        for parameter in dict.fromkeys([*one, *two])
        if one.get(parameter) != two.get(parameter)
    )


def _others(query: Query, edited: Query) -> list[str]:
    """Return the differences besides the boxes. Availability that an edited query does not mention
    stays."""
    found = [
        f"its {what} are others"
        for what in ("outputs", "readers")
        if set(getattr(query, what)) != set(getattr(edited, what))
    ]
    if edited.availability not in {query.availability, Availability()}:
        found.append("its availability is another")
    if (query.after, query.until, query.version) != (edited.after, edited.until, edited.version):
        found.append("its part of the past is another")
    if not set(unpinned(edited.functions)) <= set(unpinned(query.functions)):
        found.append("it declares other functions")
    return found


def changes_to(edited: Query, differing: Sequence[ParameterChange]) -> tuple[BoxChange, ...]:
    """The modification that turns a query into the edited one. differing: the result of
    `differences`."""
    names = {each.box for each in differing}
    return tuple(
        BoxChange(box.name, tuple(operator_of(box).parameters()), whole=True)
        for box in edited.boxes
        if box.name in names
    )


def _modified_box(box: Box, change: BoxChange) -> Box:
    given = _given(box, change.parameters)
    operator = operator_of(box)
    state = {} if change.whole else dict(operator.kept_parameters(given))
    nodes = [
        _ChangeNode(_PARAMETER, {"name": name, "value": value}, 0)
        for name, value in {**state, **given}.items()
    ]
    node = _ChangeNode("box", {"name": box.name, "type": operator.word}, 0)
    if kind_meant(node, operator.word, Parameters(node, nodes)) is not type(operator):
        raise InvalidInputError(f"box {box.name!a}: windows of time stay so, and those of tuples")
    made = read_box(node, box.inputs, box.outputs, nodes)
    operator_of(made).check_modified(given)
    return made


def _given(box: Box, parameters: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    if not 0 < len(parameters) <= MAX_PARAMETERS:
        raise InvalidInputError(
            f"box {box.name!a}: say 1 to {MAX_PARAMETERS} parameters, like expression.0"
        )
    given: dict[str, str] = {}
    for name, value in parameters:
        prefix, dot, number = name.rpartition(".")
        plain = f"{_ALIASES.get(prefix, prefix)}{dot}{number}"
        if plain in given:
            raise InvalidInputError(f"box {box.name!a}: parameter {name[:64]!a} occurs twice")
        given[plain] = value
    return given


@dataclass(frozen=True, slots=True)
class Modification:
    """The changes of a document; see `ModifyQuery`."""

    changes: tuple[BoxChange, ...]
    at: int | None


def read_modification(text: str, parse_time: Callable[[str], int]) -> Modification:
    """The requested modification in an XML document.

    Args:
        parse_time: a point of stime, microseconds, as people write it; raises InvalidInputError.

    Raises:
        InvalidInputError: names the line and the reason.
    """
    root = parse_xml(text)
    nodes = [root]
    if root.tag in {"borealis", "medusa"}:
        root.checked(())
        nodes = root.children
    if not nodes:
        raise root.error("there is no <modify> in it")
    changes, times = [], set()
    for node in nodes:
        if node.tag != "modify":
            raise node.error("expected <modify>, or several of them in <borealis> or <medusa>")
        changes.append(_read_change(node))
        at = node.attributes.get("at")
        if at is not None:
            with node.about():
                times.add(parse_time(at))
    if len(times) > 1:
        raise root.error("all modifications of one document count from the same boundary on")
    return Modification(tuple(changes), times.pop() if times else None)


def _read_change(node: Node) -> BoxChange:
    box = node.checked(("box",), ("at",))["box"]
    parameters = []
    for child in node.children:
        if child.tag not in {"parameter", "param"}:
            raise child.error("a <modify> has only <parameter> elements")
        child.childless()
        given = child.checked(("name", "value"))
        parameters.append((given["name"], given["value"]))
    if not parameters:
        raise node.error("it has no <parameter>")
    return BoxChange(box, tuple(parameters))

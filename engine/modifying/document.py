"""Modifications in XML, as Borealis' control of running queries has them:

    <modify box="sieve" at="2018-03-24T15:00:00Z">
      <parameter name="expression.0" value="number > 7"/>
    </modify>

Several boxes at once are several `<modify>` in one `<borealis>`, or `<medusa>`, with one `at` for
all, or none. `<param>`, Medusa's word, is understood as well. `at` is ours: Borealis' changes count
from when they arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.modifying.messages import BoxChange
from engine.xml_tree import Node, parse_xml


@dataclass(frozen=True, slots=True)
class Modification:
    """What a document asks for; see `ModifyQuery`."""

    changes: tuple[BoxChange, ...]
    at: int | None


def read_modification(text: str, parse_time: Callable[[str], int]) -> Modification:
    """
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

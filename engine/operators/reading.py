"""Boxes of XML: which kind an element means, and the box that it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from medusa.engine.objects.query import Box
from medusa.engine.operators.registry import KINDS, WORDS
from medusa.engine.operators.shared.operator import Operator
from medusa.engine.operators.shared.parameters import Parameters
from medusa.engine.operators.typing import check_shape
from medusa.engine.xml.tree import Node
from medusa.overlay.alternatives import alternatives


def read_box(
    node: Node, inputs: tuple[str, ...], outputs: tuple[str, ...], parameters: Sequence[Node]
) -> Box:
    """The box in an element. Raises: InvalidInputError: names line, box and reason."""
    attributes = node.checked(("name", "type"))
    word = attributes["type"]
    taken = Parameters(node, parameters)
    kind = kind_meant(node, word, taken)
    if not inputs or not outputs:
        raise node.error("a box needs at least one input and one output")
    if kind.most_inputs == 2 and len(inputs) > 2:
        raise node.error(
            f"a {word} has two inputs, or one that it joins with itself, not {len(inputs)}"
        )
    if kind.most_inputs == 1 and len(inputs) != 1:
        raise node.error(f"a {word} has one input, not {len(inputs)}")
    if kind.most_outputs == 1 and len(outputs) != 1:
        raise node.error(f"a {word} has one output, not {len(outputs)}")
    with node.about():
        box: Box = kind.read(attributes["name"], inputs, outputs, taken)
        taken.finish()
        check_shape(box)
    return box


def kind_meant(node: Node, word: str, parameters: Parameters) -> type[Operator[Any, Any]]:
    """The kind of box that a word means. Raises: InvalidInputError: no kind has that name."""
    named = [kind for kind in KINDS if kind.word == word]
    if not named:
        raise node.error(f"unknown box type {word[:64]!a}; {alternatives(word, WORDS)}")
    return next((kind for kind in named if kind.is_meant(parameters)), named[0])

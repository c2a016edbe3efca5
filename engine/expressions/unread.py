"""Refuses a text if its translation leaves a part of sqlglot's tree unread.

sqlglot knows all of SQL, and puts what it parsed into the arguments of its nodes. A translator that
does not read one of them would silently change the meaning of the text. So `watch` makes the nodes
note the names by which their arguments are read, and `unread` returns the others.

Walking a tree, copying it and comparing it read no argument by its name, so they do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

_WRITING: Final = frozenset({(exp.Identifier, "quoted"), (exp.Literal, "is_string")})
"""Arguments that say how a word is written, not what it means: a name in quotes is the same
name."""

_SAID_BY_FALSE: Final = frozenset({(exp.CTE, "materialized")})
"""Arguments of nodes that are false if the text denies them, and None if the text does not mention
them."""


class _Arguments(dict[str, Any]):
    """The arguments of a node, and the names that readers asked for."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - as sqlglot's
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as sqlglot's
        self.read.add(name)
        return super().get(name, default)


@dataclass(frozen=True, slots=True)
class Unread:
    """An argument that nobody asked for.

    Attributes:
        node: the node that has it. name: sqlglot's name for it.
    """

    node: exp.Expr
    name: str
    value: Any

    @property
    def nodes(self) -> list[exp.Expr]:
        """Return the nodes of the argument."""
        return nodes_of(self.value)


def watch(tree: exp.Expr) -> list[exp.Expr]:
    """Make all nodes of a tree note which of their arguments are read from now on; return the
    nodes, the root first."""
    hash(tree)  # nodes keep their hashes: later comparisons ask for no argument
    nodes = [tree]
    # the list grows in the loop; tree.walk() takes twice as long, and a query has many trees
    for node in nodes:
        for value in node.args.values():
            nodes += nodes_of(value)
        node.args = _Arguments(node.args)
    return nodes


def unread(nodes: Iterable[exp.Expr]) -> Iterator[Unread]:
    """The arguments that the text gave to watched nodes, and that nobody has read."""
    for node in nodes:
        arguments = node.args
        assert isinstance(arguments, _Arguments), "it is watched"
        for name, value in arguments.items():
            said = value or (value is False and (type(node), name) in _SAID_BY_FALSE)
            if said and name not in arguments.read and (type(node), name) not in _WRITING:
                yield Unread(node, name, value)


def read_whole(tree: exp.Expr) -> None:
    """Note that a whole part is read, because it equals a part that was read."""
    for node in tree.walk():
        if isinstance(node.args, _Arguments):
            node.args.read.update(node.args)


def read_whole_parts(node: exp.Expr, names: Sequence[str]) -> None:
    """Call `read_whole` for some arguments of a node."""
    for name in names:
        for part in nodes_of(node.args.get(name)):
            read_whole(part)


def nodes_of(value: object) -> list[exp.Expr]:
    """The nodes that an argument is made of; none if it is a word, or true."""
    if isinstance(value, list):
        return [each for each in value if isinstance(each, exp.Expr)]
    return [value] if isinstance(value, exp.Expr) else []

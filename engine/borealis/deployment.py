"""Reads the `<deploy>` of a document of Borealis, which names the nodes of its queries.

Here the peer that creates a query keeps it, and tasks are moved by hand or by contracts. So nodes,
clients and regions are checked and have no effect; a `<replica_set>` means here
`ha="active_standby"` for its queries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from medusa.engine.language.xml.medusa import Qualify, members
from medusa.engine.xml.tree import Node

TAG: Final = "deploy"

_ATTRIBUTES: Final = {
    "publish": (("stream",), ("endpoint", "node")),
    "subscribe": (("stream",), ("endpoint", "node", "gap")),
    "client": (("endpoint",), ()),
    "node": (("endpoint",), ("query", "name")),
    "replica_set": (("name", "query"), ()),
    "region": ((), ("name", "endpoint", "node")),
}
"""The attributes that each element must have, and those that it may have."""

_WITHIN: Final = {
    TAG: ("publish", "subscribe", "client", "node", "replica_set", "region"),
    "client": ("publish", "subscribe"),
    "replica_set": ("node",),
    "region": ("node", "region"),
}

_REFUSED: Final = {
    "move": "it changes what runs: `medusa move TASK --to PEER` does",
    "unsubscribe": "it changes what runs: end `medusa subscribe`",
}

REMARK: Final = (
    "<deploy> names nodes, which are no peers: the peer that creates a query keeps it, and "
    "`medusa move` moves its tasks"
)


def replicated(deploy: Node, qualify: Qualify, queries: Collection[str] | None) -> frozenset[str]:
    """The queries that a `<deploy>` has computed by several nodes at once.

    Args:
        queries: the names of the document's queries; None: they are in another document. Raises:
        InvalidInputError: it is wrong, or has no meaning here; the message names line and reason.
    """
    deploy.checked(())
    found: set[str] = set()
    for node in _checked(deploy):
        named = set()
        for name in members(node.attributes.get("query", "")):
            with node.about():
                named.add(qualify(name))
        for name in sorted(named - set(named if queries is None else queries)):
            raise node.error(f"there is no query {name} in the document")
        if node.tag == "replica_set":
            if len(node.children) != 2:
                raise node.error(
                    f"it has {len(node.children)} nodes: a query has a primary and one secondary, "
                    "so name two"
                )
            found |= named
        gap = node.attributes.get("gap", "0")
        if not (gap.isascii() and gap.isdigit()):
            raise node.error(f"gap {gap[:40]!a} is not a number of tuples")
    return frozenset(found)


def _checked(parent: Node) -> Iterator[Node]:
    """Yield all elements within, each checked for its attributes."""
    for node in parent.children:
        if node.tag in _REFUSED:
            raise node.error(f"not part of a definition: {_REFUSED[node.tag]}")
        if node.tag not in _WITHIN.get(parent.tag, ()):
            within = ", ".join(f"<{tag}>" for tag in _WITHIN.get(parent.tag, ()))
            raise node.error(f"not expected within <{parent.tag}>; there are {within or 'none'}")
        node.checked(*_ATTRIBUTES[node.tag])
        yield node
        yield from _checked(node)

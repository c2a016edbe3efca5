"""Whom a node knows, and who of them is nearest to a key."""

from __future__ import annotations

from heapq import nsmallest

from kademlia.node import Node
from kademlia.routing import RoutingTable


class Router(RoutingTable):  # type: ignore[misc]
    """The package's table. Its own search stops at the first k it comes by; this one finds the
    nearest."""

    def nodes(self) -> list[Node]:
        return [node for bucket in self.buckets for node in bucket.get_nodes()]

    def find_neighbors(
        self, node: Node, k: int | None = None, exclude: Node | None = None
    ) -> list[Node]:
        others = [n for n in self.nodes() if exclude is None or n.id != exclude.id]
        return nsmallest(k or self.ksize, others, key=node.distance_to)

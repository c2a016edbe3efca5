"""The random graph of contracts, the initial load, and the least number of moves.

The least number of moves is a minimum-cost flow, computed with full knowledge. The Brains' moves
are compared with it: load that must pass full nodes takes more than one move for a task with any
mechanism, and how many it takes depends on the graph.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final, Literal

Graph = list[set[int]]
"""For each node the nodes with which it has a contract; both ways."""

Kind = Literal["drawn", "grown"]
"""The method of drawing contracts, see `contract_graph`."""

SKEW: Final = 0.5
"""Exponent of the Zipf law of the initial load: the node of rank r has r**-0.5 of the load of the
first node. At 75 % load a seventh of the nodes then holds a fifth of all load as excess. The
paper's load is as unbalanced at the start (Balazinska, Balakrishnan, Salz and Stonebraker, The
Medusa Distributed Stream-Processing System, section 4, figure 3a)."""


def contract_graph(nodes: int, contracts: int, kind: Kind, rng: random.Random) -> Graph:
    """A random graph in which every node has at least `contracts` contracts.

    Args:
        contracts: the least number; all other nodes if there are fewer; 0: none at all.
        kind: drawn: every node signs with that number of others, in addition to those that signed
            with it, so that the mean is near twice the least; with one or two contracts the graph
            may fall apart. grown: each node signs with an earlier one, which gives a tree; then
            those with too few sign with random others until they have enough (NSDI 2004, section
            6): connected, and most have few more than the least.
    """
    graph: Graph = [set() for _ in range(nodes)]
    order = list(range(nodes))
    rng.shuffle(order)
    if kind == "grown" and contracts:
        for place in range(1, nodes):
            node, known = order[place], order[int(rng.random() * place)]
            _link(graph, node, known)
    for node in order:
        if kind == "grown":
            sign(graph, node, contracts, order, rng)
        else:
            sample = rng.sample(order, min(contracts + 1, nodes))
            for other in [other for other in sample if other != node][:contracts]:
                _link(graph, node, other)
    return graph


def _link(graph: Graph, one: int, other: int) -> None:
    graph[one].add(other)
    graph[other].add(one)


def sign(
    graph: Graph, node: int, contracts: int, others: list[int], rng: random.Random
) -> list[int]:
    """Let a node sign contracts with random others until it has enough.

    Returns:
        The nodes it signed with now; fewer than wanted if there are no more.
    """
    mine = graph[node]
    wanted = max(contracts - len(mine), 0)
    # at most these many of a sample are useless: the node itself, and its present partners
    sample = rng.sample(others, min(wanted + len(mine) + 1, len(others)))
    signed = [other for other in sample if other != node and other not in mine][:wanted]
    for other in signed:
        _link(graph, node, other)
    return signed


def skewed(total: int, nodes: int, rng: random.Random) -> list[int]:
    """Distribute `total` tasks over the nodes: Zipf's law with exponent `SKEW`, at random nodes."""
    weights = [rank**-SKEW for rank in range(1, nodes + 1)]
    scale = total / sum(weights)
    counts = [int(weight * scale) for weight in weights]
    # the remainder of the rounding goes to the first ranks, one each
    for rank in range(total - sum(counts)):
        counts[rank % nodes] += 1
    rng.shuffle(counts)
    return counts


MOST_NODES: Final = 10_000
"""Nodes up to which the least number is computed: a second or two; the time grows faster than their
number."""

_FAR: Final = 1 << 60


class _Network:
    """Arcs in pairs: number i and its reverse i ^ 1. `room`: remaining capacity."""

    def __init__(self, nodes: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(nodes)]
        self.to: list[int] = []
        self.room: list[int] = []
        self.cost: list[int] = []

    def add(self, tail: int, head: int, room: int, cost: int) -> None:
        for at, to, free, price in ((tail, head, room, cost), (head, tail, 0, -cost)):
            self.out[at].append(len(self.to))
            self.to.append(to)
            self.room.append(free)
            self.cost.append(price)

    def distances(self, source: int) -> list[int]:
        """Cost of the cheapest path to each node (Bellman and Ford, with a queue)."""
        far = [_FAR] * len(self.out)
        far[source] = 0
        todo, waiting = deque([source]), {source}
        while todo:
            node = todo.popleft()
            waiting.discard(node)
            for arc in self.out[node]:
                head, cost = self.to[arc], far[node] + self.cost[arc]
                if self.room[arc] and cost < far[head]:
                    far[head] = cost
                    if head not in waiting:
                        waiting.add(head)
                        todo.append(head)
        return far

    def augment(self, source: int, sink: int, far: list[int]) -> int:
        """Send as much as possible over the cheapest paths, one after the other; returns the
        amount."""
        sent = 0
        tried = [0] * len(self.out)
        path: list[int] = []
        on_path = [False] * len(self.out)
        node = source
        while True:
            on_path[node] = True
            if node == sink:
                sent += self._fill(path)
                for arc in path:
                    on_path[self.to[arc]] = False
                path.clear()
                node = source
                continue
            following = self._next(node, far, tried, on_path)
            if following is not None:
                path.append(following)
                node = self.to[following]
            elif path:
                on_path[node] = False
                node = self.to[path.pop() ^ 1]
                tried[node] += 1
            else:
                return sent

    def _next(self, node: int, far: list[int], tried: list[int], on_path: list[bool]) -> int | None:
        """The next arc of a cheapest path; arcs that led nowhere are not tried again."""
        arcs = self.out[node]
        while tried[node] < len(arcs):
            arc = arcs[tried[node]]
            head = self.to[arc]
            if self.room[arc] and far[head] == far[node] + self.cost[arc] and not on_path[head]:
                return arc
            tried[node] += 1
        return None

    def _fill(self, path: list[int]) -> int:
        units = min(self.room[arc] for arc in path)
        for arc in path:
            self.room[arc] -= units
            self.room[arc ^ 1] += units
        return units


def least_moves(graph: Graph, counts: list[int], capacity: int) -> int:
    """Moves, hop by hop over contracts, until no node is above capacity; if there is no room for
    that, until none is below.

    Args:
        counts: tasks of each node. capacity: tasks that a node may have.
    """
    nodes = len(graph)
    source, sink = nodes, nodes + 1
    network = _Network(nodes + 2)
    for node, count in enumerate(counts):
        network.add(source, node, max(count - capacity, 0), 0)
        network.add(node, sink, max(capacity - count, 0), 0)
        for other in sorted(graph[node]):
            network.add(node, other, _FAR, 1)
    moves = 0
    far = network.distances(source)
    while far[sink] < _FAR:
        moves += far[sink] * network.augment(source, sink, far)
        far = network.distances(source)
    return moves

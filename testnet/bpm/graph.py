"""Who has a contract with whom, and where the load is at the start."""

from __future__ import annotations

import random
from typing import Final, Literal

Graph = list[set[int]]
"""For each node the nodes it has a contract with; both ways."""

Kind = Literal["drawn", "grown"]
"""How contracts come about, see `contract_graph`."""

SKEW: Final = 0.5
"""Exponent of the Zipf law of the initial load: the node of rank r has r**-0.5 of the first's. At
75 % load a seventh of the nodes then holds a fifth of all load as excess. The paper's load is as
unbalanced at the start (Balazinska, Balakrishnan, Salz and Stonebraker, The Medusa Distributed
Stream-Processing System, section 4, figure 3a)."""


def contract_graph(nodes: int, contracts: int, kind: Kind, rng: random.Random) -> Graph:
    """A random graph in which every node has at least so many contracts.

    Args:
        contracts: the least; every other node where there are not that many; 0: none at all.
        kind: drawn: every node signs with so many others, whoever signed with it besides, so that
            the mean is near twice the least; with one or two contracts the graph may fall apart.
            grown: each signs with one that is in already, which gives a tree; then those with too
            few sign with random others until they have enough (NSDI 2004, section 6): connected,
            and most have few more than the least.
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
    """Let a node sign contracts with random ones of the others until it has enough.

    Returns:
        Those it signed with now; fewer than wanted where there are no more.
    """
    mine = graph[node]
    wanted = max(contracts - len(mine), 0)
    # At most these many of a sample are of no use: itself, and those it has a contract with.
    sample = rng.sample(others, min(wanted + len(mine) + 1, len(others)))
    signed = [other for other in sample if other != node and other not in mine][:wanted]
    for other in signed:
        _link(graph, node, other)
    return signed


def skewed(total: int, nodes: int, rng: random.Random) -> list[int]:
    """So many tasks over the nodes: Zipf's law with exponent `SKEW`, at random nodes."""
    weights = [rank**-SKEW for rank in range(1, nodes + 1)]
    scale = total / sum(weights)
    counts = [int(weight * scale) for weight in weights]
    # What rounding left over goes to the first ranks, one each.
    for rank in range(total - sum(counts)):
        counts[rank % nodes] += 1
    rng.shuffle(counts)
    return counts

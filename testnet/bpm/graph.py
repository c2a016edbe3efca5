"""Who has a contract with whom, and where the load is at the start."""

from __future__ import annotations

import random
from typing import Final

Graph = list[set[int]]
"""For each node the nodes it has a contract with; both ways."""

SKEW: Final = 0.5
"""Exponent of the Zipf law of the initial load: the node of rank r has r**-0.5 of the first's. At
75 % load a seventh of the nodes then holds a fifth of all load as excess (LITERATURE 1.5)."""


def contract_graph(nodes: int, contracts: int, rng: random.Random) -> Graph:
    """A random connected graph in which every node has at least so many contracts, and most have
    few more: each signs with one that is in already, which gives a tree; then those with too few
    sign with random others until they have enough (NSDI 2004, section 6).

    Args:
        contracts: the least; every other node where there are not that many; 0: none at all.
    """
    graph: Graph = [set() for _ in range(nodes)]
    if not contracts:
        return graph
    order = list(range(nodes))
    rng.shuffle(order)
    for place in range(1, nodes):
        node, known = order[place], order[int(rng.random() * place)]
        graph[node].add(known)
        graph[known].add(node)
    for node in order:
        sign(graph, node, contracts, order, rng)
    return graph


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
        mine.add(other)
        graph[other].add(node)
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

"""How much one participant may be of what a node knows, asks and stores with. Pure functions.

A member may have as many peers as it likes, and so as many ids, some of them nearest to any key it
chooses (Douceur, The Sybil Attack, 2002); taken by distance alone they would be all that a lookup
asks and all that a publication reaches. But every id is of an admitted participant. So wherever
nodes are chosen, each participant has a share, and more than that only where the others leave room.

Networks without admissions do this by other means: costly ids and sibling lists (Baumgart
and Mies, S/Kademlia, 2007, "Secure nodeId assignment", "Sibling broadcast"), constrained routing
tables (Castro et al., Secure routing for structured peer-to-peer overlay networks, 2002, "Routing
table maintenance"), and bounded degrees (Singh et al., Eclipse attacks on overlay networks, 2006).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def share_of(copies: int) -> int:
    """Of so many nodes, how many may be one participant's: a quarter. A majority is believed when
    it says that a record is absent: that takes three participants that collude. To be all the nodes
    takes four."""
    return max(1, copies // 4)


def chosen(
    nearest: Iterable[T],
    participant_of: Callable[[T], str],
    count: int,
    *,
    share: int | None = None,
    spent: Counter[str] | None = None,
) -> list[T]:
    """The first `count` nodes within the shares; where there are fewer, nodes beyond them as well.

    Args:
        nearest: in order of distance; read no further than needed.
        share: of a participant; `share_of(count)` unless said.
        spent: what participants have had of their shares already.
    """
    share = share_of(count) if share is None else share
    taken = Counter(spent)
    within: list[T] = []
    beyond: list[T] = []
    for each in nearest:
        if len(within) == count:
            break
        participant = participant_of(each)
        (within if taken[participant] < share else beyond).append(each)
        taken[participant] += 1
    return within + beyond[: count - len(within)]


def surplus(nodes: Iterable[T], participant_of: Callable[[T], str], count: int) -> list[T]:
    """All nodes of the participant that has the most of them, if that is more than its share of
    `count`; else []."""
    of: dict[str, list[T]] = {}
    for each in nodes:
        of.setdefault(participant_of(each), []).append(each)
    most = max(of.values(), key=len, default=[])
    return most if len(most) > share_of(count) else []

"""Limits on one participant's part of the nodes that a node knows, asks and stores with. Pure
functions.

A member may have any number of peers, and so any number of ids, some of them nearest to any key it
chooses (Douceur, The Sybil Attack, 2002). If nodes were chosen by distance alone, a lookup might
ask, and a publication reach, no other peers than its own. But every id belongs to an admitted
participant. So wherever nodes are chosen, each participant has a share; it has more only where
others leave room.

Networks without admissions use other means: costly ids and sibling lists (Baumgart and Mies,
S/Kademlia, 2007, "Secure nodeId assignment", "Sibling broadcast"), constrained routing tables
(Castro et al., Secure routing for structured peer-to-peer overlay networks, 2002, "Routing table
maintenance"), and bounded degrees (Singh et al., Eclipse attacks on overlay networks, 2006).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")


def share_of(copies: int) -> int:
    """The most nodes of one participant among the nodes that have the copies: a quarter. A
    majority that says that a record is absent is believed: three participants that collude can be a
    majority, four can be all nodes."""
    return max(1, copies // 4)


def chosen(
    nearest: Iterable[T],
    participant_of: Callable[[T], str],
    count: int,
    *,
    share: int | None = None,
    spent: Counter[str] | None = None,
) -> list[T]:
    """The first `count` nodes within the shares; if these are fewer, nodes beyond the shares as
    well.

    Args:
        nearest: the nodes in order of distance; read no further than needed.
        share: the share of a participant; `share_of(count)` by default.
        spent: nodes counted against participants' shares already.
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


STORES_PER_S: Final = 50.0
"""Stores accepted from one peer, in the long run. Each costs the check of a signature and a commit,
0.1 ms: so half a percent of a processor for each peer. An honest peer with as many records as a
participant may have (20,000) renews 44 a second."""

STORE_BURST: Final = 1000
"""Stores accepted from one peer at once: a whole hand-over, or the publications of a starting
peer."""

HAND_OVERS_PER_S: Final = 0.1
"""New nodes of one participant that are given the records they should hold, in the long run: up to
1,000 records each, so 100 KB a second. Publishers reach the others within minutes."""

HAND_OVER_BURST: Final = 20
"""The same limit for new nodes at one time: all peers of a large participant may restart after a
power cut."""


class Allowances:
    """How often one peer, or participant, may ask for something costly: a token bucket each, with
    `burst` tokens, refilled at `per_s` a second. `now` is seconds of any one clock.

    A bucket that is full again is dropped, so that only recent askers have one.
    """

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        # by peer or participant: (tokens that were spent, time of the last change)
        self._spent: dict[bytes, tuple[float, float]] = {}

    def take(self, peer_id: bytes, now: float) -> bool:
        """Whether this peer (or participant) may ask once more; if so, count it."""
        self._forget_full(now)
        spent = self._spent_by(peer_id, now) + 1
        if spent > self._burst:
            return False
        # move the entry to the end: the first one is that of the peer that has not asked for
        # longest
        self._spent.pop(peer_id, None)
        self._spent[peer_id] = spent, now
        return True

    def __len__(self) -> int:
        return len(self._spent)

    def _spent_by(self, peer_id: bytes, now: float) -> float:
        spent, at = self._spent.get(peer_id, (0.0, now))
        return max(0.0, spent - (now - at) * self._per_s)

    def _forget_full(self, now: float) -> None:
        while self._spent and not self._spent_by(oldest := next(iter(self._spent)), now):
            del self._spent[oldest]

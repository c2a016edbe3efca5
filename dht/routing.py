"""Whom a node knows, and who of them is nearest to a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from kademlia.node import Node, NodeHeap
from kademlia.protocol import KademliaProtocol
from kademlia.routing import RoutingTable

from dht.shares import chosen, share_of, surplus

ParticipantOf = Callable[[Node], str]

MOST_ASKED: Final = 4
"""Times as many nodes of one participant as a lookup looks for may be asked in it: more than it
takes in a federation of one participant with a thousand peers; who knows ever nearer ones of its
own is heard no longer."""


class Router(RoutingTable):  # type: ignore[misc]
    """The package's table. Its own search stops at the first k it comes by; this one finds the
    nearest, within the shares of participants (`dht.shares`). In a full bucket who is beyond its
    participant's share makes room for others."""

    def __init__(
        self, protocol: KademliaProtocol, ksize: int, node: Node, participant_of: ParticipantOf
    ) -> None:
        super().__init__(protocol, ksize, node)
        self._participant_of = participant_of

    def nodes(self) -> list[Node]:
        return [node for bucket in self.buckets for node in bucket.get_nodes()]

    def add_contact(self, node: Node) -> None:
        bucket = self.buckets[self.get_bucket_for(node)]
        if len(bucket) >= self.ksize and bucket.is_new_node(node):
            crowd = surplus(bucket.get_nodes(), self._participant_of, self.ksize)
            own = self._participant_of(node)
            had = sum(self._participant_of(each) == own for each in bucket.get_nodes())
            if crowd and had < share_of(self.ksize):
                del bucket.nodes[crowd[-1].id]  # the one that it has known for the shortest time
        super().add_contact(node)

    def find_neighbors(
        self, node: Node, k: int | None = None, exclude: Node | None = None
    ) -> list[Node]:
        others = [n for n in self.nodes() if exclude is None or n.id != exclude.id]
        others.sort(key=node.distance_to)
        return chosen(others, self._participant_of, k or self.ksize)


class Shortlist(NodeHeap):  # type: ignore[misc]
    """The nodes of one lookup that count: the nearest known, within the shares of participants."""

    def __init__(self, target: Node, count: int, participant_of: ParticipantOf) -> None:
        super().__init__(target, count)
        self._participant_of = participant_of
        self._share = share_of(count)
        self._answered: set[bytes] = set()
        self._asked: Counter[str] = Counter()
        self._spoke: Counter[str] = Counter()
        self._silent: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Node]:
        # who was silent counts as well, or one of them after the other would hold up the lookup
        nearest = [node for _, node in sorted(self.heap, key=lambda each: each[0])]
        nodes = chosen(
            nearest, self._participant_of, self.maxsize, share=self._share, spent=self._silent
        )
        return iter(nodes)

    @property
    def answered(self) -> int:
        """How many have."""
        return len(self._answered)

    def found(self) -> list[Node]:
        """The nearest that answered."""
        return [node for node in self if node.id in self._answered]

    def ask(self, count: int) -> list[Node]:
        """Whom to ask now, at most so many, the nearest first; they count as asked.

        A participant of which more nodes are silent than speak, beyond its share, is asked no more;
        nor is one that was asked very often. Those that wait for an answer leave room for others.
        """
        waiting = self._asked - self._spoke - self._silent
        nodes = [node for node in self.get_uncontacted() if self._is_worth_it(node)]
        now = chosen(nodes, self._participant_of, count, share=self._share, spent=waiting)
        for node in now:
            self.mark_contacted(node)
            self._asked[self._participant_of(node)] += 1
        return now

    def _is_worth_it(self, node: Node) -> bool:
        participant = self._participant_of(node)
        silent, spoke = self._silent[participant], self._spoke[participant]
        often = self._asked[participant] >= MOST_ASKED * self.maxsize
        return not often and silent <= max(self._share, spoke)

    def heard(self, node: Node) -> None:
        """It has answered."""
        self._answered.add(node.id)
        self._spoke[self._participant_of(node)] += 1

    def lost(self, node: Node) -> None:
        """It has not."""
        self.remove([node.id])
        self._silent[self._participant_of(node)] += 1

    def speaks(self, enough: int) -> bool:
        """Whether so many have answered, and of so many participants as there are here: one whose
        nodes are many and quick must not be all that is heard."""
        here = Counter(self._participant_of(node) for node in self)
        return self.answered >= enough and self._shares(self._spoke) >= min(
            enough, self._shares(here)
        )

    def _shares(self, of: Counter[str]) -> int:
        """Nodes, no more of a participant than its share."""
        return sum(min(self._share, number) for number in of.values())

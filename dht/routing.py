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
    """The nodes of one lookup that count: the nearest known, within the shares of participants.

    Attributes:
        failed: nodes that did not answer, by participant: they count against its share, or one
            silent node after another would hold up the lookup.
        answered: those that did.
    """

    def __init__(self, target: Node, count: int, participant_of: ParticipantOf) -> None:
        super().__init__(target, count)
        self.failed: Counter[str] = Counter()
        self.answered: dict[bytes, str] = {}
        self._participant_of = participant_of

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes())

    def _nodes(self) -> list[Node]:
        nearest = [node for _, node in sorted(self.heap, key=lambda each: each[0])]
        return chosen(nearest, self._participant_of, self.maxsize, self.failed)

    def heard(self, node: Node) -> None:
        """It has answered."""
        self.answered[node.id] = self._participant_of(node)

    def lost(self, node: Node) -> None:
        """It has not."""
        self.remove([node.id])
        self.failed[self._participant_of(node)] += 1

    def next(self) -> list[Node]:
        """Whom to ask now, the nearest first. A participant of which more nodes are silent than
        speak, beyond its share, is asked no more; nor is one that was asked very often."""
        spoke = Counter(self.answered.values())
        share, most = share_of(self.maxsize), MOST_ASKED * self.maxsize

        def is_vain(node: Node) -> bool:
            participant = self._participant_of(node)
            silent, heard = self.failed[participant], spoke[participant]
            return silent > max(share, heard) or silent + heard >= most

        return [node for node in self.get_uncontacted() if not is_vain(node)]

    def speak(self, enough: int) -> bool:
        """Whether so many have answered, and of so many participants as there are here: whose nodes
        are many and quick must not be all that is heard."""
        if len(self.answered) < enough:
            return False
        share = share_of(self.maxsize)
        counted = sum(min(share, n) for n in Counter(self.answered.values()).values())
        here = Counter(self._participant_of(node) for node in self._nodes())
        possible = sum(min(share, n) for n in here.values())
        return counted >= min(enough, possible)

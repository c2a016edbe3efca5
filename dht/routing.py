"""The nodes that a node knows, and the choice of those nearest to a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from kademlia.node import Node, NodeHeap
from kademlia.protocol import KademliaProtocol
from kademlia.routing import RoutingTable

from medusa.dht.shares import chosen, share_of, surplus

ParticipantOf = Callable[[Node], str]

MOST_ASKED: Final = 4
"""A lookup asks at most this many times as many nodes of one participant as it looks for. A
federation of one participant with a thousand peers needs fewer; a participant whose nodes name ever
nearer ones of its own is no longer asked."""


class Router(RoutingTable):  # type: ignore[misc]
    """The package's routing table, with shares for participants (`medusa.dht.shares`).

    * The package's search stops at the first k nodes that it finds; this one finds the nearest.
    * In a full bucket a participant beyond its share makes room for others.
    """

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
                del bucket.nodes[crowd[-1].id]  # the node known for the shortest time
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
        # silent nodes count too; otherwise they would delay the lookup one after the other
        nearest = [node for _, node in sorted(self.heap, key=lambda each: each[0])]
        nodes = chosen(
            nearest, self._participant_of, self.maxsize, share=self._share, spent=self._silent
        )
        return iter(nodes)

    @property
    def answered(self) -> int:
        """Number of nodes that answered."""
        return len(self._answered)

    def found(self) -> list[Node]:
        """The nearest nodes that answered."""
        return [node for node in self if node.id in self._answered]

    def ask(self, count: int) -> list[Node]:
        """The nodes to ask now, at most `count`, the nearest first; they count as asked.

        * A participant with more silent than answering nodes, beyond its share, is asked no more;
          nor is one that was asked very often.
        * Nodes that are waiting for an answer count against their participant's share.
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

    def note_answer(self, node: Node) -> None:
        """The node has answered."""
        self._answered.add(node.id)
        self._spoke[self._participant_of(node)] += 1

    def lost(self, node: Node) -> None:
        """The node has not answered."""
        self.remove([node.id])
        self._silent[self._participant_of(node)] += 1

    def speaks(self, enough: int) -> bool:
        """Whether enough nodes have answered, and of as many participants as there are here: the
        many quick nodes of one participant must not be the only answers."""
        here = Counter(self._participant_of(node) for node in self)
        return self.answered >= enough and self._shares(self._spoke) >= min(
            enough, self._shares(here)
        )

    def _shares(self, of: Counter[str]) -> int:
        """Number of nodes, counting no more of a participant than its share."""
        return sum(min(self._share, number) for number in of.values())

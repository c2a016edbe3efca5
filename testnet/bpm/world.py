"""Nodes with real Brains, and a network that delays their messages.

A node costs nothing while its Brain sleeps (`wake_at`), so quiet nodes cost no time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from medusa.contracts.market import events
from medusa.contracts.market.brain import Brain
from medusa.contracts.market.config import MarketConfig
from medusa.contracts.market.cost import QueueingCost
from medusa.contracts.market.messages import Message
from medusa.contracts.market.prices import price_range
from medusa.testnet.bpm.graph import Graph, sign
from medusa.testnet.bpm.tasks import TASK_LOAD, Tally, Tasks
from medusa.testnet.virtual.messages import Nodes

PRICE: Final = 1_000_000
"""Micros per unit and second at capacity: one of the money's units, so that figures read well."""

CHEAPEST: Final = 0.8
"""The lowest of mixed prices, as a share of PRICE: D's price in the poster's demonstration. No
price is above PRICE, because then a peer would gain by load above its capacity."""

_STEPS: Final = 997
"""Number of different prices when mixed; a prime."""


class Market:
    """The prices of a run's contracts.

    Attributes:
        price, min_price: the range of a contract at full price, micros per unit and second.
    """

    def __init__(self, capacity: float, range_tasks: int, *, mixed: bool, seed: int) -> None:
        """
        Args:
            capacity: units. range_tasks: width of the range, tasks (delta_k).
            mixed: every contract has a price of its own.

        Raises:
            InvalidInputError: the range is wider than the capacity.
        """
        self._capacity = capacity
        self._cost = QueueingCost(capacity, PRICE)
        self._config = MarketConfig()
        self._mixed = mixed
        self._seed = seed
        self._rng = random.Random(seed)
        self.min_price, self.price = price_range(self._cost, capacity, TASK_LOAD, range_tasks)

    def make_brain(self, peer: str, number: int) -> Brain:
        """A Brain. All share a random generator: one of 2.5 KB each would be most of their
        memory."""
        return Brain(
            peer, self._cost, self._capacity, config=self._config, rng=self._rng, number=number
        )

    def terms(self, low: int, high: int) -> tuple[int, int]:
        """The price range of the contract between two nodes, the lower one first."""
        if not self._mixed:
            return self.min_price, self.price
        # computed, so that both sides get the same without a table of all contracts
        step = (low * 7919 + high * 104_729 + self._seed * 31) % _STEPS
        share = CHEAPEST + (1 - CHEAPEST) * step / (_STEPS - 1)
        return round(self.min_price * share), round(self.price * share)


MESSAGE_S: Final = (0.01, 0.1)
"""Shortest and longest delay of a message, seconds: peers in one country and on two continents."""
DETECT_S: Final = 5.0
"""Seconds until all know that a node is gone: about SWIM's time."""


class BrainLike(Protocol):
    """The methods of a Brain that the world uses."""

    @property
    def wake_at(self) -> float: ...

    def handle(self, event: events.Event, now: float) -> list[events.Effect]: ...


Maker = Callable[[str, int], BrainLike]
"""Makes the Brain of a peer (hex), with offers numbered from that number on."""
Terms = Callable[[int, int], tuple[int, int]]
"""The price range of the contract between two nodes, micros per unit and second."""


class World(Nodes[BrainLike, events.Event]):
    """Nodes with Brains, contracts between them, and tasks."""

    def __init__(
        self,
        graph: Graph,
        counts: list[int],
        *,
        make_brain: Maker,
        terms: Terms,
        capacity: float,
        rng: random.Random,
    ) -> None:
        """
        Args:
            counts: own tasks of each node. capacity: the capacity of each node, units.
        """
        nodes = len(graph)
        super().__init__(nodes, events.Tick())
        self.tally = Tally(capacity)
        self.graph = graph
        self.peers = [f"{node:040x}" for node in range(nodes)]
        self.tasks = Tasks(
            counts, self.peers, notify=self.notify, clock=self.clock, tally=self.tally, rng=rng
        )
        self._make_brain = make_brain
        self._terms = terms
        self._rng = rng
        for node in range(nodes):
            self.start(node)

    # -- nodes -------------------------------------------------------------------------------------

    def start(self, node: int) -> None:
        """Let a node join with its own tasks and its present contracts."""
        # Partners ignore an offer whose number is not above all earlier ones, also after a node
        # has left and joined again: so its numbers start from the clock's microseconds.
        self.cores[node] = self._make_brain(self.peers[node], round(self.clock.now * 1e6))
        self.notify(node, events.PartnersChanged(self.partners(node)))
        for event in self.tasks.start_node(node):
            self.notify(node, event)

    def partners(self, node: int) -> tuple[events.Partner, ...]:
        """A node's partners, as its Brain gets them."""
        partners = []
        # sorted, because the order of a set does not follow from the seed
        for other in sorted(self.graph[node]):
            low, high = sorted((node, other))
            partners.append(
                events.Partner(self.peers[other], f"{low:x}-{high:x}", *self._terms(low, high))
            )
        return tuple(partners)

    def leave(self, node: int) -> None:
        """Remove a node without notice; the others notice after a while."""
        self.stop(node)
        orphans, others = self.tasks.stop_node(node)
        self.clock.after(DETECT_S, self._notice, node, orphans, others)

    def _notice(self, node: int, orphans: list[int], others: list[int]) -> None:
        neighbours = sorted(self.graph[node])
        self.graph[node].clear()
        for other in neighbours:
            self.graph[other].discard(node)
        self._contracts_changed(neighbours)
        self.tasks.end(orphans)
        self.tasks.take_home(others)

    def join(self, node: int, contracts: int) -> None:
        """Let a node return, with `contracts` new ones; nodes with too few contracts sign more."""
        alive = [other for other, brain in enumerate(self.cores) if brain is not None]
        changed = set(sign(self.graph, node, contracts, alive, self._rng))
        for other in alive:
            if len(self.graph[other]) < contracts:
                changed |= {other, *sign(self.graph, other, contracts, alive, self._rng)}
        self.start(node)
        self._contracts_changed(changed - {node})

    def _contracts_changed(self, nodes: Iterable[int]) -> None:
        for node in sorted(nodes):
            self.notify(node, events.PartnersChanged(self.partners(node)))

    # -- Brains ------------------------------------------------------------------------------------

    def _due(self, core: BrainLike) -> float:
        return core.wake_at

    def _handle(self, node: int, core: BrainLike, event: events.Event) -> None:
        for effect in core.handle(event, self.clock.now):
            self._do(node, effect)

    def _do(self, node: int, effect: events.Effect) -> None:
        match effect:
            case events.Send(peer, message):
                self._send(node, int(peer, 16), message)
            case events.Move():
                self.tasks.move(node, effect)
            case events.Recall():
                self.tasks.recall(node, effect)
            case events.GiveBack():
                self.tasks.give_back(node, effect)
            case events.Note():
                pass

    def _send(self, node: int, to: int, message: Message) -> None:
        self.tally.messages += 1
        self.clock.after(self._rng.uniform(*MESSAGE_S), self._deliver, node, to, message)

    def _deliver(self, node: int, to: int, message: Message) -> None:
        if self.cores[to] is None:
            self.notify(node, events.Unreachable(self.peers[to]))
        else:
            self.notify(to, events.Received(self.peers[node], message))

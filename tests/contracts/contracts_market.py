"""For tests: a network of Brains without peers, in which messages and moves take time and some are
lost; and one Brain whose neighbours the test plays."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from medusa.contracts.market.brain import Brain
from medusa.contracts.market.config import MarketConfig
from medusa.contracts.market.cost import Cost, QueueingCost
from medusa.contracts.market.events import (
    Effect,
    Event,
    GiveBack,
    Move,
    MoveEnded,
    Note,
    Partner,
    PartnersChanged,
    Recall,
    Received,
    Send,
    TaskBack,
    TaskGone,
    TaskHere,
    TaskOut,
    Tick,
)
from medusa.contracts.market.messages import Answer, Item, Offer

CAPACITY = 80.0
PRICE = 1_000_000


def name(node: int) -> str:
    return f"{node:040x}"


def item(task: str, owner: int, load: float = 1.0) -> Item:
    return Item(task, load, name(owner), 1000, ("filter",), ("medusa://a.edu/s",))


@dataclass
class World:
    """A network of Brains. `placed` says where every task really is: task -> (worker, giver,
    contract, price)."""

    config: MarketConfig = field(default_factory=MarketConfig)
    capacity: float = CAPACITY
    seed: int = 1
    move_s: float = 1.0
    now: float = 0.0
    moves: int = 0
    messages: int = 0
    copies: Callable[[], int] = lambda: 1
    delay: Callable[[], float] | None = None
    refuse_move: Callable[[Move], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.cost: Cost = QueueingCost(self.capacity, PRICE)
        self.brains: dict[str, Brain] = {}
        self.partners: dict[str, tuple[Partner, ...]] = {}
        self.items: dict[str, Item] = {}
        self.placed: dict[str, tuple[str, str, str, int]] = {}
        self.notes: list[Note] = []
        self.out: dict[str, tuple[str, str, int]] = {}
        self.moving: set[tuple[str, str]] = set()
        self.log: list[tuple[float, str, Effect]] = []
        self._queue: list[tuple[float, int, str, Event | Effect | None]] = []
        self._number = 0

    # -- building ----------------------------------------------------------------------------------

    def add(self, node: int, cost: Cost | None = None, capacity: float | None = None) -> Brain:
        brain = Brain(
            name(node), cost or self.cost, capacity or self.capacity, self.config, self.rng
        )
        self.brains[brain.peer] = brain
        return brain

    def connect(self, links: Iterable[tuple[int, int, int, int]]) -> None:
        """Replace all contracts: (one, other, min price, max price)."""
        partners: dict[str, list[Partner]] = {peer: [] for peer in self.brains}
        for one, other, low, high in links:
            contract = f"{min(one, other)}-{max(one, other)}"
            partners[name(one)].append(Partner(name(other), contract, low, high))
            partners[name(other)].append(Partner(name(one), contract, low, high))
        for peer, found in partners.items():
            self.partners[peer] = tuple(found)
            self.notify(peer, PartnersChanged(tuple(found)))

    def load(self, node: int, count: int, load: float = 1.0) -> None:
        for _ in range(count):
            task = f"{node}/{len(self.items)}"
            self.items[task] = item(task, node, load)
            self.placed[task] = (name(node), "", "", 0)
            self.notify(name(node), TaskHere(self.items[task]))

    def restart(self, node: int) -> None:
        """Replace the node's `Brain` by a new one, as after a crash: it learns again which tasks
        the node runs and which of its tasks are elsewhere, and has forgotten its promises."""
        old = self.brains[name(node)]
        new = Brain(old.peer, self.cost, self.capacity, self.config, self.rng, old.number)
        self.brains[old.peer] = new
        # moves that it had begun end with it
        self._queue = [e for e in self._queue if e[2] != old.peer or isinstance(e[3], Received)]
        heapq.heapify(self._queue)
        self.moving = {entry for entry in self.moving if entry[1] != old.peer}
        for task, (worker, giver, contract, price) in self.placed.items():
            if worker == old.peer:
                self.notify(worker, TaskHere(self.items[task], giver, contract, price))
            if self.items[task].owner == old.peer and task in self.out:
                self.notify(old.peer, TaskOut(self.items[task], *self.out[task]))
        self.notify(old.peer, PartnersChanged(self.partners[old.peer]))

    # -- running -----------------------------------------------------------------------------------

    def notify(self, peer: str, event: Event) -> None:
        brain = self.brains.get(peer)
        if brain is None:
            return
        for effect in brain.handle(event, self.now):
            self.log.append((self.now, peer, effect))
            self._do(peer, effect)
        if brain.wake_at < float("inf"):
            self._push(max(brain.wake_at, self.now), peer, None)

    def run(self, until: float) -> None:
        """Run until that time, or until no event is left."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, peer, what = heapq.heappop(self._queue)
            if what is None:
                brain = self.brains.get(peer)
                if brain is not None and brain.wake_at <= self.now:
                    self.notify(peer, Tick())
                    assert brain.wake_at > self.now, "a Brain that never sleeps"
            elif isinstance(what, Received):
                self.notify(peer, what)
            else:
                self._finish(peer, what)
        self.now = until

    def _push(self, at: float, peer: str, what: Event | Effect | None) -> None:
        self._number += 1
        heapq.heappush(self._queue, (at, self._number, peer, what))

    def _do(self, peer: str, effect: Effect) -> None:
        match effect:
            case Send():
                self.messages += 1
                self._check(peer, effect)
                for _ in range(self.copies()):
                    delay = self.delay() if self.delay else self.rng.uniform(0.02, 0.1)
                    self._push(self.now + delay, effect.peer, Received(peer, effect.message))
            case Note():
                self.notes.append(effect)
            case _:
                if isinstance(effect, Move):
                    assert self.placed[effect.item.task][0] == peer, "moves what it does not run"
                    assert (effect.item.task, peer) not in self.moving, "moves it twice at once"
                    self.moving.add((effect.item.task, peer))
                self._push(self.now + self.move_s, peer, effect)

    def _check(self, peer: str, send: Send) -> None:
        if isinstance(send.message, Answer) and send.message.accepted:
            assert self.brains[peer].held.room > -1e-3, "accepts more than it can run"
            assert not self.brains[peer].held.own.keys() & set(send.message.accepted)

    def _finish(self, peer: str, effect: Event | Effect) -> None:
        match effect:
            case Move():
                self._move(peer, effect)
            case Recall() | GiveBack():
                self.home(effect.task)
            case _:
                raise AssertionError(effect)

    def _move(self, peer: str, move: Move) -> None:
        task = move.item.task
        self.moving.discard((task, peer))
        elsewhere = self.placed[task][0] != peer or move.to not in self.brains
        if elsewhere or self.refuse_move(move):
            self.notify(peer, MoveEnded(task, ok=False, reason="refused"))
            return
        self.moves += 1
        self.placed[task] = (move.to, peer, move.contract, move.price)
        self.notify(move.to, TaskHere(self.items[task], peer, move.contract, move.price))
        self.notify(peer, TaskGone(task))
        if self.items[task].owner == peer:
            self.out[task] = (move.to, move.contract, move.price)
            self.notify(peer, TaskOut(self.items[task], *self.out[task]))
        self.notify(peer, MoveEnded(task, ok=True))

    def home(self, task: str) -> None:
        """Let the owner take the task home."""
        worker, giver, _, _ = self.placed[task]
        if not giver:
            return
        owner = self.items[task].owner
        self.moves += 1
        self.placed[task] = (owner, "", "", 0)
        self.out.pop(task)
        self.notify(worker, TaskGone(task))
        self.notify(owner, TaskHere(self.items[task]))
        self.notify(owner, TaskBack(task))

    # -- the outcome
    # --------------------------------------------------------------------------------

    def levels(self) -> dict[str, float]:
        levels = dict.fromkeys(self.brains, 0.0)
        for task, (worker, *_) in self.placed.items():
            levels[worker] += self.items[task].load
        return levels

    def level(self, node: int) -> float:
        return self.levels()[name(node)]

    def excess(self) -> float:
        return sum(max(0.0, level - self.capacity) for level in self.levels().values())

    def unused(self) -> float:
        return sum(max(0.0, self.capacity - level) for level in self.levels().values())


def crowd(nodes: int, contracts: int, load: float, prices: tuple[int, int], *, seed: int) -> World:
    """Return random contracts (each node signs that many with others), and unit tasks whose number
    is skewed by Zipf^0.5."""
    world = World(seed=seed)
    rng = random.Random(seed)
    for node in range(nodes):
        world.add(node)
    links: set[tuple[int, int]] = set()
    for node in range(nodes):
        others = rng.sample([other for other in range(nodes) if other != node], contracts)
        links |= {(min(node, other), max(node, other)) for other in others}
    world.connect((one, other, *prices) for one, other in sorted(links))
    weights = [rank**-0.5 for rank in range(1, nodes + 1)]
    rng.shuffle(weights)
    total = round(load * CAPACITY * nodes)
    counts = [int(total * weight / sum(weights)) for weight in weights]
    for node in range(total - sum(counts)):
        counts[node % nodes] += 1
    for node, count in enumerate(counts):
        world.load(node, count)
    return world


LOW, HIGH = 800_000, 1_000_000
B, C, D = name(1), name(2), name(3)


def partner(peer: str, low: int = LOW, high: int = HIGH, **terms: Any) -> Partner:
    return Partner(peer, f"with {peer[-1]}", low, high, **terms)


def brain(*partners: Partner, tasks: int = 0, config: MarketConfig | None = None) -> Brain:
    made = Brain(
        name(0), QueueingCost(80, HIGH), 80, config or MarketConfig(), random.Random(1), number=10
    )
    made.handle(PartnersChanged(partners), 0)
    for task in range(tasks):
        made.handle(TaskHere(item(f"t{task}", 0)), 0)
    return made


def wait(made: Brain, until: float) -> list[Effect]:
    """Return all effects of the Brain up to that time, without any input."""
    effects: list[Effect] = []
    while made.wake_at <= until:
        now = made.wake_at
        effects += made.handle(Tick(), now)
        assert made.wake_at > now
    return effects


def offers(effects: list[Effect]) -> list[tuple[str, Offer]]:
    return [
        (effect.peer, effect.message)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Offer)
    ]


def answer(made: Brain, offer: Offer, peer: str = B) -> Answer:
    """Return its answer to an offer."""
    effects = made.handle(Received(peer, offer), 100) + wait(made, 101)
    (said,) = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Answer)]
    return said


def offer_of(*items: Item, price: int = HIGH, number: int = 1, hops: int = 0) -> Offer:
    return Offer(number, "with 1", price, items, hops)

"""The simulated world under predictable Brains: its books against a recount."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.contracts.market.events import (
    Effect,
    Event,
    GiveBack,
    Move,
    MoveEnded,
    PartnersChanged,
    Recall,
    Received,
    Send,
    TaskBack,
    TaskGone,
    TaskHere,
    TaskOut,
    Tick,
    Unreachable,
)
from medusa.contracts.market.messages import Answer, Item, Offer
from medusa.overlay.errors import InternalError
from medusa.testnet.bpm.graph import contract_graph, skewed
from medusa.testnet.bpm.tasks import NOWHERE
from medusa.testnet.bpm.world import BrainLike, World


class Simple:
    """Offers tasks above capacity to random partners, accepts while there is room, and sometimes
    recalls or returns one: no market, only a Brain that moves tasks."""

    def __init__(self, peer: str, number: int, capacity: float) -> None:
        self.peer, self.number, self.capacity = peer, number, capacity
        self.rng = random.Random(f"{peer} {number}")
        self.wake_at = inf
        self.partners: dict[str, str] = {}
        self.here: dict[str, tuple[Item, str, str, int]] = {}
        self.out: dict[str, tuple[str, str, int]] = {}
        self.offered: tuple[str, list[Item]] | None = None
        self.moving: set[str] = set()
        self.seen: Counter[str] = Counter()

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.seen[type(event).__name__] += 1
        effects: list[Effect] = []
        match event:
            case PartnersChanged(partners):
                self.partners = {partner.peer: partner.contract for partner in partners}
                effects += self.drain()
            case TaskHere(item, giver, contract, price):
                self.here[item.task] = (item, giver, contract, price)
            case TaskGone(task):
                assert task in self.here
                del self.here[task]
                self.moving.discard(task)
            case TaskOut(item, worker, contract, price):
                self.out[item.task] = (worker, contract, price)
            case TaskBack(task):
                assert task in self.out
                del self.out[task]
            case Received(peer, message):
                effects += self.hear(peer, message)
            case Unreachable():
                self.offered = None
            case MoveEnded(task):
                self.moving.discard(task)
            case Tick():
                effects += self.think()
        quiet = self.load <= self.capacity and not self.out
        self.wake_at = inf if quiet or not self.partners else now + self.rng.uniform(1, 5)
        return effects

    @property
    def load(self) -> float:
        return sum(held[0].load for held in self.here.values())

    def drain(self) -> list[Effect]:
        back = [GiveBack(t) for t, held in self.here.items() if held[1] not in {"", *self.partners}]
        home = [Recall(t) for t, placed in self.out.items() if placed[0] not in self.partners]
        return [*back, *home]

    def think(self) -> list[Effect]:
        if self.out and self.rng.random() < 0.1:
            return [Recall(self.rng.choice(sorted(self.out)))]
        guests = sorted(task for task, held in self.here.items() if held[1])
        if guests and self.rng.random() < 0.1:
            return [GiveBack(self.rng.choice(guests))]
        excess = int(self.load - self.capacity)
        if self.offered is not None or excess <= 0:
            return []
        to = self.rng.choice(sorted(self.partners))
        items = [held[0] for task, held in sorted(self.here.items()) if task not in self.moving]
        items = [item for item in items if item.owner != to][: min(excess, 5)]
        self.number += 1
        self.offered = (to, items)
        return [Send(to, Offer(self.number, self.partners[to], 7, tuple(items)))]

    def hear(self, peer: str, message: Offer | Answer) -> list[Effect]:
        if isinstance(message, Offer):
            room = int(max(self.capacity - self.load, 0))
            accepted = tuple(item.task for item in message.items[:room])
            return [Send(peer, Answer(message.number, accepted))]
        if self.offered is None or self.offered[0] != peer or peer not in self.partners:
            return []
        items, self.offered = self.offered[1], None
        moves = [item for item in items if item.task in message.accepted and item.task in self.here]
        self.moving |= {item.task for item in moves}
        return [Move(item, peer, self.partners[peer], 7) for item in moves]


def simple_world(nodes: int, seed: int) -> World:
    rng = random.Random(seed)
    return World(
        contract_graph(nodes, 3, "grown", rng),
        skewed(6 * nodes, nodes, rng),
        make_brain=lambda peer, number: Simple(peer, number, 8),
        terms=lambda low, high: (5, 7),
        capacity=8,
        rng=rng,
    )


def recount(world: World) -> None:
    """Compare the world's books with the beliefs of the Brains, and with a count of the tasks
    alone."""
    tasks, tally = world.tasks, world.tally
    loads = [0.0] * len(world.cores)
    for task, node in enumerate(tasks.at):
        if node != NOWHERE:
            loads[node] += tasks.loads[task]
    alive = [node for node, brain in enumerate(world.cores) if brain is not None]
    for node in alive:
        assert tasks.node_loads[node] == pytest.approx(loads[node])
        brain = world.cores[node]
        assert isinstance(brain, Simple)
        assert sorted(brain.here) == sorted(f"{t:x}" for t, at in enumerate(tasks.at) if at == node)
        away = [task for task in tasks.owned(node) if task in tasks.away]
        assert sorted(brain.out) == sorted(f"{task:x}" for task in away)
    for chain in tasks.away.values():
        assert all(one.payee == other.payer for one, other in pairwise(chain))
    for task, chain in tasks.away.items():
        if tasks.at[task] != NOWHERE:
            assert (chain[0].payer, chain[-1].payee) == (tasks.owner[task], tasks.at[task])
    excess = sum(max(loads[node] - 8, 0) for node in alive)
    assert tally.excess == pytest.approx(excess, abs=1e-6)
    assert tally.unused == pytest.approx(sum(max(8 - loads[node], 0) for node in alive), abs=1e-6)
    paid = sum(link.price * tasks.loads[t] for t, chain in tasks.away.items() for link in chain)
    assert tally.paid == pytest.approx(paid, abs=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_books_hold_whatever_happens(seed: int) -> None:
    world, rng = simple_world(12, seed), random.Random(seed)
    recount(world)
    for step in range(1, 12):
        alive = [node for node, brain in enumerate(world.cores) if brain is not None]
        gone = [node for node, brain in enumerate(world.cores) if brain is None]
        if rng.random() < 0.4 and len(alive) > 6:
            world.leave(rng.choice(alive))
        if gone and rng.random() < 0.5:
            world.join(rng.choice(gone), 3)
        for node in rng.sample(alive, 3):
            for task in world.tasks.owned(node) if world.cores[node] is not None else ():
                world.tasks.reload(task, rng.choice([0.5, 1.0, 1.5]))
        # Long enough for every node to notice which nodes left, so that their beliefs are true.
        world.clock.run(step * 20.0)
        recount(world)
    assert world.tally.moves > 0


def test_every_event_reaches_the_brains() -> None:
    world = simple_world(12, 3)
    busiest = max(range(12), key=lambda node: len(world.tasks.owned(node)))
    # The partners of the busiest node leave, before that node learns of it.
    gone = sorted(world.graph[busiest])
    for node in gone:
        world.leave(node)
    world.clock.run(60)
    for node in gone:
        world.join(node, 3)
    world.clock.run(120)
    seen: Counter[str] = Counter()
    for brain in world.cores:
        assert isinstance(brain, Simple)
        seen += brain.seen
    assert set(seen) == {kind.__name__ for kind in Event.__args__}


def test_a_node_that_left_has_no_task_and_no_contract() -> None:
    world = simple_world(12, 5)
    world.clock.run(30)
    dead = next(
        n
        for n in range(12)
        if any(n == link.payee for c in world.tasks.away.values() for link in c)
    )
    own = list(world.tasks.owned(dead))
    world.leave(dead)
    world.clock.run(40)
    assert dead not in world.tasks.at
    assert not world.graph[dead]
    assert all(dead not in others for others in world.graph)
    assert all(world.tasks.at[task] == NOWHERE and task not in world.tasks.away for task in own)
    rest = [task for task in range(len(world.tasks.at)) if task not in own]
    assert all(world.tasks.at[task] != NOWHERE for task in rest)


def only_tick(effect: Effect) -> World:
    """Return two nodes with four and no tasks; the first Brain acts once."""

    class Wants(Simple):
        def handle(self, event: Event, now: float) -> list[Effect]:
            if isinstance(event, Tick) and self.wake_at == 1.0:
                self.wake_at = inf
                return [effect]
            self.seen[type(event).__name__] += 1
            return []

    def make(peer: str, number: int) -> BrainLike:
        brain = Wants(peer, number, 8)
        brain.wake_at = 1.0 if int(peer, 16) == 0 else inf
        return brain

    rng = random.Random(0)
    return World(
        [{1}, {0}], [4, 4], make_brain=make, terms=lambda low, high: (1, 1), capacity=8, rng=rng
    )


def peer_of(node: int) -> str:
    return f"{node:040x}"


@pytest.mark.parametrize(
    "effect",
    [
        Move(Item("5", 1.0, peer_of(1)), peer_of(1), "0-1", 1),
        Move(Item("0", 1.0, peer_of(0)), peer_of(0), "0-1", 1),
        Recall("5"),
    ],
)
def test_an_impossible_effect_of_a_brain_is_an_error(effect: Effect) -> None:
    world = only_tick(effect)
    with pytest.raises(InternalError, match="node 0"):
        world.clock.run(10)


def test_a_task_that_is_not_here_cannot_be_moved() -> None:
    world = only_tick(Move(Item("0", 1.0, peer_of(0)), peer_of(1), "0-1", 1))
    world.tasks.at[0] = 1
    world.clock.run(10)
    brain = world.cores[0]
    assert isinstance(brain, Simple)
    assert brain.seen["MoveEnded"] == 1
    assert (world.tally.moves, world.tally.failed) == (0, 1)


def test_a_brain_that_never_sleeps_is_named() -> None:
    class Sleepless(Simple):
        def handle(self, event: Event, now: float) -> list[Effect]:
            self.wake_at = 3.0
            return []

    rng = random.Random(0)
    world = World(
        [set()],
        [1],
        make_brain=lambda peer, number: Sleepless(peer, number, 8),
        terms=lambda low, high: (1, 1),
        capacity=8,
        rng=rng,
    )
    with pytest.raises(InternalError, match="node 0: its core wants the tick of 3"):
        world.clock.run(10)


def test_a_recall_waits_for_a_move() -> None:
    world = only_tick(Recall("0"))
    tasks = world.tasks
    tasks.move(0, Move(Item("0", 1.0, peer_of(0)), peer_of(1), "0-1", 1))
    world.clock.run(4)
    assert tasks.at[0] == 1
    tasks.recall(0, Recall("0"))
    tasks.recall(0, Recall("0"))
    tasks.give_back(1, GiveBack("0"))
    world.clock.run(20)
    assert tasks.at[0] == 0
    assert not tasks.away
    assert (world.tally.moves, world.tally.recalls) == (2, 1)
    assert world.tally.paid == 0

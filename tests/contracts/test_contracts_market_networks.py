"""Networks of Brains reach the figures of NSDI 2004, in a size that every run can afford
(`medusa-testnet bpm` is the full one); small ones stay correct under drops, delays, duplicates,
crashes, failing moves and ending contracts."""

from itertools import combinations

import pytest
from contracts_market import CAPACITY, HIGH, LOW, PRICE, World, crowd, item, name
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from medusa.contracts.market.cost import QueueingCost
from medusa.contracts.market.events import TaskHere
from medusa.contracts.market.prices import price_range

COST = QueueingCost(CAPACITY, PRICE)


def settled(load: float, k: int, seed: int, nodes: int = 200) -> tuple[World, float]:
    world = crowd(nodes, 7, load, price_range(COST, CAPACITY, 1, k), seed=seed)
    initial = world.excess()
    assert initial > 100
    world.run(2000)
    return world, initial


@pytest.mark.parametrize("seed", range(5))
def test_no_node_stays_above_capacity(seed: int) -> None:
    world, initial = settled(0.75, 2, seed)
    assert world.excess() == 0
    assert world.moves <= 1.3 * initial


@pytest.mark.parametrize("seed", range(3))
def test_no_node_stays_above_capacity_where_there_is_hardly_room(seed: int) -> None:
    world, initial = settled(0.95, 4, seed)
    assert world.excess() == 0
    assert world.moves <= 1.3 * initial


def test_a_fixed_price_leaves_excess() -> None:
    # the reason for price ranges: without one, no load flows through full peers
    assert settled(0.95, 0, 1)[0].excess() > 100


def test_load_flows_through_dear_peers_once_they_have_passed_some_on() -> None:
    # b is too dear for its contract with a from 78 of 80 tasks on, but has a cheaper one with c
    world = World()
    for node in range(3):
        world.add(node)
    world.connect([(0, 1, 700_000, 880_000), (1, 2, 650_000, 800_000)])
    for node, tasks in enumerate((100, 79, 10)):
        world.load(node, tasks)
    world.run(600)
    assert world.excess() == 0
    assert world.moves <= 2 * 20 + 3


def test_steady_load_is_silent() -> None:
    world, _ = settled(0.75, 2, 1)
    messages = world.messages
    world.run(10 * 3600)
    assert world.messages == messages
    assert all(brain.wake_at == float("inf") for brain in world.brains.values())


def test_overloaded_all_work_at_capacity_and_the_market_falls_silent() -> None:
    world, initial = settled(1.05, 4, 1)
    assert world.unused() == 0
    assert world.moves <= 1.3 * initial
    moves, messages = world.moves, world.messages
    world.run(12 * 3600)
    assert world.moves == moves
    # at most twenty messages a peer and hour
    assert world.messages - messages < 20 * 12 * len(world.brains)


def test_the_four_steps_of_the_poster() -> None:
    world = World(capacity=80)
    for node in range(3):
        world.add(node)
    links = [(0, 1, LOW, HIGH), (0, 2, LOW, HIGH), (1, 2, LOW, HIGH)]
    world.connect(links)
    world.load(0, 150)
    world.load(1, 30)
    world.load(2, 30)
    world.run(300)
    assert world.excess() == 0
    world.load(1, 60)  # the whole system is overloaded
    world.run(900)
    assert world.excess() == pytest.approx(30)
    assert world.unused() == 0
    world.add(3)
    world.connect([*links, (2, 3, int(0.7 * HIGH), int(0.8 * HIGH))])
    world.run(3000)
    assert world.excess() == 0
    assert world.level(3) >= 30


NODES = 4
CHEAP, DEAR = 600_000, 1_000_000
LINKS = list(combinations(range(NODES), 2))


class Market(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        for node in range(NODES):
            self.world.add(node)
        self.links = set(LINKS)
        self.connect()

    def connect(self) -> None:
        self.world.connect((one, other, CHEAP, DEAR) for one, other in sorted(self.links))

    def total(self) -> float:
        return sum(self.world.levels().values())

    @rule(
        node=st.integers(0, NODES - 1), count=st.integers(1, 60), load=st.sampled_from([0.5, 1, 2])
    )
    def more_load(self, node: int, count: int, load: float) -> None:
        count = min(count, int((0.85 * NODES * CAPACITY - self.total()) / load))
        self.world.load(node, max(count, 0), load)

    @rule(data=st.data(), factor=st.sampled_from([0.5, 0.8, 1.2]))
    def load_changes(self, data: st.DataObject, factor: float) -> None:
        world = self.world
        if not world.items or self.total() * factor > 0.85 * NODES * CAPACITY:
            return
        node = data.draw(st.integers(0, NODES - 1))
        for task, (worker, giver, contract, price) in sorted(world.placed.items()):
            if worker == name(node):
                known = world.items[task]
                if 0.2 <= known.load * factor <= 3:
                    world.items[task] = item(task, int(known.owner, 16), known.load * factor)
                    world.notify(worker, TaskHere(world.items[task], giver, contract, price))

    @rule(seconds=st.sampled_from([0.1, 1, 5, 30, 300]))
    def time_passes(self, seconds: float) -> None:
        self.world.run(self.world.now + seconds)

    @rule(node=st.integers(0, NODES - 1))
    def crash(self, node: int) -> None:
        self.world.restart(node)

    @rule(share=st.sampled_from([0.0, 0.1, 0.5, 1.0]), slow=st.sampled_from([0.1, 3, 20]))
    def network(self, share: float, slow: float) -> None:
        world = self.world
        world.copies = lambda: 0 if world.rng.random() < share else world.rng.choice((1, 1, 2))
        world.delay = lambda: world.rng.uniform(0.01, slow)

    @rule(share=st.sampled_from([0.0, 0.3, 1.0]))
    def moves_fail(self, share: float) -> None:
        self.world.refuse_move = lambda _: self.world.rng.random() < share

    @rule(link=st.sampled_from(LINKS), kept=st.booleans())
    def contract(self, link: tuple[int, int], kept: bool) -> None:
        (self.links.add if kept else self.links.discard)(link)
        self.connect()

    @invariant()
    def every_task_has_one_runner(self) -> None:
        for task, (worker, *_) in self.world.placed.items():
            running = [peer for peer, brain in self.world.brains.items() if brain.held.item(task)]
            assert running == [worker]

    @invariant()
    def every_brain_knows_its_load(self) -> None:
        for peer, level in self.world.levels().items():
            held = self.world.brains[peer].held
            assert abs(held.level - level) < 1e-3
            assert set(held.leaving) <= held.own.keys() | held.guests.keys()
            assert abs(held.left - sum(held.leaving.values())) < 1e-3
            assert abs(held.due - sum(r.load for r in held.coming.values())) < 1e-3
            ours = {task for task in self.world.out if self.world.items[task].owner == peer}
            assert set(held.outs) == ours

    def teardown(self) -> None:
        """After all faults have ended, check that no peer is above capacity and that no message
        follows."""
        world = self.world
        self.network(0.0, 0.1)
        world.copies = lambda: 1
        self.moves_fail(0.0)
        self.links = set(LINKS)
        self.connect()
        world.run(world.now + 4 * 3600)
        self.every_task_has_one_runner()
        self.every_brain_knows_its_load()
        assert world.excess() < 1e-3
        moves, messages = world.moves, world.messages
        world.run(world.now + 24 * 3600)
        assert world.moves == moves
        assert world.messages == messages


Market.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
test_market = Market.TestCase
TestMarket = Market.TestCase
del test_market

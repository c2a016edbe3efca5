"""The figures of NSDI 2004, in a network small enough for every run of the tests; the full one is
`medusa-testnet bpm`."""

import pytest
from contracts_brain import HIGH, LOW
from contracts_market import CAPACITY, PRICE, World, crowd

from contracts.market.cost import QueueingCost
from contracts.market.prices import price_range

COST = QueueingCost(CAPACITY, PRICE)


def settled(load: float, k: int, seed: int, nodes: int = 200) -> tuple[World, float]:
    world = crowd(nodes, 7, load, price_range(COST, CAPACITY, 1, k), seed=seed)
    initial = world.excess()
    assert initial > 100
    world.run(2000)
    return world, initial


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_left_above_capacity(seed: int) -> None:
    world, initial = settled(0.75, 2, seed)
    assert world.excess() == 0
    assert world.moves <= 1.3 * initial


@pytest.mark.parametrize("seed", range(3))
def test_nor_where_there_is_hardly_room(seed: int) -> None:
    world, initial = settled(0.95, 4, seed)
    assert world.excess() == 0
    assert world.moves <= 1.3 * initial


def test_a_fixed_price_leaves_excess() -> None:
    # the reason for the range: nothing flows through those that are full
    assert settled(0.95, 0, 1)[0].excess() > 100


def test_load_flows_through_those_that_are_dear_until_they_have_passed_some_on() -> None:
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
    assert world.messages - messages < 20 * 12 * len(world.brains)  # twenty a peer and hour


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

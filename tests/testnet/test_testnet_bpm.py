"""The simulation: graph, clock, books against a recount, figures, screens."""

from __future__ import annotations

import io
import random
from collections import Counter, deque
from itertools import pairwise
from math import inf
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import testnet.bpm.experiment
from contracts.market.events import (
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
from contracts.market.messages import Answer, Item, Offer
from overlay.errors import InternalError, InvalidInputError
from testnet.bpm.clock import Clock
from testnet.bpm.command import bpm
from testnet.bpm.experiment import Options, Progress, run
from testnet.bpm.graph import Graph, contract_graph, skewed
from testnet.bpm.least import least_moves
from testnet.bpm.market import CHEAPEST, PRICE, Market
from testnet.bpm.picture import check_picture
from testnet.bpm.show import render_progress, render_result
from testnet.bpm.sweep import CONTRACTS, RANGES, over_contracts, over_seeds
from testnet.bpm.tally import TINY, Tally
from testnet.bpm.tasks import NOWHERE, Link, cut
from testnet.bpm.world import BrainLike, World

# -- the graph and the start -----------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(0, 12), st.integers(0, 1000))
def test_graph_has_its_minimum_and_is_connected(nodes: int, contracts: int, seed: int) -> None:
    graph = contract_graph(nodes, contracts, random.Random(seed))
    for node, others in enumerate(graph):
        assert node not in others
        assert all(node in graph[other] for other in others)
        assert len(others) >= min(contracts, nodes - 1)
    if contracts:
        assert reached(graph) == nodes
    else:
        assert not any(graph)


def reached(graph: Graph) -> int:
    """Nodes to which a way leads from the first."""
    seen, todo = {0}, [0]
    while todo:
        news = graph[todo.pop()] - seen
        seen |= news
        todo += news
    return len(seen)


def test_contracts_are_spread_evenly() -> None:
    graph = contract_graph(995, 7, random.Random(1))
    degrees = [len(others) for others in graph]
    assert min(degrees) == 7
    assert 7 < sum(degrees) / 995 < 11
    assert max(degrees) < 25


def test_start_is_skewed_and_whole() -> None:
    counts = skewed(59_700, 995, random.Random(1))
    assert sum(counts) == 59_700
    ranked = sorted(counts, reverse=True)
    # Zipf with exponent a half: the fourth has half of the first, the hundredth a tenth.
    assert ranked[3] / ranked[0] == pytest.approx(0.5, rel=0.01)
    assert ranked[99] / ranked[0] == pytest.approx(0.1, rel=0.03)
    assert counts != ranked


@given(st.integers(0, 500), st.integers(1, 50))
def test_start_gives_out_every_task(total: int, nodes: int) -> None:
    counts = skewed(total, nodes, random.Random(0))
    assert sum(counts) == total
    assert min(counts) >= 0


# -- the fewest moves -----------------------------------------------------------------------------


def fewest(graph: Graph, counts: list[int], capacity: int) -> int:
    """By trying all of them."""
    overloaded = sum(counts) > capacity * len(counts)

    def acceptable(state: tuple[int, ...]) -> bool:
        return min(state) >= capacity if overloaded else max(state) <= capacity

    seen, todo = {tuple(counts)}, deque([(0, tuple(counts))])
    while todo:
        moves, state = todo.popleft()
        if acceptable(state):
            return moves
        for node, count in enumerate(state):
            for other in graph[node] if count else ():
                after = list(state)
                after[node] -= 1
                after[other] += 1
                if tuple(after) not in seen:
                    seen.add(tuple(after))
                    todo.append((moves + 1, tuple(after)))
    raise AssertionError("the graph is connected")


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=5).filter(lambda counts: sum(counts) <= 8),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 100),
)
def test_fewest_moves(counts: list[int], capacity: int, contracts: int, seed: int) -> None:
    graph = contract_graph(len(counts), contracts, random.Random(seed))
    assert least_moves(graph, counts, capacity) == fewest(graph, counts, capacity)


# -- time ------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 100), max_size=30), st.floats(0, 100))
def test_clock_does_what_is_due_in_order(times: list[float], until: float) -> None:
    clock, done = Clock(), list[tuple[float, int]]()

    def note(number: int) -> None:
        done.append((clock.now, number))

    for number, time in enumerate(times):
        clock.at(time, note, number)
    clock.run(until)
    due = [(time, number) for number, time in enumerate(times) if time <= until]
    assert done == sorted(due)
    assert clock.now == until


def test_clock_does_at_once_what_is_late() -> None:
    clock, done = Clock(), list[float]()
    clock.run(10)
    clock.at(3, lambda: done.append(clock.now))
    clock.run(10)
    assert done == [10]


# -- figures ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-50, 150)), max_size=40))
def test_tally_is_what_a_recount_gives(changes: list[tuple[int, float]]) -> None:
    tally, loads = Tally(80), [0.0] * 5
    for load in loads:
        tally.enter(load)
    for node, change in changes:
        after = max(loads[node] + change, 0.0)
        tally.change(loads[node], after)
        loads[node] = after
    assert tally.excess == pytest.approx(sum(max(load - 80, 0) for load in loads), abs=1e-4)
    assert tally.unused == pytest.approx(sum(max(80 - load, 0) for load in loads), abs=1e-4)
    assert tally.over == sum(load - 80 > TINY for load in loads)
    assert tally.under == sum(80 - load > TINY for load in loads)


def test_mean_price_is_of_the_moves_since_the_last_look() -> None:
    tally = Tally(80)
    assert tally.mean_price() is None
    tally.moved(3)
    tally.moved(4)
    tally.went_home()
    assert tally.mean_price() == 3.5
    assert tally.mean_price() is None
    assert (tally.moves, tally.recalls) == (3, 1)


def test_nobody_pays_in_circles() -> None:
    a_b, b_c, c_d, d_b = (Link(x, y, f"{x}-{y}", 1) for x, y in ((0, 1), (1, 2), (2, 3), (3, 1)))
    assert cut((a_b,)) == (a_b,)
    assert cut((a_b, b_c, c_d)) == (a_b, b_c, c_d)
    assert cut((a_b, b_c, c_d, d_b)) == (a_b,)


# -- the world, with Brains that are easy to foresee -----------------------------------------------


class Simple:
    """Offers what is above capacity to random partners, accepts while there is room, and now and
    then recalls or gives back: not the market, only something that moves tasks about."""

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
        contract_graph(nodes, 3, rng),
        skewed(6 * nodes, nodes, rng),
        make_brain=lambda peer, number: Simple(peer, number, 8),
        terms=lambda low, high: (5, 7),
        capacity=8,
        rng=rng,
    )


def recount(world: World) -> None:
    """The books, against what the Brains believe and what can be counted from the tasks alone."""
    tasks, tally = world.tasks, world.tally
    loads = [0.0] * len(world.brains)
    for task, node in enumerate(tasks.at):
        if node != NOWHERE:
            loads[node] += tasks.loads[task]
    alive = [node for node, brain in enumerate(world.brains) if brain is not None]
    for node in alive:
        assert tasks.node_loads[node] == pytest.approx(loads[node])
        brain = world.brains[node]
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
        alive = [node for node, brain in enumerate(world.brains) if brain is not None]
        gone = [node for node, brain in enumerate(world.brains) if brain is None]
        if rng.random() < 0.4 and len(alive) > 6:
            world.leave(rng.choice(alive))
        if gone and rng.random() < 0.5:
            world.join(rng.choice(gone), 3)
        for node in rng.sample(alive, 3):
            for task in world.tasks.owned(node) if world.brains[node] is not None else ():
                world.tasks.reload(task, rng.choice([0.5, 1.0, 1.5]))
        # Long enough that everyone has noticed who left, so that what they believe is so.
        world.clock.run(step * 20.0)
        recount(world)
    assert world.tally.moves > 0


def test_every_event_reaches_the_brains() -> None:
    world = simple_world(12, 3)
    busiest = max(range(12), key=lambda node: len(world.tasks.owned(node)))
    # Whom it would ask first: gone, and it does not know yet.
    gone = sorted(world.graph[busiest])
    for node in gone:
        world.leave(node)
    world.clock.run(60)
    for node in gone:
        world.join(node, 3)
    world.clock.run(120)
    seen: Counter[str] = Counter()
    for brain in world.brains:
        assert isinstance(brain, Simple)
        seen += brain.seen
    assert set(seen) == {kind.__name__ for kind in Event.__args__}


def test_who_left_is_home_to_no_task_and_party_to_no_contract() -> None:
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
    """Two nodes with four and no tasks; the first Brain wants one thing, once."""

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
def test_what_no_brain_may_want(effect: Effect) -> None:
    world = only_tick(effect)
    with pytest.raises(InternalError, match="node 0"):
        world.clock.run(10)


def test_a_task_that_is_not_here_cannot_be_moved() -> None:
    world = only_tick(Move(Item("0", 1.0, peer_of(0)), peer_of(1), "0-1", 1))
    world.tasks.at[0] = 1
    world.clock.run(10)
    brain = world.brains[0]
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
    with pytest.raises(InternalError, match="node 0: its Brain wants the tick of 3"):
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


# -- whole runs, with the real Brains --------------------------------------------------------------


SMALL = Options(nodes=120, contracts=7, load=0.75, range_tasks=2, seed=1)


def test_a_small_federation_becomes_acceptable() -> None:
    seen: list[Progress] = []
    result = run(SMALL, seen.append)
    assert result.excess_initial > 1000
    assert (result.excess_final, result.nodes_over) == (0, 0)
    assert result.acceptable
    assert result.settled
    assert result.moves_least is not None
    assert result.moves >= result.moves_least >= result.excess_initial
    assert result.moves_per_excess == pytest.approx(result.moves / result.excess_initial, abs=1e-4)
    assert result.messages_quiet == 0
    assert result.series.excess[0] == result.excess_initial
    assert result.series.excess[-1] == 0
    assert (
        result.series.moves[result.rounds] == result.moves > result.series.moves[result.rounds - 1]
    )
    assert result.tasks == 0.75 * 80 * 120
    assert len(seen) == len(result.series.excess) + 1
    prices = [price for price in result.series.price if price is not None]
    assert result.min_price <= min(prices) <= max(prices) <= result.price


def test_a_seed_gives_the_same_run() -> None:
    def figures(options: Options) -> bytes:
        result = msgspec.structs.replace(run(options), seconds=0.0, bytes_per_node=0)
        return msgspec.json.encode(result)

    assert figures(SMALL) == figures(SMALL)
    assert figures(SMALL) != figures(Options(nodes=120, seed=2))


def test_without_contracts_nothing_moves() -> None:
    result = run(Options(nodes=50, contracts=0))
    assert result.moves == result.messages == 0
    assert result.excess_final == result.excess_initial
    assert not result.acceptable


def test_one_node_has_nobody_to_trade_with() -> None:
    result = run(Options(nodes=1, load=2))
    assert (result.excess_initial, result.excess_final, result.moves) == (80, 80, 0)


def test_overload_reaches_everyone() -> None:
    result = run(Options(nodes=120, load=1.05, range_tasks=4))
    assert result.load > 1
    assert result.unused_capacity < 0.012 * 120 * 80
    assert result.acceptable == (result.nodes_under == 0)


def test_changes_are_counted() -> None:
    result = run(Options(nodes=60, vary=10, churn=5))
    changes = result.changes
    assert changes is not None
    # Three of the sixty leave and join; all have tasks, so the load of all changes.
    assert changes.changed == 20 * (60 + 2 * 3)
    assert changes.units > 0
    assert changes.moves > 0
    assert changes.moves_per_change == pytest.approx(changes.moves / changes.changed, abs=1e-4)
    assert changes.excess_end <= changes.excess_worst
    assert len(result.series.moves) > result.rounds + 20 * 20


def test_mixed_prices_differ_and_stay_below() -> None:
    market = Market(80, 2, mixed=True, seed=1)
    ranges = {market.terms(low, low + gap) for low in range(100) for gap in (1, 5)}
    assert len(ranges) > 150
    assert all(low < high <= PRICE for low, high in ranges)
    assert all(high >= CHEAPEST * PRICE * 0.999 for _, high in ranges)
    assert market.terms(3, 9) == market.terms(3, 9)
    assert run(Options(nodes=120, prices="mixed")).nodes_over == 0


# -- the command -----------------------------------------------------------------------------------


def test_json_has_the_figures() -> None:
    result = CliRunner().invoke(bpm, ["--nodes", "60", "--json", "--vary", "5"])
    assert result.exit_code == 0, result.output
    figures = msgspec.json.decode(result.stdout)
    wanted = {"nodes", "contracts", "load", "range_tasks", "seed", "excess_initial", "excess_final"}
    wanted |= {"nodes_over", "unused_capacity", "moves", "moves_per_excess", "rounds", "messages"}
    wanted |= {"paid", "seconds", "bytes_per_node", "series", "changes"}
    assert wanted <= set(figures)
    assert figures["nodes"] == 60
    assert figures["changes"]["periods"] == 20


def test_seeds_give_a_list_and_a_table() -> None:
    arguments = ["--nodes", "40", "--seeds", "3"]
    figures = msgspec.json.decode(CliRunner().invoke(bpm, [*arguments, "--json"]).stdout)
    assert [entry["seed"] for entry in figures] == [1, 2, 3]
    table = CliRunner().invoke(bpm, arguments).stdout
    assert all(len(line) <= 80 for line in table.splitlines())
    assert len([line for line in table.splitlines() if "75%" in line]) == 3
    assert "…" not in table


def test_excess_left_is_exit_code_1() -> None:
    assert CliRunner().invoke(bpm, ["--nodes", "40", "--contracts", "0"]).exit_code == 1
    assert (
        CliRunner().invoke(bpm, ["--nodes", "40", "--contracts", "0", "--load", "1.2"]).exit_code
        == 0
    )


@pytest.mark.parametrize("sweep", [False, True])
def test_a_picture_is_drawn(sweep: bool, tmp_path: Path) -> None:
    picture = tmp_path / "bpm.png"
    arguments = ["--nodes", "20", "--plot", str(picture), *(["--sweep"] if sweep else [])]
    result = CliRunner().invoke(bpm, arguments)
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--plot", "nowhere/at/all.png"], "nowhere/at: no such folder"),
        (["--plot", "picture.txt"], "picture.txt: a picture is a .png, .svg or .pdf file"),
        (["--range-tasks", "100"], "100 tasks"),
    ],
)
def test_bad_options_are_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(bpm, arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--load", "nan"], ["--load", "0"], ["--nodes", "0"], ["--vary", "-1"], ["--capacity", "inf"]],
)
def test_nonsense_is_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(bpm, arguments).exit_code == 2


def test_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(testnet.bpm.experiment, "run", interrupted)
    result = CliRunner().invoke(bpm, [])
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_a_picture_that_cannot_be_written_is_found_out_first(tmp_path: Path) -> None:
    check_picture(tmp_path / "a.svg")
    with pytest.raises(InvalidInputError):
        check_picture(tmp_path / "a")


def test_sweep_covers_every_pair() -> None:
    runs = [each for one in over_seeds(Options(seed=5), 2) for each in over_contracts(one)]
    assert len({(each.seed, each.contracts, each.range_tasks) for each in runs}) == len(runs)
    assert len(runs) == 2 * len(CONTRACTS) * len(RANGES)
    assert {each.seed for each in runs} == {5, 6}


# -- screens ---------------------------------------------------------------------------------------


def screen(renderable: object, width: int = 80) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


def test_the_summary_fits_80_columns() -> None:
    text = screen(render_result(run(Options(nodes=60, vary=10))))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "acceptable: nobody is above capacity" in text
    assert "…" not in text


def test_the_verdict_says_what_is_wrong() -> None:
    bad = run(Options(nodes=40, contracts=0))
    assert "not acceptable" in screen(render_result(bad))
    over = run(Options(nodes=40, contracts=0, load=1.5))
    assert "nodes are below capacity" in screen(render_result(over))


def test_progress_is_one_line() -> None:
    progress = Progress("settle", 1000, 1234567.0, 12345678.0, 12345678, 12345)
    assert len(render_progress("bpm:", progress).plain) <= 130
    assert "round 1,000 (116:40 simulated)" in render_progress("bpm:", progress).plain
    assert "signing" in render_progress("bpm:", Progress("build")).plain

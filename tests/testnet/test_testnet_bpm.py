"""The simulation: graph, clock, books against a recount, figures, screens."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import medusa.testnet.bpm.experiment
from medusa.testnet.bpm.command import bpm
from medusa.testnet.bpm.experiment import Options, Progress, run
from medusa.testnet.bpm.graph import Graph, Kind, contract_graph, least_moves, skewed
from medusa.testnet.bpm.tasks import TINY, Link, Tally, cut
from medusa.testnet.bpm.world import CHEAPEST, PRICE, Market
from medusa.testnet.virtual.clock import Clock

# -- the graph and the start -----------------------------------------------------------------------


@given(
    st.integers(1, 60),
    st.integers(0, 12),
    st.sampled_from(get_args(Kind)),
    st.integers(0, 1000),
)
def test_graph_has_its_minimum(nodes: int, contracts: int, kind: Kind, seed: int) -> None:
    graph = contract_graph(nodes, contracts, kind, random.Random(seed))
    for node, others in enumerate(graph):
        assert node not in others
        assert all(node in graph[other] for other in others)
        assert len(others) >= min(contracts, nodes - 1)
    if not contracts:
        assert not any(graph)
    elif kind == "grown":
        assert reached(graph) == nodes


def reached(graph: Graph) -> int:
    """Return the nodes that can be reached from the first."""
    seen, todo = {0}, [0]
    while todo:
        news = graph[todo.pop()] - seen
        seen |= news
        todo += news
    return len(seen)


@pytest.mark.parametrize(("kind", "mean", "most"), [("drawn", 14, 30), ("grown", 8.6, 25)])
def test_contracts_are_spread_evenly(kind: Kind, mean: float, most: int) -> None:
    graph = contract_graph(995, 7, kind, random.Random(1))
    degrees = [len(others) for others in graph]
    assert min(degrees) >= 7
    assert sum(degrees) / 995 == pytest.approx(mean, abs=0.3)
    assert max(degrees) < most
    assert reached(graph) == 995


def test_start_is_skewed_and_whole() -> None:
    counts = skewed(59_700, 995, random.Random(1))
    assert sum(counts) == 59_700
    ranked = sorted(counts, reverse=True)
    # Zipf with exponent a half: the fourth has half of the first's share, the hundredth a tenth.
    assert ranked[3] / ranked[0] == pytest.approx(0.5, rel=0.01)
    assert ranked[99] / ranked[0] == pytest.approx(0.1, rel=0.03)
    assert counts != ranked


@given(st.integers(0, 500), st.integers(1, 50))
def test_start_gives_out_every_task(total: int, nodes: int) -> None:
    counts = skewed(total, nodes, random.Random(0))
    assert sum(counts) == total
    assert min(counts) >= 0


# -- the fewest moves ------------------------------------------------------------------------------


def fewest(graph: Graph, counts: list[int], capacity: int) -> int:
    """Return the least number of moves, by trying all possible ones."""
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
    graph = contract_graph(len(counts), contracts, "grown", random.Random(seed))
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


def test_payment_paths_have_no_circles() -> None:
    a_b, b_c, c_d, d_b = (Link(x, y, f"{x}-{y}", 1) for x, y in ((0, 1), (1, 2), (2, 3), (3, 1)))
    assert cut((a_b,)) == (a_b,)
    assert cut((a_b, b_c, c_d)) == (a_b, b_c, c_d)
    assert cut((a_b, b_c, c_d, d_b)) == (a_b,)


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


PRICED = "from medusa.testnet.bpm.command import bpm; bpm()"
SCARCE = ("--nodes", "60", "--load", "0.98", "--contracts", "3", "--prices", "mixed", "--json")


@pytest.mark.process
def test_a_seed_gives_the_same_run_whatever_the_hashes() -> None:
    def figures(hashes: str) -> dict[str, object]:
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        command = [sys.executable, "-c", PRICED, *SCARCE]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        return {**json.loads(done.stdout), "seconds": 0, "bytes_per_node": 0}

    assert figures("1") == figures("2")


def test_without_contracts_nothing_moves() -> None:
    result = run(Options(nodes=50, contracts=0))
    assert result.moves == result.messages == 0
    assert result.excess_final == result.excess_initial
    assert not result.acceptable


def test_one_node_has_no_partner_to_trade_with() -> None:
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
    # Three of the sixty nodes leave and join; all have tasks, so the load of all changes.
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
        (["--range-tasks", "100"], "100 tasks"),
    ],
)
def test_bad_options_are_one_line(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(bpm, arguments)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr


def test_ctrl_c_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(medusa.testnet.bpm.experiment, "run", interrupted)
    result = CliRunner().invoke(bpm, [])
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"

"""One run: build the system, let it settle, then optionally vary load and let nodes come and go."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec
import psutil
from msgspec import Struct

from medusa.testnet.bpm.graph import MOST_NODES, Kind, contract_graph, least_moves, skewed
from medusa.testnet.bpm.tasks import TASK_LOAD
from medusa.testnet.bpm.world import Market, World
from medusa.testnet.virtual.garbage import without_collection

ROUND_S: Final = 7.0
"""A round, seconds: the first Medusa looked at its offers every 7 of its monitoring periods of 1 s.
Here it only divides the time for the figures."""
QUIET_ROUNDS: Final = 100
"""Rounds without a move after which the system counts as settled."""
MAX_ROUNDS: Final = 5_000
"""Rounds after which the system counts as never settling."""

PERIODS: Final = 20
"""Number of changes of load or nodes once the system has settled."""
PERIOD_ROUNDS: Final = 40
"""Rounds from one change to the next: some minutes, enough to settle after most changes."""


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        contracts: the least number of contracts of a node. graph: how contracts are made
            (`contract_graph`).
        load: the load of the whole system, as a share of its capacity.
        range_tasks: width of the price range, in tasks (delta_k); 0: one fixed price.
        capacity: the capacity of each node, units.
        prices: whether all contracts have the same range.
        vary: percent by which each node's own load changes, up or down, in a period.
        churn: percent of the nodes that leave in a period; as many come back in the middle of it.
    """

    nodes: int = 995
    contracts: int = 7
    load: float = 0.75
    range_tasks: int = 2
    seed: int = 1
    capacity: float = 80.0
    prices: Literal["uniform", "mixed"] = "uniform"
    vary: float = 0.0
    churn: float = 0.0
    graph: Kind = "drawn"


class Series(Struct, frozen=True):
    """Values by round, the initial state first.

    Attributes:
        excess, unused: load above capacity and unused capacity, units. over: the number of nodes
            above capacity. moves: the number of moves so far. price: the mean price of the round's
            moves, micros per unit and second; None if there were none.
    """

    excess: list[float]
    unused: list[float]
    over: list[int]
    moves: list[int]
    price: list[float | None]


class Changes(Struct, frozen=True):
    """The cost of changes of load, or of nodes that left and joined.

    Attributes:
        periods: the number of changes. changed: the number of nodes whose load changed, or that
            left or joined, in all. units: the units of load that changed, in all.
        moves: the number of moves, recalls included, until the system has settled again.
        moves_per_change: moves / changed. moves_per_unit: moves / units.
        excess_worst: units above capacity at the end of the worst period. excess_end: units above
            capacity once the system has settled after the last period.
    """

    periods: int
    changed: int
    units: float
    moves: int
    moves_per_change: float
    moves_per_unit: float
    excess_worst: float
    excess_end: float


class Result(Struct, frozen=True):
    """The result of a run.

    Attributes:
        load: the load of the system as a share of its capacity, rounded to whole tasks.
        excess_initial, excess_final: load above capacity at the start, and once the system has
            settled, units. unused_capacity: unused capacity once it has settled, units.
        nodes_over, nodes_under: the numbers of nodes above and below capacity once it has settled.
        acceptable: no node is above capacity; or, if the load exceeds capacity, none is below.
        moves: the number of moves until the system has settled; recalls: moves home; failed: moves
            without result.
        moves_least: the fewest moves that a planner with full knowledge would need over these
            contracts; None if there are too many nodes to compute it.
        moves_per_excess, least_per_excess: moves / initial excess in tasks.
        rounds: the number of rounds of `ROUND_S` until the last move. settled: False if the run was
            cut off.
        messages: the number of messages until the system has settled; messages_quiet: the number in
            the rounds without a move at the end of the run.
        paid: micros per second over all contracts, once it has settled.
        price: full price of the range, micros per unit and second; min_price: its lower end.
        seconds: duration on this machine. bytes_per_node: memory growth of this process, tasks
            included; a later run in it reuses memory of an earlier one.
        changes: the figures after changes; None if there were none.
    """

    nodes: int
    graph: str
    contracts: int
    load: float
    range_tasks: int
    seed: int
    capacity: float
    prices: str
    tasks: int
    excess_initial: float
    excess_final: float
    nodes_over: int
    nodes_under: int
    unused_capacity: float
    acceptable: bool
    moves: int
    recalls: int
    failed: int
    moves_least: int | None
    moves_per_excess: float
    least_per_excess: float | None
    rounds: int
    settled: bool
    messages: int
    messages_quiet: int
    paid: int
    price: int
    min_price: int
    seconds: float
    bytes_per_node: int
    changes: Changes | None
    series: Series


@dataclass
class Progress:
    """The progress of a run, for a screen.

    Attributes:
        round: the number of the present round. excess: units above capacity now; initial: the same
        at the start. phase: the name of the present phase.
    """

    phase: str
    round: int = 0
    excess: float = 0.0
    initial: float = 0.0
    moves: int = 0
    over: int = 0


class Experiment:
    """A world, and its figures so far."""

    def __init__(self, options: Options, watch: Callable[[Progress], None]) -> None:
        self.options = options
        self.progress = Progress("build")
        self._watch = watch
        watch(self.progress)
        rng = random.Random(options.seed)
        graph = contract_graph(options.nodes, options.contracts, options.graph, rng)
        total = round(options.load * options.capacity * options.nodes / TASK_LOAD)
        counts = skewed(total, options.nodes, rng)
        self.least: int | None = None
        if options.nodes <= MOST_NODES:
            self.least = least_moves(graph, counts, int(options.capacity / TASK_LOAD))
        self.market = Market(
            options.capacity,
            options.range_tasks,
            mixed=options.prices == "mixed",
            seed=options.seed,
        )
        self.world = World(
            graph,
            counts,
            make_brain=self.market.make_brain,
            terms=self.market.terms,
            capacity=options.capacity,
            rng=rng,
        )
        self.rng = rng
        self.left: list[int] = []
        self.series = Series([], [], [], [], [])
        self.initial = self.world.tally.excess
        self.look("settle")

    def look(self, phase: str) -> None:
        """Note the figures at the end of a round."""
        tally, series = self.world.tally, self.series
        series.excess.append(_units(tally.excess))
        series.unused.append(_units(tally.unused))
        series.over.append(tally.over)
        series.moves.append(tally.moves)
        series.price.append(tally.mean_price())
        now = len(series.moves) - 1
        self.progress = Progress(phase, now, tally.excess, self.initial, tally.moves, tally.over)
        self._watch(self.progress)

    def pass_round(self, phase: str) -> None:
        """Let one round pass."""
        self.world.clock.run(len(self.series.moves) * ROUND_S)
        self.look(phase)

    def settle(self, phase: str) -> tuple[bool, int]:
        """Let rounds pass until no task has moved for long.

        Args:
            phase: its name, on a screen.

        Returns:
            Whether it settled; the number of messages since the last move.
        """
        tally, last = self.world.tally, 0
        last_messages = tally.messages
        for now in range(1, MAX_ROUNDS + 1):
            before = tally.moves
            self.pass_round(phase)
            if tally.moves != before:
                last, last_messages = now, tally.messages
            elif now - last >= QUIET_ROUNDS:
                return True, tally.messages - last_messages
        return False, tally.messages - last_messages

    def settled(self) -> Result:
        """Let the system settle; returns the result."""
        options, tally, market = self.options, self.world.tally, self.market
        settled, quiet = self.settle("settle")
        load = len(self.world.tasks.at) * TASK_LOAD
        room = options.capacity * options.nodes
        return Result(
            nodes=options.nodes,
            graph=options.graph,
            contracts=options.contracts,
            load=round(load / room, 6),
            range_tasks=options.range_tasks,
            seed=options.seed,
            capacity=options.capacity,
            prices=options.prices,
            tasks=len(self.world.tasks.at),
            excess_initial=_units(self.initial),
            excess_final=_units(tally.excess),
            nodes_over=tally.over,
            nodes_under=tally.under,
            unused_capacity=_units(tally.unused),
            acceptable=not (tally.under if load > room else tally.over),
            moves=tally.moves,
            recalls=tally.recalls,
            failed=tally.failed,
            moves_least=self.least,
            moves_per_excess=self._per_excess(tally.moves),
            least_per_excess=None if self.least is None else self._per_excess(self.least),
            rounds=self.series.moves.index(tally.moves),
            settled=settled,
            messages=tally.messages - quiet,
            messages_quiet=quiet,
            paid=round(tally.paid),
            price=market.price,
            min_price=market.min_price,
            seconds=0.0,
            bytes_per_node=0,
            changes=None,
            series=self.series,
        )

    def _per_excess(self, moves: int) -> float:
        return round(moves * TASK_LOAD / self.initial, 4) if self.initial else 0.0

    # -- changes -----------------------------------------------------------------------------------

    def change(self) -> Changes | None:
        """Let load vary and nodes come and go, for `PERIODS`."""
        options, tally = self.options, self.world.tally
        if not options.vary and not options.churn:
            return None
        before, changed, units = tally.moves, 0, 0.0
        worst = 0.0
        for _ in range(PERIODS):
            if options.vary:
                count, change = self._vary(options.vary / 100)
                changed, units = changed + count, units + change
            if options.churn:
                count, change = self._churn(options.churn / 100)
                changed, units = changed + count, units + change
            for now in range(PERIOD_ROUNDS):
                if now == PERIOD_ROUNDS // 2:
                    self._join_again()
                self.pass_round("change")
            worst = max(worst, tally.excess)
        self.settle("change")
        moves = tally.moves - before
        return Changes(
            periods=PERIODS,
            changed=changed,
            units=round(units, 3),
            moves=moves,
            moves_per_change=round(moves / changed, 4) if changed else 0.0,
            moves_per_unit=round(moves / units, 4) if units else 0.0,
            excess_worst=_units(worst),
            excess_end=_units(tally.excess),
        )

    def _vary(self, share: float) -> tuple[int, float]:
        """Change every node's own load, at home and away, to a random value around the initial one,
        by up to that share.

        Returns:
            Nodes whose load changed; the sum of the changes, units.
        """
        tasks = self.world.tasks
        changed, units = 0, 0.0
        for node, brain in enumerate(self.world.cores):
            own = tasks.owned(node)
            if brain is None or not own:
                continue
            load = TASK_LOAD * (1 + self.rng.uniform(-share, share))
            changed += 1
            units += abs(load - tasks.loads[own.start]) * len(own)
            for task in own:
                tasks.reload(task, load)
        return changed, units

    def _churn(self, share: float) -> tuple[int, float]:
        """Let that share of the nodes leave, and come back in the middle of the period.

        Returns:
            The number of changes: two for each such node, that it leaves and that it returns. The
                units of load of these nodes' own tasks, counted at both changes.
        """
        world = self.world
        alive = [node for node, brain in enumerate(world.cores) if brain is not None]
        self.left = self.rng.sample(alive, round(share * len(alive)))
        units = 0.0
        for node in self.left:
            units += sum(world.tasks.loads[task] for task in world.tasks.owned(node))
            world.leave(node)
        return 2 * len(self.left), 2 * units

    def _join_again(self) -> None:
        for node in self.left:
            self.world.join(node, self.options.contracts)
        self.left = []


def _units(value: float) -> float:
    """A value for the result: sums of floats drift, also below zero."""
    return max(0.0, round(value, 3))


def run(options: Options, watch: Callable[[Progress], None] = lambda progress: None) -> Result:
    """Run one experiment.

    Args:
        watch: called after each round.

    Raises:
        InvalidInputError: the price range is wider than the capacity.
        InternalError: a Brain made an impossible request.
    """
    began, process = time.perf_counter(), psutil.Process()
    memory = process.memory_info().rss
    with without_collection():
        experiment = Experiment(options, watch)
        result = experiment.settled()
        changes = experiment.change()
        taken = process.memory_info().rss - memory
    return msgspec.structs.replace(
        result,
        changes=changes,
        seconds=round(time.perf_counter() - began, 3),
        bytes_per_node=max(taken, 0) // options.nodes,
    )


CONTRACTS: Final = (1, 2, 3, 5, 7, 10)
RANGES: Final = (0, 1, 2, 4)
"""The least contracts of a node, and the width of the price range in tasks. The paper has excess
load by contracts (The Medusa Distributed Stream-Processing System, section 4, figure 3b).
"""


def over_seeds(options: Options, count: int) -> Iterator[Options]:
    """The same options with `count` seeds, from their own seed on."""
    for number in range(count):
        yield replace(options, seed=options.seed + number)


def over_contracts(options: Options) -> Iterator[Options]:
    """The same options with every price range and number of contracts."""
    for range_tasks in RANGES:
        for contracts in CONTRACTS:
            yield replace(options, range_tasks=range_tasks, contracts=contracts)


def name_of(options: Options) -> str:
    """The options by which a run of a sweep differs from the others."""
    width = f"range {options.range_tasks}" if options.range_tasks else "fixed price"
    return f"{options.contracts} contracts, {width}, seed {options.seed}"

"""Clusters in which load is traded: real peers, contracts, markets and ledgers; the test sets the
loads.

The reference interpreter computes the tasks, and a task takes the load that the test sets, wherever
it runs. The waits of the market are shortened, nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from engine_interpreted import interpret
from engine_peers import DEADLINE_S, Cluster, Place, begin, make_stream, open_cluster, rows, until

from medusa.contracts.balances import Balance, BalanceQuery, Balances
from medusa.contracts.config import ContractsConfig, MarketTiming
from medusa.contracts.delivery import DELIVER, Deliver, Delivered
from medusa.contracts.documents import Proposal, accept, contract_id, propose, revoke
from medusa.contracts.market.config import MarketConfig
from medusa.contracts.terms import LoadTerms, Menu
from medusa.engine.objects.query import Aggregate, AggregateCall, Query
from medusa.engine.streams.config import Timing
from medusa.engine.streams.messages import Done
from medusa.engine.tasks.runner import TaskLoad, TaskRunner
from medusa.overlay.events import wall_clock
from medusa.overlay.identity import Root
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.home.messages import BALANCE, MarketStatus

PRICE = 1_000_000
"""The price of a unit at a peer at its capacity, in micros per second."""

CHEAP = 100_000
"""The lowest price in these contracts: an empty peer accepts a small task at it."""

COST_NS = 1_000_000
"""CPU nanoseconds per tuple, for every task here."""

SIZE_US = 100
"""Microseconds of a window."""

DAY_S = 86_400.0

TERMS = LoadTerms(CHEAP, PRICE, Menu(most_load=200), Menu(most_load=200))

QUICK = MarketConfig(
    settle_s=0.3,
    collect_s=0.05,
    offer_s=2.0,
    reserve_s=5.0,
    press_s=0.2,
    retry_s=0.3,
    retry_most_s=1.0,
)
"""The market's intervals; the intervals of a peer's config replace single ones."""

SHORT_WAITS = MarketTiming(
    review_s=0.05,
    sample_s=0.05,
    settle_look_s=0.05,
    retry_s=0.3,
    retry_most_s=0.5,
    count_s=2.0,
    passed_tries_s=(0.1, 0.2, 0.5, 1.0),
    content_look_s=0.05,
    content_again_s=(0.05, 0.1),
    suggestions_look_s=0.05,
)

FIXED = ContractsConfig(
    price=PRICE, settle_s=0.2, confirm_s=0.1, stay_s=0.1, market=QUICK, timing=SHORT_WAITS
)

SHORT = Timing(
    prepare_s=DEADLINE_S, maintenance_s=0.05, workers_s=0.05, confirm_s=0.05, crowded_s=0.05
)
"""The engine's intervals. A new worker may take as long as a test, which happens on a busy
machine."""

Sum = tuple[int, int]
"""The fields of a window's result: (stime, total)."""


class Loads(dict[str, float]):
    """Units of load by task; a task without an entry has no load."""

    def of(self, runner: TaskRunner) -> TaskLoad:
        """Return the load of that runner's task."""
        loads = self

        class Set(TaskLoad):
            @property
            def cores(self) -> float:
                return loads.get(runner.task.name, 0.0) / 100

            predicted = cores
            input_rate = property(lambda _: 1.0)
            cost_ns = property(lambda _: COST_NS)

        return Set()


def set_up(monkeypatch: pytest.MonkeyPatch) -> Loads:
    """Give loads that apply to every cluster that is opened from now on."""
    interpret(monkeypatch)
    loads = Loads()
    begin = TaskRunner.__init__

    def begin_with_its_load(runner: TaskRunner, *args: Any, **more: Any) -> None:
        begin(runner, *args, **more)
        runner.load = loads.of(runner)

    monkeypatch.setattr(TaskRunner, "__init__", begin_with_its_load)
    return loads


@asynccontextmanager
async def open_market_cluster(
    folder: Path, timing: Timing = SHORT, **engine: float
) -> AsyncIterator[Cluster]:
    async with open_cluster(folder, timing=timing, **engine) as cluster:  # type: ignore[arg-type]
        yield cluster


async def settle(
    cluster: Cluster, participant: str, units: float, *, sibling: bool = False, **contracts: Any
) -> Place:
    """Start a peer of that capacity. contracts: the peer's own settings, in place of the settings
    FIXED."""
    config = dataclasses.replace(FIXED, **contracts)
    return await cluster.settle(
        participant, sibling=sibling, contracts=config, capacity_cores=units / 100
    )


async def settle_two(cluster: Cluster, mit: float, utah: float, **contracts: Any) -> list[Place]:
    """Start mit.edu and utah.edu with these capacities. contracts: utah's own settings."""
    places = [
        await settle(cluster, "mit.edu", mit),
        await settle(cluster, "utah.edu", utah, **contracts),
    ]
    await cluster.acquainted(*places)
    return places


def proposed(
    one: Place, two: Place, terms: LoadTerms = TERMS, *, valid_s: float = DAY_S
) -> tuple[bytes, bytes]:
    """Return proposal and acceptance, signed by both roots. valid_s: the validity in seconds from
    now."""
    now = wall_clock()
    federation = one.up.engine.overlay.membership.federation
    nonce = bytes(8) + int(now * 1e6).to_bytes(8, "big")
    proposal = propose(
        Root.load(one.home.folder),
        Proposal(
            federation, one.participant, two.participant, terms, now - 60, now + valid_s, now, nonce
        ),
    )
    return proposal, accept(Root.load(two.home.folder), proposal)


async def deliver(place: Place, *documents: bytes) -> None:
    """Hand the documents to the peer, which passes them on to all peers of both parties."""
    async with place.client() as client:
        answer = await client._ask(DELIVER, Deliver(documents), Delivered)
        assert answer.reasons == ("",) * len(documents)


async def contracted(
    one: Place, two: Place, terms: LoadTerms = TERMS, *, valid_s: float = DAY_S
) -> str:
    """Put a contract between the participants of two peers in force at both; return its id.
    valid_s: as in `proposed`."""
    proposal, acceptance = proposed(one, two, terms, valid_s=valid_s)
    contract = contract_id(proposal)
    await deliver(one, acceptance)
    await until(lambda: contract in binding(one) and contract in binding(two), "in force at both")
    return contract


async def revoked(place: Place, contract: str) -> None:
    """Let the peer's participant revoke the contract."""
    federation = place.up.engine.overlay.membership.federation
    await deliver(place, revoke(Root.load(place.home.folder), federation, contract, wall_clock()))


def binding(place: Place) -> set[str]:
    """Return the contracts that are in force at the peer."""
    return {contract.id for contract in trader(place)._contracts.in_force()}


def trader(place: Place) -> Any:
    """Return the driver of a peer's market: the engine asks it whether to admit a task."""
    return place.up.engine.assignments.admit._decide.__self__  # type: ignore[attr-defined]


def settler(place: Place) -> Any:
    """Return the driver of a peer's settlement."""
    return place.up.engine.mover.agree._decide.__self__  # type: ignore[attr-defined]


# -- displays --------------------------------------------------------------------------------------


async def market(place: Place) -> MarketStatus:
    async with place.client() as client:
        status = await client.market_status()
    assert status is not None
    return status


async def balances(place: Place, contract: str) -> Balance:
    """Return the ledger's balances, by the call that `contract balance` makes; check that the chain
    holds."""
    async with place.client() as client:
        answer = await client._ask(BALANCE, BalanceQuery(contract), Balances)
    assert answer.fault == ""
    return answer.of(contract)


async def settled(
    payer: Place, payee: Place, contract: str, *, tuples: int, price: int, disputes: int = 0
) -> None:
    """Wait until exactly those tuples are paid for, in the ledgers of both peers."""
    amount = tuples * COST_NS * price // 10**7
    spent, earned = Balance(contract), Balance(contract)
    with trio.move_on_after(DEADLINE_S):
        while (spent.spent, earned.earned) != (amount, amount):
            await trio.sleep(0.05)
            spent, earned = await balances(payer, contract), await balances(payee, contract)
    said = f"{tuples} tuples, {amount}: {spent} {earned}\n{notes(payer)}\n--\n{notes(payee)}"
    assert (spent.spent, spent.earned, spent.tuples) == (amount, 0, tuples), said
    assert (earned.earned, earned.spent, earned.tuples) == (amount, 0, tuples), said
    assert spent.receipts == earned.receipts > 0, said
    assert spent.disputes == earned.disputes == disputes, said


def notes(place: Place) -> str:
    """Return the notes that the peer's operator should see."""
    return "\n".join(event.text for event in place.up.engine.overlay.events.recent())


def working_at(place: Place) -> set[str]:
    """Return the tasks that the peer runs for others now."""
    return {
        each.task.name
        for each in place.up.engine.assignments.all()
        if each.stored.since is not None
    }


def away(place: Place) -> dict[str, str]:
    """Return the peer's tasks that run elsewhere, each with its worker."""
    tasks = place.up.engine.queries.tasks()
    return {task.name: task.current.term.holder.hex() for task in tasks if task.current.term.holder}


# -- work ------------------------------------------------------------------------------------------


@dataclass
class Work:
    """Some tasks of one peer over one source stream, and their results.

    Attributes:
        tasks: the names of the tasks. stimes: the stimes of all posted tuples; each tuple's value
            is its stime.
    """

    place: Place
    client: AsyncMedusaClient
    source: str
    loads: Loads
    tasks: tuple[str, ...] = ()
    posted: int = 0
    _readers: dict[str, Any] = field(default_factory=dict)
    _rows: dict[str, list[Sum]] = field(default_factory=dict)

    async def run(self, *paths: str, units: float) -> None:
        """Start more tasks, each with that many units of load."""
        for path in paths:
            task = self.place.name(path)
            self.loads[task] = units
            await begin(self.client, windows(self.place, self.source, path))
            self._readers[task], self._rows[task] = self.client.subscribe(task), []
            self.tasks += (task,)

    async def post(self, count: int, *, end: bool = False) -> None:
        """Post the next tuples, one per microsecond, and wait until the tasks have processed
        them."""
        stimes = range(self.posted, self.posted + count)
        self.posted += count
        await self.client.post_event(
            self.source, rows((at, at) for at in stimes), boundary=stimes[-1], end=end
        )
        await self.client.flush()
        for task in self.tasks:
            await self._take(task, stimes[-1])

    async def _take(self, task: str, boundary: int) -> None:
        reader = self._readers[task]
        with trio.fail_after(DEADLINE_S):
            while reader.boundary < boundary:
                table = (await anext(reader)).table
                stimes, totals = (table.column(name).to_pylist() for name in ("stime", "total"))
                self._rows[task] += zip(stimes, totals, strict=True)

    def check(self) -> None:
        """Check that the subscribers have exactly the results of one run over all posts."""
        expected = sums(range(self.posted))
        for task in self.tasks:
            got = self._rows[task]
            assert got == [row for row in expected if row[0] < self.posted], task

    def tuples_run_by(self, place: Place, task: str) -> int:
        """Return the number of the source's tuples within the task's placements at a peer."""
        _, placed = self.place.up.engine.queries.find(task)
        return sum(
            len(range(max(0, p.term.since + 1), min(self.posted, (p.until or self.posted) + 1)))
            for p in placed.placements
            if p.term.holder == place.peer_id
        )


def windows(place: Place, source: str, path: str) -> Query:
    """Return a query of sums by window."""
    total = AggregateCall("sum", "value", "total")
    box = Aggregate("sum", source, place.name(path), SIZE_US, SIZE_US, (), (total,))
    return Query(place.name("q/" + path), (box,))


def sums(stimes: Iterable[int]) -> list[Sum]:
    """Return the independently computed answer, for values that are the stimes."""
    totals: dict[int, int] = {}
    for stime in stimes:
        totals[stime // SIZE_US] = totals.get(stime // SIZE_US, 0) + stime
    return [(window * SIZE_US + SIZE_US - 1, total) for window, total in sorted(totals.items())]


@asynccontextmanager
async def open_work(place: Place, loads: Loads) -> AsyncIterator[Work]:
    async with place.client(patience_s=DEADLINE_S) as client:
        yield Work(place, client, await make_stream(client, place, "s"), loads)


async def four_tasks(cluster: Cluster, place: Place, loads: Loads) -> Work:
    """Give work of four tasks of ten units each, which have the first 250 tuples."""
    work = await cluster.open(open_work(place, loads))
    await work.run("a", "b", "c", "d", units=10)
    await work.post(250)
    return work


async def one_working_at(place: Place) -> str:
    """Wait until the peer runs a task for another peer; return the task."""
    await until(lambda: len(working_at(place)) == 1, "one task is there")
    (task,) = working_at(place)
    return task


async def stays(condition: Callable[[], bool], seconds: float = 0.6) -> None:
    """Check that an event does not happen: it would come without a notice, so wait some rounds."""
    with trio.move_on_after(seconds):
        while True:
            assert condition()
            await trio.sleep(0.01)


async def say(
    one: Place, to: Place, method: str, request: msgspec.Struct, answer: Any = Done
) -> Any:
    """Send a message of one peer to another, over the first peer's own connection."""
    connection = await one.up.engine.overlay.connect(bytes.fromhex(to.id))
    return await connection.call(method, request, answer, timeout_s=DEADLINE_S)

"""Deals after crashes and full disks, and with partners that never bill or never pay."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
from deadline import DEADLINE_S
from engine_peers import Cluster, Place, until
from tools_market_cluster import (
    CHEAP,
    COST_NS,
    SHORT,
    SHORT_WAITS,
    Loads,
    Work,
    away,
    contracted,
    open_work,
    settle,
    settled,
    settler,
    trader,
)

from medusa.contracts.config import MarketTiming
from medusa.engine.objects.query import Query, QueryStatus
from medusa.engine.replication.moves.messages import Assignment, MoveRecord, PassOn, Progress
from medusa.engine.replication.moves.returning import Returning
from medusa.engine.replication.records.placements import Deal
from medusa.engine.replication.records.stored_query import QueryFiles
from medusa.engine.streams.log.retention import Hold
from medusa.overlay.errors import BrokenError, MedusaError, NotAuthorisedError, StorageFullError
from medusa.overlay.listeners import Listeners
from medusa.tools.market.settler import Settler

pytestmark = pytest.mark.cluster(timing=SHORT)


@dataclass
class Trade:
    """A task of mit.edu, which utah.edu will run under a contract."""

    mit: Place
    utah: Place
    work: Work
    contract: str

    @property
    def task(self) -> str:
        return self.mit.name("out")

    async def move(self) -> None:
        deal = Deal(self.contract, self.mit.id, CHEAP, COST_NS)
        await self.mit.up.engine.mover.move(self.task, self.utah.peer_id, deal)

    def ends(self, place: Place) -> list[int | None]:
        return [standing.end for standing in settler(place).ledger.deals()]


async def make_trade(cluster: Cluster, loads: Loads, timing: MarketTiming = SHORT_WAITS) -> Trade:
    mit = await settle(cluster, "mit.edu", 80, trade=False, timing=timing)
    utah = await settle(cluster, "utah.edu", 80, trade=False, timing=timing)
    await cluster.acquainted(mit, utah)
    contract = await contracted(mit, utah)
    utah.up.engine.assignments.expect = lambda *_: None
    utah.up.engine.assignments.admit = lambda *_: None
    work = await cluster.open(open_work(mit, loads))
    await work.run("out", units=0.0)
    await work.post(250)
    return Trade(mit, utah, work, contract)


@pytest.fixture
async def trade(cluster: Cluster, loads: Loads) -> Trade:
    return await make_trade(cluster, loads)


async def test_a_placement_that_could_not_be_written_down_is_not_owed(
    trade: Trade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deal is in the ledger before the placement counts; then the disk is full."""
    with monkeypatch.context() as full:
        full.setattr(QueryFiles, "save", _no_room)
        with pytest.raises(StorageFullError):
            await trade.move()
    assert trade.ends(trade.mit) != []
    await until(lambda: None not in trade.ends(trade.mit), "the deal is over")
    await trade.work.post(250)
    trade.work.check()


def _no_room(*_: Any) -> None:
    raise StorageFullError("no room")


async def test_a_placement_ends_though_the_message_of_its_end_was_lost(
    trade: Trade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash came between the record and the ledger."""
    await trade.move()
    monkeypatch.setattr(trade.mit.up.engine.queries, "changed", Listeners())
    await trade.mit.up.engine.mover.take_back(trade.task)
    await until(lambda: None not in trade.ends(trade.mit), "it is over at the owner")
    await until(lambda: None not in trade.ends(trade.utah), "and at the worker")


@pytest.mark.parametrize("status", [QueryStatus.STOPPED, QueryStatus.DELETED])
async def test_a_query_that_is_stopped_while_its_task_is_away_owes_no_more(
    trade: Trade, status: QueryStatus
) -> None:
    await trade.move()
    await trade.work.post(250)
    await trade.work.client.set_query_status(trade.mit.name("q/out"), status)
    await until(lambda: not trade.utah.up.engine.assignments.all(), "its worker is free")
    await until(lambda: None not in trade.ends(trade.mit), "it is over at the owner")
    await until(lambda: None not in trade.ends(trade.utah), "and at the worker")


async def test_a_partner_that_never_pays_fills_no_disk(
    cluster: Cluster, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No letter of the settlement arrives: the inputs wait for a while, no longer."""

    async def lost(*_: Any) -> None:
        return None

    monkeypatch.setattr(Settler, "_send", lost)
    forgetful = dataclasses.replace(SHORT_WAITS, keep_s=0.3)
    trade = await make_trade(cluster, loads, forgetful)
    await trade.move()
    (guest,) = trade.utah.up.engine.assignments.all()
    (placed,) = trade.mit.up.engine.queries.tasks()
    since = placed.current.term.since
    for _ in range(5):
        await trade.work.post(100)
    assert guest.copy is not None
    (there,) = guest.copy.inputs.values()
    await until(lambda: there.log.start > since, "the worker lets go")
    log = placed.inputs[trade.work.source].log
    bill = Hold("bill", trade.task)
    await until(lambda: bill not in log.retention.consumers, "the owner holds nothing for it")
    trade.work.check()


async def test_the_receiver_of_a_passed_task_is_paid_though_the_answer_was_lost(
    cluster: Cluster, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner has placed the task, but its answer to the middleman is lost."""
    original = Returning.pass_on

    async def lost(self: Returning, task: str, request: PassOn) -> MoveRecord:
        await original(self, task, request)
        raise BrokenError("the connection broke")

    monkeypatch.setattr(Returning, "pass_on", lost)
    mit, utah, third = [
        await settle(cluster, name, 80, trade=False) for name in ("mit.edu", "utah.edu", "isi.edu")
    ]
    await cluster.acquainted(mit, utah, third)
    first, second = await contracted(mit, utah), await contracted(utah, third)
    driver = trader(utah)
    for worker in (utah, third):
        worker.up.engine.assignments.expect = lambda *_: None
        worker.up.engine.assignments.admit = lambda *_: None
    work = await cluster.open(open_work(mit, loads))
    await work.run("out", units=0.0)
    await work.post(250)
    task = mit.name("out")
    deal = Deal(first, mit.id, CHEAP, COST_NS)
    await mit.up.engine.mover.move(task, utah.peer_id, deal)
    await until(lambda: bool(settler(utah).ledger.deals()), "it has heard")
    onwards = Deal(second, utah.id, CHEAP, COST_NS)
    with pytest.raises(BrokenError):
        await driver._pass_on(task, third.id, onwards)
    await work.post(250)
    await until(lambda: third.id in away(mit).values())
    tuples = work.tuples_run_by(third, task)
    await mit.up.engine.mover.take_back(task)
    await settled(utah, third, second, tuples=tuples, price=CHEAP)
    work.check()


async def test_a_strangers_definition_is_not_even_planned(
    cluster: Cluster, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The largest definition takes seconds, in which nothing else would run."""
    planned: list[Query] = []

    def plan(request: Assignment) -> Any:
        planned.append(request.query)
        raise MedusaError("it was planned")

    monkeypatch.setattr("medusa.engine.replication.moves.checks.planned_task", plan)
    mit = await settle(cluster, "mit.edu", 80)
    stranger = await settle(cluster, "utah.edu", 80)
    await cluster.acquainted(mit, stranger)
    work = await cluster.open(open_work(stranger, loads))
    await work.run("out", units=0.0)
    stored, placed = stranger.up.engine.queries.find(stranger.name("out"))
    connection = await stranger.up.engine.overlay.connect(bytes.fromhex(mit.id))
    for deal in (Deal(giver=stranger.id), Deal("c" * 32, stranger.id, 1, 1)):
        request = Assignment(
            placed.name, 1, stored.entry.query, stored.inputs, stored.kept, 0, deal
        )
        with pytest.raises(NotAuthorisedError):
            await connection.call("task.assign", request, Progress, timeout_s=DEADLINE_S)
    assert planned == []

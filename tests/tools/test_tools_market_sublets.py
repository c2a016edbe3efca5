"""A task is passed on: mit -> utah -> brown. mit pays utah, utah pays brown, for the same
tuples."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
from engine_peers import Cluster, Place, until
from tools_market_cluster import (
    CHEAP,
    SHORT,
    TERMS,
    Loads,
    Work,
    away,
    binding,
    contracted,
    four_tasks,
    notes,
    one_working_at,
    open_work,
    revoked,
    settle,
    settled,
    settler,
    stays,
    working_at,
)

from medusa.contracts.deals import LoadRate
from medusa.contracts.settlement import Count, Counted
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.messages import Done
from medusa.tools.market.passing import PASSED, Passed

pytestmark = pytest.mark.cluster(timing=SHORT)


LOW = CHEAP // 2


@dataclass
class Chain:
    """mit has given a task to utah, which can no longer run it; brown could. above, below: the
    contracts of utah with mit, and with brown. task: its name.

    Attributes:
        above, below: the contracts of utah with mit, and with brown. task: its name.
    """

    cluster: Cluster
    mit: Place
    utah: Place
    brown: Place
    above: str
    below: str
    work: Work
    task: str

    async def grow(self) -> None:
        """Let the task grow beyond utah's capacity."""
        self.work.loads[self.task] = 16
        await until(lambda: working_at(self.brown) == {self.task}, "passed on")
        await until(lambda: not self.utah.up.engine.assignments.all(), "dropped by utah")

    async def shrink(self) -> None:
        """Let all of mit's tasks fit at home."""
        self.work.loads.update(dict.fromkeys(self.work.tasks, 0.5))
        await until(lambda: not away(self.mit), "recalled")

    async def settled(self) -> None:
        """Wait until both contracts are paid, to the tuple."""
        by_utah, by_brown = (
            self.work.tuples_run_by(place, self.task) for place in (self.utah, self.brown)
        )
        assert by_utah > 0
        assert by_brown > 0
        total = by_utah + by_brown
        await settled(self.mit, self.utah, self.above, tuples=total, price=CHEAP)
        await settled(self.utah, self.brown, self.below, tuples=by_brown, price=LOW)


async def make_chain(cluster: Cluster, loads: Loads, *, sublet: bool = True) -> Chain:
    mit = await settle(cluster, "mit.edu", 30)
    utah = await settle(cluster, "utah.edu", 15)
    brown = await settle(cluster, "brown.edu", 80)
    await cluster.acquainted(mit, utah, brown)
    above = await contracted(mit, utah, msgspec.structs.replace(TERMS, sublet=sublet))
    below = await contracted(utah, brown, msgspec.structs.replace(TERMS, min_price=LOW))
    work = await four_tasks(cluster, mit, loads)
    task = await one_working_at(utah)
    await work.post(250)
    return Chain(cluster, mit, utah, brown, above, below, work, task)


@pytest.fixture
async def chain(cluster: Cluster, loads: Loads) -> Chain:
    return await make_chain(cluster, loads)


async def test_each_pays_the_next(chain: Chain) -> None:
    await chain.grow()
    await chain.work.post(250)
    await chain.settled()
    await chain.shrink()
    await chain.work.post(230)
    chain.work.check()
    await chain.settled()
    for place in (chain.mit, chain.utah, chain.brown):
        assert all(standing.paid for standing in settler(place).ledger.deals())


async def test_a_task_without_sublet_is_not_passed_on(cluster: Cluster, loads: Loads) -> None:
    """utah's Brain does not offer such a task, and mit would not move it."""
    chain = await make_chain(cluster, loads, sublet=False)
    loads[chain.task] = 16
    loads.update(dict.fromkeys(set(chain.work.tasks) - {chain.task}, 1.0))
    await until(lambda: not working_at(chain.utah), "given back instead")
    assert not chain.brown.up.engine.assignments.all()
    await chain.work.post(250)
    chain.work.check()


@pytest.mark.parametrize("which", ["above", "below"])
async def test_the_task_comes_home_when_either_contract_is_revoked(
    chain: Chain, loads: Loads, which: str
) -> None:
    await chain.grow()
    await chain.work.post(250)
    loads.update(dict.fromkeys(chain.work.tasks, 7.0))
    await revoked(chain.utah, chain.above if which == "above" else chain.below)
    await until(lambda: chain.task not in away(chain.mit), "home")
    await until(lambda: not chain.brown.up.engine.assignments.all())
    await chain.work.post(230)
    chain.work.check()
    await chain.settled()


@pytest.mark.parametrize("who", ["mit", "utah", "brown"])
async def test_a_passed_task_survives_a_restart_of_any_peer(chain: Chain, who: str) -> None:
    await chain.grow()
    await chain.work.post(250)
    await chain.cluster.restart({"mit": chain.mit, "utah": chain.utah, "brown": chain.brown}[who])
    await chain.work.post(230)
    await chain.settled()
    await chain.shrink()
    await chain.work.post(70)
    chain.work.check()
    await chain.settled()


async def test_a_placement_ends_while_the_middleman_is_away(chain: Chain) -> None:
    await chain.grow()
    await chain.work.post(250)
    await chain.cluster.stop(chain.utah)
    await chain.work.post(230)
    await chain.shrink()
    await chain.work.post(70)
    chain.work.check()
    await chain.cluster.start(chain.utah)
    await chain.settled()


async def test_the_last_one_counts_wrongly(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's count holds along the whole chain; utah neither gains nor loses."""
    liar = settler(chain.brown)
    real = liar._count

    def count(effect: Count) -> Counted:
        counted: Counted = real(effect)
        if counted.rows is None:
            return counted
        return Counted(counted.number, counted.upto, 2 * counted.rows)

    monkeypatch.setattr(liar, "_count", count)
    await chain.grow()
    await chain.work.post(250)
    await chain.shrink()
    await chain.work.post(30)
    chain.work.check()
    by_utah, by_brown = (
        chain.work.tuples_run_by(place, chain.task) for place in (chain.utah, chain.brown)
    )
    ledgers = [settler(place).ledger for place in (chain.mit, chain.utah, chain.brown)]
    below = [ledger.balance for ledger in ledgers[1:]]
    await until(lambda: all(of(chain.below).tuples == by_brown for of in below), "paid")
    above = [ledger.balance for ledger in ledgers[:2]]
    total = by_utah + by_brown
    await until(lambda: all(of(chain.above).tuples == total for of in above), "paid")
    assert ledgers[2].disputes()
    assert ledgers[1].disputes()
    assert "tuples are claimed by" in notes(chain.brown)


async def test_repeated_messages_make_no_deals(chain: Chain) -> None:
    """Nor can a partner fill the ledger with repeated messages."""
    await chain.grow()
    ledger = settler(chain.utah).ledger
    ended = [s for s in ledger.deals() if s.end is not None]
    (before,) = [s for s in ended if isinstance(s.deal.rate, LoadRate)]
    await stays(lambda: len(ledger.deals()) == 3, 0.2)
    connection = await chain.mit.up.engine.overlay.connect(bytes.fromhex(chain.utah.id))
    for term_number in range(20):
        news = Passed(
            chain.task, before.deal.term_number, 0, before.deal.term_number + term_number + 1, ""
        )
        await connection.call(PASSED, news, Done)
    assert len(ledger.deals()) == 3


async def test_an_owner_pays_for_tasks_that_a_sibling_passes_on(
    cluster: Cluster, loads: Loads
) -> None:
    one = await settle(cluster, "mit.edu", 30)
    two = await settle(cluster, "mit.edu", 14, sibling=True)
    utah = await settle(cluster, "utah.edu", 80)
    await cluster.acquainted(one, two, utah)
    work = await cluster.open(open_work(one, loads))
    await work.run("a", "b", "c", units=8)
    (task, *_) = work.tasks
    await one.up.engine.mover.move(task, two.peer_id, Deal(giver=one.id))
    await work.post(250)
    contract = await contracted(one, utah)
    await until(lambda: contract in binding(two), "known to the sibling")
    loads[task] = 18  # more load than the sibling can carry, and than there is room for at home
    await until(lambda: working_at(utah) == {task}, "passed on")
    await work.post(250)
    loads.update(dict.fromkeys(work.tasks, 0.5))
    await until(lambda: not away(one), "recalled")
    await work.post(230)
    work.check()
    tuples = work.tuples_run_by(utah, task)
    assert tuples > 0
    await settled(one, utah, contract, tuples=tuples, price=CHEAP)

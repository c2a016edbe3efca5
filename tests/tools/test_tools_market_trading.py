"""Complete peers (`engine_peers`) trade load under signed contracts, and pay for it by signed
receipts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from engine_peers import Cluster, begin, make_stream, send_rows, until
from tools_market_cluster import (
    CHEAP,
    DAY_S,
    SHORT,
    SHORT_WAITS,
    Loads,
    away,
    balances,
    contracted,
    deliver,
    four_tasks,
    market,
    notes,
    one_working_at,
    proposed,
    revoked,
    settle,
    settle_two,
    settled,
    settler,
    stays,
    trader,
    working_at,
)

from medusa.contracts.balances import Balance
from medusa.engine.objects.query import Filter, Query

pytestmark = pytest.mark.cluster(timing=SHORT)


async def test_an_overloaded_peer_sheds_to_its_capacity_and_pays(
    cluster: Cluster, loads: Loads
) -> None:
    mit, utah = await settle_two(cluster, 30, 80)
    contract = await contracted(mit, utah)
    work = await four_tasks(cluster, mit, loads)
    await until(lambda: len(working_at(utah)) == 1, "one task is at utah")
    await work.post(250)
    (moved,) = working_at(utah)
    assert away(mit) == {moved: utah.id}
    status = await market(mit)
    assert status.load == pytest.approx(30)
    assert [(t.task, t.peer, t.price) for t in status.given] == [(moved, utah.id, CHEAP)]
    await work.post(230)
    tuples = work.tuples_run_by(utah, moved)
    assert 0 < tuples < 730
    await settled(mit, utah, contract, tuples=tuples, price=CHEAP)
    work.check()
    lines = (await market(utah)).contracts
    assert [(line.partner, line.balance) for line in lines] == [
        ("mit.edu", (await balances(utah, contract)).earned)
    ]
    await stays(lambda: working_at(utah) == {moved})


async def test_siblings_share_without_payment(cluster: Cluster, loads: Loads) -> None:
    one = await settle(cluster, "mit.edu", 30)
    two = await settle(cluster, "mit.edu", 80, sibling=True)
    await cluster.acquainted(one, two)
    work = await four_tasks(cluster, one, loads)
    await until(lambda: len(working_at(two)) > 0, "a task is at the sibling")
    await work.post(250)
    assert (await market(one)).load <= 30
    assert {task.price for task in (await market(one)).given} == {0}
    await stays(lambda: len(working_at(two)) > 0)
    await work.post(230)
    work.check()
    for place in (one, two):
        assert await balances(place, "") == Balance("")
        assert not settler(place).ledger.deals()


async def test_a_peer_without_a_contract_does_nothing(cluster: Cluster, loads: Loads) -> None:
    """A peer whose contract is only proposed does nothing, either."""
    mit, utah = await settle_two(cluster, 30, 80)
    await deliver(mit, proposed(mit, utah)[0])
    work = await four_tasks(cluster, mit, loads)
    await stays(lambda: not away(mit) and not working_at(utah))
    status = await market(mit)
    assert (status.load, status.offer, status.given) == (pytest.approx(40), None, ())
    await work.post(250)
    work.check()


async def test_a_task_comes_home_when_it_is_cheaper_there(cluster: Cluster, loads: Loads) -> None:
    mit, utah = await settle_two(cluster, 30, 80)
    contract = await contracted(mit, utah)
    work = await four_tasks(cluster, mit, loads)
    moved = await one_working_at(utah)
    await work.post(250)
    loads.update(dict.fromkeys(set(work.tasks) - {moved}, 1.0))
    await until(lambda: not away(mit), "recalled")
    await until(lambda: not utah.up.engine.assignments.all(), "dropped by utah")
    await work.post(230)
    work.check()
    tuples = work.tuples_run_by(utah, moved)
    assert 0 < tuples < 730
    await settled(mit, utah, contract, tuples=tuples, price=CHEAP)
    await stays(lambda: not away(mit))


@pytest.mark.parametrize("who", ["giver", "worker", "time"])
async def test_under_a_contract_that_is_over_tasks_go_home(
    cluster: Cluster, loads: Loads, who: str
) -> None:
    mit, utah = await settle_two(cluster, 30, 80)
    valid_s = 4.0 if who == "time" else DAY_S
    contract = await contracted(mit, utah, valid_s=valid_s)
    work = await four_tasks(cluster, mit, loads)
    moved = await one_working_at(utah)
    await work.post(250)
    if who != "time":
        await revoked(mit if who == "giver" else utah, contract)
    await until(lambda: not away(mit), "home")
    await until(lambda: not utah.up.engine.assignments.all(), "dropped by utah")
    await work.post(230)
    work.check()
    tuples = work.tuples_run_by(utah, moved)
    assert 0 < tuples < 730
    await settled(mit, utah, contract, tuples=tuples, price=CHEAP)
    await stays(lambda: not away(mit))  # as overloaded as before


@pytest.mark.parametrize("who", ["payer", "payee", "both"])
async def test_a_restarted_peer_goes_on_working_and_paying(
    cluster: Cluster, loads: Loads, who: str
) -> None:
    mit, utah = await settle_two(cluster, 30, 80)
    contract = await contracted(mit, utah)
    work = await four_tasks(cluster, mit, loads)
    moved = await one_working_at(utah)
    await work.post(250)
    for place in (mit, utah):
        if who in {"both", "payer" if place is mit else "payee"}:
            await cluster.restart(place)
    await work.post(230)
    await until(lambda: away(mit) == {moved: utah.id})
    await until(lambda: moved in trader(mit).brain.held.outs)
    await work.post(70)
    tuples = work.tuples_run_by(utah, moved)
    await settled(mit, utah, contract, tuples=tuples, price=CHEAP)
    work.check()
    status = await market(utah)
    assert [(t.task, t.peer, t.price) for t in status.taken] == [(moved, mit.id, CHEAP)]


async def test_input_without_history_is_billed_all_the_same(cluster: Cluster, loads: Loads) -> None:
    """A filter needs no past tuples, and the stream keeps none; only the bill needs them."""
    slow = dataclasses.replace(SHORT_WAITS, settle_look_s=1.0)
    mit = await settle(cluster, "mit.edu", 30, timing=slow)
    utah = await settle(cluster, "utah.edu", 80, timing=slow)
    await cluster.acquainted(mit, utah)
    client = await cluster.client(mit)
    source = await make_stream(client, mit, "s", history_us=0)
    box = Filter("f", source, (mit.name("a"),), ("value >= 0",))
    await begin(client, Query(mit.name("q/a"), (box,)))
    loads[mit.name("a")] = 31
    contract = await contracted(mit, utah)
    _, placed = mit.up.engine.queries.find(mit.name("a"))
    count = tuples = 0
    while count < 1000 or not working_at(utah) or not tuples:
        stimes = range(count, count + 10)
        await send_rows(client, source, [(t, t) for t in stimes], boundary=stimes[-1])
        await until(lambda t=stimes[-1]: mit.state("a").log.boundary >= t)
        count += 10
        tuples = count - 1 - placed.current.term.since
    await settled(mit, utah, contract, tuples=tuples, price=CHEAP)


async def test_a_contract_revoked_while_a_task_is_on_its_way(
    cluster: Cluster, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, utah = await settle_two(cluster, 30, 80)
    contract = await contracted(mit, utah)
    mover = mit.up.engine.mover
    prepare = mover._prepare

    async def revoke_then_prepare(*arguments: Any) -> int:
        prepared: int = await prepare(*arguments)
        await revoked(mit, contract)
        return prepared

    monkeypatch.setattr(mover, "_prepare", revoke_then_prepare)
    work = await four_tasks(cluster, mit, loads)
    await until(lambda: "could not move" in notes(mit))
    await until(lambda: not utah.up.engine.assignments.all(), "dropped by utah")
    await work.post(80)
    work.check()
    assert not away(mit)
    assert not settler(mit).ledger.deals()
    assert not settler(utah).ledger.deals()

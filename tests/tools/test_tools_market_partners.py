"""Partners break their promises: the answers stay right, and no payer pays for work that was not
done."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeGuard

import msgspec
import pytest
import trio
from engine_peers import Cluster, Place, until
from tools_market_cluster import (
    CHEAP,
    SHORT,
    TERMS,
    Loads,
    Work,
    away,
    balances,
    contracted,
    notes,
    one_working_at,
    open_work,
    set_up,
    settle,
    settle_two,
    settled,
    settler,
    stays,
    trader,
    working_at,
)

from medusa.contracts.market.events import Event, Received
from medusa.contracts.market.messages import Answer, Item, Offer
from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.moves.guest import Guest
from medusa.engine.replication.moves.messages import Progress
from medusa.engine.streams.messages import Done
from medusa.overlay.errors import InvalidInputError
from medusa.tools.market.trader import MESSAGE, BrainMessage

pytestmark = pytest.mark.cluster(timing=SHORT)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    return set_up(monkeypatch)


async def overloaded(cluster: Cluster) -> tuple[Place, Place, str]:
    """Give mit.edu, which will be overloaded, and utah.edu, which has a contract with it."""
    mit, utah = await settle_two(cluster, 30, 80)
    return mit, utah, await contracted(mit, utah)


async def load(work: Work) -> None:
    """Start four tasks of ten units: one more than the peer can run."""
    await work.run("a", "b", "c", "d", units=10)
    await work.post(250)


@pytest.mark.cluster(timing=dataclasses.replace(SHORT, prepare_s=0.5))
async def test_the_owner_leaves_a_partner_that_never_starts(
    cluster: Cluster, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner leaves such a partner alone for a while, and offers the task to the next one."""
    mit, utah, contract = await overloaded(cluster)

    async def never_ready(*_: object) -> Progress:
        await trio.lowlevel.checkpoint()
        return Progress(0, 0)

    monkeypatch.setattr(utah.up.engine.assignments, "assign", never_ready)
    work = await cluster.open(open_work(mit, loads))
    await load(work)
    await until(lambda: "could not move" in notes(mit), "given up")
    assert not away(mit)
    brown = await settle(cluster, "brown.edu", 80)
    await cluster.acquainted(mit, brown)
    dear = msgspec.structs.replace(TERMS, min_price=2 * CHEAP)
    other = await contracted(mit, brown, dear)
    await until(lambda: len(working_at(brown)) == 1, "at the dearer one")
    (moved,) = working_at(brown)
    await work.post(250)
    tuples = work.tuples_run_by(brown, moved)
    await settled(mit, brown, other, tuples=tuples, price=2 * CHEAP)
    assert (await balances(mit, contract)).receipts == 0
    assert not settler(utah).ledger.deals()
    work.check()


async def test_a_task_returns_from_a_partner_that_dies(cluster: Cluster, loads: Loads) -> None:
    """The task returns by itself; the owner pays for the partner's work once the partner is
    back."""
    mit, utah, contract = await overloaded(cluster)
    work = await cluster.open(open_work(mit, loads))
    await load(work)
    moved = await one_working_at(utah)
    await work.post(250)
    gone = utah.id
    await cluster.stop(utah)
    # before that time the partner may be slow for a moment
    mit.up.engine.mover.home.be_patient(0.4)
    await work.post(150)
    assert not away(mit)
    assert f"it stands still at {gone[:8]}" in notes(mit)
    state = trader(mit).brain.partners[gone, contract]
    await until(lambda: state.broken, "the market knows it, too")
    loads.update(dict.fromkeys(work.tasks, 1.0))  # no task needs to move any more
    await cluster.start(utah)
    await until(lambda: not utah.up.engine.assignments.all(), "it hears that it is over")
    await work.post(80)
    work.check()
    tuples = work.tuples_run_by(utah, moved)
    assert 0 < tuples < 650
    await settled(mit, utah, contract, tuples=tuples, price=CHEAP)


@pytest.mark.parametrize("liar", ["payee", "payer"])
async def test_both_peers_record_the_wrong_count_of_a_partner(
    cluster: Cluster, loads: Loads, monkeypatch: pytest.MonkeyPatch, liar: str
) -> None:
    """Both peers record the difference, and people see it; the payer pays no more than it
    counts."""
    kind: type[Guest] | type[Copy] = Guest if liar == "payee" else Copy
    real: Callable[..., int] = kind.count
    factor = 2 if liar == "payee" else 0
    monkeypatch.setattr(kind, "count", lambda *args: factor * real(*args))
    mit, utah, contract = await overloaded(cluster)
    work = await cluster.open(open_work(mit, loads))
    await load(work)
    moved = await one_working_at(utah)
    await work.post(250)
    ledgers = [settler(place).ledger for place in (mit, utah)]
    await until(lambda: all(ledger.disputes() for ledger in ledgers))
    assert ledgers[0].disputes()[0] == ledgers[1].disputes()[0]
    for place in (mit, utah):
        assert f"{moved} (contract {contract[:8]}): " in notes(place)
        assert "tuples are claimed by" in notes(place)
    tuples = 0 if liar == "payer" else work.tuples_run_by(utah, moved)
    amount = tuples * CHEAP // 10
    await until(lambda: ledgers[1].balance(contract).tuples == tuples)
    spent, earned = [await balances(place, contract) for place in (mit, utah)]
    assert (spent.spent, earned.earned) == (amount, amount)
    assert spent.disputes == earned.disputes > 0
    assert spent.tuples == earned.tuples == tuples
    await work.post(80)
    work.check()


async def heard(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """Collect the messages of Brains to that peer from now on: (peer, message)."""
    said: list[tuple[str, object]] = []
    brain = trader(place)
    real = brain._handle

    def handle(event: Event) -> None:
        if isinstance(event, Received):
            said.append((event.peer, event.message))
        real(event)

    await trio.lowlevel.checkpoint()
    monkeypatch.setattr(brain, "_handle", handle)
    return said


async def test_a_peer_refuses_its_own_task_from_a_partner(
    cluster: Cluster, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, utah, contract = await overloaded(cluster)
    work = await cluster.open(open_work(mit, loads))
    await load(work)
    moved = await one_working_at(utah)
    loads.update(dict.fromkeys(work.tasks, 0.5))  # there would be room
    said = await heard(utah, monkeypatch)
    for number, owner in enumerate((mit.id, utah.id), start=later(utah)):
        item = Item(moved, 1.0, owner, 1000, ("aggregate",), (work.source,))
        offer = Offer(number, contract, TERMS.max_price, (item,))
        await trader(utah)._send(mit.id, offer)
        await until(lambda n=number: any(_answers(m, n) for _, m in said))
        # a refused partner gets a second answer, without a reason, once there is room
        assert not any(m.accepted for _, m in said if _answers(m, number))
    reasons = [m.reason for _, m in said if isinstance(m, Answer) and m.reason]
    assert len(reasons) == 2
    assert "this peer's own" in reasons[0]
    await work.post(80)
    work.check()


def later(place: Place) -> int:
    """Return a number of an offer that is later than its Brain's own, and not in the future."""
    return trader(place).brain.number + 100_000


def _answers(message: object, number: int) -> TypeGuard[Answer]:
    return isinstance(message, Answer) and message.number == number


async def test_two_offers_that_cross(cluster: Cluster, loads: Loads) -> None:
    """Both are above capacity, and each offers to the other; no task moves or is lost, and neither
    waits for the other for ever."""
    mit, utah = await settle_two(cluster, 30, 30)
    ours = await cluster.open(open_work(mit, loads))
    theirs = await cluster.open(open_work(utah, loads))
    for work in (ours, theirs):
        await load(work)
    await contracted(mit, utah)
    for place in (mit, utah):
        await until(lambda p=place: trader(p).brain.number > 0 or trader(p).brain.offer)
    await stays(lambda: not away(mit) and not away(utah))
    loads.update(dict.fromkeys(theirs.tasks, 1.0))
    await until(lambda: len(away(mit)) == 1, "once there is room it goes on")
    for work in (ours, theirs):
        await work.post(250)
        work.check()
    assert not away(utah)


async def test_a_sample_that_jumps_moves_nothing(cluster: Cluster, loads: Loads) -> None:
    mit = await settle(cluster, "mit.edu", 30, confirm_s=1.0)
    utah = await settle(cluster, "utah.edu", 80)
    await cluster.acquainted(mit, utah)
    await contracted(mit, utah)
    work = await cluster.open(open_work(mit, loads))
    await work.run("a", "b", units=10)
    await work.post(250)
    held = trader(mit).brain.held
    number = trader(mit).brain.number
    for _ in range(3):
        loads[work.tasks[0]] = 500
        await until(lambda: held.level > 500)
        loads[work.tasks[0]] = 10
        await until(lambda: held.level == pytest.approx(20))
    await stays(lambda: not away(mit), 1.5)
    assert trader(mit).brain.number == number  # the task is not even offered
    loads[work.tasks[0]] = 25
    await until(lambda: len(away(mit)) == 1, "what lasts does")


async def test_a_guest_that_grows_is_given_back(cluster: Cluster, loads: Loads) -> None:
    """The owner said ten units; no other partner takes the task."""
    mit, utah = await settle_two(cluster, 30, 20)
    contract = await contracted(mit, utah)
    work = await cluster.open(open_work(mit, loads))
    await load(work)
    moved = await one_working_at(utah)
    loads.update(dict.fromkeys(set(work.tasks) - {moved}, 1.0))
    loads[moved] = 23.0
    await until(lambda: not working_at(utah), "given back")
    await work.post(250)
    work.check()
    tuples = work.tuples_run_by(utah, moved)
    if tuples:
        await settled(mit, utah, contract, tuples=tuples, price=CHEAP)
    held = trader(mit).brain.held
    await until(lambda: held.level == pytest.approx(26), "mit has it all")


@pytest.mark.parametrize("price", [CHEAP - 1, TERMS.max_price + 1, -1])
async def test_a_price_outside_the_range(
    cluster: Cluster, loads: Loads, monkeypatch: pytest.MonkeyPatch, price: int
) -> None:
    mit, utah, contract = await overloaded(cluster)
    said = await heard(utah, monkeypatch)
    item = Item(utah.name("x"), 1.0, utah.id, 1000, ("aggregate",), (utah.name("s"),))
    number = later(utah)
    await trader(utah)._send(mit.id, Offer(number, contract, price, (item,)))
    await until(lambda: any(_answers(m, number) for _, m in said))
    (answer,) = [m for _, m in said if isinstance(m, Answer)]
    assert answer.accepted == ()
    assert "outside the contract's" in answer.reason
    assert not trader(mit).brain.held.coming


async def test_an_offer_of_the_future_is_refused_and_later_ones_are_looked_at(
    cluster: Cluster, loads: Loads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that was ahead numbered the offer: otherwise no offer of that partner would count for
    long."""
    mit, utah, contract = await overloaded(cluster)
    said = await heard(utah, monkeypatch)
    item = Item(utah.name("x"), 1.0, utah.id, 1000, ("aggregate",), (utah.name("s"),))
    connection = await utah.up.engine.overlay.connect(bytes.fromhex(mit.id))
    number = later(utah)
    for far in (number + 100 * 86_400_000, 2**62):
        message = BrainMessage(Offer(far, contract, CHEAP, (item,)))
        with pytest.raises(InvalidInputError, match="of the future: check your clock"):
            await connection.call(MESSAGE, message, Done, timeout_s=10.0)
    await trader(utah)._send(mit.id, Offer(number, contract, CHEAP, (item,)))
    await until(lambda: any(_answers(m, number) for _, m in said))

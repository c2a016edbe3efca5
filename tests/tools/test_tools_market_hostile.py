"""Members send forbidden messages: nothing changes, and they get one typed error."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from engine_peers import Cluster, Place, begin, make_stream, send_rows, until
from tools_market_cluster import (
    CHEAP,
    COST_NS,
    PRICE,
    SHORT,
    TERMS,
    Loads,
    away,
    contracted,
    four_tasks,
    market,
    revoked,
    say,
    settle,
    settle_two,
    settler,
    stays,
    trader,
    windows,
    working_at,
)

from medusa.contracts.deals import Account, LoadRate
from medusa.contracts.deals import Deal as Agreement
from medusa.contracts.market.messages import Answer, Item, Offer
from medusa.contracts.receipts import Letter, Refusal, make_receipt, propose
from medusa.contracts.terms import Menu
from medusa.engine.replication.following.messages import ReadInput
from medusa.engine.replication.moves.messages import (
    Activate,
    Assignment,
    Confirm,
    Confirmed,
    GiveBackTask,
    MoveRecord,
    PassOn,
    PlacementStatus,
    Progress,
    Release,
)
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.messages import Acknowledge, Done
from medusa.overlay.errors import (
    ConflictError,
    DecodeError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.tools.market.passing import PASSED, Passed
from medusa.tools.market.settler import SETTLE
from medusa.tools.market.trader import MESSAGE, BrainMessage

pytestmark = pytest.mark.cluster(timing=SHORT)


@dataclass
class Pair:
    """utah.edu, whose market the test plays, and mit.edu, which accepts its offers.

    Attributes:
        contract: the contract between them. offer: the offer that mit has accepted. assignment: the
            assignment of its task.
    """

    utah: Place
    mit: Place
    contract: str
    offer: Offer
    assignment: Assignment

    async def assign(self, **changes: Any) -> Any:
        request = msgspec.structs.replace(self.assignment, **changes)
        return await say(self.utah, self.mit, "task.assign", request, Progress)

    def deal(self, **changes: Any) -> Deal:
        return msgspec.structs.replace(self.assignment.deal, **changes)

    async def refused(
        self, match: str = "", error: type[MedusaError] = NotAuthorisedError, **changes: Any
    ) -> None:
        with pytest.raises(error, match=match):
            await self.assign(**changes)
        assert not self.mit.up.engine.assignments.all()


@pytest.fixture
async def pair(cluster: Cluster, loads: Loads) -> Pair:
    """Give a pair in which utah has offered a task, and mit has accepted it."""
    mit, utah = await settle_two(cluster, 80, 80, trade=False)
    terms = msgspec.structs.replace(TERMS, proposer_runs=Menu(most_load=50))
    contract = await contracted(mit, utah, terms)
    async with utah.client() as client:
        source = await make_stream(client, utah, "s")
        for path in ("out", "other"):
            await begin(client, windows(utah, source, path))
        await send_rows(client, source, [(at, at) for at in range(250)], boundary=249)
    await until(lambda: utah.state("out").log.boundary == 249)
    stored, placed = utah.up.engine.queries.find(utah.name("out"))
    deal = Deal(contract, utah.id, CHEAP, COST_NS)
    request = Assignment(
        placed.name, 7, stored.entry.query, stored.inputs, stored.kept, placed.boundary, deal
    )
    item = Item(placed.name, 5.0, utah.id, COST_NS, ("aggregate",), (source,))
    offer = Offer(1, contract, CHEAP, (item,))
    await say(utah, mit, MESSAGE, BrainMessage(offer))
    await until(lambda: placed.name in trader(mit).brain.held.coming, "accepted")
    return Pair(utah, mit, contract, offer, request)


async def test_an_unaccepted_task_is_not_run(pair: Pair) -> None:
    other = pair.utah.name("other")
    stored, _ = pair.utah.up.engine.queries.find(other)
    await pair.refused("not accepted", task=other, query=stored.entry.query)
    for changes in (
        {"price": CHEAP + 1},
        {"price": 0},
        {"cost_ns": COST_NS + 1},
        {"giver": pair.mit.id},
        {"contract": "0" * 32},
        {"contract": ""},
    ):
        await pair.refused(f"{pair.assignment.task}", deal=pair.deal(**changes))
    foreign = pair.mit.name("out")
    query = msgspec.structs.replace(pair.assignment.query, name=pair.mit.name("q/out"))
    await pair.refused(None, task=foreign)
    await pair.refused(None, query=query)
    await pair.refused(None, MedusaError, task=pair.utah.name("nothing"))
    assert (await market(pair.mit)).taken == ()
    assert not settler(pair.mit).ledger.deals()
    await pair.assign()  # what was accepted is
    assert len(pair.mit.up.engine.assignments.all()) == 1


async def test_an_accepted_task_is_run_once(pair: Pair) -> None:
    """An old acceptance is no licence for ever, and a repeated offer makes no new one."""
    await pair.assign()
    await until(lambda: not pair.mit.up.engine.assignments.all(), "its owner knows nothing of it")
    await pair.refused("not accepted", term_number=8)
    item = Item(
        pair.assignment.task, 5.0, pair.utah.id, COST_NS, ("aggregate",), (pair.utah.name("s"),)
    )
    await say(pair.utah, pair.mit, MESSAGE, BrainMessage(Offer(1, pair.contract, CHEAP, (item,))))
    await pair.refused("not accepted", term_number=8)


async def test_a_contract_that_is_over_since(pair: Pair) -> None:
    await revoked(pair.mit, pair.contract)
    await pair.refused("is not in force")


@pytest.mark.parametrize(
    "menu",
    [
        Menu(kinds=("filter", "map"), most_load=50),
        Menu(streams=("medusa://utah.edu/t*",), most_load=50),
    ],
)
async def test_a_task_that_is_not_on_the_menu(cluster: Cluster, loads: Loads, menu: Menu) -> None:
    """The offer named another kind of task over another stream."""
    mit, utah = await settle_two(cluster, 80, 80, trade=False)
    terms = msgspec.structs.replace(TERMS, proposer_runs=menu)
    contract = await contracted(mit, utah, terms)
    async with utah.client() as client:
        source = await make_stream(client, utah, "s")
        await client.create_query(windows(utah, source, "out"))
    stored, placed = utah.up.engine.queries.find(utah.name("out"))
    lie = Item(placed.name, 5.0, utah.id, COST_NS, ("filter",), (utah.name("t"),))
    if "aggregate" in menu.kinds:
        lie = msgspec.structs.replace(lie, kinds=("aggregate",))
    truth = Item(placed.name, 5.0, utah.id, COST_NS, ("aggregate",), (source,))
    await say(utah, mit, MESSAGE, BrainMessage(Offer(1, contract, CHEAP, (truth,))))
    await stays(lambda: not trader(mit).brain.held.coming, 0.3)
    await say(utah, mit, MESSAGE, BrainMessage(Offer(2, contract, CHEAP, (lie,))))
    await until(lambda: bool(trader(mit).brain.held.coming))
    request = Assignment(
        placed.name, 7, stored.entry.query, stored.inputs, stored.kept, placed.boundary,
        Deal(contract, utah.id, CHEAP, COST_NS),
    )  # fmt: skip
    with pytest.raises(NotAuthorisedError, match="not on the menu"):
        await say(utah, mit, "task.assign", request, Progress)
    assert not mit.up.engine.assignments.all()


@pytest.mark.parametrize(
    "load", [math.nan, math.inf, -1.0, 0.0, 1e300], ids=["nan", "inf", "negative", "none", "huge"]
)
async def test_a_load_that_makes_no_sense(cluster: Cluster, loads: Loads, load: float) -> None:
    mit, utah = await settle_two(cluster, 80, 80, trade=False)
    contract = await contracted(mit, utah, TERMS)
    item = Item(utah.name("x"), load, utah.id, COST_NS, ("aggregate",), (utah.name("s"),))
    fine = Item(utah.name("y"), 1.0, utah.id, COST_NS, ("aggregate",), (utah.name("s"),))
    with suppress(DecodeError):
        await say(utah, mit, MESSAGE, BrainMessage(Offer(1, contract, CHEAP, (item,))))
    await say(utah, mit, MESSAGE, BrainMessage(Offer(2, contract, CHEAP, (fine,))))
    await until(lambda: set(trader(mit).brain.held.coming) == {fine.task}, "still at work")
    assert trader(mit).brain.held.due == 1.0


async def test_a_stale_term(cluster: Cluster, loads: Loads) -> None:
    mit, utah = await settle_two(cluster, 30, 80)
    await contracted(mit, utah)
    work = await four_tasks(cluster, mit, loads)
    await until(lambda: len(working_at(utah)) == 1)
    (assigned,) = utah.up.engine.assignments.all()
    (task, term_number), request = assigned.stored.key, assigned.stored.assignment
    old = msgspec.structs.replace(request, term_number=term_number - 1)
    with pytest.raises((ConflictError, NotAuthorisedError)):  # whichever rule is checked first
        await say(mit, utah, "task.assign", old, Progress)
    with pytest.raises(NotFoundError):
        await say(mit, utah, "task.activate", Activate(task, term_number - 1, 0))
    await say(mit, utah, "task.release", Release(task, term_number - 1))
    with pytest.raises(NotAuthorisedError, match="not its worker"):
        await say(utah, mit, "task.give_back", GiveBackTask(task, term_number - 1), MoveRecord)
    with pytest.raises(NotAuthorisedError, match="not its worker"):
        await say(
            utah, mit, "task.pass_on", PassOn(task, term_number - 1, mit.id, Deal()), MoveRecord
        )
    answer = await say(utah, mit, "task.confirm", Confirm(task, term_number - 1), Confirmed)
    assert answer.status is PlacementStatus.RELEASED
    assert [each.stored.key for each in utah.up.engine.assignments.all()] == [(task, term_number)]
    await work.post(250)
    work.check()


async def test_a_member_without_a_contract_changes_nothing(cluster: Cluster, loads: Loads) -> None:
    """While a task of mit's runs at utah, brown sends both of them every message that peers may
    send."""
    mit = await settle(cluster, "mit.edu", 30)
    utah = await settle(cluster, "utah.edu", 80)
    brown = await settle(cluster, "brown.edu", 80)
    await cluster.acquainted(mit, utah, brown)
    contract = await contracted(mit, utah)
    work = await four_tasks(cluster, mit, loads)
    await until(lambda: len(working_at(utah)) == 1)
    await work.post(250)
    (assigned,) = utah.up.engine.assignments.all()
    (task, term_number), request = assigned.stored.key, assigned.stored.assignment
    for place in (mit, utah):
        await _say_all(brown, place, request, contract)
    assert away(mit) == {task: utah.id}
    assert [each.stored.key for each in utah.up.engine.assignments.all()] == [(task, term_number)]
    for place in (mit, utah):
        (standing,) = settler(place).ledger.deals()
        assert standing.end is None
        assert not any(peer == brown.id for peer, _ in trader(place).brain.partners)
        assert not settler(place).ledger.disputes()
    _, placed = mit.up.engine.queries.find(task)
    assert placed.running
    await work.post(230)
    work.check()
    ledgers = [settler(place).ledger for place in (mit, utah)]
    tuples = work.tuples_run_by(utah, task)
    await until(lambda: all(x.balance(contract).tuples == tuples for x in ledgers))


async def _say_all(brown: Place, place: Place, request: Assignment, contract: str) -> None:
    task, term_number = request.task, request.term_number
    item = Item(task, 1.0, brown.id, 0, ("aggregate",), ("medusa://mit.edu/s",))
    for message in (
        Offer(2**50, contract, PRICE, (item,)),
        Offer(2**50, "", PRICE, (item,)),
        Offer(2**50, "x" * 64, -1, (item,) * 64),
    ):
        with pytest.raises(NotAuthorisedError, match="no such contract"):
            await say(brown, place, MESSAGE, BrainMessage(message))
    for message in (
        Offer(2**50, "x" * 1000, -1, (item,)),
        Offer(2**50, contract, PRICE, (item,) * 65),
    ):
        with pytest.raises(DecodeError):
            await say(brown, place, MESSAGE, BrainMessage(message))
    await say(brown, place, MESSAGE, BrainMessage(Offer(2**50, contract, PRICE, ())))
    await say(
        brown, place, MESSAGE, BrainMessage(Answer(trader(place).brain.number, (task,), PRICE))
    )
    with pytest.raises(NotAuthorisedError):
        await say(brown, place, PASSED, Passed(task, term_number, 0))
    for letter in _letters(brown, place, task, term_number, contract):
        await say(brown, place, SETTLE, letter)
    for forged in (
        msgspec.structs.replace(request, term_number=term_number + 10**9),
        msgspec.structs.replace(request, term_number=term_number + 10**9, deal=Deal()),
        request,
    ):
        with pytest.raises((NotAuthorisedError, ConflictError)):
            await say(brown, place, "task.assign", forged, Progress)
    with pytest.raises(NotFoundError):
        await say(brown, place, "task.activate", Activate(task, term_number, 0))
    await say(brown, place, "task.release", Release(task, term_number, 0))
    answer = await say(brown, place, "task.confirm", Confirm(task, term_number), Confirmed)
    assert answer == Confirmed(PlacementStatus.RELEASED)
    with pytest.raises((NotAuthorisedError, NotFoundError)):
        await say(brown, place, "task.give_back", GiveBackTask(task, term_number), MoveRecord)
    with pytest.raises((NotAuthorisedError, NotFoundError)):
        await say(
            brown, place, "task.pass_on", PassOn(task, term_number, brown.id, Deal()), MoveRecord
        )
    connection = await brown.up.engine.overlay.connect(bytes.fromhex(place.id))
    with pytest.raises(NotAuthorisedError):
        async with connection.open(
            "task.input", ReadInput(task, term_number, "medusa://mit.edu/s", 0)
        ) as call:
            await call.receive(Acknowledge)


def _letters(
    brown: Place, place: Place, task: str, term_number: int, contract: str
) -> list[Letter]:
    """Return a bill and a refusal, in the names of others and in brown's own name."""
    identity = brown.up.engine.overlay.identity
    federation = brown.up.engine.overlay.membership.federation
    letters: list[Letter] = [Letter(Refusal(contract, task, term_number, 0, "no", 0, final=True))]
    for payee in (identity.peer_id, bytes(20)):
        account = Account(contract, bytes.fromhex(place.id), payee)
        deal = Agreement(
            *account,
            task=task,
            term_number=term_number,
            start=0,
            rate=LoadRate(1, CHEAP),
            agreed_at=0,
        )
        receipt = make_receipt(deal, federation, (0, b""), 1000, 10**6, after=0, at=0)
        letters.append(Letter(propose(identity.private_key, receipt)))
    return letters


async def test_a_peer_may_not_make_the_calls_of_our_own_clients(
    cluster: Cluster, loads: Loads
) -> None:
    mit, utah = await settle_two(cluster, 80, 80)
    for method in ("move_task", "contract.balance", "market_status"):
        with pytest.raises(MedusaError):
            await say(utah, mit, method, Done(), Done)

"""Partners under contract lie about money and are honest otherwise: no worker serves them for long,
no payer pays more than it has counted, and the answers stay right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from engine_peers import Cluster, Place, until
from hostile_partner import Bookkeeper, refusal
from tools_market_cluster import (
    CHEAP,
    COST_NS,
    PRICE,
    SHORT,
    SHORT_WAITS,
    TERMS,
    Loads,
    Work,
    balances,
    binding,
    contracted,
    four_tasks,
    notes,
    one_working_at,
    proposed,
    say,
    settle,
    settler,
    stays,
    trader,
    working_at,
)

from medusa.contracts.deals import LoadRate
from medusa.contracts.delivery import DELIVER, Deliver, Delivered
from medusa.contracts.documents import Acceptance, accept, open_document, propose
from medusa.contracts.market.messages import Item, Offer
from medusa.contracts.receipts import (
    Letter,
    Message,
    Proposal,
    Receipt,
    countersign,
    dispute,
    make_receipt,
)
from medusa.contracts.receipts import propose as bill
from medusa.overlay.clock import MILLIS
from medusa.overlay.encoding import encode
from medusa.overlay.errors import MedusaError, NotAuthorisedError
from medusa.overlay.events import wall_clock
from medusa.overlay.gossip.events import Health
from medusa.overlay.identity import Root
from medusa.overlay.signing import signed
from medusa.tools.market.passing import PASSED, Passed
from medusa.tools.market.settler import SETTLE
from medusa.tools.market.trader import MESSAGE, BrainMessage

pytestmark = pytest.mark.cluster(timing=SHORT)


IMPATIENT = dataclasses.replace(SHORT_WAITS, arrears_s=1.0, arrears_again_s=0.1)

Lie = Callable[[Proposal, Receipt], list[Message]]


@dataclass
class Trade:
    """Tasks of mit.edu, of which one runs at utah.edu."""

    mit: Place
    utah: Place
    contract: str
    work: Work

    @property
    def guests(self) -> set[str]:
        return working_at(self.utah)

    async def billed(self) -> None:
        """Wait until a bill is due."""
        await self.work.post(250)


@pytest.fixture
async def trade(cluster: Cluster, loads: Loads) -> Trade:
    mit = await settle(cluster, "mit.edu", 30, timing=IMPATIENT)
    utah = await settle(cluster, "utah.edu", 80, timing=IMPATIENT)
    await cluster.acquainted(mit, utah)
    contract = await contracted(mit, utah)
    work = await four_tasks(cluster, mit, loads)
    await one_working_at(utah)
    return Trade(mit, utah, contract, work)


def says_nothing(_: Proposal, __: Receipt) -> list[Message]:
    return []


def refuses(_: Proposal, receipt: Receipt) -> list[Message]:
    return [refusal(receipt)]


def signs_crumbs(_: Proposal, receipt: Receipt) -> list[Message]:
    """Let the payer sign for one microsecond only."""
    return [refusal(receipt, upto=receipt.after + 1, rows=0)]


def says_it_is_over(_: Proposal, receipt: Receipt) -> list[Message]:
    """Let the payer claim that the deal has ended, while it leaves the task running."""
    return [refusal(receipt, upto=receipt.after, final=True)]


def next_number() -> int:
    """Return a number of an offer that is later than all of mit.edu's own numbers."""
    return int(wall_clock() * MILLIS) + 10_000


@pytest.mark.parametrize("lie", [says_nothing, refuses, signs_crumbs, says_it_is_over])
async def test_no_peer_works_for_long_for_a_partner_that_does_not_pay(
    trade: Trade, lie: Lie
) -> None:
    books = Bookkeeper(trade.mit.up)
    books.answer(lie)
    await trade.billed()
    await until(lambda: bool(books.billed))
    await until(lambda: not trade.guests, "its task was given back")
    if lie is not says_it_is_over:  # on paper no tuple stays unpaid
        assert f"contract {trade.contract[:8]}: what ran is not paid" in notes(trade.utah)
        await stays(lambda: not trade.guests)
        with pytest.raises(NotAuthorisedError, match="is not paid yet"):
            await offer(trade, next_number())
    await trade.work.post(250)
    trade.work.check()


async def test_a_partner_that_pays_after_all_is_served_again(trade: Trade) -> None:
    books = Bookkeeper(trade.mit.up)
    books.answer(refuses)
    await trade.billed()
    await until(lambda: not trade.guests, "its task was given back")
    books.be_honest()
    await until(lambda: not settler(trade.utah).owing(trade.contract), "it has paid")
    await until(lambda: len(trade.guests) == 1, "and has its task run again")
    await trade.work.post(250)
    trade.work.check()


async def test_a_partner_that_counts_much_less_is_not_served(trade: Trade) -> None:
    books = Bookkeeper(trade.mit.up)

    def counts_nothing(proposal: Proposal, receipt: Receipt) -> list[Message]:
        if not receipt.rows:
            return [countersign(books.key, proposal)]
        return [dispute(books.key, proposal, 0, receipt.at)]

    books.answer(counts_nothing)
    await trade.billed()
    await until(lambda: not trade.guests, "its task was given back")
    assert settler(trade.utah).owing(trade.contract)
    await stays(lambda: not trade.guests)
    assert (await balances(trade.utah, trade.contract)).earned == 0
    assert (await balances(trade.utah, trade.contract)).disputes >= 1
    trade.work.check()


async def test_a_partner_that_is_away_is_worked_for(trade: Trade) -> None:
    """The partner is no liar: it signs once it is back."""
    gossip = trade.utah.up.engine.overlay.gossip
    real = gossip.health
    gone = bytes.fromhex(trade.mit.id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gossip, "health", lambda p: real(p) if p != gone else Health.DEAD)
        books = Bookkeeper(trade.mit.up)
        books.answer(says_nothing)
        await trade.billed()
        await until(lambda: bool(books.billed))
        await stays(lambda: len(trade.guests) == 1, 2.0)
        books.be_honest()


async def test_two_receipts_of_one_interval_are_one(trade: Trade) -> None:
    """The payer disputes one, has another one proposed, and then signs both."""
    books = Bookkeeper(trade.mit.up)
    first: list[Proposal] = []

    def both(proposal: Proposal, receipt: Receipt) -> list[Message]:
        if not first:
            first.append(proposal)
            return [dispute(books.key, proposal, receipt.rows - 1, receipt.at)]
        return [countersign(books.key, each) for each in (proposal, first[0])]

    books.answer(both)
    await trade.billed()
    ledger = settler(trade.utah).ledger
    await until(lambda: ledger.balance(trade.contract).receipts > 0)
    await stays(lambda: ledger.balance(trade.contract).receipts == 1, 0.3)
    (_, one), (_, other) = books.billed[:2]
    assert (one.number, one.after, one.upto) == (other.number, other.after, other.upto)
    assert ledger.balance(trade.contract).tuples in {one.rows, other.rows}
    assert ledger.verify()


async def test_old_letters_change_nothing(trade: Trade) -> None:
    """Each old letter is sent again, to either party and to a third."""
    books = [Bookkeeper(place.up) for place in (trade.mit, trade.utah)]
    ledgers = [settler(place).ledger for place in (trade.mit, trade.utah)]
    for number in (1, 2):
        await trade.billed()
        await settled_up(trade, number)
    before = [ledger.balance(trade.contract) for ledger in ledgers]
    letters = [message for each in books for _, message in each.heard]
    assert len(letters) > 3
    for message in reversed(letters):
        for one, other in ((trade.mit, trade.utah), (trade.utah, trade.mit)):
            await say(one, other, SETTLE, Letter(message))
    assert [ledger.balance(trade.contract) for ledger in ledgers] == before
    assert all(ledger.verify() for ledger in ledgers)
    await trade.billed()
    trade.work.check()


async def settled_up(cluster: Trade, receipts: int) -> None:
    """Wait until both ledgers have at least that many receipts, and no receipt is under way."""
    ledgers = [settler(place).ledger for place in (cluster.mit, cluster.utah)]
    await until(lambda: all(x.balance(cluster.contract).receipts >= receipts for x in ledgers))
    settlement, deals = settler(cluster.utah)._settlement, settler(cluster.utah).ledger.deals()
    await until(lambda: all(settlement.unpaid_upto(each.deal.key) is None for each in deals))


async def test_bills_that_are_lies_are_not_paid(trade: Trade) -> None:
    """The worker, which has the right to bill, bills for other intervals, prices, times and
    contracts, out of order, and for work that it has not done."""
    utah, mit = settler(trade.utah), settler(trade.mit)
    await trade.billed()
    await settled_up(trade, 1)
    (standing,) = utah.ledger.deals()
    deal, last = standing.deal, utah.ledger.last(standing.deal.account)
    key, federation = trade.utah.up.engine.overlay.identity.private_key, utah.ledger.federation
    now = deal.agreed_at
    honest: dict[str, Any] = {"deal": deal, "last": last, "rows": 100, "at": now}
    honest["upto"] = standing.billed + 100

    def lie(**changes: object) -> Letter:
        said = honest | {"after": standing.billed} | changes
        upto, rows = said.pop("upto"), said.pop("rows")
        receipt = make_receipt(
            said.pop("deal"),
            federation,
            said.pop("last"),
            upto,
            rows,
            **said,  # type: ignore[arg-type]
        )
        return Letter(bill(key, receipt))

    other = msgspec.structs.replace
    for letter in (
        lie(upto=2**61),
        lie(after=0),
        lie(rows=2**20),
        lie(last=(last[0] + 1, last[1])),
        lie(last=(0, b"")),
        lie(at=now + 10**12),
        lie(at=0),
        lie(deal=other(deal, term_number=deal.term_number + 1)),
        lie(deal=other(deal, rate=LoadRate(COST_NS, PRICE * 10))),
        lie(deal=other(deal, contract="0" * 32)),
        lie(deal=other(deal, task=trade.mit.name("b"))),
    ):
        await say(trade.utah, trade.mit, SETTLE, letter)
    await trade.billed()
    tuples = trade.work.posted
    await until(lambda: mit.ledger.last(deal.account)[0] > last[0])
    balance = await balances(trade.mit, trade.contract)
    assert balance.tuples <= tuples
    assert balance.spent == balance.tuples * COST_NS * CHEAP // 10**7
    assert mit.ledger.verify()
    trade.work.check()


async def test_a_repeated_offer_keeps_its_first_form(trade: Trade) -> None:
    """The partner sends the same number again, with another price, before the answer: the accepted
    offer counts."""
    admission = trader(trade.utah)._admission
    item = small_item(trade)
    number = next_number()
    for price in (PRICE, 1):
        await say(
            trade.mit,
            trade.utah,
            MESSAGE,
            BrainMessage(Offer(number, trade.contract, price, (item,))),
        )
    await until(lambda: item.task in admission._accepted)
    assert admission._accepted[item.task].price == PRICE


async def test_a_flood_of_offers_delays_no_other_partner(trade: Trade) -> None:
    admission = trader(trade.utah)._admission
    inputs = tuple(trade.mit.name(f"{n:03}" * 30) for n in range(100))
    items = tuple(
        Item(trade.mit.name(f"x{n}"), 1.0, trade.mit.id, COST_NS, ("aggregate",), inputs)
        for n in range(64)
    )
    first = next_number()
    for number in range(first, first + 100):
        await say(
            trade.mit,
            trade.utah,
            MESSAGE,
            BrainMessage(Offer(number, trade.contract, CHEAP, items)),
        )
        assert len(admission._offers) <= 1
    too_many = msgspec.structs.replace(Offer(first + 100, trade.contract, CHEAP, items * 2))
    with pytest.raises(MedusaError):
        await say(trade.mit, trade.utah, MESSAGE, BrainMessage(too_many))
    await trade.work.post(250)
    trade.work.check()


async def test_news_of_placements_open_no_more_deals_than_one_contract_may_have(
    trade: Trade, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medusa.contracts.ledger.MAX_DEALS_OF_CONTRACT", 10)
    (standing,) = settler(trade.utah).ledger.deals()
    task, term_number = standing.deal.task, standing.deal.term_number
    for _ in range(30):
        news = Passed(task, term_number, standing.deal.start, term_number + 1, trade.utah.id)
        try:
            await say(trade.mit, trade.utah, PASSED, news)
        except MedusaError:
            break
        term_number += 1
    assert len(settler(trade.utah).ledger.deals()) <= 10


async def test_a_guest_whose_inputs_fill_the_disk_goes_home(
    trade: Trade, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest's inputs must not keep the worker's own posts waiting for room."""
    (guest,) = trade.guests
    monkeypatch.setattr("medusa.engine.streams.store.disk_quota.OF_STREAM", 1e-9)
    await until(lambda: guest not in trade.guests)
    assert f"sends {guest} home" in notes(trade.utah)
    await trade.work.post(250)
    trade.work.check()


async def test_an_altered_contract_binds_no_party(cluster: Cluster, loads: Loads) -> None:
    """utah signs another document than the one that mit proposed, and delivers it as the
    contract."""
    mit = await settle(cluster, "mit.edu", 80, timing=IMPATIENT)
    utah = await settle(cluster, "utah.edu", 80, timing=IMPATIENT)
    await cluster.acquainted(mit, utah)
    proposal, _ = proposed(mit, utah)
    document = open_document(proposal)
    root = Root.load(utah.home.folder)
    dear = msgspec.structs.replace(TERMS, min_price=PRICE)
    altered = msgspec.structs.replace(document.body, terms=dear)
    federation = document.federation
    forged = encode(msgspec.structs.replace(document.envelope, payload=encode(altered)))
    own = encode(signed(root.private_key, f"medusa contract {federation}", encode(altered)))
    for fake in (forged, own):
        acceptance = encode(
            signed(root.private_key, f"medusa contract {federation}", encode(Acceptance(fake)))
        )
        answer = await say(utah, mit, DELIVER, Deliver((acceptance,)), Delivered)
        assert "" not in answer.reasons
    # mit did sign this receipt
    swapped = accept(root, propose(Root.load(mit.home.folder), altered))
    answer = await say(utah, mit, DELIVER, Deliver((swapped,)), Delivered)
    assert answer.reasons == ("",)
    assert len(binding(mit)) == 1


async def offer(cluster: Trade, number: int) -> None:
    item = small_item(cluster)
    await say(
        cluster.mit,
        cluster.utah,
        MESSAGE,
        BrainMessage(Offer(number, cluster.contract, CHEAP, (item,))),
    )


def small_item(cluster: Trade) -> Item:
    source = cluster.work.source
    return Item(cluster.mit.name("z"), 1.0, cluster.mit.id, COST_NS, ("aggregate",), (source,))

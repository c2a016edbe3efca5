"""Content contracts between complete peers (`engine_peers`): each reading is paid once, by both
sides' counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from engine_peers import DEADLINE_S, Cluster, Place, make_stream, next_rows, send_rows, until
from hypothesis import given
from hypothesis import strategies as st
from tools_market_cluster import (
    SHORT,
    balances,
    market,
    notes,
    revoked,
    set_up,
    settle,
    settle_two,
    settler,
    stays,
)
from tools_market_streams import EACH, agreed, arrived, in_force, paid, post, reading, terms

from medusa.contracts.balances import Balance
from medusa.contracts.deals import content_rate
from medusa.engine.objects.schema import END
from medusa.engine.replication.following.follower import Follower
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.messages import Done
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.events import wall_clock
from medusa.overlay.listeners import Listeners
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.market.content_deals import Begin, Over, period_start
from medusa.tools.market.content_sender import BEGIN, MAX_KEPT, OVER
from medusa.tools.market.meters import StreamMeter

pytestmark = pytest.mark.cluster(timing=SHORT)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up(monkeypatch)


async def test_the_status_has_the_price_of_a_stream(cluster: Cluster) -> None:
    mit, utah = await settle_two(cluster, 100, 100)
    content = terms(mit.name("s"), per_period=5_000_000, period_s=60)
    contract = await agreed(mit, utah, content)
    for place in (mit, utah):
        (line,) = (each for each in (await market(place)).contracts if each.id == contract)
        assert (line.per_message, line.per_period, line.period_s) == (EACH, 5_000_000, 60)


async def two_with_a_stream(
    cluster: Cluster,
) -> tuple[Place, Place, AsyncMedusaClient, AsyncMedusaClient, str]:
    """Start mit.edu and utah.edu; return them, a client of each, and a stream of the first."""
    mit, utah = await settle_two(cluster, 100, 100)
    sends, reads = await cluster.clients(mit, utah)
    return mit, utah, sends, reads, await make_stream(sends, mit, "s")


async def no_deal_left(*places: Place) -> None:
    """Wait until every deal has ended, and is fully paid."""
    for place in places:
        ledger = settler(place).ledger
        await until(lambda kept=ledger: all(s.paid for s in kept.deals()), "all is paid")


async def test_a_read_stream_is_paid_until_the_reader_leaves(cluster: Cluster) -> None:
    mit, utah = await settle_two(cluster, 100, 100)
    sends, reads = await cluster.clients(mit, utah)
    stream = await make_stream(sends, mit, "s", history_us=150)
    await post(sends, stream, range(100))  # the history is copied, too, and is paid for
    contract = await agreed(mit, utah, terms(stream))
    await reading(reads, utah, stream)
    await post(sends, stream, range(100, 500))
    await paid(utah, mit, contract, 500)
    await reading(reads, utah, stream, "again")  # one mirror, one price
    await post(sends, stream, range(500, 730))
    await arrived(utah, 729)
    await arrived(utah, 729, "again")
    for path in ("all", "again"):
        await reads.delete_query(utah.name("q/" + path))
    await post(sends, stream, range(730, 900))
    await paid(utah, mit, contract, 730)
    await no_deal_left(mit, utah)
    await stays(lambda: not any(s.end is None for s in settler(mit).ledger.deals()))
    await paid(utah, mit, contract, 730)
    assert "pays for" in notes(utah)
    assert "to utah.edu: contract" in notes(mit)


async def test_a_stream_that_is_read_again_while_it_is_left(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving the producer takes time: a reader that comes meanwhile keeps the mirror."""
    mit, utah, sends, reads, stream = await two_with_a_stream(cluster)
    contract = await agreed(mit, utah, terms(stream))
    await reading(reads, utah, stream)
    await post(sends, stream, range(100))
    await arrived(utah, 99)
    leaving, go_on = trio.Event(), trio.Event()

    async def take_leave(_: Follower) -> None:
        leaving.set()
        await go_on.wait()

    monkeypatch.setattr(Follower, "take_leave", take_leave)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reads.delete_query, utah.name("q/all"))
        await leaving.wait()
        # queries change one by one; a task run for another peer may come at any time
        followers = utah.up.engine.followers
        kept = await followers.follow(mit.state("s").entry, "another")
        go_on.set()
    await post(sends, stream, range(100, 200))
    await until(lambda: kept.log.boundary >= 199, "the mirror goes on")
    assert utah.up.engine.store.get(stream) is kept
    await followers.leave(stream, "another")
    await paid(utah, mit, contract, 200)
    await no_deal_left(mit, utah)


async def test_coming_back_begins_anew(cluster: Cluster) -> None:
    mit, utah, sends, reads, stream = await two_with_a_stream(cluster)
    contract = await agreed(mit, utah, terms(stream))
    for path in ("one", "two"):
        await reading(reads, utah, stream, path)
        if path == "one":
            await post(sends, stream, range(100))
        await arrived(utah, 99, path)
        await reads.delete_query(utah.name("q/" + path))
    # the second mirror received the whole history again
    await paid(utah, mit, contract, 200)
    await no_deal_left(mit, utah)


async def test_a_contract_counts_from_when_it_is_in_force_to_its_end(cluster: Cluster) -> None:
    mit, utah, sends, reads, stream = await two_with_a_stream(cluster)
    await reading(reads, utah, stream)
    await post(sends, stream, range(100))
    await arrived(utah, 99)
    contract = await agreed(mit, utah, terms(stream))
    await until(lambda: len(settler(mit).ledger.deals()) == 1, "the deal is begun")
    await post(sends, stream, range(100, 350))
    await arrived(utah, 349)
    await revoked(utah, contract)
    await until(lambda: not in_force(mit) and not in_force(utah), "revoked at both")
    ended = settler(utah).ledger.deals
    await until(lambda: all(s.end is not None for s in ended()), "the deal is over")
    await post(sends, stream, range(350, 500))
    await arrived(utah, 499)  # the right to read does not depend on the contract
    await paid(utah, mit, contract, 250)
    await no_deal_left(mit, utah)


async def test_a_content_deal_survives_a_restart_of_either_side(cluster: Cluster) -> None:
    mit, utah = await settle_two(cluster, 100, 100)
    sends = await cluster.open(mit.client(patience_s=DEADLINE_S))
    stream = await make_stream(sends, mit, "s")
    contract = await agreed(mit, utah, terms(stream))
    async with utah.client() as reads:
        await reading(reads, utah, stream)
    await post(sends, stream, range(100))
    await arrived(utah, 99)
    await cluster.restart(utah)
    await post(sends, stream, range(100, 200))
    await cluster.restart(mit)
    await cluster.acquainted(mit, utah)
    await post(sends, stream, range(200, 300))
    await arrived(utah, 299)
    await paid(utah, mit, contract, 300)
    await cluster.stop(mit)
    async with utah.client() as reads:
        await reads.delete_query(utah.name("q/all"))
    await cluster.start(mit)
    await cluster.acquainted(mit, utah)
    await no_deal_left(mit, utah)
    await paid(utah, mit, contract, 300)


async def test_the_end_of_a_stream_and_what_was_not_billed_before_a_restart(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, utah = await settle_two(cluster, 100, 100)
    sends = await cluster.client(mit)
    stream = await make_stream(sends, mit, "s")
    contract = await agreed(mit, utah, terms(stream))
    async with utah.client() as reads:
        await reading(reads, utah, stream)
        await post(sends, stream, range(100), end=True)
        await arrived(utah, END)
        # a crash between leaving the stream and counting the rest of its tuples
        monkeypatch.setattr(utah.up.engine.followers, "left", Listeners())
        monkeypatch.setattr(utah.up.engine.store, "drop", _nothing)
        await reads.delete_query(utah.name("q/all"))
    await cluster.restart(utah)
    await paid(utah, mit, contract, 100)
    await no_deal_left(mit, utah)
    assert utah.up.engine.store.get(stream) is None


async def _nothing(_: str) -> None:
    await trio.lowlevel.checkpoint()


async def test_a_stream_that_another_peer_computes_is_paid_to_its_owner(cluster: Cluster) -> None:
    mit, utah = await settle_two(cluster, 100, 100)
    two = await settle(cluster, "mit.edu", 100, sibling=True)
    await cluster.acquainted(mit, utah, two)
    sends, reads = await cluster.clients(mit, utah)
    source = await make_stream(sends, mit, "s")
    await reading(sends, mit, source, "out")
    out = mit.name("out")
    contract = await agreed(mit, utah, terms(out))
    await reading(reads, utah, out)
    await post(sends, source, range(100))
    await arrived(utah, 99)
    await mit.up.engine.mover.move(out, two.peer_id, Deal(giver=mit.id))
    await post(sends, source, range(100, 200))
    await arrived(utah, 199)
    await mit.up.engine.mover.take_back(out)
    await post(sends, source, range(200, 300))
    await paid(utah, mit, contract, 300)
    assert len(settler(utah).ledger.deals()) == 1
    assert settler(two).ledger.deals() == ()


async def test_a_client_that_reads_through_its_peer_is_not_metered(cluster: Cluster) -> None:
    mit, utah, sends, reads, stream = await two_with_a_stream(cluster)
    contract = await agreed(mit, utah, terms(stream))
    subscription = reads.subscribe(stream)
    await post(sends, stream, range(100))
    with trio.fail_after(DEADLINE_S):
        assert len(await next_rows(subscription)) > 0
    await stays(lambda: settler(mit).ledger.deals() == ())
    assert (await balances(utah, contract)).receipts == 0


async def test_periods_are_paid_as_they_pass_not_as_they_are_promised(cluster: Cluster) -> None:
    mit, utah, sends, reads, stream = await two_with_a_stream(cluster)
    content = terms(stream, per_message=1, per_period=1000, period_s=1)
    contract = await agreed(mit, utah, content)
    began = wall_clock()
    await reading(reads, utah, stream)
    now = int(began * 1e6)
    await send_rows(
        sends, stream, [(at, 0) for at in range(now, now + 5)], boundary=now + 3_600_000_000
    )
    spent = Balance(contract)
    with trio.fail_after(DEADLINE_S):
        while spent.spent < 2000:
            await trio.sleep(0.05)
            spent = await balances(utah, contract)
    assert spent.tuples == 5
    assert spent.spent % 1000 == 5
    assert spent.spent <= 5 + 1000 * (wall_clock() - began + 1)


async def test_counts_that_differ_are_reported_on_both_sides(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = StreamMeter.count

    def count(meter: StreamMeter, after: int, upto: int) -> int:
        return real(meter, after, upto) + (11 if meter.bills else 0)

    monkeypatch.setattr(StreamMeter, "count", count)
    mit, utah, sends, reads, stream = await two_with_a_stream(cluster)
    contract = await agreed(mit, utah, terms(stream))
    await post(sends, stream, range(100))
    await reading(reads, utah, stream)
    await paid(utah, mit, contract, 100, disputes=1)
    for place in (mit, utah):
        assert "111 tuples are claimed" in notes(place)


async def test_a_standstill_longer_than_promised_is_noted(cluster: Cluster) -> None:
    mit, utah, sends, reads, stream = await two_with_a_stream(cluster)
    await agreed(mit, utah, terms(stream, availability_s=1))
    await reading(reads, utah, stream)
    await post(sends, stream, range(100))
    await until(lambda: "than the 1 s promised" in notes(utah), "noted")
    assert "promised" not in notes(mit)
    await post(sends, stream, range(100, 200))
    await until(lambda: "resumed " in notes(utah), "and that it is over")


async def test_strangers_and_receivers_cannot_begin_wrong_readings(cluster: Cluster) -> None:
    mit, utah = await settle_two(cluster, 100, 100)
    brown = await settle(cluster, "brown.edu", 100)
    await cluster.acquainted(mit, utah, brown)
    sends = await cluster.client(mit)
    stream = await make_stream(sends, mit, "s")
    other = await make_stream(sends, mit, "other")
    contract = await agreed(mit, utah, terms(stream))
    theirs = await agreed(utah, mit, terms(utah.name("x"), "utah.edu"))
    await post(sends, stream, range(100))
    await until(lambda: mit.state("s").log.boundary == 99, "it is there")
    good = Begin(contract, stream, 5, 50, 0)
    for place, request, error in (
        (brown, good, NotAuthorisedError),
        (utah, Begin("f" * 32, stream, 5, 50, 0), NotAuthorisedError),
        (utah, Begin(contract, other, 5, 50, 0), NotAuthorisedError),
        (utah, Begin(theirs, utah.name("x"), 5, 50, 0), NotAuthorisedError),
        (utah, Begin(contract, stream, 5, 101, 0), InvalidInputError),
        (utah, Begin(contract, stream, 5, 50, 1), InvalidInputError),
        (utah, Over(contract, stream, 5, 60), NotFoundError),
        (brown, Over(contract, stream, 5, 60), NotFoundError),
    ):
        with pytest.raises(error):
            await told(place, mit, request)
    assert settler(mit).ledger.deals() == ()
    await told(utah, mit, good)
    with pytest.raises(ConflictError):
        await told(utah, mit, Begin(contract, stream, 5, 40, 0))
    with pytest.raises(NotFoundError):
        await told(brown, mit, Over(contract, stream, 5, 60))
    (standing,) = settler(mit).ledger.deals()
    assert standing.end is None
    second = await agreed(mit, brown, terms(stream))
    with pytest.raises(ConflictError):  # the term belongs to another peer
        await told(brown, mit, Begin(second, stream, 5, 50, 0))
    for term_number in range(6, 5 + MAX_KEPT):
        await told(utah, mit, Begin(contract, stream, term_number, 50, 0))
    with pytest.raises(BusyError):
        await told(utah, mit, Begin(contract, stream, 1000, 50, 0))
    assert sum(s.end is None for s in settler(mit).ledger.deals()) == 1


@given(
    begin=st.integers(0, 2**31),
    period_s=st.integers(1, 10**8),
    spans=st.lists(st.integers(0, 10**14), min_size=1, max_size=6),
)
def test_no_period_is_paid_twice_however_often_a_stream_is_left(
    begin: int, period_s: int, spans: list[int]
) -> None:
    """Consecutive deals cost as much as one deal over all."""
    content = terms("medusa://mit.edu/s", per_message=0, per_period=1, period_s=period_s)
    contract: Any = SimpleNamespace(proposal=SimpleNamespace(valid_from=float(begin)))
    at = begin * 10**6
    paid_for = 0
    for span in spans:
        rate = content_rate(content, period_start(contract, content, at))
        paid_for += rate.amount(at, at + span, 0)
        at += span
    assert paid_for == sum(spans) // (period_s * 10**6)


async def told(place: Place, other: Place, request: Any) -> None:
    connection = await place.up.engine.overlay.connect(bytes.fromhex(other.id))
    method = BEGIN if isinstance(request, Begin) else OVER
    await connection.call(method, request, Done)


async def test_a_sender_that_does_not_know_the_deal_any_more(cluster: Cluster) -> None:
    """The sender's ledger was lost: it cannot claim the past, and a new deal continues."""
    mit, utah, sends, reads, stream = await two_with_a_stream(cluster)
    contract = await agreed(mit, utah, terms(stream, per_period=1, period_s=1))
    await reading(reads, utah, stream)
    await post(sends, stream, range(100))
    await until(lambda: len(settler(mit).ledger.deals()) == 1, "the deal is begun")
    await until(lambda: len(settler(utah).ledger.deals()) == 1, "at both")
    (standing,) = settler(mit).ledger.deals()
    settler(mit).ledger.forget_deal(standing)
    utah.up.engine.followers.read_anew(stream)
    await until(lambda: len(settler(mit).ledger.deals()) == 1, "it knows of it again")
    await until(lambda: settler(mit).ledger.deals()[0].billed >= 99, "and bills what it did")
    assert (await balances(utah, contract)).tuples == 100

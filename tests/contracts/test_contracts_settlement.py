"""Settlement, message by message: it refuses, disputes, repairs and pays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from contracts_settling import (
    AC,
    CD,
    NOW,
    PEERS,
    TASK,
    A,
    C,
    Contracts,
    D,
    E,
    Placed,
    S,
    World,
    deal_of,
    tuples,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.contracts.deals import ContentRate, LoadRate, content_rate
from medusa.contracts.payer import DRAIN_S
from medusa.contracts.receipts import (
    Dispute,
    Message,
    Proposal,
    Refusal,
    Settled,
    propose,
    read_receipt,
)
from medusa.contracts.settlement import Received, Tick
from medusa.contracts.terms import ContentTerms
from medusa.overlay.errors import InvalidInputError, MedusaError, NotFoundError, UntrustedError


def proposal_at(world: World, node: bytes = A) -> tuple[bytes, Proposal]:
    """Take the first proposal to that peer off the wire; return it with its sender."""
    for index, (sender, to, message) in enumerate(world.wire):
        if to == node and isinstance(message, Proposal):
            del world.wire[index]
            return sender, message
    raise AssertionError("no proposal is under way")


def billed(world: World) -> tuple[Placed, Proposal]:
    """Return a task of A that runs at C, with the first receipt under way."""
    placed = world.place(TASK, A, C)
    world.run(31)
    sender, proposal = proposal_at(world)
    assert sender == C
    return placed, proposal


def told(world: World, proposal: Proposal, peer: bytes = C) -> Message | None:
    """Return A's answer to a proposal from that peer."""
    world.wire.clear()
    world.node(A).handle(Received(peer, proposal))
    return world.wire[0][2] if world.wire else None


def changed(proposal: Proposal, signer: str = "c", **changes: Any) -> Proposal:
    """Return the proposal with other content, signed by C, with a matching amount."""
    receipt = msgspec.structs.replace(read_receipt(proposal.payload), **changes)
    amount = receipt.rate.amount(receipt.after, receipt.upto, receipt.rows)
    return propose(PEERS[signer].private_key, msgspec.structs.replace(receipt, amount=amount))


def owed(placed: Placed) -> int:
    return tuples(placed.task, placed.start, placed.delivered)


def test_a_task_is_paid_every_settling_period_and_to_its_end() -> None:
    world = World()
    placed = world.place(TASK, A, C)
    world.settle(100)
    before = world.node(A).ledger.balance(AC)
    assert before.receipts >= 3
    world.end(placed, C)
    world.settle(60)
    at_a, at_c = (world.node(peer).ledger.balance(AC) for peer in (A, C))
    assert at_a.tuples == at_c.tuples == owed(placed) > before.tuples
    assert at_a.spent == at_c.earned > 0
    assert at_a.earned == at_c.spent == 0
    world.both_ledgers_agree()


def test_a_task_passed_on_is_paid_along_the_chain() -> None:
    world = World()
    placed = world.place(TASK, A, C, D, lag=7)  # D's last output never reaches A
    world.settle(100)
    world.end(placed)  # only C notifies D, and A notifies C
    world.settle(300)
    assert [world.paid_tuples(deal) for deal in placed.deals()] == [owed(placed)] * 2
    middle = world.node(C).ledger
    assert all(standing.paid for standing in middle.deals())
    assert middle.balance(AC).earned == middle.balance(CD).spent > 0
    world.both_ledgers_agree()


def test_middlemen_bill_on_what_was_paid_before_a_crash() -> None:
    """A has paid C up to u1. All others have lost their state, and E bills up to u2."""
    world = World(names="acde")
    placed = world.place(TASK, A, C, D, E)
    world.run(31)
    while world.wire[0][:2] != (A, C):
        world.deliver()
    world.node(C).crash_soon(1, after=True)
    world.deliver()
    world.wire.clear()
    assert world.node(C).ledger.balance(AC).receipts == 1
    for peer in (D, E):
        world.node(peer).restart()
    world.settle(20)
    assert {world.paid_tuples(deal) for deal in placed.deals()[1:]} != {0}
    world.end(placed)
    world.settle(600)
    assert [world.paid_tuples(deal) for deal in placed.deals()] == [owed(placed)] * 3
    world.both_ledgers_agree()


def test_the_same_proposal_gets_the_same_answer_for_ever() -> None:
    world = World()
    placed, proposal = billed(world)
    first = told(world, proposal)
    assert isinstance(first, Settled)
    world.node(A).restart()
    world.run(500)
    assert told(world, proposal) == first
    world.end(placed)
    # another receipt of that number: the answer is the paid receipt
    assert told(world, changed(proposal, rows=1)) == first
    assert world.node(A).ledger.balance(AC).receipts == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"contract": CD}, "no such placement"),
        ({"task": "medusa://a.edu/other"}, "no such placement"),
        ({"term_number": 9}, "no such placement"),
        ({"rate": LoadRate(50_000, 2_001)}, "not those agreed"),
        ({"rate": LoadRate(50_001, 2_000)}, "not those agreed"),
        ({"rate": ContentRate(2_000)}, "not those agreed"),
        ({"number": 2, "previous": b"x" * 32}, "does not continue"),
        ({"after": 5 * S}, "starts at 5000000"),
        ({"after": 11 * S}, "starts at 11000000"),
        ({"at": int((NOW - 86_400) * S)}, "dated before the placement, or in the future"),
        ({"at": int((NOW + 86_400) * S)}, "dated before the placement, or in the future"),
        ({"upto": 999 * S}, "has not got as far"),
    ],
)
def test_bills_beyond_agreement_or_delivery_are_refused(
    changes: dict[str, Any], reason: str
) -> None:
    world = World()
    _, proposal = billed(world)
    refusal = told(world, changed(proposal, **changes))
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason
    assert refusal.upto is None
    assert world.node(A).ledger.balances().entries == 0
    assert any(reason in note for note in world.node(A).notes)
    assert isinstance(told(world, proposal), Settled)  # other deals are not affected


def test_forged_proposals_get_no_answer() -> None:
    world = World()
    _, proposal = billed(world)
    for bad, sender in [
        (changed(proposal, signer="d"), C),
        (proposal, D),
        (Proposal(b"junk", b"x" * 64), C),
        (changed(proposal, payer=D), C),
        (changed(proposal, federation="other"), C),
    ]:
        assert told(world, bad, sender) is None
    assert world.node(A).notes.total() == 5
    assert world.node(A).ledger.balances().entries == 0


def test_a_wrong_count_is_on_record_at_both_and_the_payer_s_is_paid() -> None:
    world = World()
    world.node(C).lies = lambda rows: 2 * rows
    placed = world.place(TASK, A, C)
    world.settle(32)
    for node in (world.node(A), world.node(C)):
        (dispute,) = node.disputes
        assert dispute.receipt.rows == 2 * dispute.counted
        assert node.ledger.balance(AC).disputes == 1
        assert node.ledger.balance(AC).tuples == dispute.counted
    world.end(placed)
    world.settle(100)
    assert world.paid_tuples(placed.deals()[0]) == owed(placed)
    world.both_ledgers_agree()


def test_a_dispute_stands_when_its_number_went_to_another_receipt() -> None:
    world = World()
    world.node(C).lies = lambda rows: 2 * rows
    lied, other = world.place(f"{TASK}/lied", A, C), world.place(f"{TASK}/other", A, C)
    world.run(31)
    _, proposal = proposal_at(world)
    assert isinstance(told(world, proposal), Dispute)
    receipt = read_receipt(proposal.payload)
    world.wire.clear()  # C never learns of it, and forgets
    elsewhere = tuples(other.task, receipt.after, receipt.upto)
    taken = told(
        world, changed(proposal, task=other.task, term_number=other.term_number, rows=elsewhere)
    )
    assert isinstance(taken, Settled)
    world.node(C).restart()
    for placed in (lied, other):
        world.end(placed)
    world.settle(600)
    for placed in (lied, other):
        assert world.paid_tuples(placed.deals()[0]) == owed(placed) > 0
    world.both_ledgers_agree()


def test_a_stubborn_liar_fills_no_ledger() -> None:
    world = World()
    _, proposal = billed(world)
    rows = read_receipt(proposal.payload).rows
    answers = [told(world, changed(proposal, rows=rows + n)) for n in range(1, 20)]
    assert isinstance(answers[0], Dispute)
    assert all(answer == answers[0] for answer in answers)
    assert world.node(A).ledger.balances().entries == 1
    assert isinstance(told(world, proposal), Settled)


def test_a_lie_on_the_way_down_the_chain_is_found_by_the_owner() -> None:
    world = World()
    world.node(D).lies = lambda rows: rows + 100
    placed = world.place(TASK, A, C, D)
    world.settle(40)
    counted = {n.own: [d.counted for d in n.disputes] for n in world.nodes.values()}
    assert counted[A] == counted[D] != []
    assert counted[C] == counted[A] * 2  # once with its giver, and once with its worker
    world.end(placed)
    world.settle(100)
    assert [world.paid_tuples(deal) for deal in placed.deals()] == [owed(placed)] * 2
    world.both_ledgers_agree()


def test_nothing_is_paid_for_a_task_that_never_ran() -> None:
    world = World()
    world.end(world.place(TASK, A, C), C)
    world.settle(8_000)
    assert world.node(A).ledger.balances().entries == 0
    assert world.wire == []


def test_a_worker_that_bills_beyond_the_end_is_cut() -> None:
    world = World()
    placed, proposal = billed(world)
    world.end(placed)
    refusal = told(world, changed(proposal, upto=placed.boundary + S))
    assert isinstance(refusal, Refusal)
    assert (refusal.upto, refusal.final) == (placed.boundary, True)


def test_work_before_the_end_of_a_contract_is_paid_however_late() -> None:
    world = World()
    placed, proposal = billed(world)
    world.contracts.over[AC] = NOW + 35
    world.run(9)
    world.end(placed)  # recalled; C is away for long
    world.now += 90_000
    assert isinstance(told(world, proposal), Settled)
    world.settle(300)
    assert world.paid_tuples(placed.deals()[0]) == owed(placed)
    with pytest.raises(UntrustedError, match="over"):
        world.node(A).settlement.agree(deal_of(term_number=7), world.now)


def test_work_after_the_end_of_a_contract_is_not_paid() -> None:
    world = World()
    world.place(TASK, A, C)
    world.contracts.over[AC] = NOW + 10
    world.run(10 + DRAIN_S + 30)
    world.settle(60)
    assert world.node(A).ledger.balances().entries == 0
    assert any("was over" in note for note in world.node(C).notes)


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"contract": "unknown"}, NotFoundError, "not known"),
        ({"payee": D}, UntrustedError, "between others"),
        ({"rate": LoadRate(1, 999)}, InvalidInputError, "outside the contract's range"),
        ({"rate": ContentRate(5)}, InvalidInputError, "for load"),
    ],
)
def test_deals_that_no_contract_allows(
    changes: dict[str, Any], error: type[MedusaError], reason: str
) -> None:
    world = World()
    with pytest.raises(error, match=reason):
        world.node(A).settlement.agree(msgspec.structs.replace(deal_of(), **changes), NOW)
    assert world.node(A).ledger.deals() == ()


def test_one_task_that_cannot_be_counted_does_not_hold_up_the_others() -> None:
    world = World()
    stuck, fine = world.place(f"{TASK}/stuck", A, C), world.place(f"{TASK}/fine", A, C)
    world.node(A).uncountable.add(stuck.task)
    world.settle(60)
    world.end(stuck)
    world.end(fine)
    world.settle(600)
    assert world.paid_tuples(fine.deals()[0]) == owed(fine) > 0
    assert world.paid_tuples(stuck.deals()[0]) == 0


def test_one_task_that_ended_before_it_delivered_does_not_hold_up_the_others() -> None:
    world = World()
    slow, fine = world.place(f"{TASK}/slow", A, C, lag=40), world.place(f"{TASK}/fine", A, C)
    world.run(31)  # the slow deal is billed first
    world.end(slow, C)
    world.end(fine)
    world.settle(600)
    assert world.paid_tuples(fine.deals()[0]) == owed(fine) > 0
    assert world.node(A).ledger.balance(AC).tuples == owed(fine)


@pytest.mark.parametrize("loser", [A, C])
def test_a_ledger_that_lost_its_end_is_healed_by_the_other_side(loser: bytes) -> None:
    world = World()
    placed = world.place(TASK, A, C)
    world.settle(200)
    node = world.node(loser)
    kept = node.ledger.find(placed.deals()[0].account, 1)
    assert kept is not None
    with node.connection as connection:  # an earlier copy is put back
        connection.execute("DELETE FROM entries")
        connection.execute("UPDATE head SET entries = 0, digest = x''")
    node.ledger.append(kept)
    node.restart()
    assert node.ledger.balance(AC).receipts == 1
    world.end(placed, C)
    world.settle(1_000)
    world.both_ledgers_agree()
    assert world.paid_tuples(placed.deals()[0]) == owed(placed)


def test_a_settlement_is_quiet_once_all_deals_are_paid() -> None:
    world = World()
    world.end(world.place(TASK, A, C, D), D)
    placed = world.place(TASK, A, C, D)
    world.settle(100)
    world.end(placed, D)
    world.settle(9_000)
    for node in world.nodes.values():
        assert node.settlement.handle(Tick(), world.now + 10_000) == []
        assert node.settlement.wake_at > world.now + 10_000
    # a paid deal is forgotten after a while
    assert world.node(D).ledger.deal(placed.deals()[1].key) is None


def test_a_stream_is_paid_by_the_message_and_by_the_period() -> None:
    stream = "medusa://c.edu/news"
    terms = ContentTerms(stream, "c.edu", 3, 1_000, 60)
    world = World(Contracts({AC: (frozenset({A, C}), terms)}))
    deal = deal_of(content_rate(terms, since=10 * S), task=stream)
    placed = Placed(stream, 1, (A, C), 10 * S, 10 * S)
    for peer in (A, C):
        world.node(peer).settlement.agree(deal, world.now)
    world.placed.append(placed)
    world.settle(200)
    world.end(placed, C)
    world.settle(60)
    periods = (placed.boundary - placed.start) // (60 * S)
    assert periods == 3
    assert world.node(A).ledger.balance(AC).spent == 3 * owed(placed) + 1_000 * periods
    world.both_ledgers_agree()


signatures = st.binary(min_size=64, max_size=64)
messages = st.one_of(
    st.builds(Proposal, st.binary(max_size=60), signatures),
    st.builds(Settled, st.binary(max_size=60), signatures, signatures),
    st.builds(Dispute, st.binary(max_size=200), signatures),
    st.builds(
        Refusal,
        contract=st.sampled_from([AC, CD, "x"]),
        task=st.sampled_from([TASK, "x"]),
        term_number=st.integers(0, 2),
        have=st.integers(0, 3),
        reason=st.just("why not"),
        upto=st.none() | st.integers(0, 100 * S),
        final=st.booleans(),
        rows=st.none() | st.integers(0, 10**6),
    ),
)


@given(heard=st.lists(st.tuples(st.sampled_from([A, D]), messages), max_size=8))
@settings(max_examples=50)
def test_no_message_makes_a_peer_fail_or_pay(heard: list[tuple[bytes, Message]]) -> None:
    world = World()
    world.place(TASK, A, C, D)
    world.run(31)
    for sender, message in heard:
        world.node(C).handle(Received(sender, message))
    world.run(31)
    assert world.node(C).ledger.balances().entries == 0


@pytest.mark.parametrize("leap_s", [100 * 86_400.0, -3_000.0])
def test_a_deal_made_with_a_wrong_clock_is_paid_once_the_clock_is_right(
    leap_s: float,
) -> None:
    world = World()
    world.now = NOW + leap_s
    placed = world.place(TASK, A, C)
    world.settle(100)
    world.now = NOW
    for peer in (A, C):
        world.node(peer).settlement.restart()
    world.settle(100)
    world.end(placed, C)
    world.settle(60)
    world.both_ledgers_agree()
    for deal in placed.deals():
        assert world.paid_tuples(deal) == owed(placed)

"""A Brain takes offered tasks or refuses them, by its load and the price; with too much load it
offers tasks to partners and follows their answers; it sends tasks back to their owners, and
recalls its own."""

import math
from itertools import pairwise

import pytest
from contracts_market import (
    HIGH,
    LOW,
    B,
    C,
    D,
    answer,
    brain,
    item,
    offer_of,
    offers,
    partner,
    wait,
)

from medusa.contracts.market.config import MAX_HOPS, MAX_ITEMS, MarketConfig
from medusa.contracts.market.events import (
    Effect,
    GiveBack,
    Move,
    MoveEnded,
    Note,
    Partner,
    PartnersChanged,
    Recall,
    Received,
    Send,
    TaskBack,
    TaskGone,
    TaskHere,
    TaskOut,
    Tick,
    Unreachable,
)
from medusa.contracts.market.messages import Answer, Offer


def test_a_brain_takes_tasks_that_fit_and_keeps_room_for_them() -> None:
    made = brain(partner(B), tasks=77)
    items = [item(f"x{n}", 1) for n in range(5)]
    said = answer(made, offer_of(*items))
    assert said.accepted == ("x0", "x1", "x2")
    assert said.bid == 0
    assert made.held.room == pytest.approx(0)
    made.handle(TaskHere(items[0], B, "with 1", HIGH), 102)
    assert made.held.room == pytest.approx(0)
    wait(made, 300)  # the other two answers never came
    assert made.held.room == pytest.approx(2)


def test_no_price_takes_a_peer_above_its_capacity() -> None:
    made = brain(partner(B, high=50 * HIGH), tasks=79)
    items = [item(f"x{n}", 1) for n in range(5)]
    assert answer(made, offer_of(*items, price=50 * HIGH)).accepted == ("x0",)


def test_a_brain_takes_no_task_below_its_cost() -> None:
    said = answer(brain(partner(B), tasks=79), offer_of(item("x", 1), price=LOW))
    assert not said.accepted
    assert LOW < said.bid < HIGH


def test_the_best_paid_offer_first() -> None:
    made = brain(partner(B), partner(C), tasks=79)
    made.handle(Received(B, Offer(1, "with 1", 970_000, (item("b", 1),))), 100)
    made.handle(Received(C, Offer(1, "with 2", 990_000, (item("c", 2),))), 100.1)
    said = {
        e.peer: e.message.accepted
        for e in wait(made, 101)
        if isinstance(e, Send) and isinstance(e.message, Answer)
    }
    assert said == {B: (), C: ("c",)}


def test_a_repeated_offer_gets_the_same_answer_and_an_old_one_none() -> None:
    made = brain(partner(B), tasks=79)
    offer = offer_of(item("x", 1), item("y", 1), number=5)
    first = answer(made, offer)
    assert answer(made, offer) == first
    assert len(made.held.coming) == 1
    assert not made.handle(Received(B, offer_of(item("z", 1), number=4)), 103)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (offer_of(item("x", 1), price=HIGH + 1), "outside"),
        (offer_of(item("x", 1), price=LOW - 1), "outside"),
        (offer_of(item("x", 1), price=-1), "outside"),
        (offer_of(*[item(f"x{n}", 1) for n in range(MAX_ITEMS + 1)]), "at most"),
        (offer_of(item("x", 1), item("x", 1)), "twice"),
        (offer_of(item("x", 1), hops=MAX_HOPS + 1), "hops"),
        (offer_of(item("x", 1), hops=-1), "hops"),
        (Offer(1, "none", HIGH, (item("x", 1),)), "no such contract"),
        (offer_of(item("x", 1, math.nan)), "load"),
        (offer_of(item("x", 1, math.inf)), "load"),
        (offer_of(item("x", 1, -1.0)), "load"),
        (offer_of(item("x", 1, 0.0)), "load"),
        (offer_of(item("x", 1, 1e300)), "load"),
        (offer_of(item("x", 1, 81.0)), "no room"),
        (offer_of(item("", 1)), "not a task"),
        (offer_of(item("x" * 2000, 1)), "not a task"),
        (offer_of(item("x", 0)), "own"),
        (offer_of(item("t1", 1)), "here already"),
        (offer_of(item("uncovered", 1)), "does not cover"),
    ],
)
def test_bad_offers_are_refused_with_a_reason(bad: Offer, why: str) -> None:
    made = brain(partner(B, takes=lambda it: it.task != "uncovered"), tasks=2)
    said = answer(made, bad)
    assert not said.accepted
    assert why in said.reason
    assert not made.held.coming
    # the next valid offer is accepted
    assert answer(made, offer_of(item("good", 1), number=9)).accepted == ("good",)


def test_a_brain_takes_no_more_than_the_contract_allows() -> None:
    made = brain(partner(B, most_taken=2))
    assert len(answer(made, offer_of(*[item(f"x{n}", 1) for n in range(5)])).accepted) == 2


def test_a_refused_partner_is_notified_of_room() -> None:
    made = brain(partner(B), tasks=80)
    assert not answer(made, offer_of(item("x", 1), number=7)).accepted
    (said,) = made.handle(TaskGone("t0"), 200)
    assert said == Send(B, Answer(7, (), said.message.bid))
    assert not made.handle(TaskGone("t1"), 201)


def test_a_full_peer_passes_its_own_task_on_for_a_partner_that_pays_more() -> None:
    made = brain(partner(B), partner(C), tasks=80)
    answer(made, offer_of(item("x", 1), number=7, hops=1))
    assert made.offer is not None
    assert made.offer.state.partner.peer == C
    ours = made.offer.offer
    assert len(ours.items) == 1
    made.handle(Received(C, Answer(ours.number, (ours.items[0].task,), LOW)), 102)
    (told,) = [e for e in made.handle(TaskGone(ours.items[0].task), 103) if isinstance(e, Send)]
    assert told.peer == B
    assert isinstance(told.message, Answer)


def test_a_brain_passes_on_no_offer_that_leaves_nothing_to_earn() -> None:
    made = brain(partner(B, HIGH, HIGH), partner(C, HIGH, HIGH), tasks=80)
    answer(made, offer_of(item("x", 1), number=7, hops=1))
    assert made.offer is None


def test_a_withdrawn_request_is_forgotten() -> None:
    made = brain(partner(B), tasks=80)
    answer(made, offer_of(item("x", 1), number=7, hops=1))
    assert not made.handle(Received(B, Offer(8, "with 1", LOW, ())), 103)
    made.handle(PartnersChanged((partner(B), partner(C))), 104)
    assert made.offer is None


def test_nothing_to_do_is_nothing_done() -> None:
    made = brain(partner(B), tasks=80)
    assert not wait(made, 1e9)
    assert made.wake_at == math.inf


def test_excess_is_offered_once_it_has_lasted() -> None:
    made = brain(partner(B), tasks=83)
    assert not wait(made, 9)
    ((peer, offer),) = offers(wait(made, 16))
    assert peer == B
    assert offer.number == 11
    assert offer.price == LOW
    assert len(offer.items) == 3


def test_the_peer_farther_above_its_capacity_goes_first() -> None:
    def first_offer(task_load: float) -> float:
        made = brain(partner(B))
        for task in range(81):
            made.handle(TaskHere(item(f"t{task}", 0, task_load)), 0)
        while not offers(made.handle(Tick(), now := made.wake_at)):
            assert now < 60
        return now

    assert first_offer(1.0) > first_offer(3.0) > first_offer(9.0) >= 5


def test_a_jumping_sample_moves_nothing() -> None:
    made = brain(partner(B), tasks=78)
    wait(made, 50)
    now = 50.0
    for _ in range(20):
        assert not made.handle(TaskHere(item("t0", 0, 9.0)), now)
        assert not wait(made, now + 3)
        assert not made.handle(TaskHere(item("t0", 0)), now + 3)
        assert not wait(made, now + 7)
        now += 7


def test_one_offer_at_a_time_and_the_next_partner_after_a_refusal() -> None:
    made = brain(partner(B), partner(C), tasks=82)
    ((first, offer),) = offers(wait(made, 16))
    assert not offers(wait(made, 19))
    ((second, _),) = offers(made.handle(Received(first, Answer(offer.number, ())), 19))
    assert {first, second} == {B, C}


def test_the_cheapest_partner_is_asked_first() -> None:
    made = brain(partner(B), partner(C, low=700_000), tasks=82)
    assert offers(wait(made, 16))[0][0] == C


def test_a_bid_within_the_range_is_paid_and_no_higher_one() -> None:
    made = brain(partner(B), tasks=82)
    offer = offers(wait(made, 16))[0][1]
    ((_, again),) = offers(made.handle(Received(B, Answer(offer.number, (), 900_000)), 19))
    assert again.price == 900_000
    ((_, last),) = offers(made.handle(Received(B, Answer(again.number, (), HIGH + 1)), 20))
    # the price is at most the contract's highest
    assert (last.price, last.hops) == (HIGH, 1)


def test_accepted_tasks_are_moved_others_are_not() -> None:
    made = brain(partner(B), tasks=82)
    offer = offers(wait(made, 16))[0][1]
    task = offer.items[0].task
    effects = made.handle(Received(B, Answer(offer.number, (task, "t5x", task))), 19)
    assert [e for e in effects if isinstance(e, Move)] == [
        Move(offer.items[0], B, "with 1", offer.price)
    ]
    assert any(isinstance(e, Note) and e.level == "warning" for e in effects)
    # the same answer again moves nothing
    again = made.handle(Received(B, Answer(offer.number, (task,))), 19)
    assert not [e for e in again if isinstance(e, Move)]


def test_late_and_strange_answers_move_nothing() -> None:
    made = brain(partner(B), partner(C), tasks=82)
    peer, offer = offers(wait(made, 16))[0]
    other = C if peer == B else B
    accepted = tuple(i.task for i in offer.items)
    for event in (
        Received(other, Answer(offer.number, accepted)),
        Received(D, Answer(offer.number, accepted)),
        Received(peer, Answer(offer.number + 1, accepted)),
    ):
        assert not [e for e in made.handle(event, 13) if isinstance(e, Move)]
    assert offers(wait(made, 30))  # the offer timed out, and the next partner was asked
    late = made.handle(Received(peer, Answer(offer.number, accepted)), 30)
    assert not [e for e in late if isinstance(e, Move)]


def test_a_silent_partner_is_asked_ever_more_rarely() -> None:
    made = brain(partner(B), tasks=82, config=MarketConfig(retry_s=10, retry_most_s=1000))
    asked = []
    while made.wake_at < 6000:
        now = made.wake_at
        asked += [now] * len(offers(made.handle(Tick(), now)))
    gaps = [b - a for a, b in pairwise(asked)]
    assert gaps[0] < gaps[-1]
    assert len(asked) < 15


def test_a_broken_partner_does_not_stop_the_others() -> None:
    made = brain(partner(B), partner(C), tasks=82)
    peer, _ = offers(wait(made, 16))[0]
    ((second, _),) = offers(made.handle(Unreachable(peer), 17))
    assert second != peer


def test_a_partner_that_accepts_and_never_starts_is_left_alone() -> None:
    made = brain(partner(B), tasks=81)
    offer = offers(wait(made, 16))[0][1]
    made.handle(Received(B, Answer(offer.number, (offer.items[0].task,), LOW)), 17)
    assert made.held.leaving
    effects = made.handle(MoveEnded(offer.items[0].task, ok=False), 60)
    assert not made.held.leaving
    assert not offers(effects)
    assert made.partners[B, "with 1"].broken


def test_tasks_that_the_contract_does_not_cover_are_not_offered() -> None:
    made = brain(partner(B, gives=lambda it: it.task == "t77"), tasks=85)
    offer = offers(wait(made, 16))[0][1]
    assert [i.task for i in offer.items] == ["t77"]


def test_no_more_than_the_other_side_will_run() -> None:
    made = brain(partner(B, most_given=2), tasks=85)
    assert len(offers(wait(made, 16))[0][1].items) == 2


def test_migration_must_pay() -> None:
    dear = 300 * 600 * HIGH
    assert not offers(wait(brain(partner(B, migration_cost=dear), tasks=85), 60))


def test_large_and_small_tasks() -> None:
    made = brain(partner(B), tasks=70)
    for task, load in (("big", 12.0), ("small", 0.5)):
        made.handle(TaskHere(item(task, 0, load)), 0)
    offer = offers(wait(made, 16))[0][1]
    assert sorted(i.load for i in offer.items) == [0.5, 1, 1]


def test_a_contract_cheaper_than_running_it_is_used_within_capacity() -> None:
    # the poster's D at 0.8 p: C, at its capacity, passes load on to it
    made = brain(partner(B, 700_000, 800_000), tasks=80)
    offer = offers(wait(made, 30))[0][1]
    assert len(offer.items) == 2
    assert not offers(wait(brain(partner(B), tasks=80), 30))


def test_a_guest_goes_to_a_third_but_never_back() -> None:
    made = brain(partner(B), partner(C))
    for task in range(82):
        made.handle(TaskHere(item(f"g{task}", 1), B, "with 1", LOW), 0)
    assert not offers(wait(made, 29))  # tasks that have just come stay a while
    found = offers(wait(made, 90))
    assert {peer for peer, _ in found} == {C}


def test_a_guest_is_not_sublet_where_that_is_excluded() -> None:
    made = brain(partner(B, sublet=False), partner(C))
    for task in range(82):
        made.handle(TaskHere(item(f"g{task}", 1), B, "with 1", LOW), 0)
    assert not offers(wait(made, 90))


def test_siblings_come_first_and_cost_nothing() -> None:
    made = brain(partner(B), Partner(C, "", 0, 0), tasks=85)
    peer, offer = offers(wait(made, 16))[0]
    assert peer == C
    assert not offer.contract
    effects = made.handle(Received(C, Answer(offer.number, (offer.items[0].task,))), 17)
    assert [e.contract for e in effects if isinstance(e, Move)] == [""]


def test_a_contract_that_is_over_drains() -> None:
    made = brain(partner(B), partner(C), tasks=3)
    made.handle(TaskHere(item("g", 1), B, "with 1", LOW), 0)
    made.handle(TaskOut(item("o", 0), B, "with 1", LOW), 0)
    made.handle(TaskOut(item("p", 0), C, "with 2", LOW), 0)
    assert not made.held.coming
    effects = made.handle(PartnersChanged((partner(C),)), 10)
    assert GiveBack("g") in effects
    assert Recall("o") in effects
    assert Recall("p") not in effects
    # the recall is requested again until it has happened
    again = wait(made, 200)
    assert GiveBack("g") in again
    assert Recall("o") in again
    made.handle(TaskGone("g"), 201)
    made.handle(TaskHere(item("o", 0)), 201)
    made.handle(TaskBack("o"), 201)
    assert not [e for e in wait(made, 1000) if e in (GiveBack("g"), Recall("o"))]


def test_a_task_is_recalled_when_it_is_clearly_cheaper_at_the_owner() -> None:
    made = brain(partner(B), tasks=60)
    made.handle(TaskOut(item("o", 0), B, "with 1", LOW), 0)
    assert not wait(made, 100)  # not before this has lasted a while
    assert set(wait(made, 1000)) == {Recall("o")}
    full = brain(partner(B), tasks=79)
    full.handle(TaskOut(item("o", 0), B, "with 1", LOW), 0)
    assert not wait(full, 1000)


def test_guests_go_home_when_no_other_peer_takes_them() -> None:
    made = brain(partner(B), tasks=79)
    made.handle(TaskHere(item("g", 1), B, "with 1", LOW), 0)
    made.handle(TaskHere(item("t0", 0, 4.0)), 50)
    effects: list[Effect] = []
    now = 50.0
    while made.wake_at < 200:
        now = made.wake_at
        new = made.handle(Tick(), now)
        for _, offer in offers(new):
            new += made.handle(Received(B, Answer(offer.number, ())), now)
        effects += new
    assert GiveBack("g") in effects


def test_a_peer_without_contracts_is_left_in_peace() -> None:
    made = brain(tasks=120)
    assert not wait(made, 3600)

"""A Brain takes offered tasks, or refuses them, by its load and the price."""

import math

import pytest
from contracts_brain import HIGH, LOW, B, C, answer, brain, offer_of, partner, wait
from contracts_market import item

from contracts.market.config import MAX_HOPS, MAX_ITEMS
from contracts.market.events import PartnersChanged, Received, Send, TaskGone, TaskHere
from contracts.market.messages import Answer, Offer


def test_takes_what_fits_and_keeps_room_for_it() -> None:
    made = brain(partner(B), tasks=77)
    items = [item(f"x{n}", 1) for n in range(5)]
    said = answer(made, offer_of(*items))
    assert said.accepted == ("x0", "x1", "x2")
    assert said.bid == 0
    assert made.held.room == pytest.approx(0)
    made.handle(TaskHere(items[0], B, "with 1", HIGH), 102)
    assert made.held.room == pytest.approx(0)
    wait(made, 300)  # the other two never came
    assert made.held.room == pytest.approx(2)


def test_no_price_takes_it_above_its_capacity() -> None:
    made = brain(partner(B, high=50 * HIGH), tasks=79)
    items = [item(f"x{n}", 1) for n in range(5)]
    assert answer(made, offer_of(*items, price=50 * HIGH)).accepted == ("x0",)


def test_takes_nothing_below_what_it_costs() -> None:
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
    # and the next good one is taken
    assert answer(made, offer_of(item("good", 1), number=9)).accepted == ("good",)


def test_no_more_than_we_said_we_would_run() -> None:
    made = brain(partner(B, most_taken=2))
    assert len(answer(made, offer_of(*[item(f"x{n}", 1) for n in range(5)])).accepted) == 2


def test_who_was_refused_hears_of_room() -> None:
    made = brain(partner(B), tasks=80)
    assert not answer(made, offer_of(item("x", 1), number=7)).accepted
    (said,) = made.handle(TaskGone("t0"), 200)
    assert said == Send(B, Answer(7, (), said.message.bid))
    assert not made.handle(TaskGone("t1"), 201)


def test_a_full_peer_passes_its_own_on_for_who_pays_more() -> None:
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


def test_it_does_not_where_nothing_is_left_to_earn() -> None:
    made = brain(partner(B, HIGH, HIGH), partner(C, HIGH, HIGH), tasks=80)
    answer(made, offer_of(item("x", 1), number=7, hops=1))
    assert made.offer is None


def test_a_withdrawn_request_is_forgotten() -> None:
    made = brain(partner(B), tasks=80)
    answer(made, offer_of(item("x", 1), number=7, hops=1))
    assert not made.handle(Received(B, Offer(8, "with 1", LOW, ())), 103)
    made.handle(PartnersChanged((partner(B), partner(C))), 104)
    assert made.offer is None

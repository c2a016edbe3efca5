"""A Brain sends tasks back to their owners, and recalls its own."""

from contracts_brain import LOW, B, C, brain, offers, partner, wait
from contracts_market import item

from contracts.market.events import (
    Effect,
    GiveBack,
    PartnersChanged,
    Recall,
    Received,
    TaskBack,
    TaskGone,
    TaskHere,
    TaskOut,
    Tick,
)
from contracts.market.messages import Answer


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
    # it is asked for again until it has happened
    again = wait(made, 200)
    assert GiveBack("g") in again
    assert Recall("o") in again
    made.handle(TaskGone("g"), 201)
    made.handle(TaskHere(item("o", 0)), 201)
    made.handle(TaskBack("o"), 201)
    assert not [e for e in wait(made, 1000) if e in (GiveBack("g"), Recall("o"))]


def test_recalled_when_it_is_clearly_cheaper_at_home() -> None:
    made = brain(partner(B), tasks=60)
    made.handle(TaskOut(item("o", 0), B, "with 1", LOW), 0)
    assert not wait(made, 100)  # not before it has been so for a while
    assert set(wait(made, 1000)) == {Recall("o")}
    full = brain(partner(B), tasks=79)
    full.handle(TaskOut(item("o", 0), B, "with 1", LOW), 0)
    assert not wait(full, 1000)


def test_guests_go_home_when_nobody_else_takes_anything() -> None:
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

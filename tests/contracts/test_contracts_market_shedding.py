"""A Brain with too much load offers tasks to partners, and heeds their answers."""

import math
from itertools import pairwise

from contracts_brain import HIGH, LOW, B, C, D, brain, offers, partner, wait
from contracts_market import item

from contracts.market.config import MarketConfig
from contracts.market.events import (
    Move,
    MoveEnded,
    Note,
    Partner,
    Received,
    TaskHere,
    Tick,
    Unreachable,
)
from contracts.market.messages import Answer


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


def test_who_is_farther_above_its_capacity_goes_first() -> None:
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
    assert (last.price, last.hops) == (HIGH, 1)  # it is asked to make room, for no more than that


def test_accepted_tasks_are_moved_others_are_not() -> None:
    made = brain(partner(B), tasks=82)
    offer = offers(wait(made, 16))[0][1]
    task = offer.items[0].task
    effects = made.handle(Received(B, Answer(offer.number, (task, "t5x", task))), 19)
    assert [e for e in effects if isinstance(e, Move)] == [
        Move(offer.items[0], B, "with 1", offer.price)
    ]
    assert any(isinstance(e, Note) and e.level == "warning" for e in effects)
    # the same answer once more moves nothing
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
    assert offers(wait(made, 30))  # it timed out, the next one was asked
    late = made.handle(Received(peer, Answer(offer.number, accepted)), 30)
    assert not [e for e in late if isinstance(e, Move)]


def test_who_does_not_answer_is_asked_ever_more_rarely() -> None:
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


def test_who_accepts_and_never_starts_is_left_alone() -> None:
    made = brain(partner(B), tasks=81)
    offer = offers(wait(made, 16))[0][1]
    made.handle(Received(B, Answer(offer.number, (offer.items[0].task,), LOW)), 17)
    assert made.held.leaving
    effects = made.handle(MoveEnded(offer.items[0].task, ok=False), 60)
    assert not made.held.leaving
    assert not offers(effects)
    assert made.partners[B, "with 1"].broken


def test_what_the_contract_does_not_cover_is_not_offered() -> None:
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
    # the poster's D at 0.8 p: C, at its capacity, passes load on
    made = brain(partner(B, 700_000, 800_000), tasks=80)
    offer = offers(wait(made, 30))[0][1]
    assert len(offer.items) == 2
    assert not offers(wait(brain(partner(B), tasks=80), 30))


def test_a_guest_goes_to_a_third_but_never_back() -> None:
    made = brain(partner(B), partner(C))
    for task in range(82):
        made.handle(TaskHere(item(f"g{task}", 1), B, "with 1", LOW), 0)
    assert not offers(wait(made, 29))  # those who just came stay a while
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

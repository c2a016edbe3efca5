"""The schedules of greetings and renewals, and the settings behind both."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from medusa.dht.config import DhtConfig
from medusa.dht.node import MAX_AT_ONCE, MAX_WAIT_S, NewContacts
from medusa.dht.publishing import AT_ONCE, Schedule
from medusa.dht.shares import Allowances
from medusa.overlay.errors import InvalidInputError

PEERS = [bytes([n]) * 20 for n in range(20)]


def test_all_are_greeted_in_rounds() -> None:
    contacts = NewContacts(Random(1), bytes.hex)
    first = contacts.due(PEERS, [], 0.0)
    second = contacts.due(PEERS, [], 0.0)
    assert len(first) == len(second) == MAX_AT_ONCE
    assert not set(first) & set(second)


def test_the_silent_are_greeted_ever_more_rarely_and_never_given_up() -> None:
    contacts = NewContacts(Random(1), bytes.hex)
    now, times = 0.0, []
    while now < 1000:
        if contacts.due(PEERS[:1], [], now):
            times.append(now)
        now += 0.125
    gaps = [b - a for a, b in pairwise(times)]
    longest = [1, 2, 4, 8, 16, 32] + (len(gaps) - 6) * [MAX_WAIT_S]
    assert len(gaps) > 20
    assert all(most / 2 <= gap <= most + 0.125 for gap, most in zip(gaps, longest, strict=True))


def test_a_met_peer_is_not_greeted_and_starts_anew_when_lost() -> None:
    contacts = NewContacts(Random(1), bytes.hex)
    assert contacts.due(PEERS[:1], [], 0.0) == PEERS[:1]
    assert contacts.due(PEERS[:1], PEERS[:1], 100.0) == []
    assert contacts.due(PEERS[:1], [], 100.0) == PEERS[:1]
    assert contacts.any_due(PEERS[:1], 100.5) is False
    assert contacts.any_due(PEERS[:1], 101.0) is True


def test_a_renewal_comes_before_the_interval_is_over() -> None:
    schedule: Schedule[str] = Schedule(600.0, Random(1))
    schedule.renewed("a", 0.0)
    assert schedule.due(449.0) == []
    assert schedule.due(600.0) == ["a"]


def test_a_failed_renewal_is_tried_again_soon_and_then_more_rarely() -> None:
    schedule: Schedule[str] = Schedule(600.0, Random(1))
    schedule.renewed("a", 0.0)
    now, times = 600.0, []
    for _ in range(15):
        schedule.failed("a", now)
        while not schedule.due(now):
            now += 0.25
        times.append(now)
    assert times[0] <= 601.25
    gaps = [b - a for a, b in pairwise(times)]
    assert max(gaps) <= 600.5
    assert gaps[5] > 10 * gaps[0]


def test_after_a_success_failures_count_from_the_start() -> None:
    schedule: Schedule[str] = Schedule(600.0, Random(1))
    for _ in range(8):
        schedule.failed("a", 0.0)
    schedule.renewed("a", 0.0)
    schedule.failed("a", 600.0)
    assert schedule.due(601.0) == ["a"]


def test_few_are_due_at_once_the_longest_waiting_first() -> None:
    schedule: Schedule[int] = Schedule(600.0, Random(1))
    for number in range(20):
        schedule.add(number, 100.0 - number)
    assert schedule.due(100.0) == list(range(19, 19 - AT_ONCE, -1))
    schedule.remove(19)
    assert schedule.due(100.0)[0] == 18


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"copies": 0}, "copies"),
        ({"copies": 21}, "copies"),
        ({"quorum": 4}, "quorum"),
        ({"quorum": 9}, "quorum"),
        ({"parallel": 0}, "parallel"),
        ({"attempts": 11}, "attempts"),
        ({"lifetime_s": 100_000.0}, "lifetime_s"),
        ({"republish_s": 1800.0}, "republish_s"),
        ({"meet_s": 0.0}, "every time"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(
    changes: dict[str, float], named: str
) -> None:
    with pytest.raises(InvalidInputError, match=named):
        DhtConfig(**changes)  # type: ignore[arg-type]


def test_an_allowance_is_a_burst_and_then_a_rate_each_for_itself() -> None:
    allowances = Allowances(per_s=2.0, burst=3)
    assert [allowances.take(b"a", 10.0) for _ in range(4)] == [True, True, True, False]
    assert allowances.take(b"b", 10.0)
    assert [allowances.take(b"a", 10.5) for _ in range(2)] == [True, False]
    assert [allowances.take(b"a", 100.0) for _ in range(4)] == [True, True, True, False]


def test_an_allowance_forgets_peers_that_no_longer_ask() -> None:
    allowances = Allowances(per_s=2.0, burst=3)
    for number in range(100):
        assert allowances.take(bytes([number]), 0.01 * number)
    assert len(allowances) <= 51
    assert allowances.take(b"a", 10.0)
    assert len(allowances) == 1

"""The rule for the start of an epoch, and the smoothing of rates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.streams.load import EARLY, SMOOTHING_S, Pacer, Rate


def test_the_first_epoch_may_start_at_once() -> None:
    assert Pacer(1.0).delay(100.0) == 0.0


def test_quick_epochs_follow_each_other_after_the_shortest_time() -> None:
    pacer, starts, now = Pacer(1.0), [], 100.0
    for _ in range(10):
        now += pacer.delay(now)
        starts.append(now)
        pacer.started(now)
        now += 0.2
        assert pacer.finished(now) == pytest.approx(0.2)
    assert starts[-1] - starts[0] >= 9 * 1.0 - EARLY


def test_inputs_that_come_once_in_an_epoch_never_wait_though_one_was_late() -> None:
    pacer, waits = Pacer(1.0), []
    for at in (0.0, 1.0, 2.0, 3.4, 4.0, 5.0, 6.3, 7.0):
        waits.append(pacer.delay(at))
        pacer.started(at)
        pacer.finished(at + 0.1)
    assert waits == [0.0] * 8


def test_a_slow_epoch_is_followed_at_once_by_one_that_covers_what_came_meanwhile() -> None:
    pacer = Pacer(1.0)
    pacer.started(100.0)
    pacer.finished(103.0)
    assert pacer.delay(103.0) == 0.0


@given(st.lists(st.floats(0.0, 10.0), min_size=1, max_size=20), st.floats(0.01, 5.0))
def test_starts_are_no_more_often_than_the_shortest_epoch_allows_and_never_overlap(
    durations: list[float], epoch_s: float
) -> None:
    pacer, now, starts, ended = Pacer(epoch_s), 0.0, list[float](), 0.0
    for duration in durations:
        now += pacer.delay(now)
        assert now >= ended
        starts.append(now)
        pacer.started(now)
        now = ended = now + duration
        pacer.finished(now)
    for first, start in enumerate(starts):
        for later, at in enumerate(starts[first:]):
            assert at - start >= (later - EARLY) * epoch_s - 1e-9


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=50), st.floats(0.01, 5.0))
def test_after_epochs_that_could_not_wait_the_next_waits_no_longer_than_after_any_other(
    gaps: list[float], epoch_s: float
) -> None:
    """A source that received posts faster than its memory allows does not fall silent
    afterwards."""
    pacer, now = Pacer(epoch_s), 0.0
    for gap in gaps:
        now += gap
        pacer.started(now)
        pacer.finished(now)
        assert pacer.delay(now) <= epoch_s + 1e-9


def test_a_steady_rate_is_found_and_fades_when_it_stops() -> None:
    rate, now = Rate(), 0.0
    for _ in range(100):
        rate.add(500.0, now)
        now += 1.0
    assert rate.read(now) == pytest.approx(500.0, rel=0.15)
    assert rate.read(now + 10 * SMOOTHING_S) < 1.0


def test_amounts_in_one_instant_are_not_divided_by_zero() -> None:
    rate = Rate()
    rate.add(1.0, 5.0)
    rate.add(1.0, 5.0)
    assert rate.read(6.0) > 0.0

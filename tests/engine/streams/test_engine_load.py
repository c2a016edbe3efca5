"""The cost of a task: smoothing that one jump does not disturb, and the model of load by rate."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.engine.streams.load import (
    MEMORY_S,
    MOST_COST_NS,
    SMALL,
    SMOOTHING_S,
    SPREAD_S,
    LoadMeter,
    LoadModel,
    Smoothed,
    metered,
)


def fed(
    amounts: Iterable[float], every: float = 1.0, small: float = SMALL
) -> tuple[Smoothed, float]:
    """Feed amounts at equal distances; return the time of the last one."""
    smoothed, now = Smoothed(small), 100.0
    smoothed.add(0.0, now)
    for amount in amounts:
        now += every
        smoothed.add(amount, now)
    return smoothed, now


@pytest.mark.parametrize("every", [0.2, 1.0, 4.0])
def test_a_steady_load_is_found(every: float) -> None:
    smoothed, now = fed([0.3 * every] * round(5 * SMOOTHING_S / every), every)
    assert smoothed.read(now) == pytest.approx(0.3, rel=0.05)


def test_one_jump_does_not_show_as_a_rise() -> None:
    steady = [0.1] * 100
    before = fed(steady)[0].read(200.0)
    for size in (0.5, 2.0, 20.0):
        smoothed, now = fed([*steady, size, 0.1])
        after = smoothed.read(now)
        # a jump counts as three times the usual load for one second; what is above that is averaged
        # over two minutes
        most = 3 * before / SMOOTHING_S + size / SPREAD_S
        assert before <= after <= before + most
    assert fed([*steady, 20.0, 0.1])[0].read(202.0) < 0.3, "plain smoothing would say 2.0"


def test_a_rise_is_followed_from_its_second_sample() -> None:
    smoothed, now = fed([*[0.1] * 100, *[1.0] * 20])
    assert smoothed.read(now) > 0.8
    smoothed, now = fed([*[0.1] * 100, *[1.0] * 60])
    assert smoothed.read(now) == pytest.approx(1.0, rel=0.05)


def test_a_fall_is_followed_at_once() -> None:
    smoothed, now = fed([*[1.0] * 100, *[0.1] * 20])
    assert smoothed.read(now) < 0.25


@pytest.mark.parametrize("every", [2, 10, 60])
def test_a_rare_but_regular_load_is_found_in_the_mean(every: int) -> None:
    """Most of such a task's cost falls on the close of a window."""
    amounts = [0.3 if n % every == 0 else 0.001 for n in range(1, 1201)]
    smoothed, now = fed(amounts)
    mean = sum(amounts) / len(amounts)
    assert smoothed.read(now + every / 2) == pytest.approx(mean, rel=0.6)
    reads = []
    for amount in amounts[: 2 * every]:
        now += 1
        smoothed.add(amount, now)
        reads.append(smoothed.read(now))
    assert sum(reads) / len(reads) == pytest.approx(mean, rel=0.2)


def test_idle_tasks_fade_and_reading_changes_nothing() -> None:
    smoothed, now = fed([0.5] * 100)
    value = smoothed.read(now)
    assert smoothed.read(now + 1.0) == value, "the next epoch is not due yet"
    assert smoothed.read(now + 10 * SMOOTHING_S) < 0.01 * value
    assert smoothed.read(now) == value


def test_after_a_silence_what_comes_is_measured_over_all_of_it() -> None:
    smoothed, now = fed([0.5] * 100)
    smoothed.add(0.5, now + 100)
    assert smoothed.read(now + 100) == pytest.approx(0.005, rel=0.1)


def test_epochs_that_follow_closely_count_together() -> None:
    together, now = fed([0.5] * 100)
    apart = Smoothed(SMALL)
    apart.add(0.0, 100.0)
    at = 100.0
    for _ in range(100):
        apart.add(0.2, at + 0.05)
        at += 1.0
        apart.add(0.3, at)
    assert apart.read(now) == pytest.approx(together.read(now), rel=0.01)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), max_size=50))
def test_the_smoothed_rate_is_never_negative_nor_above_the_usage(
    samples: list[tuple[float, float]],
) -> None:
    smoothed, now, most = Smoothed(SMALL), 0.0, 0.0
    pending = 0.0
    smoothed.add(0.0, now)
    total = 0.0
    for amount, elapsed in samples:
        now += elapsed
        smoothed.add(amount, now)
        total += amount
        pending += amount
        most = max(most, pending / 0.1)
        value = smoothed.read(now)
        assert 0 <= value <= 1e-9 + 1.01 * total / 0.1
        assert math.isfinite(value)
    assert smoothed.read(now + 1e9) == pytest.approx(0.0, abs=1e-6)


# -- the model -------------------------------------------------------------------------------------


def test_a_line_is_found_and_predicted() -> None:
    model = LoadModel()
    for n in range(200):
        rate = 1000.0 + 900 * math.sin(n / 7)
        model.add(rate, 0.1 + 2e-4 * rate, float(n))
    c0, c1 = model.coefficients
    assert c0 == pytest.approx(0.1, rel=0.05)
    assert c1 == pytest.approx(2e-4, rel=0.05)
    assert model.predict(10_000.0) == pytest.approx(2.1, rel=0.05)


def test_at_one_rate_load_is_taken_to_be_in_proportion() -> None:
    model = LoadModel()
    for n in range(50):
        model.add(500.0, 0.2, float(n))
    assert model.predict(500.0) == pytest.approx(0.2)
    assert model.predict(1000.0) == pytest.approx(0.4)


def test_without_input_load_does_not_depend_on_it() -> None:
    model = LoadModel()
    assert model.predict(1000.0) == 0.0
    model.add(0.0, 0.05, 1.0)
    assert model.predict(1000.0) == pytest.approx(0.05)


def test_old_measurements_are_forgotten() -> None:
    model = LoadModel()
    rates = [200.0, 900.0, 400.0, 700.0] * 25
    for n, rate in enumerate(rates):
        model.add(rate, 0.5 + 1e-3 * rate, float(n))
    for n, rate in enumerate(rates * 20):
        model.add(rate, 0.1 + 3e-4 * rate, 100.0 + n)
    c0, c1 = model.coefficients
    assert (c0, c1) == (pytest.approx(0.1, rel=0.1), pytest.approx(3e-4, rel=0.1))


samples = st.lists(
    st.tuples(st.floats(0.0, 1e6), st.floats(0.0, 64.0), st.floats(0.0, 60.0)),
    min_size=1,
    max_size=40,
)


@given(samples, st.floats(0.0, 1e7))
def test_coefficients_are_never_negative(
    samples: list[tuple[float, float, float]], rate: float
) -> None:
    model, now = LoadModel(), 0.0
    for x, y, elapsed in samples:
        now += elapsed
        model.add(x, y, now)
    c0, c1 = model.coefficients
    assert c1 >= 0
    assert c0 >= -1e-6
    assert math.isfinite(model.predict(rate))


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.5), st.floats(1e-6, 1e-3))
def test_the_load_model_is_weighted_least_squares(seed: int, c0: float, c1: float) -> None:
    """numpy solves the same weighted problem, where its solution is not negative."""
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.uniform(0.5, 20.0, 60))
    rates = rng.uniform(0.0, 5000.0, 60)
    loads = np.maximum(0.0, c0 + c1 * rates + rng.normal(0.0, 0.02, 60))
    model = LoadModel()
    for now, rate, load in zip(at, rates, loads, strict=True):
        model.add(float(rate), float(load), float(now))
    weights = np.sqrt(np.exp((at - at[-1]) / MEMORY_S))
    design = np.stack([np.ones(60), rates], axis=1) * weights[:, None]
    expected, *_ = np.linalg.lstsq(design, loads * weights, rcond=None)
    if expected[0] >= 0 and expected[1] >= 0:
        slope = model.coefficients[1]
        mean = float(np.average(rates, weights=weights**2))
        proportional = model.predict(mean) / mean
        # The correction for noise pulls the slope a little towards the proportional one.
        assert slope == pytest.approx(expected[1], abs=0.015 * abs(proportional - expected[1]))
        assert model.predict(mean) == pytest.approx(float(expected @ [1.0, mean]), rel=1e-6)


# -- the meter -------------------------------------------------------------------------------------


def test_cost_per_row_at_the_present_rate() -> None:
    meter = LoadMeter()
    assert (meter.load(5.0), meter.rate(5.0), meter.cost_ns) == (0.0, 0.0, 0)
    for n in range(60):
        meter.add(1000, 0.1, float(n))
    assert meter.load(59.0) == pytest.approx(0.1, rel=0.05)
    assert meter.rate(59.0) == pytest.approx(1000, rel=0.05)
    assert meter.cost_ns == pytest.approx(100_000, rel=0.02), "0.1 s for 1000 rows"
    for n in range(60, 300):
        meter.add(0, 0.0, float(n))
    assert meter.load(299.0) < 1e-6
    assert meter.cost_ns == pytest.approx(100_000, rel=0.5), "as it was last"


def test_a_task_that_arrives_keeps_the_load_that_it_had_before() -> None:
    meter = LoadMeter()
    meter.expect(0.4, 2000.0, 7.0)
    assert (meter.load(8.0), meter.rate(8.0), meter.cost_ns) == (0.4, 2000.0, 200_000)
    assert meter.model.predict(4000.0) == pytest.approx(0.8)
    for n in range(8, 90):
        meter.add(1000, 0.1, float(n))
        if n == 10:
            assert 0.3 < meter.load(10.0) < 0.4
    assert meter.load(89.0) == pytest.approx(0.1, rel=0.05)
    assert meter.cost_ns == pytest.approx(100_000, rel=0.05)


def test_rows_that_never_come_do_not_cost_for_ever() -> None:
    meter = LoadMeter()
    for n in range(60):
        meter.add(0, 0.1, float(n))
    assert meter.cost_ns == 0
    assert meter.model.predict(100.0) == pytest.approx(meter.load(59.0), rel=0.2)
    for n in range(60, 10_000):
        meter.add(1 if n == 60 else 0, 0.1, float(n))
    assert 0 < meter.cost_ns <= MOST_COST_NS


def test_the_meter_of_a_varying_task_predicts() -> None:
    meter = LoadMeter()
    for n in range(600):
        rows = 2000 if n // 60 % 2 else 500
        meter.add(rows, 0.05 + rows * 1e-4, float(n))
    assert meter.model.predict(4000.0) == pytest.approx(0.45, rel=0.1)


def test_only_this_thread_is_metered() -> None:
    def work(seconds: float) -> str:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return "done"

    result, took = metered(work, 0.02)
    assert result == "done"
    assert 0.02 <= took < 0.05
    assert metered(time.sleep, 0.02)[1] < 0.01


def test_the_predicted_load_of_a_moved_task_follows_its_input() -> None:
    meter = LoadMeter()
    now = 0.0
    for rate in (100, 200) * 200:  # both rates, so that the slope shows
        now += 1.0
        meter.add(rate, 0.02 + 0.001 * rate, now)
    assert meter.predicted(now) == pytest.approx(0.17, rel=0.1)
    for _ in range(100):  # at another peer it reads four times as many bytes
        now += 1.0
        meter.add_elsewhere(600, now)
    assert meter.rate(now) == pytest.approx(600, rel=0.05)
    assert meter.predicted(now) == pytest.approx(0.62, rel=0.25)

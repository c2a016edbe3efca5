import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa.contracts.market.cost import QueueingCost, unit_cost
from medusa.contracts.market.prices import delta_k, fixed_price, price_range
from medusa.overlay.errors import InvalidInputError


@pytest.mark.parametrize(("k", "percent"), [(0, 0), (1, 9.1), (2, 17), (3, 24), (5, 35), (10, 55)])
def test_delta_k_is_that_of_the_literature(k: int, percent: float) -> None:
    # NSDI 2004, section 3.3: rho / (1 - rho), capacity 0.8, tasks of 1 %; "55 %" rounds from 52.6 %
    share = 100 * delta_k(QueueingCost(80, 1000), 80, 1, k)
    assert share == pytest.approx(percent, abs=0.5 if k < 10 else 3)


def test_delta_k_by_hand() -> None:
    level = [rho / (100 - rho) for rho in range(81)]
    last, lower = level[80] - level[79], level[77] - level[76]
    assert delta_k(QueueingCost(80, 7), 80, 1, 3) == pytest.approx(1 - lower / last)


def test_the_price_is_that_of_the_cost_function() -> None:
    assert fixed_price(QueueingCost(80, 1_000_000), 80, 1) == 1_000_000
    assert price_range(QueueingCost(80, 1_000_000), 80, 1, 0) == (1_000_000, 1_000_000)
    low, high = price_range(QueueingCost(80, 1_000_000), 80, 1, 2)
    assert high == 1_000_000
    assert low == pytest.approx(830_000, abs=1000)


def test_the_unit_cost_at_capacity_is_the_price() -> None:
    cost = QueueingCost(35, 500)
    assert unit_cost(cost, 35, 1e-6) == pytest.approx(500, rel=1e-3)
    assert unit_cost(cost, 35, -1e-6) == pytest.approx(500, rel=1e-3)


@given(capacity=st.floats(1, 1e4), load=st.floats(0, 1.2), change=st.floats(0.001, 0.1))
def test_a_task_costs_more_at_a_higher_load(capacity: float, load: float, change: float) -> None:
    cost = QueueingCost(capacity, 1000)
    at, by = capacity * load, capacity * change
    if at + 2 * by < cost.total * 0.999:
        assert 0 < unit_cost(cost, at, by) < unit_cost(cost, at + by, by)
        assert unit_cost(cost, at + by, -by) == pytest.approx(unit_cost(cost, at, by), rel=1e-6)


def test_past_its_total_load_costs_everything() -> None:
    cost = QueueingCost(80, 1000)
    assert cost.level(100) == math.inf
    assert unit_cost(cost, 99.5, 1) == math.inf
    assert unit_cost(cost, 140, -1) == math.inf


@pytest.mark.parametrize("load", range(1, 99))
def test_the_cost_grows_ever_faster(load: int) -> None:
    below, at, above = (QueueingCost(80, 1).level(load + step) for step in (-1, 0, 1))
    assert 0 < at - below < above - at < math.inf


@pytest.mark.parametrize(
    ("capacity", "price"), [(0, 1), (-1, 1), (math.nan, 1), (math.inf, 1), (80, 0)]
)
def test_no_cost_without_capacity_and_price(capacity: float, price: int) -> None:
    with pytest.raises(InvalidInputError):
        QueueingCost(capacity, price)


def test_ranges_that_cannot_be() -> None:
    cost = QueueingCost(80, 1000)
    with pytest.raises(InvalidInputError, match="80 tasks"):
        price_range(cost, 80, 1, 80)
    with pytest.raises(InvalidInputError, match="-1 tasks"):
        price_range(cost, 80, 1, -1)
    with pytest.raises(InvalidInputError, match="must be above 0"):
        price_range(cost, 80, 0, 1)
    with pytest.raises(InvalidInputError, match="micros a unit"):
        price_range(QueueingCost(80, 2**50), 80, 1, 1)

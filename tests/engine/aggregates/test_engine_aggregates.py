"""Aggregate functions: the sketch of percentiles, texts, variances, and conditions."""

from __future__ import annotations

import math
import random
import statistics
from fractions import Fraction

import duckdb
import pytest
from aggregated_values import SOURCE, computed, of_panes, of_values, tasks
from hypothesis import example, given
from hypothesis import strategies as st
from reference_aggregates import array, exact_variance, histogram, limited, middle, top

from medusa.engine.aggregates.buckets import BUCKETS, INFINITE, NOT_A_NUMBER, estimate
from medusa.engine.aggregates.texts import TEXT_LIMIT
from medusa.engine.objects.query import AggregateCall
from medusa.engine.operators.shared.step import Interval
from medusa.engine.reference.interpreter import run_task

# -- the sketch of percentiles ---------------------------------------------------------------------

DOUBLES = st.floats(allow_nan=False)


def bucket(value: float) -> int:
    return BUCKETS.key(value, None)


@given(DOUBLES)
@example(2.0**-30)
@example(math.nextafter(2.0**-30, 0))
@example(2.0**64)
@example(math.nextafter(2.0**64, 0))
@example(-0.0)
@example(5e-324)
@example(math.nextafter(8.0, 0))
def test_the_estimate_is_within_a_hundredth(value: float) -> None:
    found = estimate(bucket(value))
    assert found == middle(value)
    if 2.0**-30 <= abs(value) < 2.0**64:
        assert abs(Fraction(found) - Fraction(value)) <= abs(Fraction(value)) / 128
    elif abs(value) < 2.0**-30:
        assert found == 0
    else:
        assert math.isinf(found)


@given(DOUBLES, DOUBLES)
def test_buckets_have_the_order_of_the_values(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert bucket(low) <= bucket(high) <= INFINITE < NOT_A_NUMBER == bucket(math.nan)
    assert bucket(-high) == -bucket(high)


@given(
    st.lists(DOUBLES | st.floats(0.001, 1_000.0), min_size=1, max_size=80),
    st.sampled_from([0, 0.01, 0.25, 0.5, 0.9, 0.999999, 1]),
    st.randoms(use_true_random=False),
)
def test_a_sketch_knows_the_value_of_any_rank(
    values: list[float], p: float, rng: random.Random
) -> None:
    """The order of the values, and the panes, make no difference."""
    found = of_values("approx_percentile", [*values], p)
    rng.shuffle(values)
    assert of_values("approx_percentile", [*values], p) == found
    rank = max(math.ceil(Fraction(str(p)) * len(values)), 1)
    assert found == middle(sorted(values)[rank - 1])


def test_a_pane_has_a_row_for_each_bucket() -> None:
    rng = random.Random(1)
    each = AggregateCall("approx_percentile", "x", "o", 0.5)
    partial, combined = tasks(each, pane=10)
    values = [rng.lognormvariate(0, 1) for _ in range(20_000)]
    rows = [{"stime": 0, "seq": seq, "x": value} for seq, value in enumerate(values)]
    panes = run_task(partial, {SOURCE.name: rows}, -1, 9, Interval(-1, 9))
    assert 400 < len(panes) < 800, "12 powers of two"
    assert sum(row["pr0"] for row in panes) == len(values)
    (found,) = run_task(combined, {partial.output: panes}, 40, 59, Interval(-1, 59))
    assert abs(found["o"] / statistics.median(values) - 1) < 0.01


# -- exact percentiles, texts, variances -----------------------------------------------------------


@given(st.lists(st.integers(-1_000, 1_000), min_size=1, max_size=50))
def test_the_median_is_that_of_the_values(values: list[int]) -> None:
    assert of_values("median", [*values], None) == statistics.median(values)


@given(st.lists(st.integers(-1_000, 1_000), min_size=2, max_size=50), st.integers(2, 20))
def test_percentiles_are_the_quantiles_of_statistics(values: list[int], parts: int) -> None:
    """Python's own quantiles have cuts of the same kind."""
    quantiles = statistics.quantiles(values, n=parts, method="inclusive")
    for k, expected in enumerate(quantiles, start=1):
        if Fraction(k, parts) * 1_000_000 % 1 == 0:
            found = of_values("percentile", [*values], k / parts)
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-9)


TEXTS = st.text(max_size=5) | st.sampled_from(["", '"', "\\", "\x00\x1f\n", "é", "\U0001f600"])


@given(st.lists(TEXTS, min_size=1, max_size=30), st.integers(1, 5))
def test_texts_equal_the_definition(values: list[str], k: int) -> None:
    assert of_values("top_k", [*values], k) == top(values, k)
    assert of_values("array_agg", [*values], None) == array(values)
    assert of_values("string_agg", [*values], ", ") == ", ".join(sorted(values))


@given(
    st.lists(st.integers(-100, 100) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30),
    st.sampled_from([1, 7, 100, 2**31]),
)
def test_histograms_of_integers(values: list[int], width: int) -> None:
    assert of_values("histogram", [*values], width) == histogram(values, width)


@given(st.lists(st.floats(width=64), min_size=1, max_size=30), st.sampled_from([1, 7]))
def test_histograms_of_floats(values: list[float], width: int) -> None:
    assert of_values("histogram", [*values], width) == histogram(values, width)


def test_long_texts_are_cut() -> None:
    rng = random.Random(2)
    values = ["x" * rng.randrange(40) for _ in range(3_000)]
    whole = ", ".join(sorted(values))
    assert len(whole) > TEXT_LIMIT
    found = of_values("string_agg", [*values], ", ")
    assert isinstance(found, str)
    assert found == limited(sorted(values), ", ", ["…"])
    assert found.endswith(", …")
    assert whole.startswith(found[:-1])
    assert TEXT_LIMIT - 40 <= len(found) <= TEXT_LIMIT + 1
    assert of_values("array_agg", [*values], None) == array(values)
    assert array(values).endswith('",null]')
    assert of_values("top_k", [*values, *map(str, range(9_999))], 1_000) == top(
        [*values, *map(str, range(9_999))], 1_000
    )
    numbers = list(range(0, 90_000, 7))
    assert of_values("histogram", [*numbers], 10) == histogram(numbers, 10)
    assert '"…":' in str(histogram(numbers, 10))


def test_empty_texts_have_an_end() -> None:
    assert of_values("string_agg", [""] * 20_000, "") == "…"


LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.integers(2**62, 2**62 + 3)


@given(st.lists(LONGS, min_size=1, max_size=40))
def test_variances_of_integers_are_exact(values: list[int]) -> None:
    for function, ddof in (("var_pop", 0), ("var_samp", 1)):
        found = of_values(function, [*values], None)
        assert found == exact_variance(values, ddof)
        if found is not None and isinstance(found, float):
            mean = Fraction(sum(values), len(values))
            exact = sum((value - mean) ** 2 for value in values) / (len(values) - ddof)
            assert abs(Fraction(found) - exact) <= exact / 2**50


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=40))
def test_variances_of_floats_are_near(values: list[float]) -> None:
    near = pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-9)
    assert of_panes("stddev_samp", [*values], None) == [near, near, near]


def test_a_variance_of_floats_far_from_zero_keeps_its_digits() -> None:
    """A sum of squares would lose all digits."""
    values = [1e9 + n / 16 for n in range(100)]
    exact = float(statistics.variance([Fraction(value) for value in values]))
    near = pytest.approx(exact, rel=1e-6)
    assert of_panes("var_samp", [*values], None) == [near, near, near]


NOT_FINITE = st.sampled_from([math.nan, math.inf, -math.inf])


@given(st.lists(st.floats(-1e9, 1e9), max_size=10), st.lists(NOT_FINITE, min_size=1, max_size=3))
def test_a_variance_of_what_is_not_finite_is_nan(finite: list[float], others: list[float]) -> None:
    values = [*finite, *others]
    for function, least in DEGREES.items():
        for found in of_panes(function, [*values], None):
            assert found is None if len(values) < least else math.isnan(found)  # type: ignore[arg-type]


DEGREES = {"var_pop": 1, "stddev_pop": 1, "var_samp": 2, "stddev_samp": 2}
"""How many values each degree needs."""


# -- FILTER ----------------------------------------------------------------------------------------

FILTERED = {
    "count(*)": ("count", "1", None),
    "sum(n)": ("sum", "n", None),
    "avg(n)": ("avg", "n", None),
    "min(s)": ("min", "s", None),
    "count(DISTINCT n)": ("count_distinct", "n", None),
    "quantile_disc(n, 0.9)": ("percentile_disc", "n", 0.9),
    "median(n)": ("median", "n", None),
    "string_agg(s, '+' ORDER BY s)": ("string_agg", "s", "+"),
    "bool_and(t)": ("bool_and", "t", None),
    "var_samp(n)": ("var_samp", "n", None),
}


@pytest.mark.parametrize("sql", FILTERED)
def test_a_case_is_a_filter(sql: str) -> None:
    """`f(x) FILTER (WHERE c)` is `f(case when c then x end)`, as nulls do not count."""
    name, argument, parameter = FILTERED[sql]
    rng = random.Random(3)
    rows = [
        {
            "stime": n,
            "n": rng.choice([None, *range(6)]),
            "x": None,
            "s": rng.choice([None, "a", "b"]),
            "t": rng.choice([None, True, False]),
        }
        for n in range(60)
    ]
    for condition in ("n < 3", "n < 0", "n is null or t"):
        call = f"case when {condition} then {argument} end"
        each = AggregateCall(name, call, "o", parameter)
        (found,) = computed(rows, each, pane=10)
        with duckdb.connect() as database:
            database.execute("CREATE TABLE rows (n BIGINT, s VARCHAR, t BOOLEAN)")
            database.executemany(
                "INSERT INTO rows VALUES (?, ?, ?)",
                [(row["n"], row["s"], row["t"]) for row in rows],
            )
            expected = database.execute(
                f"SELECT {sql} FILTER (WHERE {condition}) FROM rows"
            ).fetchall()
        assert found["o"] == (
            pytest.approx(expected[0][0]) if isinstance(found["o"], float) else expected[0][0]
        )

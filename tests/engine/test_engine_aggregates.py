"""Functions of windows: their constants, the sketch of percentiles, texts and variances."""

from __future__ import annotations

import math
import random
import statistics
from fractions import Fraction

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from query_xml import write_query
from reference_aggregates import array, exact_variance, histogram, limited, middle, top

from engine.language.aggregates import (
    SEPARATOR_LIMIT,
    TEXT_LIMIT,
    call_of,
    check_parameter,
    millionths,
)
from engine.language.buckets import INFINITE, NOT_A_NUMBER
from engine.language.check import check_query, type_box
from engine.language.panes import has_room, panes_fields
from engine.language.xml.documents import read_document
from engine.objects.query import Aggregate, AggregateFunction, Function, Query
from engine.objects.schema import Field, FieldType, Schema
from engine.tasks.plan import Task, plan
from engine.tasks.windows import Interval
from overlay.errors import InvalidInputError
from testnet.simulation.bags import bucket, estimate
from testnet.simulation.interpreter import run_task

OUTPUT = "medusa://mit.edu/out"
SOURCE = Schema(
    "medusa://mit.edu/s",
    (
        Field("n", FieldType.LONG, nullable=True),
        Field("x", FieldType.DOUBLE, nullable=True),
        Field("s", FieldType.STRING, size=20, nullable=True),
        Field("t", FieldType.BOOL, nullable=True),
    ),
)
Rows = list[dict[str, object]]


def query(*functions: AggregateFunction, size: int = 60, advance: int = 20) -> Query:
    box = Aggregate("w", SOURCE.name, OUTPUT, size, advance, (), functions)
    return Query("medusa://mit.edu/q", (box,))


def tasks(*functions: AggregateFunction, pane: int | None = None, advance: int = 20) -> list[Task]:
    made = query(*functions, advance=advance)
    panes = () if pane is None else (("w", pane),)
    made = Query(made.name, made.boxes, panes=panes)
    return list(plan(made, check_query(made, {SOURCE.name: SOURCE})))


def computed(rows: Rows, *functions: AggregateFunction, pane: int | None = None) -> Rows:
    files = {SOURCE.name: [{"seq": seq, **row} for seq, row in enumerate(rows)]}
    for task in tasks(*functions, pane=pane, advance=60):
        files[task.output] = run_task(task, files, -1_000, 1_000, Interval(-1_000, 1_000))
    return files[OUTPUT]


def of_values(function: Function, values: list[object], parameter: float | str | None) -> object:
    """The result of a window, whichever panes it is made of."""
    whole, *folded = of_panes(function, values, parameter)
    assert folded == [whole, whole]
    return whole


def of_panes(
    function: Function, values: list[object], parameter: float | str | None
) -> list[object]:
    """The results of a window of tuples, and of the same of panes of two widths."""
    rows = [{"stime": n % 60, "v": value} for n, value in enumerate(values)]
    rows.sort(key=lambda row: row["stime"])
    name = {str: "s", float: "x", bool: "t"}.get(type(values[0]), "n")
    each = AggregateFunction(function, name, "o", parameter)
    blank = dict.fromkeys(("n", "x", "s", "t"))
    given = [{**blank, "stime": row["stime"], name: row["v"]} for row in rows]
    return [computed(given, each, pane=pane)[0]["o"] for pane in (None, 10, 3)]


# -- constants ------------------------------------------------------------------------------------

CALLS = st.one_of(
    st.builds(
        AggregateFunction,
        st.sampled_from([Function.PERCENTILE, Function.APPROX_PERCENTILE]),
        st.sampled_from(["n", "coalesce(n, 0)", "x * (1 + n)"]),
        st.just("o"),
        st.integers(0, 1_000_000).map(lambda n: n / 1_000_000) | st.integers(0, 1),
    ),
    st.builds(
        AggregateFunction,
        st.just(Function.STRING_AGG),
        st.sampled_from(["s", "s || ', '", "concat(s, '(', ''''''',')"]),
        st.just("o"),
        st.text(max_size=SEPARATOR_LIMIT).filter(str.isprintable),
    ),
    st.builds(
        AggregateFunction,
        st.sampled_from([Function.TOP_K, Function.HISTOGRAM]),
        st.sampled_from(["n", "case when t then n else -1 end"]),
        st.just("o"),
        st.integers(1, 1_000),
    ),
)


@given(CALLS)
@example(AggregateFunction(Function.STRING_AGG, "s", "o", "',"))
@example(AggregateFunction(Function.PERCENTILE, "n", "o", 0.000001))
def test_constants_are_written_and_read_again(each: AggregateFunction) -> None:
    made = query(each)
    (again,) = read_document(f"<medusa>{write_query(made)}</medusa>", "medusa://mit.edu/").queries
    assert again == made
    check_query(made, {SOURCE.name: SOURCE})


@pytest.mark.parametrize(
    ("text", "function", "parameter"),
    [
        ("percentile(n, 0.50)", Function.PERCENTILE, 0.5),
        ("percentile_cont( n ,1)", Function.PERCENTILE, 1),
        ("string_agg(s,'it''s, ')", Function.STRING_AGG, "it's, "),
        ("variance(n)", Function.VAR_SAMP, None),
        ("stddev(n)", Function.STDDEV_SAMP, None),
        ("every(t)", Function.BOOL_AND, None),
        ("some(t)", Function.BOOL_OR, None),
    ],
)
def test_what_is_read(text: str, function: Function, parameter: float | str | None) -> None:
    (made,) = read_document(document(text), "medusa://mit.edu/").queries
    (box,) = made.boxes
    assert isinstance(box, Aggregate)
    (each,) = box.functions
    assert (each.function, each.parameter) == (function, parameter)
    assert (each.argument or "").strip() in {"n", "s", "t"}
    check_query(made, {SOURCE.name: SOURCE})


def document(call: str) -> str:
    parameters = {"aggregate-function.0": call.replace("<", "&lt;"), "window-size": "60"}
    return (
        '<medusa><query name="medusa://mit.edu/q"><box name="w" type="aggregate">'
        f'<input port="1" stream="{SOURCE.name}"/><output port="1" stream="{OUTPUT}"/>'
        + "".join(f'<param name="{name}" value="{value}"/>' for name, value in parameters.items())
        + "</box></query></medusa>"
    )


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("percentile(n)", "percentile needs a number from 0 to 1 with at most six decimals"),
        ("percentile(n, 95)", "like percentile\\(x, 0.95\\)"),
        ("percentile(n, 0.1234567)", "at most six decimals"),
        ("percentile(n, x)", "'x' is not a number like 0.5"),
        ("percentile(n, -0.5)", "'-0.5' is not a number"),
        ("percentile(n, 'half')", "percentile needs a number"),
        ("top_k(n, 0)", "top_k needs a whole number from 1 to 1,000"),
        ("top_k(n, 2.5)", "top_k needs a whole number"),
        ("top_k(n, 1001)", "top_k needs a whole number"),
        ("histogram(n, 0)", "histogram needs a whole number"),
        ("string_agg(s)", "string_agg needs a text of at most 64 printable characters"),
        (f"string_agg(s, '{'-' * 65}')", "at most 64"),
        ("string_agg(n, ',')", "string_agg does not take long"),
        ("top_k(x, 3)", "top_k does not take double"),
        ("array_agg(x)", "array_agg does not take double"),
        ("bool_and(n)", "bool_and does not take long"),
        ("median(s)", "median does not take string"),
        ("median(n, 0.5)", "','|unexpected|not"),
        ("mode(n)", "there is no aggregate 'mode'"),
    ],
)
def test_what_is_refused(call: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        check_query(
            read_document(document(call), "medusa://mit.edu/").queries[0], {SOURCE.name: SOURCE}
        )


@pytest.mark.parametrize(
    "each",
    [
        AggregateFunction(Function.MEDIAN, "n", "o", 0.5),
        AggregateFunction(Function.PERCENTILE, "n", "o", math.nan),
        AggregateFunction(Function.PERCENTILE, "n", "o", math.inf),
        AggregateFunction(Function.TOP_K, "n", "o", "3"),
        AggregateFunction(Function.STRING_AGG, "s", "o", "\n"),
        AggregateFunction(Function.STRING_AGG, "s", "o", 3),
    ],
)
def test_constants_from_elsewhere_are_refused(each: AggregateFunction) -> None:
    with pytest.raises(InvalidInputError):
        check_parameter(each)


@given(st.integers(0, 1_000_000))
def test_a_fraction_is_its_millionths(n: int) -> None:
    each = AggregateFunction(Function.PERCENTILE, "n", "o", n / 1_000_000)
    check_parameter(each)
    assert millionths(each.function, each.parameter) == n
    assert "e" not in call_of(each).split(",")[1]


def test_the_fields_of_results() -> None:
    functions = (
        AggregateFunction(Function.PERCENTILE_DISC, "s", "a", 0.5),
        AggregateFunction(Function.STRING_AGG, "s", "b", ","),
        AggregateFunction(Function.PERCENTILE_DISC, "n", "c", 0.5),
        AggregateFunction(Function.MEDIAN, "n", "d"),
        AggregateFunction(Function.BOOL_OR, "t", "e"),
    )
    (box,) = query(*functions).boxes
    fields = type_box(box, {SOURCE.name: SOURCE}).schemas[OUTPUT].fields
    assert fields[1:] == (
        Field("a", FieldType.STRING, 20, nullable=True),
        Field("b", FieldType.STRING, None, nullable=True),
        Field("c", FieldType.LONG, None, nullable=True),
        Field("d", FieldType.DOUBLE, None, nullable=True),
        Field("e", FieldType.BOOL, None, nullable=True),
    )


# -- panes ----------------------------------------------------------------------------------------


def fields_of(*functions: AggregateFunction) -> list[str]:
    partial, _ = tasks(*functions, pane=10)
    assert partial.window is not None
    return [each.name for each in panes_fields(partial.window)]


def test_functions_share_the_tuples_of_their_values() -> None:
    percentiles = [
        AggregateFunction(Function.PERCENTILE, "n", f"p{p}", p / 100) for p in (50, 95, 99)
    ]
    median, disc = (
        AggregateFunction(Function.MEDIAN, "n", "m"),
        AggregateFunction(Function.PERCENTILE_DISC, "n", "d", 0.5),
    )
    top_ = AggregateFunction(Function.TOP_K, "n", "t", 3)
    assert fields_of(*percentiles, median, disc, top_) == ["pv0", "pr0", "pformer"]
    sketch = AggregateFunction(Function.APPROX_PERCENTILE, "n", "a", 0.5)
    assert fields_of(median, sketch) == ["ppart", "pv0", "pv1", "pr0", "pr1", "pformer"]
    narrow, wide = (AggregateFunction(Function.HISTOGRAM, "n", f"h{w}", w) for w in (1, 10))
    assert fields_of(narrow, wide) == ["ppart", "pv0", "pv1", "pr0", "pr1", "pformer"]


def test_a_variance_has_three_fields_of_floats_and_nine_of_integers() -> None:
    of_x, of_n = (AggregateFunction(Function.VAR_POP, field, "v") for field in "xn")
    assert len(fields_of(of_x)) == 3 + 1
    assert len(fields_of(of_n)) == 9 + 1
    many = tuple(AggregateFunction(Function.VAR_POP, "n", f"v{n}") for n in range(29))
    (small,), (large,) = query(*many[:-1]).boxes, query(*many).boxes
    assert isinstance(small, Aggregate)
    assert isinstance(large, Aggregate)
    assert has_room(small)
    assert not has_room(large), "261 fields"


# -- the sketch of percentiles --------------------------------------------------------------------

DOUBLES = st.floats(allow_nan=False)


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
    """Whichever the order of the values, and the panes."""
    found = of_values(Function.APPROX_PERCENTILE, [*values], p)
    rng.shuffle(values)
    assert of_values(Function.APPROX_PERCENTILE, [*values], p) == found
    rank = max(math.ceil(Fraction(str(p)) * len(values)), 1)
    assert found == middle(sorted(values)[rank - 1])


def test_a_pane_has_a_row_for_each_bucket() -> None:
    rng = random.Random(1)
    each = AggregateFunction(Function.APPROX_PERCENTILE, "x", "o", 0.5)
    partial, combined = tasks(each, pane=10)
    values = [rng.lognormvariate(0, 1) for _ in range(20_000)]
    rows = [{"stime": 0, "seq": seq, "x": value} for seq, value in enumerate(values)]
    panes = run_task(partial, {SOURCE.name: rows}, -1, 9, Interval(-1, 9))
    assert 400 < len(panes) < 800, "12 powers of two"
    assert sum(row["pr0"] for row in panes) == len(values)
    (found,) = run_task(combined, {partial.output: panes}, 40, 59, Interval(-1, 59))
    assert abs(found["o"] / statistics.median(values) - 1) < 0.01


# -- exact percentiles, texts, variances ----------------------------------------------------------


@given(st.lists(st.integers(-1_000, 1_000), min_size=1, max_size=50))
def test_the_median_is_that_of_the_values(values: list[int]) -> None:
    assert of_values(Function.MEDIAN, [*values], None) == statistics.median(values)


@given(st.lists(st.integers(-1_000, 1_000), min_size=2, max_size=50), st.integers(2, 20))
def test_percentiles_are_the_quantiles_of_statistics(values: list[int], parts: int) -> None:
    """Python's own, whose cuts are of the same kind."""
    quantiles = statistics.quantiles(values, n=parts, method="inclusive")
    for k, expected in enumerate(quantiles, start=1):
        if Fraction(k, parts) * 1_000_000 % 1 == 0:
            found = of_values(Function.PERCENTILE, [*values], k / parts)
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-9)


TEXTS = st.text(max_size=5) | st.sampled_from(["", '"', "\\", "\x00\x1f\n", "é", "\U0001f600"])


@given(st.lists(TEXTS, min_size=1, max_size=30), st.integers(1, 5))
def test_texts_are_what_they_should_be(values: list[str], k: int) -> None:
    assert of_values(Function.TOP_K, [*values], k) == top(values, k)
    assert of_values(Function.ARRAY_AGG, [*values], None) == array(values)
    assert of_values(Function.STRING_AGG, [*values], ", ") == ", ".join(sorted(values))


@given(
    st.lists(st.integers(-100, 100) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30),
    st.sampled_from([1, 7, 100, 2**31]),
)
def test_histograms_of_integers(values: list[int], width: int) -> None:
    assert of_values(Function.HISTOGRAM, [*values], width) == histogram(values, width)


@given(st.lists(st.floats(width=64), min_size=1, max_size=30), st.sampled_from([1, 7]))
def test_histograms_of_floats(values: list[float], width: int) -> None:
    assert of_values(Function.HISTOGRAM, [*values], width) == histogram(values, width)


def test_long_texts_are_cut() -> None:
    rng = random.Random(2)
    values = ["x" * rng.randrange(40) for _ in range(3_000)]
    whole = ", ".join(sorted(values))
    assert len(whole) > TEXT_LIMIT
    found = of_values(Function.STRING_AGG, [*values], ", ")
    assert isinstance(found, str)
    assert found == limited(sorted(values), ", ", ["…"])
    assert found.endswith(", …")
    assert whole.startswith(found[:-1])
    assert TEXT_LIMIT - 40 <= len(found) <= TEXT_LIMIT + 1
    assert of_values(Function.ARRAY_AGG, [*values], None) == array(values)
    assert array(values).endswith('",null]')
    assert of_values(Function.TOP_K, [*values, *map(str, range(9_999))], 1_000) == top(
        [*values, *map(str, range(9_999))], 1_000
    )
    numbers = list(range(0, 90_000, 7))
    assert of_values(Function.HISTOGRAM, [*numbers], 10) == histogram(numbers, 10)
    assert '"…":' in str(histogram(numbers, 10))


def test_empty_texts_have_an_end() -> None:
    assert of_values(Function.STRING_AGG, [""] * 20_000, "") == "…"


LONGS = st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.integers(2**62, 2**62 + 3)


@given(st.lists(LONGS, min_size=1, max_size=40))
def test_variances_of_integers_are_exact(values: list[int]) -> None:
    for function, ddof in ((Function.VAR_POP, 0), (Function.VAR_SAMP, 1)):
        found = of_values(function, [*values], None)
        assert found == exact_variance(values, ddof)
        if found is not None and isinstance(found, float):
            mean = Fraction(sum(values), len(values))
            exact = sum((value - mean) ** 2 for value in values) / (len(values) - ddof)
            assert abs(Fraction(found) - exact) <= exact / 2**50


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=40))
def test_variances_of_floats_are_near(values: list[float]) -> None:
    near = pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-9)
    assert of_panes(Function.STDDEV_SAMP, [*values], None) == [near, near, near]


def test_a_variance_of_floats_far_from_zero_keeps_its_digits() -> None:
    """A sum of squares would have none left."""
    values = [1e9 + n / 16 for n in range(100)]
    exact = float(statistics.variance([Fraction(value) for value in values]))
    near = pytest.approx(exact, rel=1e-6)
    assert of_panes(Function.VAR_SAMP, [*values], None) == [near, near, near]


# -- FILTER ---------------------------------------------------------------------------------------

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
        each = AggregateFunction(Function(name), call, "o", parameter)
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

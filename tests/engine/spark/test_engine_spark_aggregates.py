"""The sketch of percentiles, long texts and large sums in Spark equal their definitions."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from field_texts import fields_of
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from reference_aggregates import array, exact_variance, histogram, limited, middle, top

from medusa.engine.aggregates.buckets import BUCKETS, spark_estimate
from medusa.engine.aggregates.function import Folded
from medusa.engine.aggregates.rows import AGGREGATES
from medusa.engine.aggregates.texts import HISTOGRAM
from medusa.engine.aggregates.variances import STDDEV_SAMP
from medusa.engine.expressions.typed import FieldRef
from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Query, TupleWindows
from medusa.engine.objects.schema import BEGINNING, END, FieldType, Schema
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.tasks.plan import plan
from medusa.engine.tasks.windows import needs

pytestmark = pytest.mark.spark

OUTPUT = "medusa://mit.edu/out"
SOURCE = Schema("s", fields_of("g int, n long?, s string?, x double?"))


def computed(
    spark: Spark,
    functions: Sequence[AggregateCall],
    rows: pa.Table,
    folder: Path,
    *,
    pane: int | None,
    boundaries: Sequence[int] = (END,),
) -> list[dict[str, object]]:
    """Compute windows of 60 by 20, each task epoch by epoch."""
    box = Aggregate("w", "s", OUTPUT, 60, 20, ("g",), tuple(functions))
    query = Query("q", (box,), panes=() if pane is None else (("w", pane),))
    pq.write_table(rows, folder / "s.parquet")
    return answered(spark, query, folder, boundaries)


def answered(
    spark: Spark, query: Query, folder: Path, boundaries: Sequence[int] = (END,)
) -> list[dict[str, object]]:
    """Return the query's results over s.parquet, each task epoch by epoch."""
    files = {"s": [folder / "s.parquet"]}
    for task in plan(query, check_query(query, {"s": SOURCE})):
        program, tables = Program(task), []
        for after, upto in itertools.pairwise([BEGINNING, *boundaries]):
            interval = needs(task, after, upto)
            assert interval is not None
            epoch = partial(program.run, files=files, after=after, upto=upto, interval=interval)
            tables.append(spark.run(epoch).table)
        table = pa.concat_tables(tables)
        path = folder / f"{task.output.rsplit('/', 1)[1]}.parquet"
        pq.write_table(table, path)
        files[task.output] = [path]
    return table.to_pylist()


def spark_bucket(number: Column) -> Column:
    return BUCKETS.spark_key(number, FieldType.DOUBLE, None)


def test_buckets_equal_the_definition(spark: Spark, tmp_path: Path) -> None:
    """Near each power of two a logarithm may be wrong."""
    powers = [2.0**n for n in (*range(-1_074, -1_000, 9), *range(-40, 70), 500, 1_023)]
    near = [math.nextafter(power, to) for power in powers for to in (0.0, math.inf)]
    rng = random.Random(4)
    drawn = [math.ldexp(1 + rng.random(), rng.randrange(-32, 66)) for _ in range(2_000)]
    parts = [math.nextafter(2.0**3 * (1 + j / 64), to) for j in range(64) for to in (0, 99)]
    values = [*powers, *near, *drawn, *parts, 0.0, math.inf, math.nan, 0.1, 1e300]
    values += [-value for value in values]
    path = tmp_path / "values.parquet"
    bucket = spark_bucket(F.col("v"))
    numbered = pa.table({"n": range(len(values) + 1), "v": pa.array([*values, None], pa.float64())})
    pq.write_table(numbered, path)
    found = spark.run(
        lambda session: [
            tuple(row)
            for row in session.read.parquet(str(path))
            .orderBy("n")
            .select(bucket, spark_estimate(bucket))
            .collect()
        ]
    )
    assert found.pop() == (None, None)
    assert [number for number, _ in found] == [BUCKETS.key(value, None) for value in values]
    assert repr([near for _, near in found]) == repr([middle(value) for value in values])


def test_integers_have_the_bucket_of_their_double(spark: Spark) -> None:
    values = [0, 1, -1, 3, 2**53 + 1, 2**63 - 1, -(2**63), 10**18 + 1]
    found = spark.run(
        lambda session: [
            row[0]
            for row in session.createDataFrame([(v,) for v in values], "v long")
            .select(spark_bucket(F.col("v")))
            .collect()
        ]
    )
    assert found == [BUCKETS.key(float(value), None) for value in values]


def test_the_estimate_depends_on_no_panes_and_cuts(spark: Spark, tmp_path: Path) -> None:
    count = 30_000
    rng = random.Random(5)
    values = [rng.choice([None, *[rng.lognormvariate(3, 2)] * 9]) for _ in range(count)]
    columns = {
        "stime": [n * 120 // count for n in range(count)],
        "seq": range(count),
        "g": [n % 2 for n in range(count)],
        "n": [None if value is None else int(value * 1_000) for value in values],
        "s": [None] * count,
        "x": [None if value is None else -value for value in values],
    }
    rows = pa.table(columns, schema=SOURCE.source)
    functions = [
        AggregateCall(function, field, f"{function}_{field}_{p}".replace(".", "_"), p)
        for function in ("approx_percentile", "percentile_disc")
        for field in "nx"
        for p in (0, 0.5, 0.99)
    ]
    whole = computed(spark, functions, rows, tmp_path, pane=None)
    for row in whole:
        for each in functions[:6]:
            exact = row[each.output.replace("approx_percentile", "percentile_disc")]
            assert isinstance(exact, int | float)
            assert row[each.output] == middle(float(exact))
    assert computed(spark, functions, rows, tmp_path, pane=20) == whole
    cut = computed(spark, functions, rows, tmp_path, pane=10, boundaries=[35, 90, END])
    assert cut == whole


def test_long_texts_are_cut_as_defined(spark: Spark, tmp_path: Path) -> None:
    rng = random.Random(6)
    texts = ["", "a", '"\\\x01\x1f\x7f', "\U0001f600é", *(f"{n:060}" for n in range(300))]
    rows: list[tuple[int, str, int]] = []
    rows += [(0, rng.choice(texts), rng.randrange(-9_000, 9_000)) for _ in range(6_000)]
    rows += [(1, "ab", 7)] * 5_000 + [(2, "", -1)] * 17_000 + [(3, "c" * 16_383, 1)]
    rows += [(4, "d" * 16_384, 2), (5, "e" * 8_191, 2), (5, "e" * 8_191, 2)]
    columns = {
        "stime": [n % 60 for n in range(len(rows))],
        "seq": range(len(rows)),
        "g": [g for g, _, _ in rows],
        "n": [n for _, _, n in rows],
        "s": [s for _, s, _ in rows],
        "x": [None] * len(rows),
    }
    table = pa.table(columns, schema=SOURCE.source).sort_by([("stime", "ascending")])
    functions = [
        AggregateCall("string_agg", "s", "plain", ""),
        AggregateCall("string_agg", "s", "comma", ","),
        AggregateCall("array_agg", "s", "array"),
        AggregateCall("top_k", "s", "top", 500),
        AggregateCall("top_k", "n", "top_n", 3),
        AggregateCall("histogram", "n", "spread", 1),
        AggregateCall("count", None, "rows"),
    ]
    for pane in (None, 10):
        made = computed(spark, functions, table, tmp_path, pane=pane)
        found = [row for row in made if str(row["window_start"]).startswith("1970-01-01 00:00:00+")]
        assert [row["g"] for row in found] == [0, 1, 2, 3, 4, 5]
        for row in found:
            own = [each for each in rows if each[0] == row["g"]]
            strings, numbers = sorted(s for _, s, _ in own), [n for _, _, n in own]
            assert row["plain"] == limited(strings, "", ["…"])
            assert row["comma"] == limited(strings, ",", ["…"])
            assert row["array"] == array(strings)
            assert row["top"] == top(strings, 500)
            assert row["top_n"] == top(numbers, 3)
            assert row["spread"] == histogram(numbers, 1)
            assert row["rows"] == len(own)


def test_variances_of_the_largest_integers(spark: Spark, tmp_path: Path) -> None:
    rng = random.Random(7)
    drawn = [
        [-(2**63)] * 1_500 + [2**63 - 1] * 1_500,
        [2**63 - 1] * 3_000,
        [rng.randrange(-(2**63), 2**63) for _ in range(3_000)],
        [2**62 + rng.randrange(3) for _ in range(3_000)],
        [rng.randrange(-(2**32) - 2, -(2**32) + 3) for _ in range(3_000)],
        [5],
    ]
    values = [(g, value) for g, each in enumerate(drawn) for value in each]
    rng.shuffle(values)
    columns = {
        "stime": [n * 60 // len(values) for n in range(len(values))],
        "seq": range(len(values)),
        "g": [g for g, _ in values],
        "n": [n for _, n in values],
        "s": [None] * len(values),
        "x": [None] * len(values),
    }
    table = pa.table(columns, schema=SOURCE.source)
    functions = [
        AggregateCall(each, "n", each)
        for each in ("var_pop", "var_samp", "stddev_pop", "stddev_samp")
    ]
    for pane in (None, 10):
        made = computed(spark, functions, table, tmp_path, pane=pane)
        found = [row for row in made if str(row["window_start"]).startswith("1970-01-01 00:00:00+")]
        for row, own in zip(found, drawn, strict=True):
            for name, ddof in (("pop", 0), ("samp", 1)):
                expected = exact_variance(own, ddof)
                assert row[f"var_{name}"] == expected
                assert row[f"stddev_{name}"] == (None if expected is None else math.sqrt(expected))


def test_variances_of_infinities_and_nan(spark: Spark, tmp_path: Path) -> None:
    """The variances are NaN, as in Spark itself: in windows of tuples, of panes, and of rows."""
    drawn = [
        [2.0, math.inf],
        [math.nan],
        [math.inf],
        [-math.inf, math.inf, 1.0],
        [1.0, math.nan, 1.0],
        [7.0],
        [1.0, 3.0],
    ]
    values = [(g, x) for g, each in enumerate(drawn) for x in each]
    columns = {
        "stime": [n % 60 for n in range(len(values))],
        "seq": range(len(values)),
        "g": [g for g, _ in values],
        "n": [None] * len(values),
        "s": [None] * len(values),
        "x": [x for _, x in values],
    }
    table = pa.table(columns, schema=SOURCE.source)
    names = {"var_pop": "var_pop", "stddev_samp": "stddev_samp"}
    functions = [AggregateCall(each, "x", name) for name, each in names.items()]
    expected = spark.run(lambda session: spark_s_own(session, drawn))
    for pane in (None, 10):
        made = computed(spark, functions, table, tmp_path, pane=pane)
        found = [row for row in made if str(row["window_start"]).startswith("1970-01-01 00:00:00+")]
        assert repr([[row[name] for name in names] for row in found]) == repr(expected)
    for g, own in enumerate(drawn):
        box = TupleWindows("w", "s", OUTPUT, len(own), len(own), ("g",), tuple(functions))
        made = answered(spark, Query("q", (box,)), tmp_path)
        (row,) = [row for row in made if row["g"] == g]
        assert repr([row[name] for name in names]) == repr(expected[g])


def spark_s_own(session: SparkSession, drawn: list[list[float]]) -> list[list[float | None]]:
    """Return Spark's own var_pop and stddev_samp of each list; stddev_samp of one value is null."""
    rows = [(g, x) for g, each in enumerate(drawn) for x in each]
    frame = session.createDataFrame(rows, "g INT, x DOUBLE").groupBy("g")
    made = frame.agg(F.var_pop("x"), F.stddev_samp("x")).orderBy("g").collect()
    return [[row[1], row[2]] for row in made]


def test_nodes_count_how_often_spark_repeats_an_argument(spark: Spark) -> None:
    def shown(_session: SparkSession) -> dict[str, str]:
        n = F.col("n")
        return {
            "stddev_samp": " ".join(map(str, STDDEV_SAMP.spark_partial(n, FieldType.LONG))),
            "approx_percentile": str(spark_bucket(n)),
            "histogram": str(HISTOGRAM.kind.spark_key(n, FieldType.DOUBLE, 7)),
        }

    for function, text in spark.run(shown).items():
        once, twice = (
            TypedAggregate(
                AGGREGATES[function], FieldRef("n", FieldType.LONG, n), "o", FieldType.DOUBLE
            ).nodes({})
            for n in (1, 2)
        )
        assert len(re.findall(r"\bn\b", text)) == twice - once, function


def test_no_function_repeats_an_argument_more_often_than_its_row_says(spark: Spark) -> None:
    def partials(_session: SparkSession) -> list[tuple[Folded, FieldType, str]]:
        return [
            (row, kind, " ".join(map(str, row.spark_partial(F.col("n"), kind))))
            for row in AGGREGATES.values()
            if isinstance(row, Folded)
            for kind in sorted(row.takes)
        ]

    for row, kind, text in spark.run(partials):
        assert len(re.findall(r"\bn\b", text)) <= row.repeats, (row.name, kind)

"""Expressions on data that makes engines fail, wrap or saturate."""

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine.check import check_query
from engine.plan import plan
from engine.query import Map, Query
from engine.schema import END, Field, FieldType, Schema
from engine.spark.program import Program, within
from engine.spark.session import Spark
from engine.windows import Interval

pytestmark = pytest.mark.spark

F = FieldType
FIELDS = (
    Field("b", F.BYTE, nullable=True),
    Field("i", F.INT, nullable=True),
    Field("n", F.LONG, nullable=True),
    Field("x", F.DOUBLE, nullable=True),
    Field("s", F.STRING, nullable=True),
)
ROW = {"b": -128, "i": 2**31 - 1, "n": 2**63 - 1, "x": math.nan, "s": "a\\b%c_d.é"}


def evaluate(spark: Spark, folder: Path, row: dict[str, object], *texts: str) -> list[object]:
    source = Schema("s", FIELDS)
    query = Query("q", (Map("m", "s", "t", tuple((f"m{n}", t) for n, t in enumerate(texts))),))
    (task,) = plan(query, check_query(query, {"s": source}))
    path = folder / "rows [1] a=b {*}.parquet"
    pq.write_table(pa.Table.from_pylist([{"stime": 7, "seq": 0, **row}], source.source), path)
    program = Program(task)
    run = ({"s": [path]}, 0, END, Interval(0, END))
    (made,) = spark.run(lambda session: program.run(session, *run)).table.to_pylist()
    return [made[f"m{n}"] for n in range(len(texts))]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("i + 1", None),
        ("n * 2", None),
        ("n - (-1)", None),
        ("- b", None),
        ("abs(b)", None),
        ("b - b", 0),
        ("n % 0", None),
        ("x / 0", None),
        ("1 / 0", None),
        ("cast(n as int)", None),
        ("cast(x as long)", None),
        ("cast(s as int)", None),
        ("cast(1e300 as long)", None),
        ("cast(-2.9 as int)", -2),
        ("floor(1e300)", None),
        ("ceil(x)", None),
        ("floor(-0.5)", -1),
        ("round(2.675, 2)", 2.68),
        ("x = x", True),
        ("x > 1e308", True),
        ("least(x, 1.0)", 1.0),
        ("greatest(x, 1.0) = x", True),
        ("s like 'a\\\\b\\%c\\_d%'", True),
        ("substring(s, 0, 1)", "a"),
        ("substring(s, -1, 5)", "é"),
        ("substring(s, 2, -1)", ""),
        ("length(s)", 9),
        ("substring_index(s, '.', -1)", "é"),
        ("substring_index(s, '', 1)", ""),
        ("-1 * 0.0", 0.0),
    ],
)
def test_every_operation_is_total(spark: Spark, tmp_path: Path, text: str, value: object) -> None:
    (found,) = evaluate(spark, tmp_path, ROW, text)
    assert repr(found) == repr(value)


def test_nulls_are_three_valued(spark: Spark, tmp_path: Path) -> None:
    empty: dict[str, object] = dict.fromkeys(ROW)
    texts = ("i = i", "i in (1)", "i is null", "i is null or n > 1", "coalesce(i, 3)", "s || 'x'")
    assert evaluate(spark, tmp_path, empty, *texts) == [None, None, True, True, 3, None]


@pytest.mark.parametrize("constant", [False, True])
def test_bounds_that_change_do_not_change_the_generated_code(spark: Spark, constant: bool) -> None:
    def job(session: SparkSession) -> int:
        metrics = session.sparkContext._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
        counts = []
        for shift in range(7):
            least, most = 2 + 10 * constant + shift, 5 + 10 * constant + shift
            frame = session.range(30).withColumnRenamed("id", "stime")
            kept = frame.where(within("stime", least, most, constant=constant)).toArrow()
            assert kept["stime"].to_pylist() == list(range(least, most + 1))
            counts.append(int(metrics.METRIC_COMPILATION_TIME().getCount()))
        return counts[-1] - counts[0]

    assert (spark.run(job) > 0) == constant

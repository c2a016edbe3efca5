"""Expressions over data that makes engines fail, wrap or saturate."""

import math
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from field_texts import fields_of
from pyspark.sql import SparkSession

from medusa.engine.dataframes.columns import column
from medusa.engine.expressions.typer import parse_expression
from medusa.engine.language.check import check_query
from medusa.engine.objects.query import Aggregate, AggregateCall, Map, Query
from medusa.engine.objects.schema import BEGINNING, END, MAX_FIELDS, Field, FieldType, Schema
from medusa.engine.operators.shared.aggregation import MAX_OVERLAP
from medusa.engine.operators.shared.step import Interval
from medusa.engine.spark.program import Program, within
from medusa.engine.spark.session import Spark
from medusa.engine.tasks.plan import plan

pytestmark = pytest.mark.spark

F = FieldType
FIELDS = fields_of("b byte?, i int?, n long?, x double?, s string?")
COUNT = AggregateCall("count", None, "n")
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
        ("abs(-n - 1)", None),
        ("abs(-n)", 2**63 - 1),
        ("abs(-i)", 2**31 - 1),
        ("-(-n - 1)", None),
        ("- n", 1 - 2**63),
        ("-x = x", True),
        ("abs(-0.5)", 0.5),
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


ONE_OF_EACH = """-x | abs(x) | floor(x) | ceil(x) | round(x) | x + 1 | x % 2 | cast(x as long)
-n | abs(n) | n - 1 | n in (1, 2) | case when n > 1 then 2 end | coalesce(n, 1) | least(n, 1)
n between 1 and 2 | case n when 1 then 2 when 3 then 4 when 5 then 6 end | s like 'a' | s is null
cast(x as single) | cast(s as double) | cast(s as int) | cast(cast(n as single) as long)
cast(s as single) | cast(n as string) | cast(n as int) | cast(x as int) | sqrt(x)
n is distinct from i | cast(cast(x as single) as int) | shiftleft(n, i) | bitand(n, i)
nullif(n, 1) | sign(x)
cast(n as timestamp) + interval '1' day | date_trunc('day', cast(n as timestamp)) | hash64(s)
date_format(cast(n as timestamp), 'yyyy') | to_timestamp(s) | to_timestamp(s, 'yyyyMMdd') | md5(s)
timestampdiff(day, cast(n as timestamp), cast(cast(i as long) as timestamp))
year(cast(n as timestamp)) | replace(s, 'a', 'b') | lpad(s, i) | rpad(s, 1) | repeat(s, i)
split_index(s, 'a', i) | right(s, i)
contains(s, 'a') | instr(s, 'a') | regexp_like(s, 'a+') | regexp_extract(s, '(a)', 1) | reverse(s)
regexp_replace(s, 'a', 'b') | json_value(s, '$.a') | json_double(s, '$.a') | sha2(s, 256) | crc32(s)
ip_in_cidr(s, '10.0.0.0/8') | ip_in_cidr(s, '::/0') | ip_prefix(s, 24) | ip_prefix(s, 24, 48)
length(s) | substring(s, 1) | substring('a', i) | substring_index(s, '.', 1) | s || 'a' | trim(s)"""


@pytest.mark.parametrize("text", re.split(r" \| |\n", ONE_OF_EACH))
def test_nodes_count_how_often_spark_repeats_an_operand(spark: Spark, text: str) -> None:
    types = {field.name: field.type for field in FIELDS}
    once, twice = (parse_expression(text, types, dict.fromkeys(types, n)).nodes for n in (1, 2))

    def shown(_session: SparkSession) -> str:
        return str(column(parse_expression(text, types)))

    assert len(re.findall(r"\b[xnsi]\b", spark.run(shown))) == twice - once


def test_windows_that_overlap_a_thousand_times(spark: Spark, tmp_path: Path) -> None:
    """One expression for each window killed the JVM."""
    box = Aggregate("w", "s", "t", MAX_OVERLAP, 1, (), (COUNT,))
    made = windows(spark, tmp_path, box, [{"stime": 7}, {"stime": 9}])
    assert [row["n"] for row in made] == [1, 1, *[2] * (MAX_OVERLAP - 2), 1, 1]


def test_a_stime_that_wraps_fails_no_job(spark: Spark, tmp_path: Path) -> None:
    box = Aggregate("w", "s", "t", 10, 4, (), (COUNT,))
    windows(spark, tmp_path, box, [{"stime": BEGINNING + 1}, {"stime": END}])


def test_first_values_of_many_fields(spark: Spark, tmp_path: Path) -> None:
    """The order of all fields for each of them killed the JVM from a hundred on."""
    numbers = range(MAX_FIELDS - 6)
    functions = tuple(
        AggregateCall(("firstval", "lastval")[n % 2], f"f{n}", f"g{n}") for n in numbers
    )
    box = Aggregate("w", "s", "t", 10, 10, (), (*functions, COUNT))
    fields = tuple(Field(f"f{n}", F.LONG, nullable=True) for n in numbers)
    rows = [{"stime": stime, **{f"f{n}": stime + n for n in numbers}} for stime in (3, 1, 2)]
    (made,) = windows(spark, tmp_path, box, rows, fields)
    assert made["n"] == 3
    assert [made[f"g{n}"] for n in numbers] == [(1, 3)[n % 2] + n for n in numbers]


def windows(
    spark: Spark,
    folder: Path,
    box: Aggregate,
    rows: list[dict[str, int]],
    fields: tuple[Field, ...] = (Field("i", F.INT, nullable=True),),
) -> list[dict[str, int]]:
    source = Schema("s", fields)
    query = Query("q", (box,))
    (task,) = plan(query, check_query(query, {"s": source}), sources=frozenset())
    pq.write_table(pa.Table.from_pylist(rows, source.derived), folder / "rows.parquet")
    program = Program(task)
    run = ({"s": [folder / "rows.parquet"]}, BEGINNING, END, Interval(BEGINNING, END))
    made: list[dict[str, int]] = spark.run(
        lambda session: program.run(session, *run)
    ).table.to_pylist()
    return made


@pytest.mark.parametrize("constant", [False, True])
def test_bounds_that_change_do_not_change_the_generated_code(spark: Spark, constant: bool) -> None:
    def job(session: SparkSession) -> int:
        metrics = session.sparkContext._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
        counts = []
        for shift in range(7):
            least, most = 2 + 10 * constant + shift, 5 + 10 * constant + shift
            frame = session.range(30).withColumnRenamed("id", "stime")
            state = frame.where(within("stime", least, most, constant=constant)).toArrow()
            assert state["stime"].to_pylist() == list(range(least, most + 1))
            counts.append(int(metrics.METRIC_COMPILATION_TIME().getCount()))
        return counts[-1] - counts[0]

    assert (spark.run(job) > 0) == constant

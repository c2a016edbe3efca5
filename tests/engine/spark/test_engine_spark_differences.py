"""Where engines answer differently: each engine gives the answer in docs/reference/functions.md."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from engine_differences import DIFFERENCES, FLINK, ORDERS, UNKNOWN, Difference
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from medusa.engine.language.check import check_query
from medusa.engine.language.sql.script import Script
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING, END, Field, FieldType, Schema
from medusa.engine.reference.interpreter import run_query
from medusa.engine.spark.program import Program
from medusa.engine.spark.session import Spark
from medusa.engine.tasks.plan import plan
from medusa.engine.tasks.windows import needs
from medusa.overlay.errors import InvalidInputError

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[3]
PAGE = (REPOSITORY / "docs/reference/functions.md").read_text()
BASE = "medusa://mit.edu"
ANSWER = f"{BASE}/answer"

HEAD = (
    f"| case | Medusa | {FLINK} | Spark {pyspark.__version__[:3]} | DuckDB {duckdb.__version__} |"
)

EXPRESSIONS = [each for each in DIFFERENCES if each.sql and not each.values and not each.refused]
AGGREGATES = [each for each in DIFFERENCES if each.values]
REFUSED = [each for each in DIFFERENCES if each.refused]
SHOWN = [each for each in DIFFERENCES if each.test]


def test_the_page_has_the_same_rows() -> None:
    for head, differences in ((HEAD, DIFFERENCES), ("| of | Medusa | others |", ORDERS)):
        behind = PAGE.partition(f"{head}\n")[2].partition("\n\n")[0]
        assert behind.splitlines()[1:] == [each.row for each in differences]


def test_every_row_is_shown() -> None:
    for each in DIFFERENCES:
        assert bool(each.sql) != bool(each.test), each.case
        assert UNKNOWN not in each.medusa
        asked = each.spark_sql is not None and each.flink != UNKNOWN
        assert (each.flink_sql is not None) == asked, each.case
    for each in (*SHOWN, *ORDERS):
        file, _, name = each.test.partition("::")
        tree = ast.parse((REPOSITORY / file).read_text())
        defined = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        assert name in defined, each.test


def shown(value: object) -> str:
    """Write an answer as the page does."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case float() if math.isnan(value):
            return "NaN"
        case datetime():
            return f"{value.astimezone(UTC) if value.tzinfo else value:%Y-%m-%d %H:%M:%S}"
        case _:
            return str(value)


# -- Medusa ----------------------------------------------------------------------------------------


def source(values: Sequence[object]) -> Schema:
    type_ = FieldType.DOUBLE if values and isinstance(values[0], float) else FieldType.INT
    return Schema(f"{BASE}/s", (Field("x", type_, nullable=True),))


def compiled(text: str, schema: Schema) -> Query:
    (query,) = Script(text, BASE).complete({schema.name: schema}, {}).queries
    return query


def by_both(
    spark: Spark, folder: Path, text: str, values: Sequence[object]
) -> tuple[dict[str, object], dict[str, object]]:
    """Return the one row of the answer; Spark's executor and the interpreter agree."""
    schema = source(values)
    query = compiled(text, schema)
    rows = [{"stime": 0, "seq": n, "x": value} for n, value in enumerate(values)]
    pq.write_table(pa.Table.from_pylist(rows, schema.source), folder / "s.parquet")
    files = {schema.name: [folder / "s.parquet"]}
    for task in plan(query, check_query(query, {schema.name: schema})):
        interval = needs(task, BEGINNING, END)
        assert interval is not None
        epoch = partial(
            Program(task).run, files=files, after=BEGINNING, upto=END, interval=interval
        )
        table = spark.run(epoch).table
        files[task.output] = [folder / f"{task.output.rsplit('/', 1)[1]}.parquet"]
        pq.write_table(table, files[task.output][0])
    (ours,) = table.to_pylist()
    schemas = check_query(query, {schema.name: schema}) | {schema.name: schema}
    (interpreted,) = run_query(query, {schema.name: rows}, schemas)[ANSWER]
    return ours, interpreted


def test_medusa_computes_each_expression(spark: Spark, tmp_path: Path) -> None:
    columns = ", ".join(f"{each.sql} AS v{n}" for n, each in enumerate(EXPRESSIONS))
    ours, interpreted = by_both(spark, tmp_path, f"SELECT {columns} FROM s", [1])
    for n, each in enumerate(EXPRESSIONS):
        value = interpreted[f"v{n}"]
        if isinstance(ours[f"v{n}"], datetime):
            value = datetime.fromtimestamp(value / 1e6, UTC)  # type: ignore[operator]
        assert shown(ours[f"v{n}"]) == each.medusa, each.case
        assert shown(value) == each.medusa, each.case


@pytest.mark.parametrize("each", AGGREGATES, ids=lambda each: each.case)
def test_medusa_computes_each_aggregate(spark: Spark, tmp_path: Path, each: Difference) -> None:
    window = "TUMBLE(TABLE s, DESCRIPTOR(stime), INTERVAL '1' MINUTE) GROUP BY window_start"
    for row in by_both(spark, tmp_path, f"SELECT {each.sql} AS v FROM {window}", each.values):
        assert shown(row["v"]) == each.medusa


@pytest.mark.parametrize("each", REFUSED, ids=lambda each: each.case)
def test_medusa_refuses(each: Difference) -> None:
    with pytest.raises(InvalidInputError, match=each.refused):
        compiled(f"SELECT {each.sql} AS v FROM s", source([1]))


# -- the other engines -----------------------------------------------------------------------------


def test_spark_answers_as_the_page_says(spark: Spark) -> None:
    asked = [each for each in DIFFERENCES if each.sql and each.spark_sql is not None]

    def answers(session: SparkSession) -> list[str]:
        own = session.newSession()  # with Spark's own settings
        own.conf.set("spark.sql.ansi.enabled", "true")
        own.conf.set("spark.sql.session.timeZone", "UTC")
        return [answer(own, each) for each in asked]

    def answer(own: SparkSession, each: Difference) -> str:
        relation = ""
        if each.values:
            type_ = "DOUBLE" if isinstance(each.values[0], float) else "INT"
            own.createDataFrame([(x,) for x in each.values], f"x {type_}").createOrReplaceTempView(
                "given"
            )
            relation = " FROM given"
        try:
            ((value,),) = own.sql(f"SELECT {each.spark_sql or each.sql}{relation}").collect()
        except PySparkException:
            return "error"
        return shown(value)

    assert spark.run(answers) == [each.spark for each in asked]


def test_duckdb_answers_as_the_page_says() -> None:
    asked = [each for each in DIFFERENCES if each.sql and each.duckdb_sql is not None]

    def answer(each: Difference) -> str:
        relation = ""
        if each.values:
            relation = f" FROM (SELECT unnest({[*map(str, each.values)]}::DOUBLE[]) AS x)"
        try:
            with duckdb.connect() as connection:
                connection.execute("SET TimeZone = 'UTC'")
                found = connection.sql(f"SELECT {each.duckdb_sql or each.sql}{relation}").fetchall()
        except duckdb.Error:
            return "error"
        ((value,),) = found
        return shown(value)

    assert [answer(each) for each in asked] == [each.duckdb for each in asked]

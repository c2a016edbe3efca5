"""Borealis' own documents load unchanged, and Spark's answers equal DuckDB's."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from borealis_documents import FOLDER, INTRUSION, MONITORING_DEPLOYED, QUOTES, TOLLS, monitoring
from computed_documents import (
    BASE,
    Row,
    answers,
    by_interpreter,
    by_spark,
    in_order,
    rows_of,
    schemas_of,
)
from pyarrow import csv

from medusa.engine.language.document import Document
from medusa.engine.language.xml.writing import query_as_xml
from medusa.engine.objects.availability import Mode
from medusa.engine.objects.schema import Schema
from medusa.engine.reading import read_document
from medusa.engine.spark.session import Spark

SECOND = 1_000_000
START = 1_080_000_000 * SECOND
"""Times of the examples begin here; the other documents have their times around 0."""
CUTS = [
    15 * SECOND,
    START + 15 * SECOND,
    START + 60 * SECOND - 2,
    START + 61 * SECOND,
    START + 150 * SECOND,
    START + 600 * SECOND,
]


def check(
    spark: Spark,
    folder: Path,
    text: str,
    data: Mapping[str, Sequence[Row]],
    statements: Mapping[str, str],
) -> None:
    """Check that Spark, in epochs cut at `CUTS`, and the interpreter give DuckDB's rows, and that
    the printed queries are the same."""
    document = read_document(text, BASE)
    expected = answers(data, statements)
    assert all(expected.values()), "each statement gives rows"
    made = by_spark(spark, folder, document, data, CUTS)
    interpreted = by_interpreter(document, data)
    for name, rows in expected.items():
        assert rows_of(made[name]) == rows
        assert interpreted[name] == rows
    for query in document.queries:
        assert read_document(query_as_xml(query)).queries == (query,)


def rows_in(file: Path, schema: Schema) -> list[Row]:
    """The rows of a CSV file."""
    read = csv.read_csv(file, convert_options=csv.ConvertOptions(column_types=schema.payload))
    found: list[Row] = read.to_pylist()
    return found


def check_example(spark: Spark, folder: Path, name: str, statements: Mapping[str, str]) -> None:
    """`check` a query of the examples against DuckDB's rows."""
    text = (FOLDER / name / "query.xml").read_text()
    schemas = schemas_of(read_document(text, BASE))
    data = {
        file.stem: rows_in(file, schemas[f"{BASE}/{file.stem}"])
        for file in (FOLDER / name / "inputs").iterdir()
    }
    check(spark, folder, text, data, statements)
    for output, rows in answers(data, statements).items():
        expected = rows_in(
            FOLDER / name / "expected" / f"{output}.csv", schemas[f"{BASE}/{output}"]
        )
        assert in_order(row.values() for row in expected) == in_order(row[1:] for row in rows)


HOST = "local0, local1, local2, local3"
MINUTE = "start_time_sec // 60 * 60"
END = f"({MINUTE} + 60) * 1000000 - 1"
SUSPECTS = (
    f"SELECT {END}, {HOST}, {MINUTE}, {{0}} FROM Connection "
    f"WHERE start_time_sec > -1 GROUP BY ALL HAVING {{0}} > {{1}}"
)
BUSY = SUSPECTS.format("count(*)", 100)


@pytest.mark.spark
def test_the_intrusion_demonstration(spark: Spark, tmp_path: Path) -> None:
    statements = {
        "Busy": BUSY,
        "Probing": SUSPECTS.format("count(DISTINCT protocol)", 10),
        "Clusters": f"""SELECT stime, local0, local1, t, sum(n)
            FROM ({BUSY}) AS busy(stime, {HOST}, t, n) GROUP BY ALL HAVING sum(n) > 200""",
    }
    check_example(spark, tmp_path, "intrusion", statements)


def test_the_intrusion_document_gives_modes_and_remarks() -> None:
    document = read_document(INTRUSION, BASE)
    modes = {query.name: query.availability.mode for query in document.queries}
    assert modes == {
        f"{BASE}/forward": Mode.NONE,
        f"{BASE}/A": Mode.ACTIVE_STANDBY,
        f"{BASE}/B": Mode.NONE,
    }
    assert document.schemas[0].time == "start_time_sec"
    nodes, *timeouts = document.remarks
    assert "the peer that creates a query keeps it" in nodes
    assert [each.split(":")[0] for each in timeouts] == ["box count", "box distinct"]
    assert "not by the timeout of 12 s" in timeouts[0]


@pytest.mark.spark
def test_the_tolls_of_figure_1(spark: Spark, tmp_path: Path) -> None:
    """The join of a car with tolls takes the tolls of the last 60 s, the size of its right
    buffer."""
    loads = """(SELECT (time // 60 + 1) * 60000000 - 1 AS stime, segment,
        avg(speed) AS mean, count(*) AS cars FROM CarSightings GROUP BY ALL)"""
    statements = {
        "TollNotifications": f"""SELECT time * 1000000, car, c.segment, 2 * (cars - 5) * (cars - 5)
            FROM CarSightings c JOIN {loads} t ON c.segment = t.segment
            WHERE mean < 40 AND cars > 5 AND speed > 0
            AND t.stime BETWEEN (time - 60) * 1000000 AND time * 1000000""",
        "TowTruckDispatch": """SELECT greatest(c.time, t.time) * 1000000, c.car, t.car, c.segment
            FROM CarSightings c JOIN CarSightings t ON c.segment = t.segment AND c.car <> t.car
            WHERE NOT c.speed > 0 AND t.tow = 1 AND t.time BETWEEN c.time - 30 AND c.time + 10""",
    }
    check_example(spark, tmp_path, "tolls", statements)


@pytest.mark.spark
def test_the_demonstration_of_high_availability(spark: Spark, tmp_path: Path) -> None:
    rng = random.Random(3)
    data = {
        f"input{port}": [
            {"timestamp": time, "source": rng.randrange(3)} for time in range(40) for _ in range(2)
        ]
        for port in (1, 2)
    }
    windows = " UNION ALL ".join(
        f"""SELECT (start + 10) * 1000000 - 1, source, start, {server * 10_000 + port * 1_000 + 11},
            count(*) FROM input{port}, generate_series(-9, 50) AS starts(start)
            WHERE timestamp >= start AND timestamp < start + 10 GROUP BY ALL"""
        for server in (1, 2)
        for port in (1, 2)
    )
    check(spark, tmp_path, monitoring(2, 1), data, {"output": windows})


def test_a_deployment_of_its_own_defines_nothing() -> None:
    document = read_document(MONITORING_DEPLOYED, BASE)
    assert document == Document(remarks=document.remarks)
    assert "medusa move" in document.remarks[0]


@pytest.mark.spark
def test_the_quotes_of_the_tutorial(spark: Spark, tmp_path: Path) -> None:
    """No box is ordered on a field, so the field `time` is an ordinary field."""
    data = {
        "Stock_USD": [
            {"stime": 7 * SECOND + number, "symbol": "IBM", "time": 5, "price_usd": 1.5 * number}
            for number in range(5)
        ]
    }
    statement = "SELECT stime, symbol, time, price_usd / 0.75 / 2.5 FROM Stock_USD"
    check(spark, tmp_path, QUOTES, data, {"Stock_BR": statement})
    assert read_document(QUOTES, BASE).schemas[0].time is None


def test_the_documents_have_the_fields_that_they_declare() -> None:
    for text in (INTRUSION, TOLLS, QUOTES, monitoring(3, 2)):
        document = read_document(text, BASE)
        made = schemas_of(document)
        assert all(output in made for query in document.queries for output in query.outputs)

"""`--engine`: what computes a trial, with Java and without."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest
from deadline import DEADLINE_S
from imported import COMMAND, imported
from programs import medusa_command

from medusa.engine.spark.java import find_java
from medusa.overlay.errors import InvalidInputError
from medusa.tools.trial import engines
from medusa.tools.trial.engines import Engine, engine_of

EXAMPLES = Path(__file__).parents[2] / "examples"

ALL_KINDS = """
CREATE STREAM trades (ts TIMESTAMP, k STRING, price DOUBLE, WATERMARK FOR ts AS ts)
  WITH (slack = INTERVAL '1' SECOND);
CREATE TABLE names (ts TIMESTAMP, k STRING PRIMARY KEY, name STRING, WATERMARK FOR ts AS ts);
CREATE STREAM doubled AS SELECT k, price * 2 AS price, ts FROM trades WHERE price IS NOT NULL;
CREATE STREAM low, high AS SPLIT doubled BY price < 5 ELSE;
CREATE STREAM everything AS SELECT * FROM low UNION ALL SELECT * FROM high;
CREATE STREAM tumbled AS SELECT window_start, k, count(*) AS n, avg(price) AS mean
  FROM TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, k;
CREATE STREAM hopped AS SELECT window_start, median(price) AS m
  FROM HOP(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE)
  GROUP BY window_start;
CREATE STREAM sessions AS SELECT window_start, window_end, k, max(price) AS top
  FROM SESSION(TABLE trades PARTITION BY k, DESCRIPTOR(ts), INTERVAL '90' SECOND)
  GROUP BY window_start, window_end, k;
CREATE STREAM grown AS SELECT window_start, window_end, sum(price) AS total
  FROM CUMULATE(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)
  GROUP BY window_start, window_end;
CREATE STREAM counted AS SELECT k, sum(price) AS total FROM TUMBLE(TABLE trades, 3 ROWS) GROUP BY k;
CREATE STREAM joined AS SELECT a.k, a.price, b.price AS other FROM trades AS a JOIN high AS b
  ON a.k = b.k AND b.stime BETWEEN a.stime AND a.stime + INTERVAL '2' MINUTE;
CREATE STREAM named AS SELECT t.k, n.name FROM trades AS t
  LEFT JOIN names FOR SYSTEM_TIME AS OF t.stime AS n ON t.k = n.k;
CREATE STREAM totals AS SELECT k, count(*) AS n, sum(price) AS total FROM trades GROUP BY k;
CREATE STREAM best AS SELECT k, price, place FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY price DESC) AS place FROM trades
) WHERE place <= 2;
CREATE STREAM rising AS SELECT * FROM trades MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
  MEASURES first(A.price) AS low, last(B.price) AS high ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+) WITHIN INTERVAL '5' MINUTE
  DEFINE B AS B.price > PREV(B.price));
"""
"""A query of each kind of box."""


def rows_of_trades() -> str:
    rows = [
        f"2026-01-01T12:{n // 3:02d}:{n % 3 * 20:02d}Z,{'abc'[n * 7 % 3]},{n * 37 % 11 / 2}"
        for n in range(40)
    ]
    return "\n".join(["ts,k,price", *rows, "2026-01-01T12:20:00Z,c,\n"])


def rows_of_odd_trades() -> str:
    """Prices that are no number, one of which comes before a smaller one at the same time."""
    prices = ["NaN", "-0.0", "0", "inf", "", "1", "NaN", "-inf", "2"]
    rows = [
        f"2026-01-01T12:{n // 4:02d}:{n // 2 % 2 * 30:02d}Z,{'ab'[n % 3 % 2]},{price}"
        for n, price in enumerate(prices * 3)
    ]
    return "\n".join(["ts,k,price", *rows, ""])


FLOATS = """
CREATE STREAM trades (ts TIMESTAMP, k STRING, price DOUBLE, WATERMARK FOR ts AS ts);
CREATE STREAM same AS SELECT * FROM trades WHERE k IS NOT NULL;
CREATE STREAM tumbled AS SELECT window_start, price, count(*) AS n
  FROM TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '2' MINUTE) GROUP BY window_start, price;
CREATE STREAM doubled AS SELECT k, -price AS price, ts FROM trades;
CREATE STREAM first AS SELECT window_start, k, firstval(price) AS price, count(*) AS n
  FROM TUMBLE(TABLE doubled, DESCRIPTOR(ts), INTERVAL '2' MINUTE) GROUP BY window_start, k;
CREATE STREAM sessions AS SELECT window_start, window_end, price, count(*) AS n
  FROM SESSION(TABLE doubled PARTITION BY price, DESCRIPTOR(ts), INTERVAL '90' SECOND)
  GROUP BY window_start, window_end, price;
CREATE STREAM counted AS SELECT price, count(*) AS n FROM TUMBLE(TABLE trades, 2 ROWS)
  GROUP BY price;
CREATE STREAM totals AS SELECT price, count(*) AS n FROM trades GROUP BY price;
CREATE STREAM extremes AS SELECT k, min(price) AS low, max(price) AS high,
  count(DISTINCT -price) AS prices FROM trades GROUP BY k;
CREATE STREAM best AS SELECT k, price, place FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY price DESC) AS place FROM trades
) WHERE place <= 3;
CREATE STREAM lowest AS SELECT window_start, price, place FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY price NULLS LAST) AS place
  FROM TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '2' MINUTE)
) WHERE place <= 6;
CREATE STREAM spans AS SELECT * FROM trades MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
  MEASURES min(A.price) AS low, max(A.price) AS high ONE ROW PER MATCH
  AFTER MATCH SKIP TO NEXT ROW PATTERN (A{3}) WITHIN INTERVAL '5' MINUTE);
"""
"""Keys, orders and extremes of floats."""


@pytest.mark.process
def test_nan_and_negative_zero_are_the_same_keys_and_places_by_both(
    engine: str, tmp_path: Path
) -> None:
    case = tmp_path / "floats"
    (case / "inputs").mkdir(parents=True)
    (case / "query.sql").write_text(FLOATS)
    (case / "inputs" / "trades.csv").write_text(rows_of_odd_trades())
    command = medusa_command("test", str(tmp_path), "--json", "--engine")
    texts: list[dict[str, str]] = []
    for name in ("reference", engine):
        # --update leaves a file as it is that has -0 for 0
        shutil.rmtree(case / "expected", ignore_errors=True)
        told = [*command, name, "--update"]
        done = subprocess.run(told, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        (outcome,) = json.loads(done.stdout)["cases"]
        assert outcome["ok"], outcome
        texts.append({each.stem: each.read_text() for each in (case / "expected").iterdir()})
    assert texts[0] == texts[1]
    assert len(texts[0]) == 11
    groups = [tuple(row.split(",")[1:3]) for row in texts[0]["tumbled"].splitlines()]
    assert "nan" in {price for _, price in groups}
    assert len(set(groups)) == len(groups)
    assert re.findall(r",-0\b(?!\.)", "".join(texts[0].values())) == []


@pytest.mark.process
def test_every_kind_of_box_gives_the_same_by_both(engine: str, tmp_path: Path) -> None:
    """Compares with files that the reference wrote: so each engine is compared with it."""
    case = tmp_path / "all"
    (case / "inputs").mkdir(parents=True)
    (case / "query.sql").write_text(ALL_KINDS)
    (case / "inputs" / "trades.csv").write_text(rows_of_trades())
    (case / "inputs" / "names.csv").write_text(
        "ts,k,name\n2026-01-01T12:00:00Z,a,Anna\n2026-01-01T12:05:00Z,b,Bob\n"
        "2026-01-01T12:08:00Z,a,Ada\n"
    )
    command = medusa_command("test", str(tmp_path), "--json", "--engine")
    for told in ([*command, "reference", "--update"], [*command, engine]):
        done = subprocess.run(told, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        (outcome,) = json.loads(done.stdout)["cases"]
        assert outcome["ok"], outcome
    expected = {each.stem: each.read_text().count("\n") for each in (case / "expected").iterdir()}
    assert len(expected) == 14
    assert {name for name, lines in expected.items() if lines < 2} == set()


@pytest.mark.process
def test_the_reference_imports_no_pyspark_and_starts_nothing() -> None:
    program = COMMAND.format(module="medusa.tools.commands.medusa.medusa_command", command="medusa")
    conns = f"conns={EXAMPLES / 'conns.csv'}"
    query = str(EXAMPLES / "busy.sql")
    found = imported(program, "try", query, "--stream", conns, "--engine", "reference", "--json")
    assert {"pyarrow", "sqlglot", "trio"} <= found
    assert found & {"pyspark", "py4j", "duckdb", "matplotlib"} == set()


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(_: Mapping[str, str]) -> Path:
        return find_java({"PATH": "/nowhere"}, ())

    monkeypatch.setattr(engines, "find_java", search)


def test_without_java_plain_python_computes_and_says_so(no_java: None) -> None:
    chosen, remark = engine_of(None)
    assert chosen is Engine.REFERENCE
    assert "computes in plain Python (--engine reference), as there is no Java 17" in remark
    assert "set JAVA_HOME" in remark


def test_without_java_spark_is_refused_at_once_and_the_flag_named(no_java: None) -> None:
    with pytest.raises(
        InvalidInputError, match=r"no Java 17 .*; --engine reference computes small"
    ):
        engine_of("spark")


def test_plain_python_computes_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        engines, "find_spec", lambda name: None if name == "pyspark" else find_spec(name)
    )
    chosen, remark = engine_of(None)
    assert chosen is Engine.REFERENCE
    assert "there is no PySpark: pip install 'medusa-federation[peer]'" in remark


def test_a_trial_takes_the_engine_of_its_option(no_java: None) -> None:
    assert engine_of("reference") == (Engine.REFERENCE, "")


@pytest.mark.spark
def test_spark_computes_with_java() -> None:
    assert find_java(os.environ)
    assert engine_of(None) == engine_of("spark") == (Engine.SPARK, "starts a peer and Spark")

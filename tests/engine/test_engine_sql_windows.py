"""Windows in SQL: what a script's network gives is what DuckDB gives for other words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from engine.language.check import check_query
from engine.language.sql.script import Script
from engine.objects.query import Rank
from engine.objects.schema import STIME, Field, FieldType, Schema
from overlay.errors import InvalidInputError
from testnet.simulation.interpreter import run_query

BASE = "medusa://t.edu"
S = f"{BASE}/s"
FIELDS = (
    Field("ts", FieldType.TIMESTAMP),
    Field("k", FieldType.STRING, nullable=True),
    Field("x", FieldType.LONG, nullable=True),
)
SCHEMA = Schema(S, FIELDS, "ts")
MINUTE = 60_000_000


def rows(seed: int, span_us: int, count: int = 80) -> list[dict[str, Any]]:
    """Of the source stream, in order, with ties."""
    rng = random.Random(seed)
    times = sorted(rng.randrange(-span_us, span_us) // 1_000_000 * 1_000_000 for _ in range(count))
    return [
        {
            STIME: at,
            "ts": at,
            "k": rng.choice([None, "a", "b", "c"]),
            "x": rng.choice([None, *range(-3, 9)]),
            "seq": number,
        }
        for number, at in enumerate(times)
    ]


def made(text: str, data: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The rows of a SELECT's network, sorted."""
    document = Script(text, BASE).complete({S: SCHEMA}, {})
    (query,) = document.queries
    schemas = check_query(query, {S: SCHEMA})
    answers = run_query(query, {S: list(data)}, schemas)[f"{BASE}/answer"]
    names = [field.name for field in schemas[f"{BASE}/answer"].fields]
    return _sorted(tuple(row[name] for name in names) for row in answers)


def oracle(text: str, data: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The rows that DuckDB gives, sorted; moments as microseconds."""
    with duckdb.connect() as database:
        table = pa.Table.from_pylist(list(data))
        database.register("s", table)
        return _sorted(database.sql(text).fetchall())


def _sorted(found: Any) -> list[tuple[Any, ...]]:
    return sorted(found, key=lambda row: [(value is None, value) for value in row])


TUMBLED = "(SELECT *, ts - ((ts % 60000000) + 60000000) % 60000000 AS w FROM s)"

TOP = """
SELECT * FROM (
  SELECT window_start, k, count(*) AS n,
         ROW_NUMBER() OVER (PARTITION BY window_start, window_end
                            ORDER BY count(*) DESC, k) AS place
  FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
  GROUP BY window_start, window_end, k
) WHERE place <= 2
"""
TOP_OF_A_STREAM = """
SELECT window_end, k, n, place FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC, k) AS place
  FROM (
    SELECT window_start, window_end, k, count(*) AS n
    FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k
  )
) WHERE 3 > place AND n > 1
"""
TOP_OF_TUPLES = """
WITH ranked AS (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, k ORDER BY x DESC) AS place
  FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
)
SELECT ts, k, x, window_start, window_end, place FROM ranked WHERE place BETWEEN 2 AND 3
"""
LAST = """
SELECT k, x FROM (
  SELECT k, x, ts, ROW_NUMBER() OVER (PARTITION BY window_start, lower(k) ORDER BY ts DESC) AS place
  FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
  WHERE x > 0
) WHERE place = 1
"""
RANKS = [
    (
        TOP,
        f"""SELECT w, k, n, place FROM (SELECT *, row_number() OVER (PARTITION BY w
        ORDER BY n DESC, k NULLS LAST) AS place
        FROM (SELECT w, k, count(*) AS n FROM {TUMBLED} GROUP BY w, k)) WHERE place <= 2""",
    ),
    (
        TOP_OF_A_STREAM,
        f"""SELECT w + 60000000, k, n, place FROM (SELECT *, row_number() OVER (PARTITION BY w
        ORDER BY n DESC, k NULLS LAST) AS place
        FROM (SELECT w, k, count(*) AS n FROM {TUMBLED} GROUP BY w, k))
        WHERE place <= 2 AND n > 1""",
    ),
    (
        TOP_OF_TUPLES,
        f"""SELECT ts, k, x, w, w + 60000000, place FROM (SELECT *, row_number() OVER (
        PARTITION BY w, k ORDER BY x DESC NULLS LAST, ts, k NULLS LAST, x NULLS LAST) AS place
        FROM {TUMBLED}) WHERE place IN (2, 3)""",
    ),
    (
        LAST,
        f"""SELECT k, x FROM (SELECT *, row_number() OVER (PARTITION BY w, k
        ORDER BY ts DESC, k NULLS LAST, x NULLS LAST) AS place FROM {TUMBLED} WHERE x > 0)
        WHERE place = 1""",
    ),
]


@pytest.mark.parametrize(("text", "words"), RANKS)
@pytest.mark.parametrize("seed", range(5))
def test_the_first_of_each_window(text: str, words: str, seed: int) -> None:
    data = rows(seed, 5 * MINUTE)
    answer = made(text, data)
    assert answer == oracle(words, data)
    assert answer


def test_a_place_that_nobody_reads_is_not_made() -> None:
    (query,) = Script(LAST, BASE).complete({S: SCHEMA}, {}).queries
    (rank,) = (box for box in query.boxes if isinstance(box, Rank))
    assert (rank.most, rank.place, rank.size_us) == (1, "", MINUTE)


FIRST = "NULLS FIRST"
PLACES = "SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY x{}) AS place FROM {}"
TUMBLE = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"SELECT * FROM ({PLACES.format('k', '', 's')}) WHERE place <= 2",
            "OVER without a window",
        ),
        (PLACES.format("window_start", "", TUMBLE), "say WHERE place <= n"),
        (
            f"SELECT * FROM ({PLACES.format('window_start', '', TUMBLE)}) WHERE place > 2",
            "say WHERE place <= n",
        ),
        (
            f"SELECT k FROM ({PLACES.format('window_end', ' ' + FIRST, TUMBLE)}) WHERE place = 1",
            "nulls are last",
        ),
        (
            f"SELECT * FROM ({PLACES.format('window_start', '', TUMBLE)}) WHERE place <= 1001",
            "1 to 1,000",
        ),
        (
            f"SELECT * FROM ({PLACES.format('window_start', '', TUMBLE)}) WHERE place < 1",
            "places begin with 1",
        ),
    ],
)
def test_places_without_a_bound_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        Script(text, BASE).complete({S: SCHEMA}, {})

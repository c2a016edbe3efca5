"""ROW_NUMBER without a window gives a table: the top-N of partitions so far."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from sql_answers import BASE, MINUTE, SCHEMA, S, rows

from medusa.engine.language.check import check_query
from medusa.engine.language.sql.script import Script
from medusa.engine.language.tables import tables_of
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import Join, Top, Totals, order_by
from medusa.engine.objects.schema import DELETED, Schema
from medusa.engine.reference.interpreter import run_query
from medusa.engine.streams.revisions.columns import revisions_entry
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import InvalidInputError

NUMBERED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) AS place FROM s"


def table_in_the_end(text: str, data: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the rows that remain in a SELECT's table when its input has ended."""
    (query,) = Script(text, BASE).complete({S: SCHEMA}, {}).queries
    schemas = check_query(query, {S: SCHEMA})
    name = f"{BASE}/answer"
    answers = run_query(query, {S: list(data)}, schemas)[name]
    assert name in tables_of(query)
    newest = {tuple(row[each] for each in schemas[name].key): row for row in answers}
    shown = [field.name for field in schemas[name].fields if field.name != DELETED]
    left = [
        tuple(row[each] for each in shown) for row in newest.values() if not row.get(DELETED, False)
    ]
    return sorted(left, key=_nulls_last)


def _nulls_last(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is None, value) for value in row]


def whole_answer(text: str, data: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return DuckDB's rows for the whole input."""
    with duckdb.connect() as database:
        database.register("s", pa.Table.from_pylist(list(data)))
        return sorted(database.sql(text).fetchall(), key=_nulls_last)


FIRST = "SELECT ts, k, x, row_number() OVER (PARTITION BY k ORDER BY {}, seq) AS place FROM s"
BEST = FIRST.format("x DESC NULLS LAST, ts, x NULLS LAST")
TOPS = [
    (
        f"SELECT * FROM ({NUMBERED.format('k', 'x DESC')}) WHERE place <= 3",
        f"SELECT * FROM ({BEST}) WHERE place <= 3",
    ),
    (
        f"SELECT k, x FROM ({NUMBERED.format('k', 'ts DESC, x')}) WHERE place = 1",
        f"SELECT k, x FROM ({FIRST.format('ts DESC, x NULLS FIRST')}) WHERE place = 1",
    ),
    (
        f"SELECT k, place, x FROM ({NUMBERED.format('k', 'x DESC')}) WHERE place < 4 AND x > 2",
        f"SELECT k, place, x FROM ({BEST}) WHERE place < 4 AND x > 2",
    ),
    (
        f"SELECT k, place, x FROM ({NUMBERED.format('k', 'x DESC')}) WHERE place BETWEEN 2 AND 3",
        f"SELECT k, place, x FROM ({BEST}) WHERE place BETWEEN 2 AND 3",
    ),
    (
        f"""SELECT x, count(*) AS n, sum(x) AS total FROM ({NUMBERED.format("k", "ts DESC, x")})
        WHERE place <= 4 GROUP BY x""",
        f"""SELECT x, count(*), sum(x)::BIGINT FROM ({FIRST.format("ts DESC, x NULLS FIRST")})
        WHERE place <= 4 GROUP BY x""",
    ),
    (
        """SELECT tens, x, place FROM (
            SELECT x / 2 AS tens, x, ROW_NUMBER() OVER (PARTITION BY x / 2 ORDER BY ts) AS place
            FROM s WHERE x > 0
        ) WHERE place <= 2""",
        """SELECT tens, x, place FROM (
            SELECT x / 2 AS tens, x, row_number() OVER (PARTITION BY x / 2 ORDER BY ts, x) AS place
            FROM s WHERE x > 0
        ) WHERE place <= 2""",
    ),
]


@pytest.mark.parametrize(("text", "words"), TOPS)
@pytest.mark.parametrize("seed", range(5))
def test_the_first_so_far_end_as_the_first_of_the_whole_input(
    text: str, words: str, seed: int
) -> None:
    data = rows(seed, 5 * MINUTE)
    answer = table_in_the_end(text, data)
    assert answer == whole_answer(words, data)
    assert answer


def test_the_place_of_a_top_one_is_no_field_and_the_order_is_the_requested_one() -> None:
    text = f"SELECT k, x FROM ({NUMBERED.format('k, x', 'ts DESC, k')}) WHERE place = 1"
    (query,) = Script(text, BASE).complete({S: SCHEMA}, {}).queries
    (top,) = (box for box in query.boxes if isinstance(box, Top))
    assert (top.partition_by, top.most, top.place) == (("k", "x"), 1, "")
    assert top.order_by == (order_by("ts", descending=True), order_by("k", nulls_first=True))


@pytest.mark.parametrize(
    "text",
    [
        NUMBERED.format("k", "ts DESC"),
        NUMBERED.format("k", "ts DESC").replace("*", "k, ts, x"),
        NUMBERED.format("window_start, k", "ts DESC").replace(
            "FROM s", "FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
        ),
    ],
)
@pytest.mark.parametrize(("order", "x"), [("DESC", 3), ("ASC", 1)])
def test_the_last_arrival_of_equal_times_is_the_newest(text: str, order: str, x: int) -> None:
    """Flink 2.3's deduplication gives the same, where the order of arrival is that of the job."""
    data = [{"stime": 5, "ts": 5, "k": "a", "x": each, "seq": each} for each in (1, 2, 3)]
    wanted = text.replace("ts DESC", f"ts {order}")
    (query,) = (
        Script(f"SELECT k, x FROM ({wanted}) WHERE place = 1", BASE)
        .complete({S: SCHEMA}, {})
        .queries
    )
    (row,) = run_query(query, {S: data}, check_query(query, {S: SCHEMA}))[f"{BASE}/answer"]
    assert row["x"] == x


def test_a_table_of_the_last_tuples_is_joined_and_counted() -> None:
    text = f"""CREATE QUERY q AS BEGIN
      CREATE STREAM newest AS SELECT k, x FROM ({NUMBERED.format("k", "ts DESC")}) WHERE place = 1;
      CREATE STREAM beside AS SELECT s.k, s.x, newest.x AS last_x
        FROM s JOIN newest FOR SYSTEM_TIME AS OF s.ts ON s.k = newest.k;
      CREATE STREAM counted AS SELECT x, count(*) AS n FROM newest GROUP BY x;
    END"""
    (query,) = Script(text, BASE).complete({S: SCHEMA}, {}).queries
    kinds = {type(box): box for box in query.boxes}
    join, totals = kinds[Join], kinds[Totals]
    assert isinstance(join, Join)
    assert isinstance(totals, Totals)
    assert (join.table, totals.changes) == (True, True)
    rng = random.Random(3)
    data = [
        {"stime": n, "ts": n, "k": rng.choice("ab"), "x": rng.randrange(9), "seq": n}
        for n in range(40)
    ]
    answers = run_query(query, {S: data}, check_query(query, {S: SCHEMA}))[f"{BASE}/beside"]
    assert [(row["k"], row["x"], row["last_x"]) for row in answers] == [
        (row["k"], row["x"], row["x"]) for row in data
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY x) AS place FROM s) "
            "WHERE place <= 2",
            "OVER without a window keeps the first rows of each partition so far",
        ),
        (
            "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k) AS place FROM s) "
            "WHERE place <= 2",
            "it needs PARTITION BY and ORDER BY",
        ),
        (f"SELECT * FROM ({NUMBERED.format('k', 'x')}) WHERE place > 2", "say WHERE place <= n"),
        (NUMBERED.format("k", "x"), "say WHERE place <= n in a SELECT around it"),
        (
            f"SELECT x FROM ({NUMBERED.format('k', 'x')}) WHERE place <= 2",
            "told apart by k, place, which SELECT leaves out",
        ),
        (
            "SELECT x FROM (SELECT x, ROW_NUMBER() OVER (PARTITION BY lower(k) ORDER BY x) AS place"
            " FROM s) WHERE place <= 2",
            r"told apart by an expression of PARTITION BY, place, which SELECT leaves out: add it",
        ),
        (
            "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY k) AS place FROM "
            "(SELECT k, count(*) AS n FROM s GROUP BY k)) WHERE place <= 2",
            "the rows of a table change, and are not numbered",
        ),
    ],
)
def test_a_table_that_cannot_be_kept_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        Script(text, BASE).complete({S: SCHEMA}, {})


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        (f"SELECT * FROM ({NUMBERED.format('x', 'ts')}) WHERE place <= 2", "without a key$"),
        ("SELECT x, count(*) AS n FROM s GROUP BY x", "without a key, or as a table$"),
        ("SELECT x, count(DISTINCT k) AS n FROM s WHERE x > 1 GROUP BY x", "without a key, or as"),
    ],
)
def test_a_table_of_tuples_that_may_be_revised_is_refused(text: str, mend: str) -> None:
    schema = Schema(S, SCHEMA.fields, "ts", ("k",))
    (query,) = Script(text, BASE).complete({S: schema}, {}).queries
    entry = StreamEntry(StreamDefinition(S, S), schema)
    beside = revisions_entry(entry)
    network = Network(query, {S: entry, beside.stream.name: beside})
    words = rf"^{BASE}/answer is a table of what {S} has so far, .* revised: declare it {mend}"
    with pytest.raises(InvalidInputError, match=words):
        network.tasks()

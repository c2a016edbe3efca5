"""Windows in SQL: a script's network gives DuckDB's rows for the same query in other words."""

from __future__ import annotations

from typing import Any

import pytest
from sql_answers import BASE, MINUTE, SCHEMA, S, made, oracle, rows

from medusa.engine.language.sql.script import Script
from medusa.engine.objects.query import Map, Rank
from medusa.engine.objects.schema import STIME
from medusa.overlay.errors import InvalidInputError

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
        ORDER BY n DESC, k NULLS FIRST) AS place
        FROM (SELECT w, k, count(*) AS n FROM {TUMBLED} GROUP BY w, k)) WHERE place <= 2""",
    ),
    (
        TOP_OF_A_STREAM,
        f"""SELECT w + 60000000, k, n, place FROM (SELECT *, row_number() OVER (PARTITION BY w
        ORDER BY n DESC, k NULLS FIRST) AS place
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
        ORDER BY ts DESC, k DESC NULLS FIRST, x DESC NULLS FIRST) AS place
        FROM {TUMBLED} WHERE x > 0) WHERE place = 1""",
    ),
    *(
        (
            TOP_OF_TUPLES.replace("ORDER BY x DESC", f"ORDER BY x {said}"),
            f"""SELECT ts, k, x, w, w + 60000000, place FROM (SELECT *, row_number() OVER (
            PARTITION BY w, k ORDER BY x {means}, ts, k NULLS LAST, x NULLS LAST) AS place
            FROM {TUMBLED}) WHERE place IN (2, 3)""",
        )
        for said, means in (
            ("", "ASC NULLS FIRST"),  # as in Flink 2.3 and Spark 4.3
            ("NULLS LAST", "ASC NULLS LAST"),
            ("ASC NULLS FIRST", "ASC NULLS FIRST"),
            ("DESC NULLS FIRST", "DESC NULLS FIRST"),
            ("DESC NULLS LAST", "DESC NULLS LAST"),
        )
    ),
]


@pytest.mark.parametrize(("text", "words"), RANKS)
@pytest.mark.parametrize("seed", range(5))
def test_the_first_of_each_window(text: str, words: str, seed: int) -> None:
    data = rows(seed, 5 * MINUTE)
    answer = made(text, data)
    assert answer == oracle(words, data)
    assert answer


def test_a_numbered_select_of_columns_numbers_the_stream_itself() -> None:
    """The rows keep their order of arrival; rows of a map would be in the order of their fields."""
    inner = "SELECT k, ts, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS place FROM s"
    text = f"SELECT * FROM ({inner}) WHERE place <= 2"
    (query,) = Script(text, BASE).complete({S: SCHEMA}, {}).queries
    first, behind = query.boxes
    assert first.inputs == (S,)
    assert isinstance(behind, Map)
    assert [name for name, _ in behind.expressions] == ["k", "ts", "place"]
    with pytest.raises(InvalidInputError, match="there is no field x; there are k, ts"):
        Script(f"SELECT k, x FROM ({inner}) WHERE place = 1", BASE).complete({S: SCHEMA}, {})


def test_a_place_without_a_reader_is_not_made() -> None:
    (query,) = Script(LAST, BASE).complete({S: SCHEMA}, {}).queries
    (rank,) = (box for box in query.boxes if isinstance(box, Rank))
    assert (rank.most, rank.place, rank.size_us) == (1, "", MINUTE)


BOTH = " NULLS FIRST NULLS LAST"
PLACES = "SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY x{}) AS place FROM {}"
TUMBLE = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"SELECT * FROM ({PLACES.format('k', '', 's')}) WHERE place <= 33", "33 places; 1 to 32"),
        (PLACES.format("window_start", "", TUMBLE), "say WHERE place <= n"),
        (
            f"SELECT * FROM ({PLACES.format('window_start', '', TUMBLE)}) WHERE place > 2",
            "say WHERE place <= n",
        ),
        (
            f"SELECT k FROM ({PLACES.format('window_end', BOTH, TUMBLE)}) WHERE place = 1",
            "syntax error at 'NULLS'",
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


SESSIONS = """
SELECT window_start, window_end, k, count(*) AS n, sum(x) AS total
FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND)
GROUP BY window_start, window_end, k
"""
GROUPED_SESSIONS = """
SELECT SESSION_START(ts, INTERVAL '10' SECOND) AS since,
       session_end(ts, INTERVAL '10' SECOND) AS until, k, count(*) AS n, sum(x) AS total
FROM s GROUP BY k, SESSION(ts, INTERVAL '10' SECOND)
"""
SESSIONS_IN_DUCKDB = """
SELECT min(ts), max(ts) + 10000000, k, count(*), sum(x)::BIGINT FROM (
  SELECT *, count(*) FILTER (begins) OVER earlier AS number
  FROM (SELECT *, coalesce(ts - lag(ts) OVER earlier > 10000000, true) AS begins FROM s
        WINDOW earlier AS (PARTITION BY k ORDER BY ts))
  WINDOW earlier AS (PARTITION BY k ORDER BY ts)
) GROUP BY k, number
"""
CUMULATED = """
SELECT window_start, window_end, k, count(*) AS n
FROM CUMULATE(TABLE s, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE)
GROUP BY window_start, window_end, k HAVING count(*) > 1
"""
CUMULATED_IN_DUCKDB = f"""
SELECT w, e, k, count(*) FROM (
  SELECT *, w + (i + 1) * 20000000 AS e FROM {TUMBLED}, range(3) r(i)
) WHERE ts < e GROUP BY w, e, k HAVING count(*) > 1
"""
TOP_OF_CUMULATED = f"""
SELECT window_end, k FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC, k) AS place
  FROM ({CUMULATED})
) WHERE place = 1
"""
TOP_OF_CUMULATED_IN_DUCKDB = f"""
SELECT e, k FROM (SELECT *, row_number() OVER (PARTITION BY w, e
ORDER BY n DESC, k NULLS FIRST) AS p
FROM ({CUMULATED_IN_DUCKDB}) c(w, e, k, n)) WHERE p = 1
"""
TUMBLED_BY_FUNCTION = """
SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS w, TUMBLE_END(ts, INTERVAL '1' MINUTE) AS e,
       count(*) AS n
FROM s GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)
"""
SPANS = [
    (SESSIONS, SESSIONS_IN_DUCKDB),
    (GROUPED_SESSIONS, SESSIONS_IN_DUCKDB),
    (CUMULATED, CUMULATED_IN_DUCKDB),
    (TOP_OF_CUMULATED, TOP_OF_CUMULATED_IN_DUCKDB),
    (TUMBLED_BY_FUNCTION, f"SELECT w, w + 60000000, count(*) FROM {TUMBLED} GROUP BY w"),
]


@pytest.mark.parametrize(("text", "words"), SPANS)
@pytest.mark.parametrize("seed", range(5))
def test_sessions_and_windows_that_grow(text: str, words: str, seed: int) -> None:
    data = rows(seed, 5 * MINUTE)
    answer = made(text, data)
    assert answer == oracle(words, data)
    assert answer


def test_a_session_is_as_long_as_the_statement_says() -> None:
    text = f"CREATE STREAM answer WITH (within = INTERVAL '30' SECOND) AS {SESSIONS}"
    seconds = [31, 36, 45, 52, 59, 61, 68, 75, 95, 120]
    data = [
        {STIME: n * 1_000_000, "ts": n * 1_000_000, "k": "a", "x": 1, "seq": place}
        for place, n in enumerate(seconds)
    ]
    found = [(start / 1e6, end / 1e6, n) for start, end, _, n, _ in made(text, data)]
    assert found == [(31, 60, 5), (61, 85, 3), (95, 105, 1), (120, 130, 1)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            SESSIONS.replace("PARTITION BY k,", ","),
            "the fields of their PARTITION BY: none; it stands behind TABLE name",
        ),
        (
            "SELECT k FROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)",
            "sessions are grouped",
        ),
        (
            f"CREATE STREAM answer WITH (within = INTERVAL '5' SECOND) AS {SESSIONS}",
            "at most its longest session",
        ),
        (CUMULATED.replace("'20'", "'25'"), "does not divide its size"),
    ],
)
def test_spans_that_have_no_meaning_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        Script(text, BASE).complete({S: SCHEMA}, {})


# -- the last rows of a partition -----------------------------------------------------------------

FRAMED = [
    (
        """SELECT ts, k, x, avg(x) OVER (PARTITION BY k ORDER BY ts
             ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean,
           count(*) FILTER (WHERE x > 3) OVER (PARTITION BY k ORDER BY ts
             ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS n FROM s""",
        "ts, seq",
    ),
    (
        "SELECT s.x - min(x) OVER (ORDER BY ts ROWS 2 PRECEDING) AS d, k, lower(s.k) AS u FROM s",
        "ts, seq",
    ),
    (
        """SELECT k, max(x) OVER (PARTITION BY k, x % 2 ORDER BY stime ROWS CURRENT ROW) AS same,
           sum(x + 1) OVER (PARTITION BY k, x % 2 ORDER BY stime ROWS CURRENT ROW) AS total
           FROM s WHERE x > 0""",
        "ts, k, x",
    ),
    (
        """SELECT k, sum(x) OVER (PARTITION BY x % 2 ORDER BY ts ROWS 4 PRECEDING) AS total
           FROM s WHERE x > 0""",
        "ts, x % 2, x, k",
    ),
    (
        """SELECT ts, first_value(y) OVER (ORDER BY ts ROWS 3 PRECEDING) AS f, y
           FROM (SELECT ts, x * x AS y FROM s) AS inner_s""",
        "ts, y",
    ),
    (
        """SELECT ts, 2 * ROW_NUMBER() OVER (PARTITION BY lower(k) ORDER BY ts) AS twice,
           count(x) OVER (PARTITION BY lower(k) ORDER BY ts ROWS 2 PRECEDING) AS n,
           ROW_NUMBER() OVER (PARTITION BY lower(k) ORDER BY ts) AS place
           FROM s""",
        "ts, x",
    ),
]


@pytest.mark.parametrize(("text", "order"), FRAMED)
@pytest.mark.parametrize("seed", range(5))
def test_aggregates_of_the_last_rows(text: str, order: str, seed: int) -> None:
    """DuckDB runs the same words; the test puts its rows of one time into our order."""
    data = rows(seed, 2 * MINUTE)
    words = text.replace("ORDER BY stime", "ORDER BY ts").replace(
        "ORDER BY ts", f"ORDER BY {order}"
    )
    assert made(text, data) == oracle(words, data)
    assert len(made(text, data)) > 20


REFUSED_OVER = [
    ("sum(x) OVER (PARTITION BY k ORDER BY ts)", "all rows so far: say ROWS BETWEEN n"),
    ("sum(x) OVER (ORDER BY ts ROWS UNBOUNDED PRECEDING)", "all rows so far"),
    ("sum(x) OVER (ORDER BY ts RANGE 3 PRECEDING)", "OVER takes ROWS; of a time"),
    ("sum(x) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)", "no FOLLOWING"),
    ("sum(x) OVER (ORDER BY ts ROWS x PRECEDING)", "a whole number of rows"),
    ("sum(x) OVER (ORDER BY ts ROWS 1 PRECEDING EXCLUDE CURRENT ROW)", "OVER takes ROWS|EXCLUDE"),
    ("sum(x) OVER (ORDER BY ts DESC ROWS 1 PRECEDING)", "ORDER BY it"),
    ("sum(x) OVER (ROWS 1 PRECEDING)", "ORDER BY it"),
    ("sum(x) OVER (ORDER BY x ROWS 1 PRECEDING)", "windows are of the stream's time"),
    ("sum(x) OVER (ORDER BY ts ROWS 100 PRECEDING)", "in 101 of its windows; at most 100"),
    ("sum(x) OVER (ORDER BY ts ROWS 1 PRECEDING) + count(*)", "an aggregate beside OVER"),
    ("sum(x) OVER w", "named windows"),
    (
        "sum(x) OVER (ORDER BY ts ROWS 1 PRECEDING) + sum(x) OVER (ORDER BY ts ROWS 2 PRECEDING)",
        "two different OVER",
    ),
    *(
        (f"sum(x) OVER (PARTITION BY k ORDER BY ts ROWS 1 PRECEDING) + {number}", reason)
        for number, reason in (
            ("ROW_NUMBER() OVER (ORDER BY ts)", "has the same PARTITION BY and ORDER BY"),
            ("ROW_NUMBER() OVER (PARTITION BY k ORDER BY x)", "has the same PARTITION BY and"),
            ("ROW_NUMBER(x) OVER (PARTITION BY k ORDER BY ts)", "has the same PARTITION BY and"),
            ("ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts ROWS 1 PRECEDING)", "and no rows"),
        )
    ),
]


@pytest.mark.parametrize(("call", "reason"), REFUSED_OVER)
def test_rows_that_are_not_the_last_few_are_refused(call: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=f"({reason}).* at line 1"):
        made(f"SELECT {call} AS n FROM s", [])


def test_over_is_for_the_rows_of_streams() -> None:
    over = "count(*) OVER (ORDER BY stime ROWS 1 PRECEDING) AS n"
    for source, reason in (
        ("(SELECT k, sum(x) AS total FROM s GROUP BY k)", "the rows of a table change"),
        ("TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)", "OVER is for rows"),
        ("s GROUP BY k", "GROUP BY in a subquery"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            made(f"SELECT {over} FROM {source}", [])


# -- functions with an order -----------------------------------------------------------------------

EACH_WINDOW = "FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start"
EACH_BUCKET = f"FROM {TUMBLED} GROUP BY w"
FRACTIONS = ("0", "0.1", "0.25", "0.5", "0.333333", "0.75", "1")


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("order", ["", " ASC", " DESC"])
@pytest.mark.parametrize("condition", ["", " FILTER (WHERE x <> 3)"])
def test_percentiles_have_the_order_of_within_group(seed: int, order: str, condition: str) -> None:
    """DuckDB 2.0 has the same words, in SELECT, in HAVING, and for strings."""
    calls = [
        f"percentile_{kind}({p}) WITHIN GROUP (ORDER BY {x}{order}){condition} AS {kind}{x}{n}"
        for kind, x in (("cont", "x"), ("disc", "x"), ("disc", "k"))
        for n, p in enumerate(FRACTIONS)
    ]
    texts = [
        f"string_agg(k, '+' ORDER BY k{order}){condition} AS texts",
        f"listagg(k, '+') WITHIN GROUP (ORDER BY k{order}){condition} AS listed",
    ]
    items = ", ".join([*calls, *texts])
    having = f"HAVING percentile_disc(0.3) WITHIN GROUP (ORDER BY x{order}) > -1"
    data = rows(seed, 5 * MINUTE)
    found = made(f"SELECT window_start, {items} {EACH_WINDOW} {having}", data)
    items = items.replace("listagg(k, '+')", "listagg(k, '+'").replace(
        f"'+' WITHIN GROUP (ORDER BY k{order})", f"'+' ORDER BY k{order})"
    )
    expected = oracle(f"SELECT w, {items} {EACH_BUCKET} {having}", data)
    assert len(found) > 1
    assert [[_near(value) for value in row] for row in found] == [
        [_near(value) for value in row] for row in expected
    ]


def _near(value: Any) -> Any:
    """Round a float: DuckDB adds its parts in another order."""
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("order", ["", " DESC"])
def test_percentiles_of_the_last_rows_have_their_order(order: str) -> None:
    """The order holds in count windows, too."""
    over = "OVER (ORDER BY ts ROWS BETWEEN 4 PRECEDING AND CURRENT ROW)"
    call = f"percentile_disc(0.2) WITHIN GROUP (ORDER BY x{order}) {over}"
    data = [{**row, "ts": n, STIME: n, "x": row["x"] or 0} for n, row in enumerate(rows(4, MINUTE))]
    last = f"list(x) {over}"
    place = f"greatest(1, ceil(len({last}) * 0.2)::INT)"
    value = f"list_sort({last}, '{order.strip() or 'ASC'}')[{place}]"
    assert made(f"SELECT ts, {call} AS p FROM s", data) == oracle(
        f"SELECT ts, {value} AS p FROM s", data
    )


def test_an_array_has_its_order() -> None:
    data = [
        {STIME: n, "ts": n, "k": k, "x": x, "seq": n}
        for n, (k, x) in enumerate([("b", 2), ("a", 3), ("b", 1)])
    ]
    items = "array_agg(x ORDER BY x DESC) AS a, array_agg(k ORDER BY k) AS b"
    assert made(f"SELECT {items} {EACH_WINDOW}", data) == [("[3,2,1]", '["a","b","b"]')]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            "percentile_cont(0.5) WITHIN GROUP (ORDER BY x, k)",
            "ordered by one expression.*column 55",
        ),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY x NULLS FIRST)", "leave out NULLS FIRST"),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY x NULLS LAST)", "leave out NULLS LAST"),
        ("array_agg(k ORDER BY k DESC NULLS LAST)", "leave out NULLS LAST"),
        ("sum(x) WITHIN GROUP (ORDER BY x)", "sum has no order: leave out ORDER BY"),
        ("count(*) WITHIN GROUP (ORDER BY x)", "count has no order"),
        ("count(x ORDER BY x)", "count has no order"),
        ("median(x ORDER BY x DESC)", "median has no order"),
        ("last_value(x ORDER BY ts)", "last_value goes by the stream's time"),
        ("string_agg(k, ',' ORDER BY ts)", "its values in their own order: ORDER BY what it takes"),
        ("listagg(k, ',' ORDER BY k) WITHIN GROUP (ORDER BY k)", "has two ORDER BY"),
        ("array_agg(k ORDER BY k LIMIT 2)", "LIMIT"),
        ("array_agg(ORDER BY k)", "array_agg takes a value before ORDER BY"),
        ("string_agg(k, ORDER BY k)", "string_agg takes a value before ORDER BY"),
        ("array_agg(DISTINCT k ORDER BY k)", "does not take DISTINCT"),
    ],
)
def test_an_order_without_meaning_is_refused(call: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        made(f"SELECT {call} AS p {EACH_WINDOW}", [])


@pytest.mark.parametrize(
    ("call", "at", "reason"),
    [
        (
            "percentile_cont(0.5)",
            "percentile_cont",
            r"percentile_cont\(0.5\) WITHIN GROUP \(ORDER BY x\)",
        ),
        ("percentile_disc(0.5) FILTER (WHERE x > 1)", "percentile_disc", "WITHIN GROUP"),
        ("approx_percentile(0.5)", "approx_percentile", "WITHIN GROUP"),
        ("percentile_cont(1.5) WITHIN GROUP (ORDER BY x)", "1.5", "a number from 0 to 1"),
        ("percentile(x, 2)", "2)", "a number from 0 to 1"),
        ("percentile(x)", "percentile", "a number from 0 to 1"),
        ("top_k(x, 0)", "0)", "a whole number from 1"),
        ("histogram(x, 'a')", "'a'", "a whole number from 1"),
        ("string_agg(k)", "string_agg", "a text of at most"),
        ("sum(x, 2)", "2)", "sum takes no constant"),
    ],
)
@pytest.mark.parametrize("before", ["", "window_start, count(*) AS n, sum(x) AS y, "])
def test_a_wrong_constant_is_pointed_at(call: str, at: str, reason: str, before: str) -> None:
    """The error points at the constant also beside other columns, and in a later line."""
    text = f"SELECT {before}\n {call} AS p {EACH_WINDOW}"
    told = f"{reason}.*, at line 2, column {2 + call.index(at)}$"
    with pytest.raises(InvalidInputError, match=told):
        made(text, [])


MINUTE_OF = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
HALVES = "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE)"
OVER_HALVES = "(SELECT x, ts, (ts // 30000000 - r.i) * 30000000 AS w FROM s, range(2) r(i))"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"""SELECT k, max(window_end) AS e, count(*) FILTER (WHERE ts < window_start + INTERVAL
            '30' SECOND) AS early, sum(CASE WHEN window_end > ts THEN x END) AS x
            FROM {MINUTE_OF} GROUP BY window_start, k""",
            f"""SELECT k, w + 60000000, count(*) FILTER (WHERE ts < w + 30000000), sum(x)::BIGINT
            FROM {TUMBLED} GROUP BY w, k""",
        ),
        (
            f"""SELECT max(window_end) AS e, min(window_start) AS b, firstval(window_time) AS t
            FROM {HALVES} GROUP BY window_start HAVING max(window_end) > TIMESTAMP '1970-01-01'""",
            f"""SELECT w + 60000000, w, w + 59999999 FROM {OVER_HALVES}
            GROUP BY w HAVING w + 60000000 > 0""",
        ),
        (
            f"SELECT k, x FROM {MINUTE_OF} WHERE ts < window_start + INTERVAL '30' SECOND",
            f"SELECT k, x FROM {TUMBLED} WHERE ts < w + 30000000",
        ),
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_the_times_of_a_window_stand_in_aggregates_and_conditions(
    text: str, words: str, seed: int
) -> None:
    data = rows(seed, 5 * MINUTE)
    answer = made(text, data)
    assert answer == oracle(words, data)
    assert answer


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"SELECT k,\n x\nFROM {HALVES}",
            "a tuple is in several of these windows.* line 3, column 6",
        ),
        (
            "SELECT k,\n count(*) FILTER (WHERE ts < window_end)\n"
            f"FROM {HALVES} GROUP BY k, window_end",
            "a row is in several of these windows: window_end can be selected.* line 2, column 30",
        ),
        (
            "SELECT k,\n sum(x - unix_micros(window_end))\nFROM SESSION(TABLE s PARTITION BY k, "
            "DESCRIPTOR(ts), INTERVAL '1' MINUTE)\nGROUP BY window_start, window_end, k",
            "which session a row is in is known when that is over: .* line 2",
        ),
        (
            "SELECT k FROM (\n SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) AS place\n"
            " FROM s) AS z\n WHERE place > 2",
            "say WHERE place <= n.* line 4",
        ),
        (
            "SELECT x\nFROM SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' MINUTE)\n"
            "GROUP BY window_start,\n x",
            "group sessions by .* line 4",
        ),
    ],
)
def test_a_refusal_points_at_the_line_that_it_is_about(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        Script(text, BASE).complete({S: SCHEMA}, {})

"""Count windows in SQL: TUMBLE and HOP over rows, against DuckDB's row numbers."""

from __future__ import annotations

import pytest
from sql_answers import BASE, SCHEMA, S, made, oracle, rows

from medusa.engine.language.check import check_query
from medusa.engine.language.sql.script import Script
from medusa.engine.objects.query import Box, Top, TupleWindows
from medusa.engine.objects.schema import FieldType
from medusa.overlay.errors import InvalidInputError


def windows(kept: str, by: str, size: int, advance: int, *, partial: bool) -> str:
    """Return DuckDB's pairs of a window's end, `e`, and each of its rows, `m`.

    Args:
        kept: the rows that are numbered, with `place` as their order. by: the fields whose values
            each have windows of their own.
    """
    numbered = f"(SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY place) AS n FROM {kept})"
    whole = "true" if partial else f"e.n >= {size}"
    return (
        f"{numbered} e JOIN {numbered} m ON m.{by} IS NOT DISTINCT FROM e.{by} "
        f"AND m.n BETWEEN e.n - {size - 1} AND e.n AND (e.n - {size}) % {advance} = 0 AND {whole}"
    )


ALL = "(SELECT *, seq AS place, 1 AS one FROM s)"
POSITIVE = (  # the results of a filter are in the order of its fields
    "(SELECT *, row_number() OVER (ORDER BY ts, k NULLS LAST, x) AS place FROM s WHERE x > 0)"
)
ODD = (  # for a window grouped by an expression, the order is by the group and the argument
    "(SELECT *, x % 2 AS odd, row_number() OVER (ORDER BY ts, x % 2 NULLS LAST, x) AS place FROM s)"
)
FORMS = [
    (
        "SELECT k, sum(x) AS total, count(*) AS n FROM TUMBLE(TABLE s, 3 ROWS) GROUP BY k",
        "SELECT any_value(e.k), sum(m.x)::BIGINT, count(*) "
        f"FROM {windows(ALL, 'k', 3, 3, partial=False)} GROUP BY e.k, e.n",
    ),
    (
        "SELECT h.k, max(h.x) AS most FROM HOP(TABLE s PARTITION BY k, 3 ROWS, 10 ROWS) AS h "
        "GROUP BY h.k",
        f"SELECT e.k, max(m.x) FROM {windows(ALL, 'k', 10, 3, partial=False)} GROUP BY e.k, e.n",
    ),
    (
        "SELECT firstval(ts) AS since, lastval(ts) AS until, avg(x) AS mean "
        "FROM TABLE(HOP(DATA => TABLE s, SLIDE => 7 ROWS, SIZE => 4 ROWS))",
        "SELECT min(m.ts), e.ts, avg(m.x) "
        f"FROM {windows(ALL, 'one', 4, 7, partial=False)} GROUP BY e.ts, e.n",
    ),
    (
        "SELECT k, count(*) AS n, sum(x) AS total FROM HOP(TABLE s, 2 ROWS, 5 ROWS, PARTIAL) "
        "WHERE x > 0 GROUP BY k HAVING count(*) > 1",
        "SELECT e.k, count(*), sum(m.x)::BIGINT "
        f"FROM {windows(POSITIVE, 'k', 5, 2, partial=True)} GROUP BY e.k, e.n HAVING count(*) > 1",
    ),
    (
        "SELECT x % 2 AS odd, sum(x) * 2 AS total FROM TUMBLE(TABLE s, 4 ROWS) GROUP BY x % 2",
        "SELECT e.odd, sum(m.x)::BIGINT * 2 "
        f"FROM {windows(ODD, 'odd', 4, 4, partial=False)} GROUP BY e.odd, e.n",
    ),
    (
        "SELECT k, sum(x) AS total, ROW_NUMBER() AS n FROM HOP(TABLE s, 2 ROWS, 3 ROWS) GROUP BY k",
        "SELECT e.k, sum(m.x)::BIGINT, e.n "
        f"FROM {windows(ALL, 'k', 3, 2, partial=False)} GROUP BY e.k, e.n",
    ),
    (
        "SELECT ROW_NUMBER() AS row_number, -row_number() AS less, k AS n, count(x) AS c "
        "FROM HOP(TABLE s, 1 ROWS, 4 ROWS, PARTIAL) GROUP BY k HAVING ROW_NUMBER() % 3 = 1",
        "SELECT e.n, -e.n, e.k, count(m.x) "
        f"FROM {windows(ALL, 'k', 4, 1, partial=True)} WHERE e.n % 3 = 1 GROUP BY e.k, e.n",
    ),
]


@pytest.mark.parametrize(("text", "words"), FORMS)
@pytest.mark.parametrize("seed", range(5))
def test_windows_of_rows(text: str, words: str, seed: int) -> None:
    data = rows(seed, 120_000_000)
    answer = made(text, data)
    assert answer == oracle(words, data)
    assert answer


NUMBER = "ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) AS n"
RUNNING = [
    (
        f"SELECT *, {NUMBER.format('k', 'ts')} FROM s",
        f"SELECT ts, k, x, {NUMBER.format('k', 'seq')} FROM s",
    ),
    ("SELECT ROW_NUMBER() OVER (ORDER BY ts) AS n FROM s", "SELECT seq + 1 FROM s"),
    (
        "SELECT ROW_NUMBER() OVER (ORDER BY stime) AS n, x FROM s WHERE x > 0",
        "SELECT ROW_NUMBER() OVER (ORDER BY ts, x), x FROM s WHERE x > 0",
    ),
    (
        f"SELECT x, {NUMBER.format('lower(k)', 'ts')}, ts FROM s WHERE x > 0",
        f"SELECT x, {NUMBER.format('lower(k)', 'ts, x')}, ts FROM s WHERE x > 0",
    ),
    (
        f"SELECT k, x FROM (SELECT *, {NUMBER.format('k', 'ts')} FROM s) WHERE n % 5 = 2",
        f"SELECT k, x FROM (SELECT *, {NUMBER.format('k', 'seq')} FROM s) WHERE n % 5 = 2",
    ),
    (
        "SELECT x, n FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY ts) AS n FROM s) WHERE n <= 7",
        "SELECT x, seq + 1 FROM s WHERE seq < 7",
    ),
    (
        "SELECT window_start, max(n) AS most FROM TUMBLE(TABLE numbers, DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE) GROUP BY window_start",
        "SELECT ts - (ts % 60000000 + 60000000) % 60000000 AS start, max(seq) + 1 FROM s "
        "GROUP BY start",
    ),
]


@pytest.mark.parametrize(("text", "words"), RUNNING)
@pytest.mark.parametrize("seed", range(3))
def test_a_number_without_a_bound_is_that_of_each_tuple(text: str, words: str, seed: int) -> None:
    data = rows(seed, 120_000_000)
    numbers = "WITH numbers AS (SELECT ts, ROW_NUMBER() OVER (ORDER BY ts) AS n FROM s) "
    answer = made(numbers + text if "numbers" in text else text, data)
    assert answer == oracle(words, data)
    assert answer


def test_the_columns_of_a_numbered_select_are_in_its_order() -> None:
    text = "SELECT x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) AS n, ts FROM s"
    (query,) = Script(text, BASE).complete({S: SCHEMA}, {}).queries
    schema = check_query(query, {S: SCHEMA})[f"{BASE}/answer"]
    assert [(each.name, each.type) for each in schema.fields] == [
        ("x", FieldType.LONG),
        ("n", FieldType.LONG),
        ("ts", FieldType.TIMESTAMP),
    ]


def boxes(text: str) -> list[Box]:
    (query,) = Script(text, BASE).complete({S: SCHEMA}, {}).queries
    return list(query.boxes)


def test_a_plain_count_window_is_one_box() -> None:
    (tumbling,), (hopping,), (endless,) = (boxes(text) for text, _ in FORMS[:3])
    assert isinstance(tumbling, TupleWindows)
    assert isinstance(hopping, TupleWindows)
    assert isinstance(endless, TupleWindows)
    assert (tumbling.size, tumbling.advance, tumbling.group_by) == (3, 3, ("k",))
    assert (hopping.size, hopping.advance, hopping.partial) == (10, 3, False)
    assert (endless.size, endless.advance, endless.group_by) == (4, 7, ())


def test_a_time_among_their_groups_is_that_of_the_rows() -> None:
    """Many rows share a window's start, and their count windows end at several moments."""
    minutes = "TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
    rows_of_minutes = f"WITH r AS (SELECT * FROM {minutes}) SELECT"
    tens = "FROM TUMBLE(TABLE r, 10 ROWS) GROUP BY window_start, k"
    (_, box) = boxes(f"{rows_of_minutes} window_start, k, count(*) AS n {tens}")
    assert isinstance(box, TupleWindows)
    assert box.group_by == ("window_start", "k")
    number = "ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY k) AS place"
    ranked = f"{rows_of_minutes} * FROM (SELECT window_start, k, count(*) AS n, {number} {tens})"
    top = boxes(f"{ranked} WHERE place <= 2")[-1]
    assert isinstance(top, Top), "of all so far, not of those that come out at one moment"
    assert top.partition_by == ("window_start",)


COUNTED = "SELECT k, count(*) AS n FROM {} GROUP BY k"
WHOLE = "a window has a whole number of rows, like 10 ROWS"
TAKES = "TABLE name, DESCRIPTOR(time field), INTERVAL size; or TABLE name, size ROWS"
ALL_ALIKE = "the lengths of a window are all INTERVALs, or all ROWS"
PARTIAL = "PARTIAL is for HOP(TABLE name, advance ROWS, size ROWS, PARTIAL)"
SECOND = "INTERVAL '1' SECOND"
NO_TIMES = "windows of rows have no {}: say firstval(stime) or lastval(stime)"


@pytest.mark.parametrize(
    ("table", "at", "reason"),
    [
        *(
            (f"TUMBLE(TABLE s, {size} ROWS)", size, WHOLE)
            for size in ("2.5", "-3", "x", "'10'", "1e1", "10L", "(10)", "9" * 10, "9" * 5_000)
        ),
        ("TUMBLE(TABLE s, 10)", "TUMBLE", f"TUMBLE takes {TAKES}"),
        ("TUMBLE(TABLE s, 10 ROW)", "TUMBLE", f"TUMBLE takes {TAKES}"),
        ("TUMBLE(TABLE s 10 ROWS)", "TUMBLE", f"TUMBLE takes {TAKES}"),
        ("TUMBLE(TABLE s, 5 ROWS, 10 ROWS)", "TUMBLE", f"TUMBLE takes {TAKES}"),
        (f"TUMBLE(TABLE s, {SECOND})", "TUMBLE", f"TUMBLE takes {TAKES}"),
        (f"TUMBLE(TABLE s, DESCRIPTOR(ts) {SECOND})", "TUMBLE", f"TUMBLE takes {TAKES}"),
        ("HOP(TABLE s, 10 ROWS)", "HOP", "HOP takes TABLE name"),
        ("HOP(TABLE s, 3 ROWS, ten)", "HOP", "HOP takes TABLE name"),
        (
            "TUMBLE(TABLE s PARTITION BY ), 10 ROWS)",
            "),",
            "PARTITION BY takes fields, with a comma",
        ),
        ("HOP(TABLE s, PARTIAL)", "HOP", "HOP takes TABLE name"),
        (
            "HOP(TABLE s, SIZE => 10 ROWS, SLIDE => 3 ROWS)",
            "SIZE",
            "the lengths of HOP are, in this order, SLIDE => ..., SIZE => ...",
        ),
        (
            f"HOP(TABLE s, DESCRIPTOR(ts), SLIDE => {SECOND}, GAP => {SECOND})",
            "GAP",
            "the lengths of HOP are, in this order",
        ),
        ("CUMULATE(TABLE s, 5 ROWS, 10 ROWS)", "CUMULATE", "CUMULATE takes TABLE name, DESC"),
        ("SESSION(TABLE s PARTITION BY k, 10 ROWS)", "SESSION", "SESSION takes TABLE name PART"),
        (f"HOP(TABLE s, {SECOND}, 10 ROWS)", "10", ALL_ALIKE),
        (f"HOP(TABLE s, 10 ROWS, {SECOND})", "INTERVAL", ALL_ALIKE),
        (f"HOP(TABLE s, DESCRIPTOR(ts), {SECOND}, 10 ROWS)", "10", ALL_ALIKE),
        (
            "TUMBLE(TABLE s, DESCRIPTOR(ts), 10 ROWS)",
            "DESCRIPTOR",
            "rows are counted in the stream's order: say no DESCRIPTOR",
        ),
        ("TUMBLE(TABLE s, 10 ROWS, PARTIAL)", "PARTIAL", PARTIAL),
        (f"HOP(TABLE s, DESCRIPTOR(ts), {SECOND}, {SECOND}, PARTIAL)", "PARTIAL", PARTIAL),
        ("TUMBLE(TABLE s, 0 ROWS)", "0", "its windows have 0 tuples; 1 to 1,000"),
        ("TUMBLE(TABLE s, 1001 ROWS)", "1001", "its windows have 1,001 tuples; 1 to 1,000"),
        ("HOP(TABLE s, 1 ROWS, 101 ROWS)", "101", "a tuple is in 101 of its windows; at most 100"),
        (
            "TUMBLE(TABLE s, 10 ROWS) WHERE window_start < ts",
            "window_start",
            NO_TIMES.format("window_start"),
        ),
    ],
)
def test_rows_that_make_no_windows_are_refused(table: str, at: str, reason: str) -> None:
    refused(COUNTED.format(table), at, reason)


def test_rows_are_grouped_by_the_groups_of_their_windows() -> None:
    text = "SELECT count(*) AS n FROM TUMBLE(TABLE s PARTITION BY x, 10 ROWS) GROUP BY k"
    refused(text, "k", "group rows by the fields of their PARTITION BY: x")


TENS = "TUMBLE(TABLE s, 10 ROWS)"


@pytest.mark.parametrize(
    ("text", "at", "reason"),
    [
        *(
            (
                f"SELECT k, {form} AS x FROM {TENS} AS r GROUP BY k",
                form[-14:],
                NO_TIMES.format(name),
            )
            for name in ("window_start", "window_end", "window_time")
            for form in (name, f"r.{name}")
        ),
        (
            f"SELECT k FROM {TENS} GROUP BY k, window_end",
            "window_end",
            NO_TIMES.format("window_end"),
        ),
        (
            f"SELECT k FROM {TENS} GROUP BY k HAVING max(window_end) > max(ts)",
            "window_end",
            NO_TIMES.format("window_end"),
        ),
        (f"SELECT k, y FROM {TENS} GROUP BY k", "y ", "there is no field y; there are ts, k, x"),
        (f"SELECT k, x FROM {TENS} GROUP BY k", "x ", "x is neither grouped nor aggregated"),
        (f"SELECT k FROM {TENS}", "TUMBLE", "windows of rows are aggregated: say which aggregates"),
        (
            f"SELECT k FROM {TENS} GROUP BY k, TUMBLE(ts, INTERVAL '1' MINUTE)",
            "TUMBLE(ts",
            "the windows are declared twice",
        ),
        (
            "WITH t AS (SELECT k, count(*) AS n FROM s GROUP BY k) "
            "SELECT max(n) AS most FROM TUMBLE(TABLE t, 10 ROWS)",
            "TUMBLE",
            "the rows of a table change, and are not counted: GROUP BY without a window",
        ),
        (
            "SELECT k, ROW_NUMBER() AS n FROM s GROUP BY k",
            "ROW_NUMBER",
            "ROW_NUMBER() is the number of the last row of a window of rows",
        ),
        (
            "SELECT k, n FROM (SELECT k, sum(x) AS t, ROW_NUMBER() OVER (PARTITION BY k ORDER BY "
            "x) AS n FROM s GROUP BY k, x)",
            "k, n",
            "n numbers any number of tuples: say WHERE n <= n, or number them in the order of",
        ),
        (
            "WITH r AS (SELECT *, ROW_NUMBER() OVER (PARTITION BY ts ORDER BY x) AS n FROM s) "
            "SELECT count(*) AS c FROM TUMBLE(TABLE r, 2 ROWS) WHERE n <= 2",
            "TUMBLE",
            "n numbers any number of tuples: say WHERE n <= n in a SELECT around it",
        ),
        (
            "WITH t AS (SELECT k, count(*) AS n FROM s GROUP BY k) "
            "SELECT *, ROW_NUMBER() OVER (ORDER BY stime) AS place FROM t",
            "t AS",
            "the rows of a table change, and are not numbered",
        ),
    ],
)
def test_clauses_that_row_windows_lack_are_refused(text: str, at: str, reason: str) -> None:
    refused(text, at, reason)


def refused(text: str, at: str, reason: str) -> None:
    """Expect one line that begins with a reason and points at the first occurrence of a word."""
    with pytest.raises(InvalidInputError) as raised:
        boxes(text)
    told = str(raised.value)
    assert told.startswith(reason)
    assert told.endswith(f", at line 1, column {text.index(at) + 1}")
    assert "\n" not in told

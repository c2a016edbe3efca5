"""Draws valid scripts of SQL, part by part, as lists of words; and words to insert. It knows SQL,
and nothing of the code that reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import strategies as st

Words = tuple[str, ...]

DECLARED = (
    "CREATE STREAM s ( ts TIMESTAMP , x DOUBLE , y INT , k STRING ( 9 ) , "
    "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND ) ; "
    "CREATE STREAM t ( ts TIMESTAMP , x DOUBLE , y INT , k STRING , WATERMARK FOR ts AS ts ) ; "
    "CREATE TABLE o ( k STRING , since TIMESTAMP , z INT , PRIMARY KEY ( k ) , "
    "WATERMARK FOR since AS since ) ;"
)

VALUES = [
    "x",
    "y + 1",
    "k || 'a'",
    "- y",
    "CAST ( k AS VARCHAR ( 3 ) )",
    "CAST ( x AS INT )",
    "k :: STRING",
    "CASE WHEN y > 1 THEN x ELSE 0 END",
    "CASE y WHEN 1 THEN x END",
    "upper ( k )",
    "coalesce ( x , y , 2 )",
    "EXTRACT ( HOUR FROM ts )",
    "date_trunc ( 'hour' , ts )",
    "ts + INTERVAL '5' MINUTE",
    "position ( 'b' IN k )",
    "trim ( LEADING ' ' FROM k )",
    "substring ( k FROM 2 FOR 3 )",
]
CONDITIONS = [
    "y > 1",
    "k LIKE 'a%'",
    "k NOT LIKE 'a!%' ESCAPE '!'",
    "k RLIKE '^a'",
    "y IN ( 1 , 2 )",
    "x BETWEEN 1 AND 2",
    "x NOT BETWEEN y AND 2",
    "k IS NOT NULL",
    "x > 1 IS TRUE",
    "y IS DISTINCT FROM 3",
    "NOT y = 2",
    "( y < 2 OR x > 3 )",
    "ts >= TIMESTAMP '2026-01-01 00:00:00'",
]
CALLS = [
    "count ( * )",
    "sum ( x )",
    "COUNT ( DISTINCT k )",
    "min ( y ) FILTER ( WHERE x > 1 )",
    "percentile_cont ( 0.25 ) WITHIN GROUP ( ORDER BY x )",
    "percentile_disc ( 0.75 ) WITHIN GROUP ( ORDER BY k DESC )",
    "percentile_disc ( 0.75 ) WITHIN GROUP ( ORDER BY y ) FILTER ( WHERE x > 1 )",
    "approx_percentile ( x , 0.5 )",
    "string_agg ( k , ',' ORDER BY k DESC )",
    "array_agg ( y ORDER BY y )",
    "first_value ( x )",
    "top_k ( k , 3 )",
    "stddev ( x )",
]
WINDOWS = [
    "TUMBLE ( TABLE s , DESCRIPTOR ( ts ) , INTERVAL '1' MINUTE )",
    "HOP ( TABLE s , DESCRIPTOR ( ts ) , INTERVAL '10' SECOND , INTERVAL '1' MINUTE )",
    "CUMULATE ( TABLE s , DESCRIPTOR ( ts ) , INTERVAL '10' SECOND , INTERVAL '1' MINUTE )",
]
LATER = "a . ts + INTERVAL '1' HOUR"
EARLIER = "a . ts - INTERVAL '1' HOUR"
JOINS = [
    f"JOIN t AS b ON b . k = a . k AND b . ts BETWEEN {EARLIER} AND a . ts",
    f"LEFT JOIN t AS b ON a . k = b . k AND b . stime BETWEEN a . stime AND {LATER}",
    f"FULL JOIN t AS b ON b . y > a . y AND b . ts >= a . ts AND b . ts <= {LATER}",
    "ASOF LEFT JOIN t AS b ON b . k = a . k AND b . ts <= a . ts - INTERVAL '5' SECOND "
    f"AND b . ts >= {EARLIER}",
    "JOIN o FOR SYSTEM_TIME AS OF a . ts AS b ON b . k = a . k",
]
ONE_SIDED = [
    f"LEFT SEMI JOIN t AS b ON b . k = a . k AND b . ts BETWEEN a . ts AND {LATER}",
    f"LEFT ANTI JOIN t AS b ON b . k = a . k AND b . ts BETWEEN a . ts AND {LATER}",
]
OVER = "OVER ( PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW )"
MATCH = (
    "SELECT * FROM s MATCH_RECOGNIZE ( PARTITION BY k ORDER BY ts "
    "MEASURES FIRST ( A . x ) AS since , LAST ( B . y ) AS till , COUNT ( * ) AS rows_ "
    "ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW "
    "PATTERN ( A B + ) WITHIN INTERVAL '10' SECOND "
    "DEFINE B AS B . y > PREV ( y ) )"
)


@st.composite
def selects(draw: st.DrawFn) -> str:
    """Draw a SELECT of each kind that the language has."""
    value, condition, call, other = (
        draw(st.sampled_from(each)) for each in (VALUES, CONDITIONS, CALLS, CALLS)
    )
    window = draw(st.sampled_from(WINDOWS))
    kinds: Sequence[str] = [
        f"SELECT {value} AS v , k FROM s WHERE {condition}",
        f"SELECT * FROM s WHERE {condition}",
        f"WITH q AS ( SELECT {value} AS v , k , ts FROM s ) SELECT v , k FROM q WHERE k > 'b'",
        f"SELECT k , v FROM ( SELECT {value} AS v , k FROM s ) AS q WHERE q . k > 'b'",
        f"SELECT x , y FROM s WHERE {condition} UNION ALL SELECT x , y + 1 AS y FROM t",
        f"SELECT window_start , k , {call} AS c , {other} AS d FROM {window} "
        f"GROUP BY window_start , window_end , k HAVING {call} IS NOT NULL",
        f"SELECT window_start , {call} AS c FROM {WINDOWS[0]} WHERE {condition} "
        "GROUP BY window_start",
        "SELECT k , sum ( x ) AS c , count ( DISTINCT y ) AS d FROM s GROUP BY k "
        "HAVING sum ( x ) > 1",
        f"SELECT window_start , window_end , k , {call} AS c FROM SESSION ( TABLE s PARTITION BY k "
        ", DESCRIPTOR ( ts ) , INTERVAL '10' MINUTE ) GROUP BY window_start , window_end , k",
        f"SELECT k , {call} AS c FROM HOP ( TABLE s , 3 ROWS , 10 ROWS , PARTIAL ) GROUP BY k",
        f"SELECT {value} AS v , sum ( x ) {OVER} AS c , max ( y ) {OVER} AS d FROM s",
        "SELECT ts , k , ROW_NUMBER ( ) OVER ( PARTITION BY k ORDER BY ts ) AS n FROM s",
        "SELECT k , y , place FROM ( SELECT * , ROW_NUMBER ( ) OVER ( PARTITION BY k ORDER BY x "
        "DESC , ts ) AS place FROM s ) WHERE place <= 3",
        f"SELECT window_start , k , c FROM ( SELECT * , ROW_NUMBER ( ) OVER ( PARTITION BY "
        f"window_start ORDER BY c DESC ) AS place FROM ( SELECT window_start , k , {CALLS[0]} AS c "
        f"FROM {WINDOWS[0]} GROUP BY window_start , k ) ) WHERE place <= 3",
        f"SELECT a . x , b . k AS bk FROM s AS a {draw(st.sampled_from(JOINS))}",
        f"SELECT a . x , a . k FROM s AS a {draw(st.sampled_from(ONE_SIDED))}",
        "SELECT DISTINCT window_start , k FROM " + WINDOWS[0],
        MATCH,
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def scripts(draw: st.DrawFn) -> Words:
    """Draw a script that declares streams, and derives others from them."""
    one = draw(selects())
    forms: Sequence[Callable[[], str]] = [
        lambda: one,
        lambda: f"CREATE STREAM z WITH ( box = 'last' , readers = 'a' ) AS {one}",
        lambda: (
            "CREATE QUERY w WITH ( version = 2 ) AS BEGIN "
            f"CREATE TEMPORARY STREAM u AS {one} ; CREATE STREAM z AS SELECT * FROM u ; END"
        ),
        lambda: "CREATE STREAM a , b AS SPLIT s BY y > 1 ELSE",
    ]
    return tuple(f"{DECLARED} {draw(st.sampled_from(forms))()} ;".split(" "))


INSERTED = [
    "DESC",
    "DESC NULLS FIRST",
    ", y",
    ", 7",
    ",",
    "*",
    "0x1F",
    "DISTINCT",
    "FILTER ( WHERE y > 7 )",
    "IGNORE NULLS",
    "( 3 )",
    "TABLESAMPLE ( 10 PERCENT )",
    "LIMIT 3",
    "OFFSET 2",
    "ORDER BY y",
    "QUALIFY y > 1",
    "OVER ( ORDER BY ts ROWS 1 PRECEDING )",
    "WITHIN GROUP ( ORDER BY y )",
    "HAVING count ( * ) > 7",
    "WHERE y > 9",
    "AND y > 9",
    "GROUP BY y",
    "PARTITION BY y",
    "IF NOT EXISTS",
    "FOR UPDATE",
    "FOR SYSTEM_TIME AS OF ts",
    "COLLATE utf8",
    "AT TIME ZONE 'UTC'",
    "FORMAT 'yyyy'",
    "ESCAPE '?'",
    "EXCEPT ( x )",
    "/*+ BROADCAST(s) */",
    "UNION ALL SELECT * FROM t",
    "NATURAL",
    "CROSS",
    "LATERAL",
    "WITH TIES",
    "WITH ROLLUP",
    "WINDOW w9 AS ( ORDER BY y )",
    "EXCLUDE TIES",
    "USING ( k )",
    "WITHIN INTERVAL '1' DAY",
    "ELSE 5",
    "NOT",
    ":: INT",
    "WITH ( slack = 3 )",
    ". x",
    "+ 1",
    "'s'",
    "TOP 3",
    "RESPECT NULLS",
    "NOT MATERIALIZED",
    "WITH q AS ( SELECT x FROM s )",
    ", q AS ( SELECT x FROM s )",
    "|> WHERE y > 1",
    "ONE ROW PER MATCH",
    "AFTER MATCH SKIP TO NEXT ROW",
    "PATTERN ( A B )",
]
"""Modifiers and parts that mean something wherever the grammar allows them."""

ALTERED = {
    "DESC": "ASC",
    "MINUTE": "HOUR",
    "SECOND": "DAY",
    "ROWS": "RANGE",
    "ONE": "ALL",
    "NEXT": "LAST",
    "PRECEDING": "FOLLOWING",
    "DISTINCT": "ALL",
    "AND": "OR",
    "LIKE": "RLIKE",
    "IN": "NOT IN",
    ">": "<=",
    "=": "<>",
    "+": "-",
    "FIRST": "LAST",
    "LEADING": "TRAILING",
    "FOR": "WITH",
    "SEMI": "ANTI",
    "LEFT": "RIGHT",
    "NOT": "",
    "NULL": "TRUE",
    "CASE": "",
    "WHEN": "THEN",
    "SYSTEM_TIME": "VERSION",
    "WITHIN": "BESIDE",
    "GROUP": "SORT",
    "WHERE": "HAVING",
    "HAVING": "WHERE",
    "TUMBLE": "CUMULATE",
    "HOP": "TUMBLE",
    "TEMPORARY": "",
    "QUERY": "STREAM",
    "PARTIAL": "WHOLE",
    "SESSION": "TUMBLE",
    "INT": "LONG",
    "DOUBLE": "REAL",
    "TIMESTAMP": "STRING",
    "STRING": "TEXT ( 3 )",
    "VARCHAR": "CHAR",
    "PRIMARY": "FOREIGN",
    "WATERMARK": "MARK",
}
"""Words, and replacements with another meaning."""


def altered(word: str) -> str | None:
    """Return another word with another meaning for a word's place, or None for an unknown word."""
    if word.replace(".", "", 1).isdecimal():
        return f"{word}1"
    if word.startswith("'"):
        return f"'7{word[1:]}"
    if word.isidentifier() and word.islower():
        return f"{word}9"
    return ALTERED.get(word)


SILENT = frozenset(
    {"AS", "TABLE", "LEFT", "THEN", ",", ";", "*", "IS", "BETWEEN", "WHERE", "AND", "("}
)
"""Words whose absence the grammar accepts in some places: `x NOT NULL`, `count()`, `s a SEMI JOIN
t`."""

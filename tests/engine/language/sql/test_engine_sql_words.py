"""Refusals use the words of the text, and point at the line that they are about."""

from __future__ import annotations

import re

import pytest
from field_texts import fields_of
from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError

from medusa.engine.expressions.typer import parse_expression
from medusa.engine.language.sql.dialect import Medusa
from medusa.engine.language.sql.script import Script
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError

BASE = "medusa://mit.edu"
S = Schema(f"{BASE}/s", fields_of("ts timestamp, k string?, n long?"), "ts")
T = Schema(f"{BASE}/t", S.fields, "ts")


def reason(text: str) -> str:
    """Return the reason for which a script is refused, or ""."""
    try:
        Script(text, BASE).complete({S.name: S, T.name: T}, {})
    except InvalidInputError as error:
        return str(error)
    return ""


# -- the words of the parser -----------------------------------------------------------------------

CLASSES = [
    each
    for each in vars(exp).values()
    if isinstance(each, type) and issubclass(each, exp.Expression) and each is not exp.Expression
]

OF_SQL = {"MINUTE", "SECOND", "MATCH", "LAST", "STREAM", "JSON"}
"""Words of suggested corrections that sqlglot's tokenizer does not know."""

NAMES = {each.__name__ for each in CLASSES if len(re.findall(r"[A-Z]", each.__name__)) > 1} - OF_SQL
"""Names that consist of several words."""

PARSERS_WORDS = (
    {each.__name__.upper() for each in CLASSES}
    - OF_SQL
    - {word for key in Medusa.Tokenizer.KEYWORDS for word in re.findall(r"\w+", key)}
)
"""Names of sqlglot's classes that are not words of SQL."""


def written(kind: type[exp.Expression]) -> set[str]:
    """Return texts of a node of the class in two dialects; no texts if the node cannot be written
    alone."""
    found = set()
    for part in (exp.column("n"), exp.Literal.string("a"), [exp.column("k"), exp.column("n")]):
        arguments = {name: part for name, needed in kind.arg_types.items() if needed}
        for dialect in ("spark", "postgres"):
            try:
                found.add(kind(**arguments).sql(dialect, unsupported_level=ErrorLevel.IGNORE))
            except (SqlglotError, AttributeError, LookupError, NameError, TypeError, ValueError):
                continue
    return {text for text in found if text.strip()}


def check_words(text: str, told: str) -> None:
    named = set(re.findall(r"\w+", told))
    alien = {word for word in named & (PARSERS_WORDS | NAMES) if len(word) > 1}
    alien = {word.upper() for word in alien}
    assert not alien - set(re.findall(r"\w+", text.upper())), (text, told)


def test_no_refusal_has_a_word_of_the_parser() -> None:
    """The test covers all classes of sqlglot's nodes."""
    assert len(CLASSES) > 700
    refused = 0
    for kind in CLASSES:
        for text in written(kind):
            for script in (
                f"SELECT {text} AS v FROM s",
                f"SELECT k FROM s WHERE {text}",
                f"SELECT sum({text}) AS v FROM s GROUP BY k",
                f"SELECT k FROM s {text}",
            ):
                told = reason(script)
                check_words(script, told)
                refused += bool(told)
    assert refused > 1_000


def test_no_expression_is_refused_with_a_word_of_the_parser() -> None:
    fields = {each.name: each.type for each in S.fields}
    refused = 0
    for text in {text for kind in CLASSES for text in written(kind)}:
        try:
            parse_expression(text, fields)
        except InvalidInputError as error:
            check_words(text, str(error))
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(
    ("item", "said", "column"),
    [
        ("n DIV 2", "`DIV` is not part of the language here: say cast(a / b AS LONG)", 10),
        ("n + (n DIV 2)", "`DIV` is not part", 15),
        ("n & 2", "`&` is not part of the language here: say bitand(a, b)", 10),
        ("~n", "`~` is not part of the language here: say bitxor(a, -1)", 8),
        ("n << 1", "`<<` is not part of the language here: say shiftleft(a, bits)", 10),
        ("ts AT TIME ZONE 'UTC'", "`AT TIME ZONE` is not part", 11),
        ("k[0]", "`k[0]` is not part of the language here: of JSON say json_value", 8),
        ("(n, k)", "`(n, k)` is not part", 8),
        ("k SIMILAR  TO 'a'", "`SIMILAR TO` is not part", 10),
        ("@p", "`@p` is not part", 8),
        ("cast(n AS NUMERIC(3, 1))", "'NUMERIC' is not a type here: say DOUBLE", 18),
        ("lower(k) IGNORE NULLS", "`IGNORE NULLS` is not part", 17),
        ("lastval(n) IGNORE NULLS OVER (ORDER BY ts ROWS 3 PRECEDING)", "`IGNORE NULLS` is", 19),
        (
            "firstval(n RESPECT NULLS)",
            "`RESPECT NULLS` is not part of the language here: leave",
            19,
        ),
        (
            "row_number() FILTER (WHERE n > 1) OVER (PARTITION BY k ORDER BY ts)",
            "`FILTER` is not part of the language here: it is for an aggregate; for others say W",
            21,
        ),
        ("lower(k) FILTER (WHERE n > 1)", "`FILTER` is not part of the language here: it is", 17),
        ("lower(k) OVER (PARTITION BY n)", "`OVER` is not part", 17),
        (
            "rank() OVER (ORDER BY n)",
            "`OVER` is not part of the language here: a rank is ROW_NUMBER()",
            15,
        ),
    ],
)
def test_a_refusal_shows_the_user_s_own_words(item: str, said: str, column: int) -> None:
    told = reason(f"SELECT {item} AS v FROM s")
    assert told.startswith(said)
    assert told.endswith(f", at line 1, column {column}")


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("SELECT AS STRUCT k FROM s", "`SELECT AS STRUCT` is not part of the language: name", 1),
        ("SELECT as value k FROM s", "`SELECT AS VALUE` is not part", 1),
        (
            "SELECT TOP 10 k FROM s",
            "`TOP` is not part of the language: an endless stream has no",
            8,
        ),
        ("SELECT top (10) k FROM s", "`TOP` is not part of the language: an endless stream", 8),
        (
            "CREATE TEMPORARY QUERY q AS BEGIN CREATE STREAM z AS SELECT k FROM s; END",
            "a QUERY is not TEMPORARY: a stream of a QUERY is",
            8,
        ),
        ("SELECT k FROM s GROUP BY GROUPING SETS ((k), ())", "`GROUPING SETS` is not part", 41),
        ("SELECT k FROM s GROUP BY k, CUBE (k)", "`CUBE` is not part of the language: make a", 35),
        ("SELECT k FROM s GROUP BY ROLLUP (k)", "`ROLLUP` is not part of the language: make", 34),
        ("SELECT s.* EXCEPT (k) FROM s", "* has no EXCEPT, REPLACE or RENAME here: name", 8),
        ("SELECT * RENAME (k AS z) FROM s", "* has no EXCEPT, REPLACE or RENAME here", 8),
        (
            "CREATE STREAM z AS (SELECT k FROM s) LIMIT 1",
            "an endless stream has no first n rows",
            44,
        ),
        ("CREATE STREAM z AS (SELECT k FROM s) AS q", "here comes SELECT", 20),
        ("CREATE TEMP SCHEMA q (a INT)", "a SCHEMA is not TEMPORARY", 8),
        (
            "CREATE TEMPORARY FUNCTION f(a INT) RETURNS INT LANGUAGE PYTHON AS 'a.py:f'",
            "a FUNCTION is not TEMPORARY",
            8,
        ),
    ],
)
def test_a_refusal_of_a_statement_shows_the_user_s_own_words(
    text: str, said: str, column: int
) -> None:
    """The error names constructs of other languages, at their own place."""
    told = reason(text)
    assert told.startswith(said)
    assert told.endswith(f", at line 1, column {column}")


@pytest.mark.parametrize(
    "select",
    ["(SELECT k FROM s)", "((SELECT k FROM s))", "(SELECT k FROM s) UNION ALL (SELECT k FROM t)"],
)
def test_a_stream_may_be_made_of_a_select_in_parentheses(select: str) -> None:
    """The SELECT in parentheses is read like a script's own SELECT."""
    assert reason(f"CREATE STREAM z AS {select}") == reason(select) == ""


@pytest.mark.parametrize("columns", ["top", "top, ts", "top AS x", '"top"'])
def test_a_column_may_be_called_top(columns: str) -> None:
    """The word is a name where no number follows."""
    schema = Schema(S.name, (*S.fields, Field("top", FieldType.INT)), "ts")
    Script(f"SELECT {columns} FROM s", BASE).complete({S.name: schema}, {})


def test_a_join_as_of_is_called_by_its_name() -> None:
    told = reason(
        "SELECT s.k FROM s ASOF LEFT JOIN t ON s.k = t.k AND s.n > t.n "
        "AND t.ts BETWEEN s.ts - INTERVAL '1' HOUR AND s.ts"
    )
    assert told.startswith("a left as-of join takes equalities of a left and a right value")


# -- names that are no function --------------------------------------------------------------------

WINDOW = "FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, k"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT flor(n) AS v FROM s", "no function 'flor'; alike are floor, lower;"),
        (f"SELECT flor(n) AS v {WINDOW}", "no function 'flor'; alike are floor, lower;"),
        (f"SELECT summ(n) AS v {WINDOW}", "no function 'summ'; alike are sum;"),
        (f"SELECT sum(Flor(n)) AS v {WINDOW}", "no function 'Flor'; alike are floor"),
        (f"SELECT k {WINDOW} HAVING flor(n) > 1", "no function 'flor'; alike"),
        (f"SELECT rand(n) AS v {WINDOW}", "no function 'rand': a result must be the same"),
        ("SELECT k FROM s GROUP BY k HAVING coutn(n) > 1", "no function 'coutn'; alike are count"),
    ],
)
def test_a_name_that_is_no_function_is_called_so(text: str, said: str) -> None:
    assert f"there is {said}" in reason(text)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("row_number()", "ROW_NUMBER() takes OVER (PARTITION BY ... ORDER BY ...)"),
        ("TUMBLE(ts, INTERVAL '1' HOUR)", "a window stands in FROM, like TUMBLE(TABLE s"),
    ],
)
def test_a_function_that_stands_elsewhere_says_where(item: str, said: str) -> None:
    assert reason(f"SELECT {item} AS v FROM s").startswith(said)


def test_a_function_that_the_script_declares_is_one() -> None:
    declared = "CREATE FUNCTION Flor(a LONG) RETURNS LONG DETERMINISTIC LANGUAGE PYTHON AS 'f.py:f'"
    assert reason(f"{declared}; SELECT sum(flor(n)) AS v {WINDOW}") == ""


# -- places ----------------------------------------------------------------------------------------

PLACES = [
    ("SELECT k,\n  n + 1 AS a,\n  ^k + 1 AS b\nFROM s", "`+` takes two numbers"),
    ("SELECT k\nFROM s\nWHERE n > 1\n  AND ^k > 1", "`>` takes"),
    ("SELECT n\nFROM s\nWHERE n + 1 > 2\n  AND (n > 3 OR\n    ^k + 1 > 3)", "`+` takes"),
    (f"SELECT window_start, k, sum(n) AS a,\n  ^sum(k) AS b\n{WINDOW}", "sum does not take string"),
    (f"SELECT k, sum(n + 1) AS a,\n  sum(^k + 1) AS b\n{WINDOW}", "`+` takes"),
    (f"SELECT k, sum(n) AS a\n{WINDOW}\nHAVING sum(n) > 1\n   AND ^max(k) > 1", "`>` takes"),
    (f"SELECT k,\n  sum(n) AS a\n{WINDOW}, ^k || 1", "`||` takes strings"),
    (
        "SELECT s.k\nFROM s\nJOIN t ON s.k = t.k\n  AND ^s.n = t.k\n"
        "  AND t.ts BETWEEN s.ts - INTERVAL '1' HOUR AND s.ts",
        "`=` takes",
    ),
    (
        "SELECT k,\n  json_value(k, '$.a') AS a,\n  ^json_value(k, 'x') AS b\nFROM s",
        "the path does not begin with",
    ),
    (
        "SELECT k,\n  CASE WHEN n > 1 THEN 'a'\n    WHEN ^n > k THEN 'b'\n  END AS c\nFROM s",
        "`>` takes",
    ),
    (
        "SELECT * FROM s MATCH_RECOGNIZE (\n  PARTITION BY k ORDER BY ts\n"
        "  MEASURES FIRST(A.ts) AS since\n  AFTER MATCH SKIP TO NEXT ROW\n"
        "  PATTERN (A B) WITHIN INTERVAL '10' SECOND\n  DEFINE A AS A.n > 1,\n"
        "    B AS ^B.n > PREV(k)\n)",
        "`>` takes",
    ),
    (
        "CREATE QUERY q AS BEGIN\n  CREATE STREAM a AS SELECT k, n FROM s;\n"
        "  CREATE STREAM c AS\n    SELECT k,\n      ^n || 'x' AS z\n    FROM a;\nEND",
        "`||` takes strings",
    ),
    (
        "SELECT k, avg(n) OVER w1 AS a,\n  ^avg(k) OVER w1 AS b\nFROM s".replace(
            "w1", "(PARTITION BY k ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
        ),
        "avg does not take string",
    ),
    (
        "SELECT s.k\nFROM s\nASOF LEFT JOIN ^t ON s.k = t.k AND s.n > t.n\n"
        "  AND t.ts BETWEEN s.ts - INTERVAL '1' HOUR AND s.ts",
        "a left as-of join takes equalities",
    ),
    ("SELECT k,\n  n ^DIV 2 AS v\nFROM s", "`DIV`"),
    ("SELECT k,\n  ^flor(n) AS v\nFROM s", "no function 'flor'"),
]
"""Scripts with ^ before the place to which the refusal points."""


@pytest.mark.parametrize(("text", "said"), PLACES)
def test_a_refusal_points_at_the_line_that_it_is_about(text: str, said: str) -> None:
    before = text.partition("^")[0]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    told = reason(text.replace("^", ""))
    assert said in told
    assert told.endswith(f", at line {line}, column {column}")

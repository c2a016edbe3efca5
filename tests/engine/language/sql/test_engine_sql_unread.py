"""Every written word counts: each word changes the network, or is refused."""

from __future__ import annotations

import pytest
import sqlglot
from drawn_statements import INSERTED, SILENT, Words, altered, scripts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from examples import examples
from medusa.engine.expressions.unread import read_whole, unread, watch
from medusa.engine.language.document import Document
from medusa.engine.language.sql.script import Script
from medusa.engine.objects.query import Map
from medusa.overlay.errors import InvalidInputError

BASE = "medusa://mit.edu"
S = "CREATE STREAM s (ts TIMESTAMP, x DOUBLE, y INT, k STRING, WATERMARK FOR ts AS ts);"
EACH = "FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start"


def defined(text: str) -> Document:
    return Script(text, BASE).complete({}, {})


def network(words: Words) -> Document | None:
    """Return the network that a script defines, or None if it is refused."""
    try:
        return defined(" ".join(words))
    except InvalidInputError:
        return None


# -- words -----------------------------------------------------------------------------------------


@settings(max_examples=examples(250, soak=20_000))
@given(scripts(), st.sampled_from(INSERTED), st.data())
def test_a_word_that_is_added_changes_the_network_or_is_refused(
    words: Words, added: str, data: st.DataObject
) -> None:
    before = network(words)
    assert before is not None, " ".join(words)
    place = data.draw(st.integers(0, len(words)))
    changed = (*words[:place], *added.split(" "), *words[place:])
    assert network(changed) != before, " ".join(changed)


@settings(max_examples=examples(150, soak=20_000))
@given(scripts(), st.data())
def test_a_word_that_is_another_changes_the_network_or_is_refused(
    words: Words, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(words) - 1))
    other = altered(words[place])
    assume(other is not None)
    assert other is not None
    changed = (*words[:place], *other.split(" "), *words[place + 1 :])
    assert network(changed) != network(words), " ".join(changed)


@settings(max_examples=examples(150, soak=20_000))
@given(scripts(), st.data())
def test_a_word_that_is_left_out_changes_the_network_or_is_refused(
    words: Words, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(words) - 1))
    assume(words[place] not in SILENT)
    changed = (*words[:place], *words[place + 1 :])
    assert network(changed) != network(words), " ".join(changed)


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason", "word"),
    [
        (
            f"SELECT count(*) AS n {EACH.replace('s,', 's PARTITION BY k,')}",
            "say GROUP BY",
            "TUMBLE",
        ),
        (
            "SELECT sum(x) OVER (ORDER BY ts NULLS FIRST ROWS 3 PRECEDING) AS n FROM s",
            "NULLS FIRST means nothing here, and would be lost: leave it out",
            "NULLS FIRST",
        ),
        (
            "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY ts NULLS FIRST MEASURES A.x AS x "
            "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN INTERVAL '1' HOUR)",
            "NULLS FIRST means nothing",
            "NULLS FIRST",
        ),
        ("CREATE TEMPORARY STREAM z (a INT)", "TEMPORARY means nothing here", "TEMPORARY"),
        ("CREATE TEMPORARY STREAM z AS SELECT x FROM s", "another stream of its QUERY reads", "z"),
        ("CREATE TABLE z AS SELECT x FROM s", "no table: say CREATE STREAM", "z"),
        (
            "CREATE SCHEMA z (a TIMESTAMP, WATERMARK FOR a AS a - INTERVAL '5' SECOND)",
            "no slack",
            "z",
        ),
        (
            "CREATE STREAM z (a TIMESTAMP, WATERMARK FOR a AS a - INTERVAL '5' SECOND) "
            "WITH (slack = 3)",
            "that of WATERMARK, or that of WITH",
            "z",
        ),
        (
            "CREATE FUNCTION f(a INT) RETURNS INT RETURNS LONG LANGUAGE PYTHON AS 'a.py:f'",
            "RETURNS is said twice",
            "RETURNS LONG",
        ),
        ("CREATE STREAM IF NOT EXISTS z (a INT)", "IF NOT EXISTS is not part of the", "IF"),
        ("CREATE STREAM z (a INT NOT NULL NULL)", "NULL or NOT NULL, and said once", "a INT"),
        ("WITH q AS MATERIALIZED (SELECT x FROM s) SELECT x FROM q", "MATERIALIZED", "MATERIAL"),
        (
            "WITH q AS NOT MATERIALIZED (SELECT x FROM s) SELECT x FROM q",
            "^NOT MATERIALIZED means nothing here, and would be lost: leave it out",
            "NOT MATERIAL",
        ),
        (
            "WITH q AS (SELECT x FROM s) WITH r AS (SELECT y FROM s) SELECT x, y FROM q",
            "a query has one WITH: say WITH a AS",
            "WITH r",
        ),
        (
            "WITH q AS (SELECT x FROM s), r AS (SELECT y FROM s) SELECT x FROM q",
            "no FROM reads r: leave it out, or make it a stream of its own, CREATE STREAM r AS",
            "r AS",
        ),
        (
            "WITH q AS (SELECT x FROM s) SELECT x FROM (WITH q AS (SELECT x FROM s) "
            "SELECT x FROM q)",
            "no FROM reads q",
            "q AS (SELECT x FROM s) SELECT x FROM (",
        ),
        (
            "CREATE FUNCTION f(a INT, A LONG) RETURNS INT LANGUAGE PYTHON AS 'a.py:f'",
            "argument A occurs twice",
            "A LONG",
        ),
        ("SELECT x FROM s |> WHERE x > 1", r"`\|>` is not part", "|>"),
        ("WITH RECURSIVE q AS (SELECT x FROM s) SELECT x FROM q", "no RECURSIVE", "q"),
        ("SELECT x FROM s WHERE x BETWEEN SYMMETRIC 1 AND 2", "SYMMETRIC", "x BETWEEN"),
        ("SELECT x FROM s TABLESAMPLE (10 PERCENT)", "TABLESAMPLE", "10"),
        ("SELECT x FROM s AS q (a, b)", "say the names of the columns in the SELECT", "a, b"),
        (
            "SELECT x FROM s (3)",
            "this is a call: FROM takes a stream, a window like TUMBLE",
            "s (3)",
        ),
        ("SELECT x FROM s (y) AS q", "this is a call: FROM takes", "s (y)"),
        ("SELECT x FROM ai.cs.mit.edu.s()", "this is a call: FROM takes", "ai.cs"),
        ("SELECT x FROM s DESC", "'DESC' is a mistake", "DESC"),
        ("SELECT x FROM s NATURAL UNION ALL SELECT y FROM s", "means nothing", "NATURAL"),
        (
            "SELECT a.x FROM s AS a CROSS JOIN s AS b ON a.x = b.x",
            "a CROSS JOIN has no ON",
            "s AS b",
        ),
        (
            f"SELECT count(*) AS n {EACH.replace('BY', 'BY DISTINCT')}",
            "GROUP BY DISTINCT",
            "window_",
        ),
        ("SELECT x FROM s ORDER BY x", "in the order of its time", "x"),
        ("SELECT , x FROM s", "something is missing before the comma", ", x"),
        ("CREATE STREAM z, w AS SPLIT s BY , x > 1 ELSE", "missing before the comma", ", x"),
        ("SELECT /*+ BROADCAST(s) */ x FROM s", "hints are not part of the language", "/*+"),
        ("SELECT cast(x AS INT AS y FROM s", "a parenthesis does not close", "(x AS"),
        ("SELECT x FROM s *", "stands behind SELECT", "*"),
        ("SELECT x FROM s AS", "a name is missing after AS", "AS"),
        ("SELECT x FROM s,", "',' is a mistake", ","),
        ("SELECT x, count(*) AS n FROM s GROUP BY x,", "missing after the comma", ","),
        (
            "SELECT x, count(*) AS n FROM s GROUP BY x, HAVING count(*) > 1",
            "after the comma",
            ", H",
        ),
        (
            "SELECT sum(x) OVER (PARTITION BY k, ORDER BY ts ROWS 3 PRECEDING) AS n FROM s",
            "something is missing after the comma",
            ", ORDER",
        ),
        (
            "WITH a AS (SELECT x FROM s), WITH b AS (SELECT x FROM a) SELECT x FROM b",
            "comma",
            ", W",
        ),
        ("SELECT 0x1F FROM s", "'0x1F' is not a number", "0x1F"),
        ("SELECT y, 7x AS z FROM s", "there is no field 7x", "7x"),
        ("CREATE STREAM z (a INT PRIMARY KEY, b INT PRIMARY KEY)", "one PRIMARY KEY", "b INT"),
        ("CREATE STREAM z (a INT, PRIMARY KEY (a), PRIMARY KEY (a))", "one PRIMARY KEY", "a))"),
        ("SELECT x FROM s FOR UPDATE", "FOR UPDATE", "x"),
        ("SELECT x FROM s WITH (NOLOCK)", "means nothing here", "s"),
        ("SELECT DISTINCT x FROM s", "no set of all its rows", "x"),
        ("SELECT x FROM s EXCEPT SELECT x FROM s", "EXCEPT needs all rows", "x"),
        (
            "SELECT sum(x) OVER (ORDER BY ts ROWS 3 PRECEDING EXCLUDE TIES) AS n FROM s",
            "no EXCLUDE",
            "sum",
        ),
        ("CREATE STREAM z WITH (within = 3) AS SELECT x FROM s", "no join, session", "within"),
        (
            "CREATE QUERY w WITH (within = 3) AS BEGIN CREATE STREAM z AS SELECT x FROM s; END",
            "leave it out",
            "within",
        ),
        (
            "CREATE STREAM z WITH (within = 3) AS "
            "SELECT a.x FROM s AS a JOIN s AS b ON a.x = b.x AND a.ts = b.ts",
            "or leave out the bounds that they have",
            "within",
        ),
        ("CREATE STREAM z, w WITH (within = 3) AS SPLIT s BY x > 1 ELSE", "no join", "within"),
    ],
)
def test_a_word_without_effect_is_refused_with_its_place(text: str, reason: str, word: str) -> None:
    with pytest.raises(InvalidInputError, match=reason) as refused:
        defined(f"{S}\n{text}")
    column = int(str(refused.value).rpartition("column ")[2])
    assert "line 2" in str(refused.value)
    assert text[column - 1 :].startswith(word)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT x FROM 's'", "s"),
        ("SELECT x FROM s JOIN 't' ON x = y", "t"),
        ("SELECT count(*) AS n FROM TUMBLE(TABLE 's', 3 ROWS)", "s"),
        ("SELECT x FROM s AS 't'", "t"),
        ("SELECT x FROM s 't'", "t"),
        ("SELECT x AS 't' FROM s", "t"),
        ("SELECT 's'.x FROM s", "s"),
        ("SELECT s.'x' FROM s", "x"),
        ("WITH 'q' AS (SELECT x FROM s) SELECT x FROM q", "q"),
        ("CREATE STREAM 'z' (a INT)", "z"),
        ("CREATE STREAM z ('a' INT)", "a"),
        ("CREATE TABLE z (a INT, PRIMARY KEY ('a'))", "a"),
        ("CREATE STREAM z (a TIMESTAMP, WATERMARK FOR 'a' AS a)", "a"),
        ("CREATE STREAM z USING 'a'", "a"),
        ("CREATE FUNCTION 'f'(a INT) RETURNS INT LANGUAGE PYTHON AS 'a.py:f'", "f"),
        ("CREATE STREAM z, w AS SPLIT 's' BY x > 1 ELSE", "s"),
    ],
)
def test_a_text_is_no_name(text: str, word: str) -> None:
    """A text is refused wherever a name stands: engines differ in what they read it as."""
    with pytest.raises(InvalidInputError, match=f"'{word}' is a text: a name stands without"):
        defined(f"{S}\n{text}")
    with pytest.raises(InvalidInputError) as refused:
        defined(f"{S}\n{text}")
    column = int(str(refused.value).rpartition("column ")[2])
    assert text[column - 1 :].startswith(f"'{word}'")


def test_the_name_of_an_option_may_be_a_text() -> None:
    """Flink's scripts write options so."""
    plain, text = (f"CREATE STREAM z (a INT) WITH ({name} = 3)" for name in ("slack", "'slack'"))
    assert defined(plain) == defined(text)


MATCHED = (
    "SELECT * FROM s MATCH_RECOGNIZE (ORDER BY ts MEASURES A.x AS x {} AFTER MATCH SKIP TO NEXT ROW"
    " {} PATTERN (A B) {} WITHIN INTERVAL '1' HOUR DEFINE B AS B.x > 1 {})"
)


@pytest.mark.parametrize(
    ("place", "clause"),
    [
        (0, "ONE ROW PER MATCH ONE ROW PER MATCH"),
        (0, "MEASURES B.x AS z"),
        (0, "PARTITION BY k"),
        (1, "ONE ROW PER MATCH"),
        (1, "AFTER MATCH SKIP TO NEXT ROW"),
        (2, "PATTERN (A B)"),
        (3, "DEFINE A AS A.x > 1"),
        (3, "WITHIN INTERVAL '2' HOUR"),
    ],
)
def test_a_clause_of_a_pattern_stands_once_and_in_its_place(place: int, clause: str) -> None:
    """The error names the clause itself, not another clause that would be missing."""
    said = [clause if each == place else "" for each in range(4)]
    with pytest.raises(InvalidInputError, match="is said twice, or too late: the cl") as refused:
        defined(S + MATCHED.format(*said))
    assert clause.startswith(str(refused.value).partition(" is said")[0])


@pytest.mark.parametrize("clause", ["WHERE y > 1", "GROUP BY y", "HAVING count(*) > 1"])
def test_a_clause_of_a_query_stands_once(clause: str) -> None:
    """The error names the clause that is repeated."""
    first = clause.partition(" y")[0].partition(" c")[0]
    with pytest.raises(InvalidInputError, match=f"^{first} is said twice: a query has one"):
        defined(f"{S} SELECT y, count(*) AS n FROM s {clause} {clause}")


def test_the_place_of_a_row_may_have_the_name_of_its_subquery_and_no_other() -> None:
    text = (
        "SELECT k, x, place FROM (SELECT k, x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) AS "
        "place FROM s) AS q WHERE {}.place <= 3"
    )
    defined(S + text.format("q"))
    with pytest.raises(InvalidInputError, match="place"):
        defined(S + text.format("r"))


# -- types -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expression"),
    [
        ("cast(k AS VARCHAR(3))", "CAST(k AS STRING(3))"),
        ("k::VARCHAR(2)", "CAST(k AS STRING(2))"),
        ("cast(y AS STRING(1))", "CAST(y AS STRING(1))"),
        ("cast(k AS TEXT)", "CAST(k AS STRING)"),
        ("cast(y AS DOUBLE PRECISION)", "CAST(y AS DOUBLE)"),
        ("cast(ts AS TIMESTAMP(6) WITH TIME ZONE)", "CAST(ts AS TIMESTAMP)"),
        ("TIMESTAMP '2026-01-01'", "CAST('2026-01-01' AS TIMESTAMP)"),
        ("10L", "CAST(10 AS LONG)"),
    ],
)
def test_a_cast_has_all_of_its_type(value: str, expression: str) -> None:
    """A cast cuts a text, as SQL:2016 6.13 and Flink 2.3 do; Spark 4.3 and DuckDB 2.0 leave it
    whole."""
    (query,) = defined(f"{S} SELECT {value} AS v FROM s").queries
    (box,) = query.boxes
    assert isinstance(box, Map)
    assert box.expressions == (("v", expression),)


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        ("CHAR(3)", "'CHAR' is not a type here: it pads with blanks.*say VARCHAR"),
        ("VARCHAR(0)", r"VARCHAR\(0\) is not part of the language: a text has room for one"),
        ("VARCHAR(MAX)", "a size is a whole number, like STRING\\(64\\)"),
        ("TIMESTAMP(0)", r"TIMESTAMP\(0\).*say TIMESTAMP, and date_trunc\('millisecond', x\)"),
        ("TIMESTAMP(9)", "it has microseconds"),
        ("FLOAT(3)", "say REAL, or DOUBLE"),
        ("INT(3)", r"INT\(3\) is not part of the language: say INT"),
        ("DECIMAL(3)", "say DOUBLE, or LONG of a smaller unit"),
        ("DATE", r"say TIMESTAMP, and date_trunc\('day', x\)"),
    ],
)
def test_a_size_without_meaning_is_refused(type_: str, reason: str) -> None:
    """The size of a cast and that of a field are refused."""
    for text in (f"SELECT cast(k AS {type_}) AS v FROM s", f"CREATE STREAM z (a {type_})"):
        with pytest.raises(InvalidInputError, match=f"{reason}.*, at line 1, column"):
            defined(f"{S} {text}")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("cast(k AS TIMESTAMP FORMAT 'yyyy')", "say to_timestamp"),
        ("cast(k AS INT FORMAT '9')", "say to_timestamp"),
        ("try_cast(k AS INT)", "CAST gives NULL for what it cannot"),
        ("cast(k AS INT DEFAULT 3 ON CONVERSION ERROR)", "'3'"),
        ("cast(k AS STRING COLLATE utf8)", "syntax error"),
    ],
)
def test_a_cast_of_another_grammar_is_refused(call: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        defined(f"{S} SELECT {call} AS v FROM s")


# -- how unread words are noted --------------------------------------------------------------------


def test_only_an_argument_that_is_asked_for_is_read() -> None:
    tree = sqlglot.parse_one("SELECT a FROM s ORDER BY b DESC")
    nodes = watch(tree)
    assert tree == tree.copy()
    assert len(list(tree.walk())) > 5
    assert next(unread(nodes)).name == "expressions"
    (column,) = tree.expressions
    assert column.name == "a"
    source = tree.args["from_"].this
    assert source.name == "s"
    left = [(each.name, each.value) for each in unread(nodes)]
    assert left[0] == ("order", tree.args["order"])
    assert ("desc", True) in left
    read_whole(tree)
    assert not list(unread(nodes))


@pytest.mark.parametrize("participant", ["edu", "mit.edu", "cs.mit.edu", "ai.cs.mit.edu"])
def test_every_part_of_a_long_name_is_read(participant: str) -> None:
    """A participant's name may have any number of labels."""
    base = f"medusa://{participant}/"
    text = (
        f"CREATE STREAM {participant}.s (ts TIMESTAMP, n LONG, WATERMARK FOR ts AS ts);"
        f"CREATE QUERY {participant}.q AS BEGIN"
        f" CREATE STREAM {participant}.a AS SELECT n FROM {participant}.s; END"
    )
    document = Script(text, None).complete({}, {})
    assert [each.name for each in document.streams] == [f"{base}s"]
    assert [each.name for each in document.queries] == [f"{base}q"]

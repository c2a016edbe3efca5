from __future__ import annotations

import re

import pytest
from field_texts import fields_of

from medusa.engine.language.check import check_query
from medusa.engine.language.sql.script import Script
from medusa.engine.objects.query import Box, Contiguity, Map, Match, Measure
from medusa.engine.objects.schema import FieldType, Schema
from medusa.engine.operators.match.pattern import pattern_text
from medusa.engine.reference.interpreter import run_query
from medusa.overlay.errors import InvalidInputError

F = FieldType
CONNS = Schema(
    "medusa://mit.edu/conns", fields_of("src string, dst string, bytes long?, ts timestamp"), "ts"
)

SELECT = """SELECT * FROM conns MATCH_RECOGNIZE (
  PARTITION BY src, dst ORDER BY ts
  MEASURES FIRST(A.ts) AS since, COUNT(B.*) AS n, SUM(B.bytes) AS total, bytes AS latest
  ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A B+? C) WITHIN INTERVAL '10' MINUTE
  DEFINE B AS B.bytes > A.bytes AND ts < PREV(ts) + INTERVAL '70' SECOND,
         C AS C.bytes < LAST(B.bytes)
) AS m"""


def boxes(text: str) -> tuple[Box, ...]:
    script = Script(text, "medusa://mit.edu/")
    assert script.reads == {CONNS.name}
    (query,) = script.complete({CONNS.name: CONNS}, {}).queries
    return query.boxes


def test_match_recognize_is_a_match() -> None:
    (box,) = boxes(SELECT)
    assert isinstance(box, Match)
    assert box.partition_by == ("src", "dst")
    assert pattern_text(box.steps) == "A B+? C"
    assert [step.condition for step in box.steps] == [
        "true",
        "bytes > A.bytes AND ts < prev.ts + INTERVAL '70' SECOND",
        "bytes < B.bytes",
    ]
    assert box.within_us == 600_000_000
    assert box.contiguity is Contiguity.STRICT
    assert box.measures == (
        Measure("firstval", "A", "ts", "since"),
        Measure("count", "B", "", "n"),
        Measure("sum", "B", "bytes", "total"),
        Measure("lastval", "", "bytes", "latest"),
    )


def test_a_sequence_may_have_other_rows_between() -> None:
    (box,) = boxes(SELECT.replace("PATTERN (A B+? C)", "PATTERN SEQ (A B !C D{2,3})"))
    assert isinstance(box, Match)
    assert box.contiguity is Contiguity.SKIP_TILL_NEXT_MATCH
    assert pattern_text(box.steps) == "A B !C D{2,3}"


def test_a_measure_that_is_more_than_a_function_is_computed_behind_the_match() -> None:
    match, made = boxes(SELECT.replace("SUM(B.bytes)", "LAST(B.bytes) - FIRST(A.bytes) + 1"))
    assert isinstance(match, Match)
    assert isinstance(made, Map)
    texts = dict(made.expressions)
    last, first = (each.output for each in match.measures[2:4])
    assert texts["total"] == f"{last} - {first} + 1"
    assert [name for name, _ in made.expressions] == ["src", "dst", "since", "n", "total", "latest"]


def test_the_row_before_of_a_variable_is_its_last_one_in_its_own_condition() -> None:
    (box,) = boxes(SELECT.replace("B.bytes > A.bytes", "bytes > LAST(B.bytes, 1)"))
    assert isinstance(box, Match)
    assert box.steps[1].condition.startswith("bytes > B.bytes AND")


def test_a_select_is_over_the_matches() -> None:
    text = SELECT.replace("SELECT *", "SELECT m.src, n * 2 AS twice") + " WHERE m.n > 3"
    assert [type(box).__name__ for box in boxes(text)] == ["Match", "Filter", "Map"]


def test_a_stream_may_bound_its_patterns() -> None:
    text = SELECT.replace(" WITHIN INTERVAL '10' MINUTE", "")
    (box,) = boxes(f"CREATE STREAM found WITH (within = INTERVAL '5' SECOND) AS {text}")
    assert isinstance(box, Match)
    assert box.within_us == 5_000_000


@pytest.mark.parametrize(
    ("old", "new", "reason", "line"),
    [
        ("AFTER MATCH SKIP TO NEXT ROW", "", "says no AFTER MATCH", 1),
        ("TO NEXT ROW", "PAST LAST ROW", "say AFTER MATCH SKIP TO NEXT ROW", 4),
        ("TO NEXT ROW", "TO FIRST B", "comes TO NEXT ROW", 4),
        ("ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ONE ROW PER MATCH", 4),
        (" WITHIN INTERVAL '10' MINUTE", "", "WITHIN INTERVAL '1' HOUR", 1),
        ("A B+? C", "A (B | C)", "the pattern is wrong at '(B | C)'", 5),
        ("A B+? C", "A !B C", "PATTERN SEQ", 5),
        ("A B+? C", "", "variables in parentheses", 5),
        ("A B+? C", "A C B", "B comes after C", 7),
        ("SUM(B.bytes)", "SUM(B.bytes * 2)", "a SELECT before", 3),
        ("SUM(B.bytes)", "SUM(X.bytes)", "X is not in the pattern", 3),
        ("SUM(B.bytes)", "SUM(B.src)", "sum does not take string", 1),
        ("AS total", "", "AS name", 3),
        ("B.bytes > A.bytes", "SUM(B.bytes) > 2", "no aggregates", 6),
        ("B.bytes > A.bytes", "FIRST(B.bytes) > 2", "a variable of its own", 6),
        ("B.bytes > A.bytes", "PREV(bytes, 2) > 2", "one row back", 6),
        ("B.bytes > A.bytes", "B.nix > 2", "no field nix", 6),
        ("C AS", "D AS", "D is not in the pattern", 7),
        ("ORDER BY ts", "ORDER BY src", "by its time", 2),
        ("ORDER BY ts", "ORDER BY ts DESC", "ascending", 2),
        ("PARTITION BY src", "PARTITION BY nix", "no field nix", 2),
    ],
)
def test_a_query_without_an_answer_is_refused_at_its_place(
    old: str, new: str, reason: str, line: int
) -> None:
    assert old in SELECT
    with pytest.raises(InvalidInputError, match=re.escape(reason)) as error:
        boxes(SELECT.replace(old, new))
    assert f"at line {line}, column " in str(error.value)


def numbers(pattern: str, define: str, rows: list[tuple[int, int]]) -> list[int]:
    """Return the number of rows of each match. rows: (time, bytes)."""
    text = f"""SELECT * FROM conns MATCH_RECOGNIZE (
      ORDER BY ts MEASURES COUNT(*) AS n AFTER MATCH SKIP TO NEXT ROW
      PATTERN ({pattern}) WITHIN INTERVAL '10' SECOND DEFINE {define}
    )"""
    (query,) = Script(text, "medusa://mit.edu/").complete({CONNS.name: CONNS}, {}).queries
    data = [
        {"stime": at, "ts": at, "src": "a", "dst": "b", "bytes": each, "seq": n}
        for n, (at, each) in enumerate(rows)
    ]
    schemas = check_query(query, {CONNS.name: CONNS})
    return [
        row["n"] for row in run_query(query, {CONNS.name: data}, schemas)["medusa://mit.edu/answer"]
    ]


def test_rows_exactly_within_are_a_match() -> None:
    """Flink 2.3 finds no match here: its WITHIN excludes the bound itself."""
    define = "A AS A.bytes = 1, B AS B.bytes = 2"
    for last, found in ((10_000_000, [2]), (10_000_001, [])):
        assert numbers("A B", define, [(0, 1), (last, 2)]) == found


def test_quantifiers_are_greedy_and_give_back() -> None:
    """SQL:2016 says so. Flink 2.3 takes no B for `A B?` and finds no `A B* C` in 1 2 2 1."""
    one = "A AS A.bytes = 1, B AS B.bytes = 2"
    assert numbers("A B?", one, [(0, 1), (1, 2)]) == [2]
    assert numbers("A B??", one, [(0, 1), (1, 2)]) == [1]
    any_b = "A AS A.bytes = 1, B AS B.bytes >= 1, C AS C.bytes = 1"
    assert numbers("A B* C", any_b, [(0, 1), (1, 2), (2, 2), (3, 1)]) == [4]

"""The plans of queries in words."""

from __future__ import annotations

import pytest
from field_texts import fields_of

from medusa.engine.language.folding import with_panes
from medusa.engine.language.sql.script import Script
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.schema import DELETED, Field, FieldType, Schema
from medusa.engine.tasks.explaining import ExplainedTask, explain
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import InvalidInputError

BASE = "medusa://mit.edu"
FIELDS = fields_of("ts timestamp, k string?, x long?")
S = Schema(f"{BASE}/s", FIELDS, "ts")
OWNERS = Schema(
    f"{BASE}/owners", (*FIELDS, Field(DELETED, FieldType.BOOL, nullable=True)), "ts", ("k",)
)
KNOWN = {S.name: S, OWNERS.name: OWNERS}


def plan_of(script: str) -> dict[str, ExplainedTask]:
    """Return the tasks of a script's query by the path of their output."""
    (query,) = Script(script, BASE).complete(KNOWN, {}, {OWNERS.name}).queries
    inputs = {
        name: StreamEntry(StreamDefinition(name, name, table=name == OWNERS.name), schema)
        for name, schema in KNOWN.items()
    }
    found = explain(Network(with_panes(query, 100), inputs)).tasks
    return {task.stream.removeprefix(f"{BASE}/"): task for task in found}


def test_totals_are_a_table_and_what_it_is_made_of() -> None:
    tasks = plan_of("SELECT k, count(DISTINCT x) AS n FROM s GROUP BY k")
    state, totals = tasks["answer/panes"], tasks["answer"]
    assert state.steps == (
        "answer: a table of the totals of all so far by k: count_distinct(x) as n",
    )
    assert (state.recalls, totals.recalls) == (True, False)
    assert totals.steps == (
        "the results alone, without the values that they are made of",
        "answer: the totals, of what they are made of",
    )
    assert (totals.reads, totals.key) == ((state.stream,), ("k",))
    assert (state.box_class, totals.box_class) == ("deterministic", "deterministic")


def test_tables_that_are_read_are_named() -> None:
    tasks = plan_of(
        """CREATE QUERY q AS BEGIN
        CREATE STREAM owned AS SELECT s.k, o.x
          FROM s LEFT JOIN owners FOR SYSTEM_TIME AS OF s.ts AS o ON s.k = o.k;
        CREATE STREAM sizes AS SELECT x, count(*) AS n FROM owners GROUP BY x;
        END"""
    )
    assert tasks["owned"].tables == tasks["sizes/panes"].tables == (OWNERS.name,)
    assert tasks["owned"].steps == (
        f"owned: left join of {S.name} and the table {OWNERS.name} at its time, where "
        "left.k = right.k: left.k as k, right.x as x",
    )
    assert tasks["sizes/panes"].steps == (
        "sizes: a table of the totals of the rows of a table by x: count() as n",
    )


def test_the_first_so_far_and_the_first_of_windows() -> None:
    numbered = "SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY x DESC, k) AS place FROM {}"
    so_far = plan_of(f"SELECT * FROM ({numbered.format('k', 's')}) WHERE place <= 3")["answer"]
    assert so_far.steps == ("answer: a table of the first 3 so far of each k, by x desc, k",)
    assert (so_far.recalls, so_far.key) == (True, ("k", "place"))
    instants = plan_of(f"SELECT * FROM ({numbered.format('stime', 's')}) WHERE place <= 3")
    assert instants["answer"].steps == ("answer: the first 3 of each instant, by x desc, k",)
    assert (instants["answer"].recalls, instants["answer"].box_class) == (False, "convergent")


def test_the_class_is_that_of_the_weakest_box_and_the_key_that_of_the_output() -> None:
    tasks = plan_of(
        """CREATE QUERY q AS BEGIN
        CREATE STREAM small AS SELECT * FROM s WHERE x < 1;
        CREATE STREAM both AS SELECT * FROM s UNION ALL SELECT * FROM small;
        CREATE STREAM minutes AS SELECT window_start, k, count(*) AS n
          FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
          WHERE x > 1 GROUP BY window_start, k;
        END"""
    )
    classes = {name: task.box_class for name, task in tasks.items()}
    assert classes == {"small": "repeatable", "both": "deterministic", "minutes": "convergent"}
    assert tasks["minutes"].key == ("window_start", "k")
    assert tasks["minutes"].keeps_s == pytest.approx(60, abs=1e-5)
    assert tasks["small"].key == ()


@pytest.mark.parametrize(
    "text",
    [
        "EXPLAIN SELECT k FROM s",
        "explain CREATE STREAM t AS SELECT k FROM s; CREATE STREAM u AS SELECT * FROM t",
        "EXPLAIN CREATE QUERY q AS BEGIN CREATE STREAM t AS SELECT k FROM s; END;",
        "-- why?\nEXPLAIN\nSELECT k FROM s",
    ],
)
def test_explain_is_the_first_word_of_a_script(text: str) -> None:
    document = Script(text, BASE).complete({S.name: S}, {})
    assert document.explain
    bare = text.replace("EXPLAIN", "").replace("explain", "")
    assert Script(bare, BASE).complete({S.name: S}, {}).queries == document.queries
    assert not Script(bare, BASE).complete({S.name: S}, {}).explain


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("EXPLAIN", "the script has no statement"),
        ("EXPLAIN EXPLAIN SELECT k FROM s", "EXPLAIN is the first word of a script, .* column 9"),
        ("CREATE STREAM t AS SELECT k FROM s; EXPLAIN SELECT * FROM t", "is the first word"),
        ("EXPLAIN ANALYZE SELECT k FROM s", "a statement begins with CREATE SCHEMA"),
        ("EXPLAIN SELECT k FROM", "line 1, column"),
        ("EXPLAIN SELECT z FROM s", "there is no field z; there are ts, k, x.*column 16"),
    ],
)
def test_explain_of_nothing_and_in_the_middle_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        Script(text, BASE).complete({S.name: S}, {})

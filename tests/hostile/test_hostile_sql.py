"""Hostile SQL is refused at once, with its place, or becomes a network within limits."""

from __future__ import annotations

import random
import re
import time

import pytest
from field_texts import fields_of
from hostile_scripts import BOUND, FAMILIES, WINDOW, scripts
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from medusa.engine.language.check import MAX_BOXES
from medusa.engine.language.document import Document
from medusa.engine.language.folding import with_panes
from medusa.engine.language.sql import script
from medusa.engine.language.sql.network import MAX_OUTPUTS
from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.objects.query import Aggregate, Join, Map, Query, streams_read, streams_written
from medusa.engine.objects.schema import MAX_FIELDS, Schema
from medusa.engine.operators.shared.aggregation import MAX_OVERLAP
from medusa.engine.operators.shared.operator import MAX_WINDOW_US
from medusa.engine.tasks.network import Network
from medusa.overlay.errors import InvalidInputError

BASE = "medusa://mit.edu/"
PLACE = re.compile(r", at line (\d+), column (\d+)$")

REFUSED_S = 1.0
"""The CPU seconds within which a text must be refused, or compiled."""

MESSAGE = 1_000
"""The greatest length of an error in characters: it repeats no long text."""


def schema(name: str) -> Schema:
    fields = fields_of("ts timestamp, k string?, n long?, v double?")
    return Schema(f"{BASE}{name}", fields, "ts")


KNOWN = {each.name: each for each in map(schema, "st")}


def compiled(text: str) -> Document | None:
    """Return the network of a script, or None if it is refused."""
    try:
        read = script.Script(text, BASE)
        known = {name: KNOWN[name] for name in read.reads if name in KNOWN}
        assert isinstance(read.uses, frozenset)
        return read.complete(known, {})
    except InvalidInputError as error:
        refused = str(error)
    check_refusal(text, refused)
    return None


REFUSED: dict[str, bool] = {}
"""For each script that was compiled already, whether it is refused."""


def is_refused(text: str) -> bool:
    if text not in REFUSED:
        REFUSED[text] = compiled(text) is None
    return REFUSED[text]


def check_refusal(text: str, refused: str) -> None:
    """Check that the refusal is short, and that it names a place in the text."""
    place = PLACE.search(refused)
    assert place is not None, f"it does not say where: {refused}"
    line, column = int(place[1]), int(place[2])
    lines = [*text.split("\n"), ""]
    assert 1 <= line <= len(lines)
    assert 1 <= column <= len(lines[line - 1]) + 2
    assert len(refused) <= MESSAGE


def check_bounded(document: Document) -> None:
    """Check that a compiled script is within limits, and can be planned."""
    known = {
        name: StreamEntry(StreamDefinition(name, name), declared)
        for name, declared in KNOWN.items()
    }
    schemas = {each.name: each for each in document.schemas}
    for stream in document.streams:
        if stream.schema in schemas:
            assert len(schemas[stream.schema].fields) <= MAX_FIELDS
            known[stream.name] = StreamEntry(stream, schemas[stream.schema])
    for query in document.queries:
        check_boxes(query)
        inputs = {name: known[name] for name in streams_read(query) - streams_written(query)}
        network = Network(with_panes(query, MAX_BOXES), inputs)
        for name, made in network.schemas().items():
            assert len(made.fields) <= MAX_FIELDS
            known[name] = StreamEntry(StreamDefinition(name, name, query=query.name), made)


def check_boxes(query: Query) -> None:
    assert len(query.boxes) <= MAX_BOXES
    outputs = 0
    for box in query.boxes:
        if isinstance(box, Aggregate):
            assert 0 < box.advance_us <= box.size_us <= MAX_WINDOW_US
            assert box.size_us <= box.advance_us * MAX_OVERLAP
        if isinstance(box, Join):
            assert max(abs(box.before_us), abs(box.after_us)) <= MAX_WINDOW_US
        if isinstance(box, (Map, Join)):
            outputs += len(box.expressions)
    assert outputs <= MAX_OUTPUTS


@pytest.mark.parametrize("family", FAMILIES)
def test_each_is_refused_at_once_or_is_bounded(family: str) -> None:
    for what, text in scripts(family):
        began = time.process_time()
        document = compiled(text)
        took = time.process_time() - began
        assert took < REFUSED_S, f"{what}: {took:.2f} s"
        REFUSED[text] = document is None
        if document is not None:
            check_bounded(document)


def test_families_are_large_and_mostly_refused() -> None:
    texts = [text for family in FAMILIES for _, text in scripts(family)]
    assert len(set(texts)) >= 1_500
    refused = sum(is_refused(text) for text in texts)
    assert refused > len(texts) * 3 // 4


NEVER = (
    "java_method",
    "reflect(",
    "/etc/passwd",
    "s3a://",
    "DROP",
    "INSERT",
    "UPDATE",
    "DELETE",
    "CREATE FUNCTION",
    "SET ",
    "/*+",
    "LATERAL",
    "WHERE EXISTS",
    "ROLLUP",
    "CUBE",
    "GROUPING SETS",
    "RECURSIVE",
    "PIVOT",
    "TABLESAMPLE",
    "LIMIT",
    "OFFSET",
    "ORDER BY n",
    "TRANSFORM",
    "rand()",
    "now()",
    "current_timestamp()",
    "CROSS JOIN t",
    "UNION SELECT",
    "EXCEPT",
    "INTERSECT",
)


@pytest.mark.parametrize("part", NEVER)
def test_no_script_with_a_refused_part_compiles(part: str) -> None:
    texts = [text for family in FAMILIES for _, text in scripts(family) if part in text]
    assert texts, "the families have it"
    for text in texts:
        assert is_refused(text), text[:200]


# -- parts that sqlglot reads and Medusa does not: they must not be dropped in silence -------------

DROPPED = (
    "SELECT n FROM s UNION ALL SELECT n FROM t LIMIT 3",
    "(SELECT n FROM s) LIMIT 3",
    "SELECT n FROM (SELECT n FROM s LIMIT 3)",
    "SELECT n FROM s AS a(b, c, d, e)",
    "SELECT a.s.n FROM s",
    "SELECT n FROM s UNION ALL BY NAME SELECT n FROM t",
    "WITH a(x) AS (SELECT n FROM s) SELECT x FROM a",
    "SELECT n FROM s FOR SYSTEM_TIME AS OF ts",
    "CREATE STREAM a, b (x INT)",
    "CREATE STREAM z (a INT) USING s",
    "CREATE STREAM z (a INT) AS SELECT n FROM s",
    "SELECT * AS x FROM s",
    "CREATE STREAM z (a TIMESTAMP, WATERMARK FOR a AS a, WATERMARK FOR a AS a)",
    f"SELECT s.n FROM s JOIN t MATCH_CONDITION (s.ts > t.ts) ON s.k = t.k AND {BOUND}",
    f"SELECT count(*) AS c FROM {WINDOW} GROUP BY window_start LIMIT 1",
)


@pytest.mark.parametrize("text", DROPPED)
def test_nothing_is_dropped_in_silence(text: str) -> None:
    assert compiled(text) is None


# -- random texts ----------------------------------------------------------------------------------

_WORDS = r"""
SELECT FROM WHERE GROUP BY HAVING JOIN LEFT RIGHT FULL SEMI ANTI ASOF ON USING AS WITH UNION ALL
CREATE STREAM SCHEMA TABLE QUERY BEGIN END SPLIT ELSE CASE WHEN THEN NULL TRUE NOT AND OR IN IS
LIKE RLIKE BETWEEN INTERVAL '1' MINUTE DAY DISTINCT OVER PARTITION ORDER TUMBLE HOP DESCRIPTOR
WATERMARK FOR PRIMARY KEY CAST EXTRACT INT STRING TIMESTAMP VALUES EXPLAIN FILTER WITHIN LATERAL
VIEW EXISTS ANY RECURSIVE PIVOT LIMIT ROWS PARTIAL s t k n v ts stime window_start count sum
first_value s.n t.k
0 1 2.5 1e9 'a' 'it''s' "a-b" `c` ( ) , ; . * + - / % = <> < >= || => -> :: [ ] { } ? : @ ! ~ ^ & |
# \ -- /* */ ' " `
"""
WORDS = _WORDS.split()

VALID = (
    "SELECT * FROM s",
    "SELECT k, n + 1 AS m, CASE WHEN v > 1 THEN 'a' ELSE 'b' END AS c FROM s WHERE k NOT LIKE 'a%'",
    f"SELECT window_start, k, count(*) AS c FROM {WINDOW} GROUP BY window_start, k "
    "HAVING count(*) > 2",
    f"SELECT s.n, t.v AS w FROM s LEFT JOIN t ON s.k = t.k AND {BOUND} WHERE s.n > 1",
    "WITH a AS (SELECT k, n FROM s), b AS (SELECT k, n FROM t) SELECT * FROM a UNION ALL "
    "SELECT * FROM b",
    "CREATE STREAM z (a TIMESTAMP, b STRING(8) NOT NULL, PRIMARY KEY (b), WATERMARK FOR a AS a - "
    "INTERVAL '5' SECOND) WITH (history = 60, readers = '*')",
    "CREATE QUERY q WITH (ha = 'passive_standby') AS BEGIN CREATE STREAM a, b AS SPLIT s BY n > 1 "
    "ELSE; CREATE STREAM c AS SELECT k FROM a; END",
    "SELECT window_start, percentile(v, 0.5) AS p, count(*) FILTER (WHERE n > 1) AS f FROM "
    "HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE) GROUP BY window_start",
    "SELECT k, max(n) AS m FROM HOP(TABLE s PARTITION BY k, 3 ROWS, 10 ROWS, PARTIAL) GROUP BY k",
)


@settings(max_examples=examples(300, soak=20_000))
@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=40))
def test_random_words(words: list[str]) -> None:
    if (document := compiled(" ".join(words))) is not None:
        check_bounded(document)


@settings(max_examples=examples(300, soak=20_000))
@given(st.sampled_from(VALID), st.randoms(use_true_random=False))
def test_scripts_with_changes(text: str, chance: random.Random) -> None:
    tokens = re.findall(r"\w+|'[^']*'|\s+|.", text)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(tokens) + 1)
        match chance.randrange(5):
            case 0:
                tokens.insert(at, f" {chance.choice(WORDS)} ")
            case 1:
                del tokens[at : at + chance.randint(1, 3)]
            case 2:
                tokens[at : at + 1] = [chance.choice(WORDS)]
            case 3:
                other = chance.randrange(len(tokens) + 1)
                tokens[at:at] = tokens[min(at, other) : max(at, other)][:20]
            case _:
                chance.shuffle(part := tokens[at : at + 4])
                tokens[at : at + 4] = part
        tokens = tokens or ["s"]
    if (document := compiled("".join(tokens))) is not None:
        check_bounded(document)


@pytest.mark.parametrize("text", VALID)
def test_the_scripts_before_changes_are_valid(text: str) -> None:
    document = compiled(text)
    assert document is not None
    check_bounded(document)

"""Joins in SQL: their conditions give bounds of time, or are refused."""

from __future__ import annotations

import pytest

from medusa.engine.language.sql.script import Script
from medusa.engine.objects.query import Join, JoinKind
from medusa.engine.objects.schema import Field, FieldType, Schema
from medusa.overlay.errors import InvalidInputError

F = FieldType
SECOND = 1_000_000
BASE = "medusa://mit.edu"
INPUTS = {
    f"{BASE}/a": Schema(f"{BASE}/a", (Field("ts", F.TIMESTAMP), Field("k", F.INT)), "ts"),
    f"{BASE}/b": Schema(f"{BASE}/b", (Field("at", F.DOUBLE), Field("k", F.INT)), "at"),
}


def join_of(rest: str, within: str = "") -> Join:
    """Return the join of a FROM clause whose left stream is a."""
    options = f"WITH (within = INTERVAL '{within})" if within else ""
    text = f"CREATE STREAM o {options} AS SELECT a.k AS one FROM a {rest};"
    (query,) = Script(text, BASE).complete(INPUTS, {}).queries
    (found,) = (box for box in query.boxes if isinstance(box, Join))
    return found


@pytest.mark.parametrize(
    ("bound", "before", "after"),
    [
        ("b.stime BETWEEN a.stime - INTERVAL '2' SECOND AND a.stime", 2 * SECOND, 0),
        ("b.at BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts", 2 * SECOND, 0),
        ("a.ts <= b.at AND b.at < a.ts + INTERVAL '3' SECOND", 0, 3 * SECOND - 1),
        ("a.ts = b.at", 0, 0),
        ("a.ts - INTERVAL '1' SECOND > b.at AND b.at > a.stime - INTERVAL '1' MINUTE", None, None),
    ],
)
def test_a_bound_is_of_the_times_of_both_streams_whatever_their_types(
    bound: str, before: int | None, after: int | None
) -> None:
    join = join_of(f"LEFT JOIN b ON a.k = b.k AND {bound}")
    assert join.kind is JoinKind.LEFT
    assert join.predicate == "left.k = right.k"
    if before is None:
        before, after = 60 * SECOND - 1, -SECOND - 1
    assert (join.before_us, join.after_us) == (before, after)


BOTH_WAYS = "AND b.stime <= a.stime looks back from it, AND b.stime >= a.stime forward"


@pytest.mark.parametrize(
    ("bound", "before", "after"),
    [
        ("", 60 * SECOND, 0),
        (" AND a.ts >= b.at", 60 * SECOND, 0),
        (" AND b.at < a.ts", 60 * SECOND, -1),
        (" AND b.at + INTERVAL '2' SECOND <= a.ts", 60 * SECOND, -2 * SECOND),
        (" AND b.at BETWEEN a.ts - INTERVAL '2' SECOND AND a.ts", 2 * SECOND, 0),
        (" AND a.ts <= b.at", 0, 60 * SECOND),
        (" AND b.at > a.ts", -1, 60 * SECOND),
        (" AND a.stime <= b.at AND b.at < a.ts + INTERVAL '3' SECOND", 0, 3 * SECOND - 1),
        (" AND a.ts = b.at", 0, 0),
    ],
)
def test_a_join_as_of_looks_where_its_bound_is(bound: str, before: int, after: int) -> None:
    for words, kind in (("ASOF", JoinKind.ASOF), ("ASOF LEFT", JoinKind.LEFT_ASOF)):
        open_ended = 60 * SECOND in (before, after)
        join = join_of(f"{words} JOIN b ON a.k = b.k{bound}", within="1' MINUTE" * open_ended)
        assert (join.kind, join.before_us, join.after_us) == (kind, before, after)
        assert join.predicate == "left.k = right.k"


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("JOIN b ON a.k = b.k", "bound it, like AND b.stime BETWEEN a.stime - INTERVAL"),
        (
            "ASOF JOIN b ON a.k = b.k AND a.ts <= b.at",
            "like AND b.stime BETWEEN a.stime AND a.stime [+] INTERVAL '1' HOUR, or say WITH",
        ),
        ("ASOF JOIN b ON a.k = b.k AND b.at <= a.ts + INTERVAL '1' HOUR", BOTH_WAYS),
        ("ASOF JOIN b ON a.k = b.k AND a.ts - INTERVAL '1' HOUR <= b.at", BOTH_WAYS),
        (
            "ASOF JOIN b ON a.k = b.k AND "
            "b.at BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts + INTERVAL '1' SECOND",
            BOTH_WAYS,
        ),
        ("ASOF JOIN b ON a.k = b.k AND b.at > a.ts AND b.at <= a.ts", "no pair of rows can meet"),
        ("FULL JOIN b ON a.ts < b.at", "bound it"),
        ("JOIN b ON a.ts < b.at AND b.at < a.ts", "no pair of rows can meet"),
        ("WHERE EXISTS (SELECT 1 FROM b)", "LEFT SEMI JOIN"),
        ("WHERE a.k > (SELECT max(b.k) FROM b)", "join the stream"),
        ("WHERE lag(a.k) OVER (ORDER BY a.ts) > 1", "PREV"),
    ],
)
def test_refusals_name_the_intended_form(rest: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        join_of(rest)

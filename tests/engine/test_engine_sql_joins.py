"""Joins in SQL: the bounds of time that their conditions mean, and what is refused."""

from __future__ import annotations

import pytest

from engine.language.sql.script import Script
from engine.objects.query import Join, JoinKind
from engine.objects.schema import Field, FieldType, Schema
from overlay.errors import InvalidInputError

F = FieldType
SECOND = 1_000_000
BASE = "medusa://mit.edu"
INPUTS = {
    f"{BASE}/a": Schema(f"{BASE}/a", (Field("ts", F.TIMESTAMP), Field("k", F.INT)), "ts"),
    f"{BASE}/b": Schema(f"{BASE}/b", (Field("at", F.DOUBLE), Field("k", F.INT)), "at"),
}


def join_of(rest: str) -> Join:
    """The join of a FROM clause whose left stream is a."""
    text = f"CREATE STREAM o AS SELECT a.k AS one FROM a {rest};"
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


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("JOIN b ON a.k = b.k", "bound it, like AND r.stime BETWEEN a.stime"),
        ("FULL JOIN b ON a.ts < b.at", "bound it"),
        ("JOIN b ON a.ts < b.at AND b.at < a.ts", "no pair of rows can meet"),
        ("WHERE EXISTS (SELECT 1 FROM b)", "LEFT SEMI JOIN"),
        ("WHERE a.k > (SELECT max(b.k) FROM b)", "join the stream"),
        ("WHERE lag(a.k) OVER (ORDER BY a.ts) > 1", "PREV"),
    ],
)
def test_what_is_refused_says_what_is_meant_instead(rest: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        join_of(rest)

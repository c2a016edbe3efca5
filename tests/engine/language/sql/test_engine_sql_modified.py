"""An edited script that is no modification is refused in the words of SQL: it names no box."""

from __future__ import annotations

import pytest

from medusa.engine.language.modification import differences
from medusa.engine.language.sql.clauses import clause_of
from medusa.engine.language.sql.script import Script
from medusa.engine.objects.query import Query
from medusa.overlay.errors import InvalidInputError

BASE = "medusa://mit.edu/"
MADE = """CREATE STREAM s (ts TIMESTAMP, a INT, b INT, WATERMARK FOR ts AS ts);
CREATE QUERY q AS BEGIN
  CREATE STREAM made AS SELECT ts, a + 1 AS x FROM s WHERE a > 3;
  CREATE STREAM wins AS SELECT window_start, a, count(*) AS n
  FROM TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, a
  HAVING count(*) > 2;
  CREATE STREAM pairs AS SELECT l.a + 1 AS x FROM s AS l JOIN s AS r
  ON l.a = r.a AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '1' SECOND WHERE l.b > r.b;
END;
"""


def query(text: str) -> Query:
    (found,) = Script(text, BASE).complete({}, {}).queries
    return found


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (" WHERE a > 3", "", "there is no WHERE of made any more"),
        (" HAVING count(*) > 2", "", "there is no GROUP BY of wins any more"),
        ("  HAVING count(*) > 2", "  HAVING count(*) > a", ""),
        ("CREATE STREAM made", "CREATE STREAM other", "there is a new stream other"),
        ("CREATE STREAM made", "CREATE STREAM other", "there is no WHERE of made any more"),
        (" n\n  FROM", " n, a AS c\n  FROM", "there is a new HAVING of wins"),
    ],
)
def test_differences_that_are_no_modification_are_named_by_clause(
    old: str, new: str, told: str
) -> None:
    assert MADE.count(old) == 1
    before, edited = query(MADE), query(MADE.replace(old, new))
    if not told:
        assert differences(before, edited, clause_of)
        return
    with pytest.raises(InvalidInputError) as caught:
        differences(before, edited, clause_of)
    assert told in str(caught.value)
    assert "box" not in str(caught.value)


def test_every_step_of_a_script_is_called_by_a_clause() -> None:
    steps = [box.name for box in query(MADE).boxes if "." in box.name]
    assert steps
    assert not [name for name in steps if clause_of(name).startswith("stream ")]

"""The error for a wrong script says what is wrong, where, and what to write instead."""

from __future__ import annotations

import pytest
from field_texts import fields_of

from medusa.engine.language.sql.script import Script
from medusa.engine.objects.schema import Schema
from medusa.overlay.errors import InvalidInputError

BASE = "medusa://mit.edu"
S = Schema(f"{BASE}/s", fields_of("ts timestamp, k string?"), "ts")


@pytest.mark.parametrize(
    ("text", "reason", "column"),
    [
        ("SELECT kuont(*) AS n FROM s", "no function 'kuont'; alike are month, count", 8),
        ("SELECT lower(*) AS n FROM s", r"lower\(\*\) .*: only count takes \*", 8),
        ("SELECT k FORM s", "it ends too early, or 's' is a mistake", 15),
        (
            'SELECT * FROM s WHERE k = "a"',
            "no field a; a string stands in 'single quotes'; there are",
            27,
        ),
        ("SELECT current_timestamp AS t FROM s", "depends on the clock: .* is stime", 8),
        ("SELECT k FROM s WHERE k = '--", "a string, name or comment does not end", 27),
        ("SELECT 'a''b', k FROM s /* c", "a string, name or comment does not end", 25),
        ('SELECT "k -- l FROM s', "a string, name or comment does not end", 8),
        ("-- it's\nSELECT `k", "does not end, at line 2", 8),
        ("INSERT INTO t SELECT k FROM s", "CREATE STREAM s AS SELECT ... makes a query", 1),
        ("DROP STREAM s", "`medusa stream delete`", 1),
        ("CREATE VIEW v AS SELECT k FROM s", "a VIEW is a TEMPORARY STREAM in a QUERY", 8),
        (
            "SELECT k FROM TUMBEL(TABLE s, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY k",
            "'TUMBEL' is no window; there are TUMBLE, HOP, CUMULATE, SESSION",
            15,
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_a_mend(
    text: str, reason: str, column: int
) -> None:
    with pytest.raises(InvalidInputError, match=f"{reason}.*, column {column}$"):
        Script(text, BASE).complete({S.name: S}, {})

"""What a text leaves unsaid is told in the remarks of the document: once, and if it is not said."""

from __future__ import annotations

import pytest

from engine.language.document import Document
from engine.language.reading import read_draft

BASE = "medusa://mit.edu/"
STREAM = "CREATE STREAM {} (ts TIMESTAMP, k INT, WATERMARK FOR ts AS ts);"
SESSIONS = """CREATE STREAM visits{} AS SELECT window_start, window_end, k, count(*) AS n
FROM SESSION(TABLE {} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '{}' MINUTE)
GROUP BY window_start, window_end, k;"""
BOX = """<medusa>{}<query name="visits"><box name="b" type="sessions">
<input port="1" stream="conns"/><output port="1" stream="visits"/>
<param name="aggregate-function.0" value="count()"/>
<param name="aggregate-function-output-name.0" value="n"/>
<param name="gap" value="{}"/>{}</box></query></medusa>"""


def remarks(text: str) -> tuple[str, ...]:
    draft = read_draft(text, BASE)
    assert not draft.reads
    document: Document = draft.complete({}, {})
    return document.remarks


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        (STREAM.format("conns") + SESSIONS.format("", "conns", 10), "1 hour"),
        (STREAM.format("conns") + SESSIONS.format("", "conns", 180), "3 hours"),
        (
            STREAM.format("conns") + "CREATE STREAM v AS SELECT k, count(*) AS n FROM conns "
            "GROUP BY SESSION(ts, INTERVAL '10' MINUTE), k;",
            "1 hour",
        ),
        (BOX.format("", 600, ""), "1 hour"),
        (BOX.format("", 7201.5, ""), "7201.5 s"),
    ],
)
def test_the_longest_session_is_told_where_nothing_says_it(text: str, longest: str) -> None:
    (told,) = remarks(text)
    assert told.startswith(f"a session of {BASE}conns lasts {longest} at most, ")
    assert "`within`" in told


@pytest.mark.parametrize(
    "text",
    [
        STREAM.format("conns") + SESSIONS.format(" WITH (within = INTERVAL '1' HOUR)", "conns", 10),
        BOX.format("", 600, '<param name="longest" value="3600"/>'),
        BOX.format(
            '<stream name="conns" schema="conn" lateness="0" history="3600"/>',
            600,
            '<param name="longest" value="3600"/>',
        ),
    ],
)
def test_what_is_said_is_not_told_even_if_it_is_what_would_hold(text: str) -> None:
    assert remarks(text) == ()

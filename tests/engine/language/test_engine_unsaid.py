"""If a text leaves a length unsaid, the remarks of the document say it, once. The remarks also name
gaps between windows."""

from __future__ import annotations

import pytest

from medusa.engine.language.document import Document
from medusa.engine.reading import read_draft

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
def test_a_remark_states_the_longest_session_where_the_text_does_not(
    text: str, longest: str
) -> None:
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
def test_a_written_length_gets_no_remark_even_if_it_is_the_default(text: str) -> None:
    assert remarks(text) == ()


# -- gaps between windows --------------------------------------------------------------------------

WINDOWS = "CREATE STREAM n AS SELECT count(*) AS n FROM {} ;"
HOP = "HOP(TABLE conns, DESCRIPTOR(ts), INTERVAL '{}' SECOND, INTERVAL '{}' SECOND) {}"
COUNTED = """<medusa><query name="n"><box name="b" type="aggregate">
<input port="1" stream="conns"/><output port="1" stream="n"/>
<param name="aggregate-function.0" value="count()"/>
<param name="aggregate-function-output-name.0" value="n"/>
<param name="window-size" value="{}"/><param name="advance" value="{}"/>{}</box></query></medusa>"""
BY_TUPLES = '<param name="window-size-by" value="TUPLES"/>'
BY_START = "GROUP BY window_start"


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        (
            WINDOWS.format(HOP.format(600, 60, BY_START)),
            "1 minute long, and one begins each 10 min",
        ),
        (
            WINDOWS.format("conns GROUP BY window(ts, '1 second', '90 seconds')"),
            "1 s long, and one begins each 90 s",
        ),
        (
            WINDOWS.format("conns GROUP BY HOP(ts, INTERVAL '2' HOUR, INTERVAL '1' HOUR)"),
            "1 hour long, and one begins each 2 hours",
        ),
        (
            WINDOWS.format("HOP(TABLE conns, 4 ROWS, 3 ROWS)"),
            "3 rows long, and one begins each 4 r",
        ),
        (COUNTED.format(60, 61, ""), "1 minute long, and one begins each 61 s"),
        (COUNTED.format(3, 1000, BY_TUPLES), "3 rows long, and one begins each 1,000 rows"),
    ],
)
def test_gaps_between_windows_get_a_remark(text: str, lengths: str) -> None:
    """One remark names the gaps, with the windows' size and advance, however the windows are
    written."""
    declared = "" if text.startswith("<") else STREAM.format("conns")
    (told,) = remarks(declared + text)
    assert told.startswith(f"windows of {BASE}conns are {lengths}")
    assert "rows between two of them are in none" in told


@pytest.mark.parametrize(
    "text",
    [
        WINDOWS.format(HOP.format(60, 600, BY_START)),
        WINDOWS.format(HOP.format(60, 60, BY_START)),
        WINDOWS.format("HOP(TABLE conns, 3 ROWS, 3 ROWS)"),
        WINDOWS.format("TUMBLE(TABLE conns, 3 ROWS)"),
        COUNTED.format(60, 60, ""),
    ],
)
def test_windows_without_gaps_get_no_remark(text: str) -> None:
    """Without gaps there is no such remark."""
    declared = "" if text.startswith("<") else STREAM.format("conns")
    assert remarks(declared + text) == ()

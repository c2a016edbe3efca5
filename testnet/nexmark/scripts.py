"""Nexmark's queries as Medusa runs them: each text of `queries/`, with the few words changed that
this module names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from medusa.testnet.nexmark.oracle import QUERIES, TEXTS

WITHIN_S: Final = 3_600
"""The bound of joins and sessions whose text has none, seconds; Flink keeps all rows for ever. The
events span so short a time that it leaves out no pair."""

UNBOUNDED: Final = frozenset({"q3", "q4", "q6", "q9", "q11", "q20"})
"""The queries that have such joins or sessions."""

SIDE_INPUT: Final = """\
CREATE TABLE side_input (
    key BIGINT, `value` STRING, dateTime TIMESTAMP,
    PRIMARY KEY (key) NOT ENFORCED, WATERMARK FOR dateTime AS dateTime
);
"""
"""The table of q13; its rows are before all events."""


@dataclass(frozen=True)
class Change:
    """A change in the text of a query for Medusa, with the reason. both: whether Flink gets the
    changed text, too, when both run, so that they answer the same question."""

    text: str
    instead: str
    because: str
    both: bool = False


_EVENT_TIME: Final = "its twin in event time: an answer by the machine's clock cannot be checked"

CHANGES: Final[dict[str, tuple[Change, ...]]] = {
    "q8": (Change("AS stime", "AS starttime", "stime is the name of a tuple's time"),),
    "q12": (
        Change("TABLE timed", "TABLE bid", _EVENT_TIME, both=True),
        Change("DESCRIPTOR(p_time)", "DESCRIPTOR(dateTime)", _EVENT_TIME, both=True),
    ),
    "q13": (
        Change(
            "(SELECT *, PROCTIME() AS p_time FROM bid) AS b", "bid AS b", _EVENT_TIME, both=True
        ),
        Change("AS OF b.p_time", "AS OF b.dateTime", _EVENT_TIME, both=True),
    ),
    "q14": (
        Change(
            "count_char(extra, 'c')",
            "CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', ''))",
            "count_char is a function in Java that the benchmark brings along",
            both=True,
        ),
    ),
    "q19": (
        Change(
            "ORDER BY price DESC",
            "ORDER BY price DESC, dateTime",
            "of equal bids the text leaves the order open; the oracle puts the earlier first",
        ),
    ),
}
"""The changes, by query. Besides these, types are compared loosely: see
`medusa.testnet.workload.comparison`."""


def script(query: str) -> str:
    """A query as a script of Medusa, which makes the stream of the query's name.

    Raises:
        KeyError: there is no such query.
    """
    text = (TEXTS / f"{query}.sql").read_text()
    for change in CHANGES.get(query, ()):
        assert change.text in text, f"{query} has changed"
        text = text.replace(change.text, change.instead)
    tables = SIDE_INPUT if "side_input" in QUERIES[query] else ""
    bound = f"WITH (within = INTERVAL '{WITHIN_S}' SECOND) " if query in UNBOUNDED else ""
    return f"{tables}CREATE STREAM {query} {bound}AS\n{text}"

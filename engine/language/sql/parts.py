"""Finds the parts of a statement that its translation did not read: none may vanish in silence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from medusa.engine.expressions.unread import Unread, unread
from medusa.engine.expressions.words import position_of, span_of
from medusa.engine.language.sql.errors import Source

REASONS: Final = {
    "order": (
        "an endless stream is in the order of its time: for the greatest of a window say "
        "ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY ...) <= n"
    ),
    "limit": (
        "an endless stream has no first n rows: medusa subscribe --limit stops after n, and "
        "ROW_NUMBER() OVER (...) <= n keeps n of each window"
    ),
    "offset": "an endless stream has no first rows to leave out",
    "laterals": "LATERAL is not part of the language",
    "pivots": "PIVOT is not part of the language",
    "qualify": "QUALIFY is not part of the language: filter an outer SELECT",
    "windows": "named windows are not part of the language",
    "sample": "TABLESAMPLE is not part of the language",
    "distribute": "DISTRIBUTE BY is not part of the language",
    "sort": "SORT BY is not part of the language",
    "cluster": "CLUSTER BY is not part of the language",
    "into": "INTO is not part of the language: CREATE STREAM name AS SELECT",
    "match_condition": "MATCH_CONDITION is not part of the language: say the times in ON",
    "by_name": "UNION BY NAME is not part of the language: say the columns in one order",
    "db": "a column is called table.column at most: give the stream a name by AS",
    "locks": "FOR UPDATE is not part of the language: a stream is not changed by a query",
    "connect": "CONNECT BY is not part of the language: a network of boxes has no loops",
    "columns": "say the names of the columns in the SELECT",
    "version": "AS OF is for the second stream of a JOIN",
}
"""How to mend refused parts, by their names."""


def refuse_unread(nodes: Sequence[exp.Expr], source: Source) -> None:
    """Refuse the parts of a statement that its translation did not read. nodes: the result of
    `watch`.

    Raises:
        PointedError: the message quotes the part.
    """
    for part in unread(nodes):
        raise source.refusal(_reason(part, source.text), _place(part, source.text))


def _reason(part: Unread, text: str) -> str:
    if part.name in REASONS:
        return REASONS[part.name]
    spans = [span for node in part.nodes if (span := span_of(node)) is not None]
    said = text[min(spans)[0] : max(end for _, end in spans)] if spans else _words(part)
    return f"{said[:80]} means nothing here, and would be lost: leave it out"


def _words(part: Unread) -> str:
    """An argument of a node in the words of SQL."""
    words = part.name.strip("_").replace("_", " ").upper()
    return f"NOT {words}" if part.value is False else words


def _place(part: Unread, text: str) -> int:
    """Return where a part begins in the text. For a word whose place sqlglot does not keep, search
    the word in the text behind its node."""
    spans = [span for node in part.nodes if (span := span_of(node)) is not None]
    if spans:
        return min(spans)[0]
    place = position_of(part.node)
    pattern = re.compile(rf"\b{_words(part).replace(' ', chr(92) + 's+')}\b", re.IGNORECASE)
    found = pattern.search(text, place) or pattern.search(text)
    return place if found is None else found.start()

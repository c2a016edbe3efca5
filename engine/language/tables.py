"""The streams of a query that are tables."""

from __future__ import annotations

from engine.language.panes import panes_name
from engine.objects.query import Join, Query, Top, Totals


def tables_read(query: Query) -> frozenset[str]:
    """The streams that the query reads as tables."""
    found = {box.right for box in query.boxes if isinstance(box, Join) and box.table}
    found |= {box.input for box in query.boxes if isinstance(box, Totals) and box.changes}
    return frozenset(found)


def totals_of(query: Query) -> frozenset[str]:
    """The outputs of its totals, each of which is made of a stream beside it."""
    return frozenset(box.output for box in query.boxes if isinstance(box, Totals))


def tables_of(query: Query) -> frozenset[str]:
    """The streams that are kept as tables, of those that it makes: what its boxes keep up to date,
    what that is made of, and what it reads as a table."""
    made = {box.output for box in query.boxes if isinstance(box, (Totals, Top))}
    return frozenset(made) | {panes_name(name) for name in totals_of(query)} | tables_read(query)

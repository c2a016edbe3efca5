"""The streams of a query that are tables."""

from __future__ import annotations

from functools import lru_cache

from medusa.engine.language.check import ordered_boxes
from medusa.engine.language.panes import panes_name
from medusa.engine.objects.query import Join, Map, Query, Top, Totals, TupleWindows


def tables_read(query: Query) -> frozenset[str]:
    """The streams that the query reads as tables."""
    found = {box.right for box in query.boxes if isinstance(box, Join) and box.table}
    found |= {box.input for box in query.boxes if isinstance(box, Totals) and box.changes}
    return frozenset(found)


def totals_of(query: Query) -> frozenset[str]:
    """The outputs of its totals and windows of tuples, each of which is made of a table beside
    it."""
    return frozenset(box.output for box in query.boxes if isinstance(box, (Totals, TupleWindows)))


@lru_cache(maxsize=64)  # called for each stream of a query
def tables_of(query: Query, inputs: frozenset[str] = frozenset()) -> frozenset[str]:
    """The streams that are kept as tables, of those that it makes: what its boxes keep up to date
    and what that is made of, maps of tables, and what it reads as a table.

    Args:
        inputs: the tables among the streams that it reads from elsewhere.
    """
    found = set(inputs)
    for box in ordered_boxes(query):
        match box:
            case Totals() | Top():
                found.add(box.output)
            case Map() if box.input in found:
                found.add(box.output)
            case _:
                pass
    return frozenset(found - inputs) | {*map(panes_name, totals_of(query)), *tables_read(query)}

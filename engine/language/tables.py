"""The streams of a query that are tables."""

from __future__ import annotations

from functools import lru_cache

from medusa.engine.language.check import ordered_boxes
from medusa.engine.objects.query import Query
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.panes import panes_name


def tables_read(query: Query) -> frozenset[str]:
    """The streams that the query reads as tables."""
    return frozenset(name for box in query.boxes for name in operator_of(box).tables_read)


def made_of_tables(query: Query) -> frozenset[str]:
    """The outputs of its totals and windows of tuples, each of which has a second output, a
    table."""
    return frozenset(box.outputs[0] for box in query.boxes if operator_of(box).made_of_table)


@lru_cache(maxsize=64)  # called for each stream of a query
def tables_of(query: Query, inputs: frozenset[str] = frozenset()) -> frozenset[str]:
    """The streams of the query that are kept as tables: tables that its boxes keep up to date and
    the tables behind these, maps of tables, and streams that it reads as tables.

    Args:
        inputs: the tables among the streams that it reads from elsewhere.
    """
    found = set(inputs)
    for box in ordered_boxes(query):
        if operator_of(box).makes_table(found):
            found.update(box.outputs)
    beside = map(panes_name, made_of_tables(query))
    return frozenset(found - inputs) | {*beside, *tables_read(query)}

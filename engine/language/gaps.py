"""Finds windows that are shorter than their advance. Tuples between two such windows are in no
window, so the remarks of the document warn of the gap: if an author has exchanged the two lengths,
the only symptom would be missing answers."""

from __future__ import annotations

from collections.abc import Iterable

from medusa.engine.objects.query import Box, Query
from medusa.engine.operators.registry import operator_of


def gaps(queries: Iterable[Query]) -> tuple[str, ...]:
    """A remark for each kind of window that leaves gaps between its windows."""
    found = (_gap(box) for query in queries for box in query.boxes)
    return tuple(dict.fromkeys(each for each in found if each))


def _gap(box: Box) -> str:
    lengths = operator_of(box).gap
    if not lengths:
        return ""
    return (
        f"windows of {box.inputs[0]} are {lengths}: rows between two of them are in none (of HOP "
        "the advance is the first length, the size the second)"
    )

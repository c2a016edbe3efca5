"""Decides which windows of a query are folded from panes. The definition stores the decision, so
that each peer makes the same tasks of the query."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from medusa.engine.objects.query import Query
from medusa.engine.operators.registry import operator_of
from medusa.engine.operators.shared.operator import about
from medusa.overlay.errors import InvalidInputError


def with_panes(query: Query, most: int) -> Query:
    """The query with the widths of its panes decided.

    Args:
        most: the most tasks that the query may have.
    """
    decided: list[tuple[str, int]] = []
    for box in query.boxes:
        width = operator_of(box).panes_us
        if width is not None and len(query.boxes) + len(decided) < most:
            decided.append((box.name, width))
    return msgspec.structs.replace(query, panes=tuple(decided))


def check_panes(query: Query) -> None:
    """Check the widths of a query's panes.

    Raises:
        InvalidInputError: a width belongs to no window of the query, or does not divide the window.
    """
    boxes = {box.name: box for box in query.boxes}
    with about(f"query {query.name}"):
        for name, width in query.panes:
            if name not in boxes:
                raise InvalidInputError(f"panes of {name[:64]!a}, no aggregate")
            operator_of(boxes[name]).check_panes(width)
        if len(dict(query.panes)) < len(query.panes):
            raise InvalidInputError("panes of one box are named twice")


def widths(query: Query) -> Mapping[str, int]:
    """The widths of panes, microseconds, by the stream that is folded from them."""
    given = dict(query.panes)
    return {box.outputs[0]: given[box.name] for box in query.boxes if box.name in given}

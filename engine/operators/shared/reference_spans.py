"""Aggregates over spans of the tuples of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from medusa.engine.evaluation.expressions import Row
from medusa.engine.objects.query import WINDOW_END, WINDOW_START
from medusa.engine.objects.schema import STIME, Field
from medusa.engine.operators.shared.aggregation import TypedAggregate
from medusa.engine.operators.shared.reference_windows import folded

Span = tuple[int, int, int, list[Row]]
"""The stime, the start and the end of a span, and its rows."""


def spans(
    group_by: Sequence[Field],
    functions: Sequence[TypedAggregate],
    rows: Sequence[Row],
    placed: Callable[[list[Row]], Iterable[Span]],
) -> list[Row]:
    """Return the results over these rows, which are in the order of their stream.

    Args:
        placed: the spans of the rows of one group.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    names = [field.name for field in group_by]
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    found: list[Row] = []
    for group, members in groups.items():
        for at, start, end, part in placed(members):
            made = {STIME: at, WINDOW_START: start, WINDOW_END: end}
            made |= zip(names, group, strict=True)
            found.append({**made, **{each.output: folded(each, part) for each in functions}})
    return found

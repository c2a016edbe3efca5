"""One computation of a step over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from medusa.engine.evaluation.expressions import Functions, Row
from medusa.engine.evaluation.values import nulls_last
from medusa.engine.objects.query import OrderBy
from medusa.engine.objects.schema import STIME


@dataclass(frozen=True, slots=True)
class Job:
    """The input of a step besides its rows, which are in the order of their stream. Attributes:
    fields: the fields of the rows. after: the boundary after which results are wanted,
    microseconds. own: the task's former output, if the step reads it. right, right_fields: the
    right side of a join, whose left side the rows are. functions: the functions of users.
    """

    fields: Sequence[str]
    after: int
    own: Sequence[Row] = ()
    right: Sequence[Row] = ()
    right_fields: Sequence[str] = ()
    functions: Functions | None = None


def in_order(order: Sequence[OrderBy], rows: Sequence[Row]) -> list[Row]:
    """The rows, sorted by an order; equal ones keep their order."""
    found = list(rows)
    for by in reversed(order):
        none = [row for row in found if row[by.field] is None]
        present = [row for row in found if row[by.field] is not None]
        present.sort(key=lambda row: nulls_last(row[by.field]), reverse=by.descending)
        found = [*none, *present] if by.nulls_first else [*present, *none]
    return found


def age(row: Row, fields: Sequence[str]) -> tuple[Any, ...]:
    """A sort key for tuples: the arrival, or else the payload; NaN after numbers, nulls last."""
    if "seq" in row:
        return (row[STIME], row["seq"])
    return (row[STIME], *(nulls_last(row[name]) for name in fields))

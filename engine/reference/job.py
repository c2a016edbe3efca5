"""One computation of a step over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from medusa.engine.objects.query import OrderBy
from medusa.engine.reference.expressions import Functions, Row


@dataclass(frozen=True, slots=True)
class Job:
    """What a step needs besides its rows, which are in the order of their stream.

    Attributes:
        fields: of the rows. after: the results are those after this boundary, microseconds.
        own: what the task has made before, if the step reads it.
        right, right_fields: the other side, if the rows are one.
        functions: those of users.
    """

    fields: Sequence[str]
    after: int
    own: Sequence[Row] = ()
    right: Sequence[Row] = ()
    right_fields: Sequence[str] = ()
    functions: Functions | None = None


def in_order(order: Sequence[OrderBy], rows: Sequence[Row]) -> list[Row]:
    """The rows in an order; equal ones as they were."""
    found = list(rows)
    for by in reversed(order):
        none = [row for row in found if row[by.field] is None]
        present = [row for row in found if row[by.field] is not None]
        present.sort(key=itemgetter(by.field), reverse=by.descending)
        found = [*none, *present] if by.nulls_first else [*present, *none]
    return found

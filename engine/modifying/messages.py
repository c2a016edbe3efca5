"""What a client asks for when it modifies a query, and the answer."""

from __future__ import annotations

from msgspec import Struct


class BoxChange(Struct, frozen=True):
    """Other values for some parameters of one box.

    Attributes:
        box: its name. parameters: (name, value) pairs as in XML; the others stay.
    """

    box: str
    parameters: tuple[tuple[str, str], ...]


class ModifyQuery(Struct, frozen=True):
    """
    Attributes:
        changes: all count from the same boundary on.
        at: that boundary, microseconds: tuples with stime > at are made otherwise; None: the
            earliest that is safe.
        alone: a peer that had a part in the query, and cannot be told of this, is gone for good.
    """

    query: str
    changes: tuple[BoxChange, ...]
    at: int | None = None
    alone: bool = False


class Modified(Struct, frozen=True):
    """It is, and will be after any crash; ADR 13 has what a split may do.

    Attributes:
        since: the boundary from which on, microseconds.
    """

    query: str
    since: int

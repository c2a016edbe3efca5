"""Says in words why the windows of an aggregate are folded from panes or not."""

from __future__ import annotations

from math import gcd

from medusa.engine.objects.query import Aggregate
from medusa.engine.operators.shared.panes import LIMIT_PANES, LONG, OVERLAP, has_room, pane_us


def why(box: Aggregate, width: int | None) -> str:
    """Why the box's windows are folded from panes, or not. width: of the panes, microseconds."""
    overlap = -(-box.size_us // box.advance_us)
    if width is None:
        return f"made of its tuples: {_why_not(box, overlap)}"
    if overlap >= OVERLAP:
        return f"folded from panes: a tuple is read once, not in each of {overlap:,} windows"
    panes = box.size_us // width
    return f"folded from panes: it closes by reading {panes:,} panes, not all of its tuples"


def _why_not(box: Aggregate, overlap: int) -> str:
    if not has_room(box):
        return "its panes would have too many fields, or too long a name"
    if pane_us(box.size_us, box.advance_us) is not None:
        return (
            "that was decided when the query was created, and a modification leaves it so; create "
            "it anew, with fewer tasks if it has hundreds, to have it folded from panes"
        )
    if overlap >= OVERLAP or box.size_us // gcd(box.size_us, box.advance_us) > LIMIT_PANES:
        return (
            f"its size and its advance have no common divisor that makes {LIMIT_PANES:,} panes or "
            "fewer of it"
        )
    return (
        f"panes pay where a tuple is in {OVERLAP} windows or more, or where a window has {LONG} "
        "panes or more"
    )

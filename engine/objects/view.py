"""Views: the last tuples of a stream, its last seconds, or a range of its time.

Boundaries are the only positions. So a part of a stream is an interval (after, until] of stime, and
has all tuples of one stime or none.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING, END, STIME, Schema
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import ObjectName

MAX_ROWS: Final = 100_000_000
"""Tuples of one view, if it is counted in tuples: some gigabytes; more is a typing error."""

MAX_SPAN_US: Final = 10 * 366 * 86_400 * 1_000_000
"""The longest range, ten years, as for a stream's history: a longer one is a mistake in the
unit."""

MAX_FIELD: Final = 64
"""Characters of a field's name, as in schemas."""


class Last(Struct, frozen=True, tag="last"):
    """The most recent tuples: `rows` of them, and all others with the stime of the oldest."""

    rows: int


class Recent(Struct, frozen=True, tag="recent"):
    """The tuples of the last `span_us` microseconds behind the stream's boundary."""

    span_us: int


class Range(Struct, frozen=True, tag="range"):
    """The tuples with after < stime <= until, microseconds. after: may be BEGINNING."""

    after: int
    until: int


Shows = Last | Recent | Range


class View(Struct, frozen=True):
    """One view, as requested and as published.

    Attributes:
        name: object name. stream: the stream that it shows a part of.
        frozen: whether it stays as it was when it was made, and ends there; a range always is.
        order_on: the author's order: "", stime or the schema's time field; others are refused.
        after, until: its interval when it was made; until is END if it moves with the stream.
    """

    name: str
    stream: str
    shows: Shows
    frozen: bool = False
    order_on: str = ""
    after: int = BEGINNING
    until: int = END

    @property
    def is_fixed(self) -> bool:
        """Whether the view's content never changes."""
        return self.frozen or isinstance(self.shows, Range)

    def asks_as(self, other: View) -> bool:
        """Whether this view and another make the same request, although its parts are written
        differently or it was made at another time."""
        return self._asked == other._asked

    @property
    def _asked(self) -> tuple[object, ...]:
        return (self.name, self.stream, self.shows, self.is_fixed)


def check_view(view: View) -> None:
    """Check the names and numbers of a view. Raises: InvalidInputError."""
    ObjectName.parse(view.name)
    ObjectName.parse(view.stream)
    if view.name == view.stream:
        raise InvalidInputError(f"{view.name}: a view cannot show itself")
    if len(view.order_on) > MAX_FIELD:
        raise InvalidInputError(f"{view.name}: {view.order_on[:MAX_FIELD]!a}... is no field")
    try:
        check_shows(view.shows)
    except InvalidInputError as error:
        raise InvalidInputError(f"view {view.name}: {error}") from None


def check_shows(shows: Shows) -> None:
    """Check the numbers of a view's part. Raises: InvalidInputError."""
    match shows:
        case Last(rows=rows):
            if not 0 < rows <= MAX_ROWS:
                raise InvalidInputError(f"the last {rows} tuples: 1 to {MAX_ROWS} are allowed")
        case Recent(span_us=span):
            if not 0 < span <= MAX_SPAN_US:
                raise InvalidInputError(f"the last {span / 1e6:g} s: more than 0, and ten years")
        case Range(after=after, until=until):
            if not BEGINNING <= after < until < END:
                raise InvalidInputError(
                    f"the range {after}..{until} must end, and end later than it begins"
                )
            if after > BEGINNING and until - after > MAX_SPAN_US:
                raise InvalidInputError(
                    f"a range of {(until - after) / 1e6:g} s: at most ten years"
                )


def check_order(view: View, schema: Schema) -> None:
    """Refuse a view in another order than its stream's. Raises: InvalidInputError."""
    if view.order_on not in {"", STIME, schema.time}:
        time = "arrival" if schema.time is None else schema.time
        raise InvalidInputError(
            f"view {view.name} is ordered on {view.order_on!a}, but {view.stream} is ordered by "
            f'{time}: order on {STIME}, or declare time="..." in the schema'
        )

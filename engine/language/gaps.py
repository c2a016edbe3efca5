"""Windows that are shorter than their advance: what falls between them is in none, and each such
gap is told in the remarks of the document. Where the two lengths are mistaken for each other, the
answers would only be too few."""

from __future__ import annotations

from collections.abc import Iterable

from medusa.engine.language.unsaid import span_text
from medusa.engine.objects.query import Aggregate, Box, Query, TupleWindows


def gaps(queries: Iterable[Query]) -> tuple[str, ...]:
    """A sentence for each kind of windows with gaps between them."""
    found = (_gap(box) for query in queries for box in query.boxes)
    return tuple(dict.fromkeys(each for each in found if each))


def _gap(box: Box) -> str:
    match box:
        case Aggregate(size_us=size, advance_us=advance) if advance > size:
            lengths = f"{span_text(size)} long, and one begins each {span_text(advance)}"
        case TupleWindows(size=size, advance=advance) if advance > size:
            lengths = f"{size:,} rows long, and one begins each {advance:,} rows"
        case _:
            return ""
    return (
        f"windows of {box.input} are {lengths}: rows between two of them are in none (of HOP the "
        "advance is the first length, the size the second)"
    )

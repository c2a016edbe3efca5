"""What clients say to make and delete views, and peers to find out where parts of streams lie."""

from __future__ import annotations

from msgspec import Struct

from engine.objects.view import Shows, View


class CreateView(Struct, frozen=True):
    """Answered by the `View` with the interval that it was given."""

    view: View


class DeleteView(Struct, frozen=True):
    """Delete a view, and what it has copied."""

    name: str


class Locate(Struct, frozen=True):
    """Where does this part of a stream lie now? It is kept for a while for who asks.

    Attributes:
        fixed: it is to be the same for ever; else the beginning of what moves is asked for.
    """

    stream: str
    shows: Shows
    fixed: bool


class Located(Struct, frozen=True):
    """The interval (after, until], boundaries. until is END of what moves."""

    after: int
    until: int

"""Messages that make and delete views, and that locate parts of streams."""

from __future__ import annotations

from msgspec import Struct

from medusa.engine.objects.view import Shows, View


class CreateView(Struct, frozen=True):
    """Makes a view; answered by `ViewCreated`."""

    view: View


class ViewCreated(Struct, frozen=True):
    """The view, with its interval.

    Attributes:
        readers: the participants that may read it, in words, by its name.
    """

    view: View
    readers: dict[str, str]


class DeleteView(Struct, frozen=True):
    """Deletes a view, and its log."""

    name: str


class Locate(Struct, frozen=True):
    """Asks where a part of a stream lies now. The part is kept for the caller for a while.

    Attributes:
        fixed: whether the part must never change; else the caller asks for the beginning of a
            moving part.
    """

    stream: str
    shows: Shows
    fixed: bool


class Located(Struct, frozen=True):
    """The interval (after, until] of the part, boundaries. until: END for a moving part."""

    after: int
    until: int

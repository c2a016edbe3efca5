"""The definitions of a text: schemas, streams, queries and views."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.query import Query, streams_written
from medusa.engine.objects.schema import Schema
from medusa.engine.objects.view import View
from medusa.engine.operators.typing import TypedBoxes


@dataclass(frozen=True, slots=True)
class Document:
    """The definitions of a document, in the order in which to create them.

    Attributes:
        explain: whether its author asks for the plans of its queries only, and nothing is to be
            created: a script that begins with EXPLAIN. remarks: sentences for its author on the
            meaning that parts of it have here.
        typed: the boxes of its queries that its reader has typed.
    """

    schemas: tuple[Schema, ...] = ()
    streams: tuple[StreamDefinition, ...] = ()
    queries: tuple[Query, ...] = ()
    views: tuple[View, ...] = ()
    explain: bool = False
    remarks: tuple[str, ...] = ()
    typed: TypedBoxes = field(default_factory=TypedBoxes, compare=False, repr=False)

    def views_by_streams(self) -> tuple[list[View], list[View]]:
        """Two lists: views of streams that exist before the queries, and views of the queries'
        streams."""
        made = frozenset(stream for query in self.queries for stream in streams_written(query))
        return (
            [view for view in self.views if view.stream not in made],
            [view for view in self.views if view.stream in made],
        )


class Draft(Protocol):
    """A text that has been read. To complete it may need the schemas of streams that others have
    defined."""

    @property
    def reads(self) -> frozenset[str]:
        """The streams whose schemas `complete` needs."""

    @property
    def uses(self) -> frozenset[str]:
        """The schemas that `complete` needs."""

    def complete(
        self,
        streams: Mapping[str, Schema],
        schemas: Mapping[str, Schema],
        tables: Collection[str] = (),
    ) -> Document:
        """What the text defines.

        Args:
            streams: the schemas of the streams of `reads`, by stream, as far as these streams
                exist. schemas: the schemas of `uses`, as far as they exist.
            tables: the streams among `reads` that are tables.

        Raises:
            InvalidInputError: it does not type-check, or a stream or schema does not exist; the
                message names the place and the reason.
        """

"""The kinds of objects that the engine has in the catalog, and the checks of entries found there.

A record proves its publisher, not that its content makes sense. An entry for another object than
the record names, or a schema beyond the limits, is refused here.
"""

from __future__ import annotations

from typing import Final, TypeVar

from medusa.dht.catalog import Catalog, Kind, Published
from medusa.engine.objects.definitions import (
    REVISIONS,
    Producer,
    QueryEntry,
    StreamEntry,
    check_label,
    check_stream,
)
from medusa.engine.objects.schema import REVISION, Schema, check_schema
from medusa.engine.objects.view import View, check_view
from medusa.overlay.errors import DecodeError, InvalidInputError, NotFoundError
from medusa.overlay.names import ObjectName

SCHEMA: Final = Kind("schema", Schema, is_private=lambda _: True)
"""Schemas. A record is readable by the readers of any stream of this schema; it is created before
those streams."""

STREAM: Final = Kind("stream", StreamEntry, is_private=lambda entry: bool(entry.stream.policies))
QUERY: Final = Kind("query", QueryEntry, is_private=lambda entry: bool(entry.label))
"""Queries. A record is readable by participants that may read all inputs of the query."""

VIEW: Final = Kind("view", View, is_private=lambda _: True)
"""Views. A record is readable by its owner's peers; others see the stream of that name."""

PRODUCER: Final = Kind("producer", Producer, many=True)

Definition = TypeVar("Definition", Schema, StreamEntry, QueryEntry, View)


async def lookup(
    catalog: Catalog, kind: Kind[Definition], name: ObjectName
) -> Published[Definition]:
    """The object of that kind and name.

    Raises:
        NotFoundError: there is none.
        NotAuthorisedError: it is not for our participant.
        UnavailableError: too few peers answer.
        DecodeError: the published entry is about another object, or beyond the limits.
    """
    published = await catalog.lookup(kind, name)
    try:
        _check(published.value, str(name))
    except InvalidInputError as error:
        raise DecodeError(f"{kind.label} {name}, as published: {error}") from None
    return published


async def find(
    catalog: Catalog, kind: Kind[Definition], name: ObjectName
) -> Published[Definition] | None:
    """As `lookup`, but None if the object does not exist."""
    try:
        return await lookup(catalog, kind, name)
    except NotFoundError:
        return None


def _of_tuples(entry: StreamEntry) -> Schema:
    """The schema of a stream's tuples; for revisions, that of the tuples they revise."""
    if not entry.stream.name.endswith(f"/{REVISIONS}"):
        return entry.schema
    fields = tuple(field for field in entry.schema.fields if field.name not in REVISION)
    return Schema(entry.schema.name, fields)


def _check(value: Schema | StreamEntry | QueryEntry | View, name: str) -> None:
    match value:
        case Schema():
            found = value.name
            check_schema(value)
        case StreamEntry():
            found = value.stream.name
            check_stream(value.stream)
            check_schema(_of_tuples(value))
        case QueryEntry():
            found = value.query.name
            check_label(found, value.label)
        case View():
            found = value.name
            check_view(value)
    if found != name:
        raise InvalidInputError(f"it speaks of {found[:256]!a}")

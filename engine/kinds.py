"""The kinds of objects that the engine keeps in the catalog."""

from __future__ import annotations

from typing import Final, TypeVar

from dht.catalog import Catalog, Kind, Published
from engine.definitions import Producer, QueryEntry, StreamEntry
from engine.schema import Schema
from overlay.errors import NotFoundError
from overlay.names import ObjectName

T = TypeVar("T")

SCHEMA: Final = Kind("schema", Schema)
STREAM: Final = Kind("stream", StreamEntry)
QUERY: Final = Kind("query", QueryEntry)
PRODUCER: Final = Kind("producer", Producer, many=True)


async def find(catalog: Catalog, kind: Kind[T], name: ObjectName) -> Published[T] | None:
    """The object, or None if there is none.

    Raises:
        UnavailableError: too few peers answer to say so.
    """
    try:
        return await catalog.lookup(kind, name)
    except NotFoundError:
        return None

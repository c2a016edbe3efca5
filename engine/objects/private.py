"""Rights to private objects of the catalog: they are for readers of the streams they are about."""

from __future__ import annotations

from dht.catalog import Catalog
from engine.objects.definitions import QueryEntry, StreamEntry, may_write
from engine.objects.kinds import QUERY, SCHEMA, STREAM
from engine.objects.readers import Readers
from engine.objects.schema import Schema


def guard(catalog: Catalog, readers: Readers) -> None:
    """Let a peer give out definitions of streams to their readers and writers, schemas to those of
    a stream that has it, and queries to those who may read all that they read."""

    def may_have_stream(entry: StreamEntry, participant: str) -> bool:
        writes = may_write(entry.stream, participant)  # for that it must know the fields
        return writes or readers.may_read(entry.stream, participant)

    def may_have_schema(schema: Schema, participant: str) -> bool:
        published = (each.value for each in catalog.own(STREAM))
        return any(
            may_have_stream(entry, participant)
            for entry in published
            if entry.stream.schema == schema.name
        )

    def may_have_query(entry: QueryEntry, participant: str) -> bool:
        return readers.may_know(entry.query.name, entry.label, participant)

    catalog.guard(STREAM, may_have_stream)
    catalog.guard(SCHEMA, may_have_schema)
    catalog.guard(QUERY, may_have_query)

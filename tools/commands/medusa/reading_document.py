"""Reads a document of a command, and completes it from the catalog of the federation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from medusa.engine.language.document import Document
from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.query import streams_read, streams_written
from medusa.engine.objects.schema import Schema
from medusa.engine.reading import read_draft
from medusa.overlay.errors import NotFoundError
from medusa.tools.client.entries import entry_of

if TYPE_CHECKING:
    from medusa.tools.client.calls import ClientCalls

Found = TypeVar("Found")


async def complete_document(client: ClientCalls, text: str) -> Document:
    """The definitions in the text, with names completed for the asked peer's participant.

    Raises:
        InvalidInputError: it does not type-check, or reads a stream or uses a schema that does not
            exist; names the place and the reason.
    """
    snapshot = await client.status()
    own = next(peer.participant for peer in snapshot.peers if peer.peer == snapshot.by)
    draft = read_draft(text, f"medusa://{own}/")
    entries = await _found(client, draft.reads, entry_of_stream)
    read = {name: entry.schema for name, entry in entries.items()}
    tables = [name for name, entry in entries.items() if entry.stream.table]
    used = await _found(client, draft.uses, _schema)
    return draft.complete(read, used, tables)


async def _found(
    client: ClientCalls, names: Iterable[str], look: Callable[[ClientCalls, str], Awaitable[Found]]
) -> dict[str, Found]:
    """The entries that exist: the draft knows the places of the missing ones."""
    found = {}
    for name in sorted(names):
        with suppress(NotFoundError):
            found[name] = await look(client, name)
    return found


async def inputs_of_document(
    client: ClientCalls, document: Document
) -> tuple[dict[str, Schema], frozenset[str]]:
    """The schemas of the streams that its queries read and that it does not define itself, and
    which of these are tables.

    Raises:
        NotFoundError: there is no such stream or schema.
    """
    schemas = {schema.name: schema for schema in document.schemas}
    made = {stream for query in document.queries for stream in streams_written(query)}
    declared = {stream.name: stream.schema for stream in document.streams}
    found, tables = {}, set()
    for name in sorted({s for query in document.queries for s in streams_read(query)} - made):
        used = declared.get(name)
        if used is None:
            entry = await entry_of_stream(client, name)
            found[name] = entry.schema
            tables |= {name} if entry.stream.table else set()
        elif used not in schemas:
            found[name] = await _schema(client, used)
    return found, frozenset(tables)


async def entry_of_stream(client: ClientCalls, stream: str) -> StreamEntry:
    """A stream as published. Raises: NotFoundError: no stream has that name."""
    return entry_of(await client.lookup_object(stream, "stream"), "stream", StreamEntry)


async def _schema(client: ClientCalls, name: str) -> Schema:
    return entry_of(await client.lookup_object(name, "schema"), "schema", Schema)

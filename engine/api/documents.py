from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from engine.api.definitions import SchemaCalls, StreamCalls
from engine.api.messages import Created, CreateQuery, CreateSchema, CreateStream, CreateXml
from engine.api.queries import QueryCalls
from engine.api.views import ViewCalls
from engine.language.classes import applied
from engine.language.xml.documents import Document, read_document
from engine.objects.view import View
from engine.replication.views.messages import CreateView
from overlay.errors import InvalidInputError
from overlay.node import Overlay
from overlay.rpc import MAX_STRUCT_BYTES, Caller


class DocumentCalls:
    """The call that creates everything in an XML document; `register` puts it on the service."""

    def __init__(
        self,
        overlay: Overlay,
        schemas: SchemaCalls,
        streams: StreamCalls,
        queries: QueryCalls,
        views: ViewCalls,
    ) -> None:
        self._overlay = overlay
        self._schemas = schemas
        self._streams = streams
        self._queries = queries
        self._views = views

    def register(self) -> None:
        self._overlay.service.unary(
            "create_query_xml",
            CreateXml,
            self.create_query_xml,
            clients=True,
            own=True,
            limit=MAX_STRUCT_BYTES,
        )

    async def create_query_xml(self, caller: Caller, request: CreateXml, body: bytes) -> Created:
        """Create everything in a document, schemas first, so that streams and queries find them."""
        overlay = self._overlay
        own = overlay.identity.participant
        document = await overlay.threads.run(own, partial(_read, request, f"medusa://{own}/"))
        names: list[str] = []
        remarks: list[str] = []
        for schema in document.schemas:
            names += (await self._schemas.create_schema(caller, CreateSchema(schema), body)).names
        for stream in document.streams:
            created = await self._streams.create_stream(caller, CreateStream(stream), body)
            names += created.names
            remarks += created.remarks
        read, made = map(_created, document.views_by_streams())
        names += [(await self._views.create_view(caller, each, body)).name for each in read]
        for query in document.queries:
            created = await self._queries.create_query(caller, CreateQuery(query), body)
            names += created.names
            remarks += created.remarks
        names += [(await self._views.create_view(caller, each, body)).name for each in made]
        if not names:
            raise InvalidInputError("the document defines no schema, stream, query or view")
        return Created(tuple(names), tuple(remarks))


def _read(request: CreateXml, base: str) -> Document:
    """The document, its queries with the requested availability."""
    document = read_document(request.text, base=base)
    if request.availability is None:
        return document
    if not document.queries:
        raise InvalidInputError("availability is for queries; the document defines none")
    queries = tuple(applied(query, request.availability) for query in document.queries)
    return replace(document, queries=queries)


def _created(views: Sequence[View]) -> list[CreateView]:
    return [CreateView(view) for view in views]

"""Calls that create queries, views and all other objects of a document; and calls that locate parts
of history.

The peer that receives the call creates a view. The same peer deletes it, whichever peer of the
participant receives that call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from medusa.dht.catalog import Catalog, Kind
from medusa.engine.api.administration import Administration
from medusa.engine.api.definitions import SchemaCalls, StreamCalls
from medusa.engine.api.messages import (
    Created,
    CreateDocument,
    CreateQuery,
    CreateSchema,
    CreateStream,
    QueryStatusSet,
    SetQueryStatus,
)
from medusa.engine.language.classes import applied, check_secondary
from medusa.engine.language.document import Document
from medusa.engine.language.modification import Modified, ModifyQuery
from medusa.engine.objects.alteration import Alteration, queries_differ
from medusa.engine.objects.catalog_records import QUERY, SCHEMA, STREAM, VIEW, find, lookup
from medusa.engine.objects.definitions import QueryEntry, StreamEntry
from medusa.engine.objects.query import Query, QueryStatus
from medusa.engine.objects.readers import Readers
from medusa.engine.objects.schema import Schema
from medusa.engine.objects.view import View
from medusa.engine.operators.typing import TypedBoxes
from medusa.engine.reading import read_draft
from medusa.engine.replication.modifier import Modifier
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.queries.lifecycle import Lifecycle
from medusa.engine.replication.views.host import Views
from medusa.engine.replication.views.locating import Locator
from medusa.engine.replication.views.messages import (
    CreateView,
    DeleteView,
    Locate,
    Located,
    ViewCreated,
)
from medusa.engine.streams.messages import Done
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role
from medusa.overlay.errors import ConflictError, InvalidInputError, NotFoundError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import ObjectName
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import MAX_STRUCT_BYTES, Caller

Found = TypeVar("Found", Schema, StreamEntry)


@dataclass(frozen=True, eq=False)
class ViewCalls:
    """The handlers; `register` puts them on the peer's service."""

    ours: Administration
    store: StreamStore
    views: Views
    locator: Locator
    readers: Readers

    def register(self) -> None:
        service = self.ours.overlay.service
        service.unary("create_view", CreateView, self.create_view, clients=True, own=True)
        service.unary("delete_view", DeleteView, self.delete_view, clients=True, own=True)
        service.unary("locate", Locate, self.locate)

    async def create_view(self, caller: Caller, request: CreateView, _: bytes) -> ViewCreated:
        self.ours.own_name(request.view.name)
        view = await self.views.create(request.view)
        return ViewCreated(view, await self.ours.readers([view.name]))

    async def delete_view(self, caller: Caller, request: DeleteView, _: bytes) -> Done:
        name = self.ours.own_name(request.name)
        state = self.store.get(request.name)
        here = state is not None and state.role is Role.VIEW
        if here or caller.peer_id is not None:  # else outdated records would make a circle
            await self.views.delete(request.name)
            return Done()
        published = await lookup(self.ours.catalog, VIEW, name)
        if published.publisher == self.ours.overlay.identity.peer_id:
            raise NotFoundError(f"{name} is not kept by this peer any more")
        return await self.ours.route(published.publisher, "delete_view", request, Done)

    async def locate(self, caller: Caller, request: Locate, _: bytes) -> Located:
        """Locate a part of a stream of ours for another peer that may read it."""
        state = self.store.serving(request.stream)
        if state is None or state.role is Role.ASSIGNED:
            raise NotFoundError(f"{request.stream} is not produced by this peer")
        self.readers.check(state.entry.stream, caller.participant)
        return await self.locator.locate_here(
            state, request.shows, caller.participant, fixed=request.fixed
        )


@dataclass(frozen=True, eq=False)
class QueryCalls:
    """Calls that create, start, stop and modify queries; `Administration` finds the peer."""

    ours: Administration
    queries: QueryHost
    lifecycle: Lifecycle
    locator: Locator
    modifier: Modifier

    def register(self) -> None:
        service = self.ours.overlay.service
        ours = partial(service.unary, clients=True, own=True)
        ours("set_query_status", SetQueryStatus, self.set_query_status)
        ours("create_query", CreateQuery, self.create_query, limit=MAX_STRUCT_BYTES)
        ours("modify_query", ModifyQuery, self.modify_query, limit=MAX_STRUCT_BYTES)

    async def create_query(self, caller: Caller, request: CreateQuery, _: bytes) -> Created:
        return await self.create(request.query, {}, TypedBoxes())

    async def create(
        self, query: Query, found: dict[str, StreamEntry], boxes: TypedBoxes
    ) -> Created:
        """Create a query.

        Args:
            found: see `Creation.inputs`. boxes: the boxes that are typed already.
        """
        name = self.ours.own_name(query.name)
        existing = await find(self.ours.catalog, QUERY, name)
        if existing is not None:
            if how := queries_differ(existing.value.query, query):
                raise ConflictError(f"{name} exists and differs ({how}): delete it first or rename")
            return await self._answer(existing.value)
        self._check_secondary(query)
        inputs = await self.lifecycle.creation.inputs(query, found)
        await self.locator.check_history_range(query, inputs)
        entry = await self.lifecycle.create(query, inputs, boxes)
        remarks = [
            remark
            for stream, readers in query.readers
            for remark in self.ours.strangers(stream, Alteration(readers=readers))
        ]
        return await self._answer(entry, remarks)

    async def _answer(self, entry: QueryEntry, remarks: Iterable[str] = ()) -> Created:
        readers = await self.ours.readers(entry.results)
        return Created((entry.query.name, *entry.results), tuple(remarks), readers)

    async def set_query_status(
        self, caller: Caller, request: SetQueryStatus, _: bytes
    ) -> QueryStatusSet:
        name = self.ours.own_name(request.query)
        if request.status is QueryStatus.SETUP:
            raise InvalidInputError("a query is SETUP only before it first runs")

        async def set_status() -> QueryStatusSet:
            await self.lifecycle.set_status(str(name), request.status)
            runs = request.status is QueryStatus.RUNNING
            return QueryStatusSet(await self.queries.shop.trouble() if runs else "")

        return await self.ours.at_its_peer(
            name, "set_query_status", request, QueryStatusSet, set_status
        )

    async def modify_query(self, caller: Caller, request: ModifyQuery, _: bytes) -> Modified:
        name = self.ours.own_name(request.query)

        async def modify() -> Modified:
            return await self.modifier.modify(request)

        return await self.ours.at_its_peer(name, "modify_query", request, Modified, modify)

    def _check_secondary(self, query: Query) -> None:
        """Refuse a secondary that cannot take the query over. Raises: InvalidInputError."""
        asked = query.availability.secondary
        check_secondary(query, self.ours.overlay.identity.peer_id.hex())
        if asked:
            self.ours.check_sibling(f"query {query.name}: its secondary", parse_peer_id(asked))


@dataclass(frozen=True, eq=False)
class DocumentCalls:
    """The call that creates everything in a document; `register` puts it on the service."""

    overlay: Overlay
    catalog: Catalog
    schemas: SchemaCalls
    streams: StreamCalls
    queries: QueryCalls
    views: ViewCalls

    def register(self) -> None:
        self.overlay.service.unary(
            "create_document",
            CreateDocument,
            self.create_document,
            clients=True,
            own=True,
            limit=MAX_STRUCT_BYTES,
        )

    async def create_document(
        self, caller: Caller, request: CreateDocument, body: bytes
    ) -> Created:
        """Create everything in a document of XML or SQL, schemas first, so that streams and queries
        find them."""
        document, found = await self._read(request)
        names: list[str] = []
        remarks, readers = list(document.remarks), dict[str, str]()
        for schema in document.schemas:
            names += (await self.schemas.create_schema(caller, CreateSchema(schema), body)).names
        for stream in document.streams:
            created = await self.streams.create_stream(caller, CreateStream(stream), body)
            names += created.names
            remarks += created.remarks
            readers |= created.readers
        read, made = map(_created, document.views_by_streams())
        for each in read:
            view = await self.views.create_view(caller, each, body)
            names.append(view.view.name)
            readers |= view.readers
        for query in document.queries:
            created = await self.queries.create(query, found, document.typed)
            names += created.names
            remarks += created.remarks
            readers |= created.readers
        for each in made:
            view = await self.views.create_view(caller, each, body)
            names.append(view.view.name)
            readers |= view.readers
        if not names and not remarks:
            raise InvalidInputError("the document defines no schema, stream, query or view")
        return Created(tuple(names), tuple(remarks), readers)

    async def _read(self, request: CreateDocument) -> tuple[Document, dict[str, StreamEntry]]:
        """The document, and the streams that it was read with: its queries are made with the same
        streams. Later alterations of a stream have a higher edition, and reach the queries that
        read it."""
        own = self.overlay.identity.participant
        run = partial(self.overlay.threads.run, own)
        draft = await run(partial(read_draft, request.text, f"medusa://{own}/"))
        entries = await self._found(STREAM, draft.reads)
        streams = {name: entry.schema for name, entry in entries.items()}
        tables = frozenset(name for name, entry in entries.items() if entry.stream.table)
        schemas = await self._found(SCHEMA, draft.uses)
        document = await run(partial(draft.complete, streams, schemas, tables))
        if document.explain:
            raise InvalidInputError(
                "EXPLAIN asks for a plan, and creates nothing: medusa query explain shows it"
            )
        return _with_availability(document, request), entries

    async def _found(self, kind: Kind[Found], names: Iterable[str]) -> dict[str, Found]:
        """The existing objects of these names, by name. A missing one is no error here: the draft
        knows the line that names it."""
        found = {n: await find(self.catalog, kind, ObjectName.parse(n)) for n in sorted(names)}
        return {name: each.value for name, each in found.items() if each is not None}


def _with_availability(document: Document, request: CreateDocument) -> Document:
    """The document, its queries with the requested availability."""
    if request.availability is None:
        return document
    if not document.queries:
        raise InvalidInputError("availability is for queries; the document defines none")
    queries = tuple(applied(query, request.availability) for query in document.queries)
    return replace(document, queries=queries)


def _created(views: Sequence[View]) -> list[CreateView]:
    return [CreateView(view) for view in views]

"""Calls that define objects: schemas, streams and queries.

Each is carried out by a peer of the participant whose name the object carries; any peer of that
participant takes the call, and hands it on when another one of them keeps the object.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import UNSET

from engine.api.messages import (
    AlterStream,
    Created,
    CreateQuery,
    CreateSchema,
    CreateStream,
    CreateXml,
    DeleteSchema,
    DeleteStream,
    QueryStatusSet,
    Reopened,
    ReopenStream,
    SetQueryStatus,
)
from engine.api.views import ViewCalls
from engine.engine import Engine
from engine.language.classes import applied, check_secondary
from engine.language.modification import Modified, ModifyQuery
from engine.language.xml.documents import Document, read_document
from engine.objects.alteration import Alteration, altered
from engine.objects.definitions import (
    ANY,
    CONTRACT,
    QueryEntry,
    StreamDefinition,
    StreamEntry,
    check_not_late,
    check_stream,
)
from engine.objects.differing import queries_differ, schemas_differ, streams_differ
from engine.objects.kinds import QUERY, SCHEMA, STREAM, find, lookup
from engine.objects.query import Query, QueryStatus
from engine.objects.schema import check_schema
from engine.objects.view import View
from engine.replication.views.messages import CreateView
from engine.streams.kept import Role
from engine.streams.messages import Done
from overlay.concurrency import Locks
from overlay.errors import (
    ConflictError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
)
from overlay.identity import parse_peer_id
from overlay.names import ObjectName, PeerId
from overlay.rpc import MAX_STRUCT_BYTES, Caller

T = TypeVar("T", bound=msgspec.Struct)

ROUTED_CALL_S = 20.0
"""Patience with another peer of ours that carries a call out, seconds."""

LISTED = 16
"""Participants named in a remark; the others are counted."""


class DefinitionCalls:
    """The handlers; `register` puts them on the peer's service."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._defining = Locks()
        self._views = ViewCalls(engine, self._own_name)

    def register(self) -> None:
        self._engine.homes.register()
        self._views.register()
        service = self._engine.overlay.service
        ours = partial(service.unary, clients=True, own=True)
        ours("create_schema", CreateSchema, self.create_schema)
        ours("create_stream", CreateStream, self.create_stream)
        ours("alter_stream", AlterStream, self.alter_stream)
        ours("delete_stream", DeleteStream, self.delete_stream)
        ours("reopen_stream", ReopenStream, self.reopen_stream)
        ours("delete_schema", DeleteSchema, self.delete_schema)
        ours("set_query_status", SetQueryStatus, self.set_query_status)
        long = partial(ours, limit=MAX_STRUCT_BYTES)
        long("create_query", CreateQuery, self.create_query)
        long("create_query_xml", CreateXml, self.create_query_xml)
        long("modify_query", ModifyQuery, self.modify_query)

    async def create_schema(self, caller: Caller, request: CreateSchema, _: bytes) -> Created:
        schema = request.schema
        name = self._own_name(schema.name)
        check_schema(schema)
        async with self._defining.of(f"schema {name}"):
            existing = await find(self._engine.catalog, SCHEMA, name)
            if existing is None:
                await self._engine.catalog.publish(SCHEMA, name, schema)
                self._engine.schemas.save(schema)
            elif existing.value != schema:
                how = schemas_differ(existing.value, schema)
                raise ConflictError(f"{name} exists and differs ({how}): use another name")
        return Created((schema.name,))

    async def create_stream(self, caller: Caller, request: CreateStream, _: bytes) -> Created:
        stream = request.stream
        name = self._own_name(stream.name)
        check_stream(stream)
        check_not_late(stream.name)
        if stream.query:
            raise InvalidInputError(f"{name}: what a query produces is created with the query")
        if stream.view is not None:
            raise InvalidInputError(f"{name}: a view is created as a view")
        if stream.edition:
            raise InvalidInputError(f"{name}: a new stream has no edition yet")
        here = self._engine.overlay.identity.peer_id
        home = parse_peer_id(stream.home) if stream.home else here
        self._check_sibling(f"{name}: its home", home)
        if home == here:
            async with self._defining.of(f"stream {name}"):
                await self._host(name, stream)
        else:
            await self._route(home, "create_stream", request, Created)
        return Created((stream.name,), self._strangers(stream.name, stream))

    async def _host(self, name: ObjectName, stream: StreamDefinition) -> None:
        catalog, here = self._engine.catalog, self._engine.overlay.identity.peer_id.hex()
        kept = self._engine.store.get(str(name))
        if kept is not None and kept.role is Role.SOURCE:  # the catalog may know an older edition
            _check_same(kept.entry.stream, stream)
            await self._engine.host_source(kept.entry)  # a crash may have cut its creation short
            return
        existing = await find(catalog, STREAM, name)
        if existing is None:
            schema = await lookup(catalog, SCHEMA, ObjectName.parse(stream.schema))
            at_home = msgspec.structs.replace(stream, home=here)
            await self._engine.host_source(StreamEntry(at_home, schema.value))
            return
        _check_same(existing.value.stream, stream)
        if existing.value.stream.home == here:  # a crash may have cut its creation short
            await self._engine.host_source(existing.value)

    async def alter_stream(self, caller: Caller, request: AlterStream, _: bytes) -> Done:
        name = self._own_name(request.stream)
        check_not_late(request.stream)

        async def alter() -> Done:
            await self._engine.altering.alter(request.stream, request.alteration)
            return Done()

        async def alter_output() -> Done:
            altering, query = self._engine.altering, entry.stream.query
            await altering.alter_output(query, request.stream, request.alteration)
            return Done()

        kept = self._engine.store.serving(request.stream)
        entry = kept.entry if kept else (await lookup(self._engine.catalog, STREAM, name)).value
        if entry.stream.view is not None:
            altered(entry.stream, request.alteration)  # which says why that cannot be
        if entry.stream.query:
            query = self._own_name(entry.stream.query)
            await self._at_its_peer(query, "alter_stream", request, Done, alter_output)
        else:
            await self._at_its_home(caller, name, "alter_stream", request, alter, response=Done)
        return Done(self._strangers(request.stream, request.alteration))

    async def delete_stream(self, caller: Caller, request: DeleteStream, _: bytes) -> Done:
        name = await self._own_source(request.stream, "deleted")

        async def delete() -> Done:
            await self._engine.deleting.delete_stream(request.stream)
            return Done()

        return await self._at_its_home(
            caller, name, "delete_stream", request, delete, response=Done
        )

    async def reopen_stream(self, caller: Caller, request: ReopenStream, _: bytes) -> Reopened:
        name = await self._own_source(request.stream, "reopened")

        async def reopen() -> Reopened:
            return Reopened(await self._engine.deleting.reopen_stream(request.stream))

        return await self._at_its_home(
            caller, name, "reopen_stream", request, reopen, response=Reopened
        )

    async def delete_schema(self, caller: Caller, request: DeleteSchema, _: bytes) -> Done:
        name, overlay = self._own_name(request.schema), self._engine.overlay
        publisher = (await lookup(self._engine.catalog, SCHEMA, name)).publisher
        if caller.peer_id is None and publisher != overlay.identity.peer_id:
            return await self._route(publisher, "delete_schema", request, Done)
        async with self._defining.of(f"schema {name}"):
            await self._engine.deleting.delete_schema(str(name))
        return Done()

    async def _own_source(self, stream: str, what: str) -> ObjectName:
        """
        Raises:
            InvalidInputError: it is no source stream; says what can be done instead.
        """
        name = self._own_name(stream)
        check_not_late(stream)
        kept = self._engine.store.serving(stream)
        entry = kept.entry if kept else (await lookup(self._engine.catalog, STREAM, name)).value
        if entry.stream.view is not None:
            raise InvalidInputError(f"{stream} is a view: `medusa view delete {stream}`")
        if entry.stream.query:
            raise InvalidInputError(
                f"{stream} is produced by {entry.stream.query}: it is not {what} by itself; "
                f"`medusa query delete {entry.stream.query}` takes it along"
            )
        return name

    async def _at_its_home(
        self,
        caller: Caller,
        name: ObjectName,
        method: str,
        request: msgspec.Struct,
        here: Callable[[], Awaitable[T]],
        *,
        response: type[T],
    ) -> T:
        """A call about a stream, carried out by `here` where this peer is its home; a call of
        another peer is not handed on once more: records out of date would make a circle."""
        engine, stream = self._engine, str(name)
        keeper, kept = engine.homes.get(stream), engine.store.get(stream)
        at_home = keeper.is_home if keeper is not None else kept is not None and kept.is_at_home
        if at_home or caller.peer_id is not None:
            return await here()
        entry = (await lookup(engine.catalog, STREAM, name)).value
        if entry.stream.k_safety:
            connection = await engine.homes.connect(stream)
        else:
            home = parse_peer_id(entry.stream.home)
            if home == engine.overlay.identity.peer_id:
                return await here()
            try:
                connection = await engine.overlay.connect(home)
            except UnavailableError as error:
                raise UnavailableError(
                    f"{stream}: its home, peer {home.hex()[:8]}, cannot be reached, nothing "
                    f"has changed: {error}"
                ) from None
        return await connection.call(method, request, response, timeout_s=ROUTED_CALL_S)

    async def create_query(self, caller: Caller, request: CreateQuery, _: bytes) -> Created:
        name = self._own_name(request.query.name)
        existing = await find(self._engine.catalog, QUERY, name)
        if existing is not None:
            if existing.value.query != request.query:
                how = queries_differ(existing.value.query, request.query)
                raise ConflictError(f"{name} exists and differs ({how}): delete it first or rename")
            return Created((str(name), *existing.value.outputs))
        self._check_secondary(request.query)
        inputs = await self._engine.queries.inputs(request.query)
        await self._engine.locator.check_past(request.query, inputs)
        entry = await self._engine.queries.create(request.query)
        remarks = [
            remark
            for stream, readers in request.query.readers
            for remark in self._strangers(stream, Alteration(readers=readers))
        ]
        return Created((str(name), *entry.outputs), tuple(remarks))

    async def create_query_xml(self, caller: Caller, request: CreateXml, body: bytes) -> Created:
        """Everything in a document, schemas first: what refers to a thing finds it."""
        overlay = self._engine.overlay
        own = overlay.identity.participant
        document = await overlay.threads.run(own, partial(_read, request, f"medusa://{own}/"))
        names: list[str] = []
        remarks: list[str] = []
        for schema in document.schemas:
            names += (await self.create_schema(caller, CreateSchema(schema), body)).names
        for stream in document.streams:
            created = await self.create_stream(caller, CreateStream(stream), body)
            names += created.names
            remarks += created.remarks
        read, made = map(_created, document.views_by_streams())
        names += [(await self._views.create_view(caller, each, body)).name for each in read]
        for query in document.queries:
            created = await self.create_query(caller, CreateQuery(query), body)
            names += created.names
            remarks += created.remarks
        names += [(await self._views.create_view(caller, each, body)).name for each in made]
        if not names:
            raise InvalidInputError("the document defines no schema, stream, query or view")
        return Created(tuple(names), tuple(remarks))

    async def set_query_status(
        self, caller: Caller, request: SetQueryStatus, _: bytes
    ) -> QueryStatusSet:
        name = self._own_name(request.query)
        if request.status is QueryStatus.SETUP:
            raise InvalidInputError("a query is SETUP only before it first runs")

        async def set_status() -> QueryStatusSet:
            queries = self._engine.queries
            await queries.set_status(str(name), request.status)
            runs = request.status is QueryStatus.RUNNING
            return QueryStatusSet(await queries.trouble() if runs else "")

        return await self._at_its_peer(
            name, "set_query_status", request, QueryStatusSet, set_status
        )

    async def modify_query(self, caller: Caller, request: ModifyQuery, _: bytes) -> Modified:
        name = self._own_name(request.query)

        async def modify() -> Modified:
            return await self._engine.modifier.modify(request)

        return await self._at_its_peer(name, "modify_query", request, Modified, modify)

    async def _at_its_peer(
        self,
        name: ObjectName,
        method: str,
        request: msgspec.Struct,
        response: type[T],
        here: Callable[[], Awaitable[T]],
    ) -> T:
        """A call about a query, carried out by `here` where this peer keeps it."""
        engine = self._engine
        entry: QueryEntry = (await lookup(engine.catalog, QUERY, name)).value
        try:
            peer = parse_peer_id(entry.peer)
            if peer == engine.overlay.identity.peer_id or engine.queries.occupied(str(name)):
                return await here()
            return await self._route(peer, method, request, response)
        except NotFoundError as error:  # who has taken it over may not have told the catalog yet
            raise UnavailableError(f"{name} is changing hands: {error}") from None

    def _check_secondary(self, query: Query) -> None:
        """
        Raises:
            InvalidInputError: the peer that it asks for cannot be its secondary.
        """
        asked = query.availability.secondary
        check_secondary(query, self._engine.overlay.identity.peer_id.hex())
        if asked:
            self._check_sibling(f"query {query.name}: its secondary", parse_peer_id(asked))

    def _check_sibling(self, what: str, peer: PeerId) -> None:
        """
        Raises:
            InvalidInputError: it is another participant's.
        """
        own = self._engine.overlay.identity.participant
        known = self._engine.overlay.peers.get(peer)
        if known is not None and known.participant != own:
            raise InvalidInputError(
                f"{what} must be a peer of {own}; {peer.hex()[:8]} is one of {known.participant}"
            )

    def _strangers(self, name: str, said: StreamDefinition | Alteration) -> tuple[str, ...]:
        """Which participants it names that are no members: of a name that is written wrong nothing
        else is seen."""
        membership = self._engine.overlay.membership
        members = membership.participants()
        remarks = []
        for attribute in ("readers", "writers", "declassify"):
            named = getattr(said, attribute)
            strangers = set() if named is UNSET else {*named} - {ANY, CONTRACT, *members}
            if strangers:
                remarks.append(
                    f"{name}: {attribute} names {_listed(strangers)}, no member of federation "
                    f"{membership.name}; its members are {_listed(members)}"
                )
        return tuple(remarks)

    def _own_name(self, text: str) -> ObjectName:
        name = ObjectName.parse(text)
        own = self._engine.overlay.identity.participant
        if name.participant != own:
            raise NotAuthorisedError(f"{name} is administered by {name.participant}, not by {own}")
        return name

    async def _route(
        self, peer: PeerId, method: str, request: msgspec.Struct, response: type[T]
    ) -> T:
        connection = await self._engine.overlay.connect(peer)
        return await connection.call(method, request, response, timeout_s=ROUTED_CALL_S)


def _read(request: CreateXml, base: str) -> Document:
    """The document, its queries as they are asked for."""
    document = read_document(request.text, base=base)
    if request.availability is None:
        return document
    if not document.queries:
        raise InvalidInputError("availability is for queries; the document defines none")
    queries = tuple(applied(query, request.availability) for query in document.queries)
    return replace(document, queries=queries)


def _listed(names: Collection[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{', '.join(sorted(names)[:LISTED])}{more}"


def _created(views: Sequence[View]) -> list[CreateView]:
    return [CreateView(view) for view in views]


def _check_same(existing: StreamDefinition, asked: StreamDefinition) -> None:
    """Creating a stream again as it is, is no error; a home not named may be anywhere."""
    if existing.query:
        raise ConflictError(f"{asked.name} exists: {existing.query} produces it")
    if how := streams_differ(existing, asked):
        raise ConflictError(
            f"{asked.name} exists with another definition ({how}): `medusa stream alter` changes "
            "what can be changed, or use another name"
        )

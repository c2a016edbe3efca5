from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import msgspec
import trio

from medusa.engine.api.administration import Administration
from medusa.engine.api.messages import (
    AlterStream,
    Created,
    CreateSchema,
    CreateStream,
    DeleteSchema,
    DeleteStream,
    Reopened,
    ReopenStream,
)
from medusa.engine.objects.alteration import altered, listed, schemas_differ, streams_differ
from medusa.engine.objects.catalog_records import SCHEMA, STREAM, find, lookup
from medusa.engine.objects.definitions import (
    StreamDefinition,
    StreamEntry,
    base_of,
    check_lateness,
    check_not_late,
    check_stream,
)
from medusa.engine.objects.files import SchemaFiles
from medusa.engine.objects.schema import check_schema
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.leaders.leaders import Leaders
from medusa.engine.replication.modifier import Modifier
from medusa.engine.replication.records.term import Term
from medusa.engine.replication.sources import Sources
from medusa.engine.streams.messages import Done
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role, entries_of
from medusa.overlay.concurrency import Locks
from medusa.overlay.errors import ConflictError, InvalidInputError, UnavailableError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.names import ObjectName
from medusa.overlay.rpc import Caller


@dataclass(frozen=True, eq=False)
class SchemaCalls:
    """Calls that define schemas; `register` puts them on the peer's service."""

    ours: Administration
    schemas: SchemaFiles
    _defining: Locks = field(default_factory=Locks, init=False)

    def register(self) -> None:
        service = self.ours.overlay.service
        ours = partial(service.unary, clients=True, own=True)
        ours("create_schema", CreateSchema, self.create_schema)
        ours("delete_schema", DeleteSchema, self.delete_schema)

    async def create_schema(self, caller: Caller, request: CreateSchema, _: bytes) -> Created:
        schema = request.schema
        name = self.ours.own_name(schema.name)
        check_schema(schema)
        async with self._defining.of(f"schema {name}"):
            existing = await find(self.ours.catalog, SCHEMA, name)
            if existing is None:
                await self.ours.catalog.publish(SCHEMA, name, schema)
                self.schemas.save(schema)
            elif existing.value != schema:
                how = schemas_differ(existing.value, schema)
                raise ConflictError(f"{name} exists and differs ({how}): use another name")
        return Created((schema.name,))

    async def delete_schema(self, caller: Caller, request: DeleteSchema, _: bytes) -> Done:
        name, overlay = self.ours.own_name(request.schema), self.ours.overlay
        publisher = (await lookup(self.ours.catalog, SCHEMA, name)).publisher
        if caller.peer_id is None and publisher != overlay.identity.peer_id:
            return await self.ours.route(publisher, "delete_schema", request, Done)
        async with self._defining.of(f"schema {name}"):
            if users := await self._streams_of(request.schema):
                raise ConflictError(
                    f"{name} is the schema of {listed(sorted(users))}: delete that first"
                )
            await trio.to_thread.run_sync(self.schemas.remove, request.schema)
            await self.ours.catalog.withdraw(SCHEMA, name)
            overlay.events.note("info", f"deleted {name}")
        return Done()

    async def _streams_of(self, schema: str) -> list[str]:
        """The streams of ours that have a schema.

        Raises:
            UnavailableError: a peer of ours that may keep such a stream cannot be asked.
        """
        own = self.ours.overlay.identity.participant
        listing = await self.ours.catalog.names()
        siblings = {peer.hex() for peer in self.ours.overlay.living_siblings()}
        if silent := sorted(siblings.intersection(listing.unreachable)):
            raise UnavailableError(
                f"{schema}: peer {silent[0][:8]} cannot be asked whether a stream of its has it"
            )
        found: list[str] = []
        for text in listing.names.get(STREAM.label, ()):
            name = ObjectName.parse(text)
            if name.participant == own and base_of(text) == text:
                entry = await find(self.ours.catalog, STREAM, name)
                if entry is not None and entry.value.stream.schema == schema:
                    found.append(text)
        return found


@dataclass(frozen=True, eq=False)
class StreamCalls:
    """Calls that define source streams; `register` puts them on the peer's service."""

    ours: Administration
    store: StreamStore
    leaders: Leaders
    announcements: Announcements
    sources: Sources
    modifier: Modifier
    _defining: Locks = field(default_factory=Locks, init=False)

    def register(self) -> None:
        self.leaders.register()
        service = self.ours.overlay.service
        ours = partial(service.unary, clients=True, own=True)
        ours("create_stream", CreateStream, self.create_stream)
        ours("alter_stream", AlterStream, self.alter_stream)
        ours("delete_stream", DeleteStream, self.delete_stream)
        ours("reopen_stream", ReopenStream, self.reopen_stream)

    async def create_stream(self, caller: Caller, request: CreateStream, _: bytes) -> Created:
        stream = request.stream
        name = self.ours.own_name(stream.name)
        check_stream(stream)
        check_not_late(stream.name)
        if stream.query:
            raise InvalidInputError(f"{name}: what a query produces is created with the query")
        if stream.view is not None:
            raise InvalidInputError(f"{name}: a view is created as a view")
        if stream.edition:
            raise InvalidInputError(f"{name}: a new stream has no edition yet")
        here = self.ours.overlay.identity.peer_id
        leader = parse_peer_id(stream.leader) if stream.leader else here
        self.ours.check_sibling(f"{name}: its leader", leader)
        if leader == here:
            async with self._defining.of(f"stream {name}"):
                await self._host(name, stream)
            readers = await self.ours.readers((stream.name,))
        else:
            readers = (await self.ours.route(leader, "create_stream", request, Created)).readers
        return Created((stream.name,), self.ours.strangers(stream.name, stream), readers)

    async def _host(self, name: ObjectName, stream: StreamDefinition) -> None:
        catalog, here = self.ours.catalog, self.ours.overlay.identity.peer_id.hex()
        state = self.store.get(str(name))
        if state is not None and state.role is Role.SOURCE:  # the catalog may know an older edition
            _check_same(state.entry.stream, stream)
            await self._lead(state.entry)  # a crash may have cut its creation short
            return
        existing = await find(catalog, STREAM, name)
        if existing is None:
            schema = await lookup(catalog, SCHEMA, ObjectName.parse(stream.schema))
            check_lateness(stream, schema.value)
            at_leader = msgspec.structs.replace(stream, leader=here, readers=stream.admitted)
            await self._lead(StreamEntry(at_leader, schema.value))
            return
        _check_same(existing.value.stream, stream)
        if existing.value.stream.leader == here:  # a crash may have cut its creation short
            await self._lead(existing.value)

    async def _lead(self, entry: StreamEntry) -> None:
        """Become the leader of a source stream and publish it.

        Raises:
            ConflictError: this peer keeps another stream under that name.
            MedusaError: the stream needs replicas, and no peers are found for them; see
                `Leaders.found`.
        """
        if entry.stream.k_safety:
            await self.leaders.found(entry)
            return
        state = await self.store.keep(entry, Role.SOURCE)
        if (state.entry, state.role) != (entry, Role.SOURCE):
            raise ConflictError(f"{state.name} is kept here as another {state.role} stream already")
        for announced in entries_of(entry):
            await self.announcements.announce(announced, Term(announced.stream.name))

    async def alter_stream(self, caller: Caller, request: AlterStream, _: bytes) -> Done:
        name = self.ours.own_name(request.stream)
        check_not_late(request.stream)

        async def alter() -> Done:
            await self.sources.alter(request.stream, request.alteration)
            return Done()

        async def alter_output() -> Done:
            query = entry.stream.query
            await self.modifier.alter(query, request.stream, request.alteration)
            return Done()

        state = self.store.serving(request.stream)
        entry = state.entry if state else (await lookup(self.ours.catalog, STREAM, name)).value
        if entry.stream.view is not None:
            altered(entry.stream, request.alteration)  # raises an error that says why
        if entry.stream.query:
            query = self.ours.own_name(entry.stream.query)
            await self.ours.at_its_peer(query, "alter_stream", request, Done, alter_output)
        else:
            await self.ours.at_its_leader(
                caller, name, "alter_stream", request, alter, response=Done
            )
        return Done(self.ours.strangers(request.stream, request.alteration))

    async def delete_stream(self, caller: Caller, request: DeleteStream, _: bytes) -> Done:
        name = await self._own_source(request.stream, "deleted")

        async def delete() -> Done:
            await self.sources.delete(request.stream)
            return Done()

        return await self.ours.at_its_leader(
            caller, name, "delete_stream", request, delete, response=Done
        )

    async def reopen_stream(self, caller: Caller, request: ReopenStream, _: bytes) -> Reopened:
        name = await self._own_source(request.stream, "reopened")

        async def reopen() -> Reopened:
            return Reopened(await self.sources.reopen(request.stream))

        return await self.ours.at_its_leader(
            caller, name, "reopen_stream", request, reopen, response=Reopened
        )

    async def _own_source(self, stream: str, what: str) -> ObjectName:
        """The name of a source stream of ours; others are refused. Raises: InvalidInputError."""
        name = self.ours.own_name(stream)
        check_not_late(stream)
        state = self.store.serving(stream)
        entry = state.entry if state else (await lookup(self.ours.catalog, STREAM, name)).value
        if entry.stream.view is not None:
            raise InvalidInputError(f"{stream} is a view: `medusa view delete {stream}`")
        if entry.stream.query:
            raise InvalidInputError(
                f"{stream} is produced by {entry.stream.query}: it is not {what} by itself; "
                f"`medusa query delete {entry.stream.query}` takes it along"
            )
        return name


def _check_same(existing: StreamDefinition, asked: StreamDefinition) -> None:
    """Refuse another definition. The same definition is no error; neither is a leader elsewhere if
    the request names no leader."""
    if existing.query:
        raise ConflictError(f"{asked.name} exists: {existing.query} produces it")
    if how := streams_differ(existing, asked):
        raise ConflictError(
            f"{asked.name} exists with another definition ({how}): `medusa stream alter` changes "
            "what can be changed, or use another name"
        )

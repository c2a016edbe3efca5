"""What is looked at before a query is: its inputs, its outputs, and what they may be."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from dht.catalog import Catalog
from engine.definitions import QueryEntry, StreamEntry, check_not_late, may_read
from engine.kinds import STREAM, find
from engine.network import Network, StoredQuery, planned
from engine.query import Query, QueryStatus, streams_read, streams_written
from engine.schema import BEGINNING, Schema
from engine.stream_store import StreamStore
from engine.streams.revisions.columns import revisions_entry
from overlay.errors import ConflictError, NotAuthorisedError, NotFoundError
from overlay.names import ObjectName
from overlay.node import Overlay


class Creation:
    """What a new query of a participant meets in the catalog and at this peer."""

    def __init__(self, overlay: Overlay, catalog: Catalog, store: StreamStore) -> None:
        self._participant = overlay.identity.participant
        self._peer = overlay.identity.peer_id.hex()
        self._threads = overlay.threads
        self._catalog = catalog
        self._store = store

    async def plan(self, query: Query) -> StoredQuery:
        """The query as it is kept, once it is found to be right.

        Raises:
            InvalidInputError: it does not type-check, or names an unknown stream.
            NotAuthorisedError: an input is not for us, or an output not ours.
            ConflictError: an output exists already.
        """
        inputs = await self.inputs(query)
        schemas = await self._threads.run(self._participant, Network(query, inputs).schemas)
        kept = await self.declared(query, schemas)
        planning = partial(planned, query, schemas, kept, inputs)
        tasks = await self._threads.run(self._participant, planning)
        outputs = tuple(task.output for task in tasks)
        entry = QueryEntry(query, QueryStatus.SETUP, self._peer, outputs)
        return StoredQuery(entry, inputs, tuple(kept))

    async def inputs(self, query: Query) -> dict[str, StreamEntry]:
        """The streams from elsewhere that it reads.

        Raises:
            NotFoundError: there is none of that name.
            NotAuthorisedError: one is not for us.
        """
        written = streams_written(query)
        entries: dict[str, StreamEntry] = {}
        for name in sorted(streams_read(query) - written):
            found = await find(self._catalog, STREAM, ObjectName.parse(name))
            if found is None:
                raise NotFoundError(f"{query.name} reads {name}, which is not in the catalog")
            if not may_read(found.value.stream, self._participant, found.name.participant):
                raise NotAuthorisedError(f"{name} may not be read by {self._participant}")
            entries[name] = found.value
            if found.value.is_revised:
                beside = revisions_entry(found.value)
                entries[beside.stream.name] = beside
        return entries

    async def declared(self, query: Query, schemas: Mapping[str, Schema]) -> frozenset[str]:
        """The outputs that were created as streams before: they must fit, and be unused.

        Raises:
            NotAuthorisedError: an output is not ours.
            ConflictError: one exists and cannot be taken over.
        """
        declared = set()
        for name in sorted(streams_written(query)):
            check_not_late(name)
            if ObjectName.parse(name).participant != self._participant:
                raise NotAuthorisedError(f"{query.name} may not produce {name}: not ours")
            found = await find(self._catalog, STREAM, ObjectName.parse(name))
            if found is None:
                continue
            self._check_replaceable(query.name, found.value, schemas[name])
            declared.add(name)
        return frozenset(declared)

    def _check_replaceable(self, query: str, entry: StreamEntry, schema: Schema) -> None:
        name = entry.stream.name
        if entry.stream.view is not None:
            raise ConflictError(
                f"{name} is a view of {entry.stream.view.stream}: take another name"
            )
        if entry.stream.query == query:
            return  # of a creation that a crash cut short
        if entry.stream.query:
            raise ConflictError(f"{name} is already produced by {entry.stream.query}")
        declared = [(field.name, field.type) for field in entry.schema.fields]
        if declared != [(field.name, field.type) for field in schema.fields]:
            raise ConflictError(f"{name} was created with other fields than the query gives it")
        kept = self._store.get(name)
        if (
            kept is None
            or kept.home is None
            or kept.log.boundary != BEGINNING
            or kept.home.pending_bytes
        ):
            raise ConflictError(f"{name} has been posted to; a query cannot take it over")

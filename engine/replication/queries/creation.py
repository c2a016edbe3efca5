from __future__ import annotations

from functools import partial

from medusa.dht.catalog import Catalog
from medusa.engine.functions.allowed import Functions
from medusa.engine.language.check import MAX_BOXES
from medusa.engine.language.folding import with_panes
from medusa.engine.language.tables import tables_read
from medusa.engine.objects.catalog_records import STREAM, find
from medusa.engine.objects.definitions import (
    ANY,
    QueryEntry,
    StreamEntry,
    check_members,
    check_not_late,
)
from medusa.engine.objects.query import Query, QueryStatus, streams_read, streams_written
from medusa.engine.objects.readers import Readers
from medusa.engine.objects.schema import BEGINNING, Schema
from medusa.engine.operators.typing import TypedBoxes
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.streams.revisions.columns import revisions_entry
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import TypedQuery
from medusa.overlay.errors import (
    ConflictError,
    InvalidInputError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.names import ObjectName
from medusa.overlay.node.node import Overlay


class Creation:
    """Checks a new query: its inputs, its outputs, and their definitions."""

    def __init__(
        self,
        overlay: Overlay,
        catalog: Catalog,
        store: StreamStore,
        readers: Readers,
        functions: Functions,
    ) -> None:
        self._participant = overlay.identity.participant
        self._peer = overlay.identity.peer_id.hex()
        self._threads = overlay.threads
        self._catalog = catalog
        self._store = store
        self._readers = readers
        self._functions = functions

    async def plan(
        self, query: Query, inputs: dict[str, StreamEntry], boxes: TypedBoxes
    ) -> tuple[StoredQuery, TypedQuery]:
        """Check the query; returns its stored form, and its tasks.

        Args:
            inputs: the result of `inputs`. boxes: the boxes that the reader of its text has typed.

        Raises:
            InvalidInputError: it does not type-check, names an unknown stream, or a function that
                is not allowed here.
            NotAuthorisedError: this participant may not read an input, or an output is not ours.
            ConflictError: an output exists already.
        """
        _check_readers(query)
        query = with_panes(self._functions.completed(query), MAX_BOXES)
        declared = await self._declared(query)
        network = Network(query, inputs, tuple(declared))
        typed = await self._threads.run(self._participant, partial(network.typed, boxes))
        for name, found in declared.items():
            self._check_replaceable(query.name, found, typed.schemas[name])
        outputs = tuple(task.output for task in typed.tasks)
        admitted = {name: each.stream.admitted for name, each in declared.items()}
        readers = {name: given for name, given in admitted.items() if ANY not in given}
        entry = QueryEntry(query, QueryStatus.SETUP, self._peer, outputs, readers=readers)
        stored = StoredQuery(entry, inputs, tuple(declared))
        for task in typed.tasks:  # a label may exceed its limits
            stored.network.entry_of(task.output, task.output_schema, self._peer)
        return stored, typed

    async def inputs(self, query: Query, found: dict[str, StreamEntry]) -> dict[str, StreamEntry]:
        """The streams of others that the query reads.

        Args:
            found: streams that the same call has found in the catalog; the others are added.

        Raises:
            NotFoundError: a stream does not exist.
            NotAuthorisedError: this participant may not read one.
        """
        written = streams_written(query)
        entries: dict[str, StreamEntry] = {}
        for name in sorted(streams_read(query) - written):
            if name not in found:
                published = await find(self._catalog, STREAM, ObjectName.parse(name))
                if published is None:
                    raise NotFoundError(f"{query.name} reads {name}, which is not in the catalog")
                found[name] = published.value
            entry = entries[name] = found[name]
            self._readers.check(entry.stream, self._participant)
            if name in tables_read(query) and not entry.stream.table:
                raise InvalidInputError(
                    f"{query.name} reads {name} as a table, and it is a stream: create it as a "
                    'table, by CREATE TABLE or table="1"'
                )
            if entry.is_revised:
                beside = revisions_entry(entry)
                entries[beside.stream.name] = beside
        return entries

    async def _declared(self, query: Query) -> dict[str, StreamEntry]:
        """The outputs that were created as streams before.

        Raises:
            NotAuthorisedError: an output is not ours.
        """
        declared: dict[str, StreamEntry] = {}
        for name in sorted(streams_written(query)):
            check_not_late(name)
            if ObjectName.parse(name).participant != self._participant:
                raise NotAuthorisedError(f"{query.name} may not produce {name}: not ours")
            found = await find(self._catalog, STREAM, ObjectName.parse(name))
            if found is not None:
                declared[name] = found.value
        return declared

    def _check_replaceable(self, query: str, entry: StreamEntry, schema: Schema) -> None:
        """Refuse a declared output that does not fit, or is used.

        Raises:
            ConflictError: it cannot be taken over.
        """
        name = entry.stream.name
        if entry.stream.view is not None:
            raise ConflictError(
                f"{name} is a view of {entry.stream.view.stream}: take another name"
            )
        if entry.stream.query == query:
            return  # a crash cut its creation short
        if entry.stream.query:
            raise ConflictError(f"{name} is already produced by {entry.stream.query}")
        if entry.stream.declassify:
            raise ConflictError(
                f"{name} was created with declassify: that is for the streams that are posted to"
            )
        declared = [(field.name, field.type) for field in entry.schema.fields]
        if declared != [(field.name, field.type) for field in schema.fields]:
            raise ConflictError(f"{name} was created with other fields than the query gives it")
        state = self._store.get(name)
        if (
            state is None
            or state.leader is None
            or state.log.boundary != BEGINNING
            or state.leader.pending_bytes
        ):
            raise ConflictError(f"{name} has been posted to; a query cannot take it over")


def _check_readers(query: Query) -> None:
    """
    Raises:
        InvalidInputError: the query names readers of a stream that it does not make, too many
            readers, or an invalid one.
    """
    made = streams_written(query)
    if len(dict(query.readers)) < len(query.readers):
        raise InvalidInputError(f"{query.name} names the readers of a stream twice")
    for name, readers in query.readers:
        if name not in made:
            raise InvalidInputError(f"{query.name} does not make {name[:256]!a}: it has no readers")
        check_members(name, readers)

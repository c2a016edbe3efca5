"""Calls of clients that list the objects, and look up the entries of a name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec
import trio

from medusa.dht.catalog import Catalog, Kind
from medusa.engine.api.messages import ListObjects, LookupObject, ObjectDescription, Objects
from medusa.engine.api.status import ASK_PEER_S
from medusa.engine.objects.availability import Availability, Mode
from medusa.engine.objects.catalog_records import (
    PRODUCER,
    QUERY,
    SCHEMA,
    STREAM,
    VIEW,
    Definition,
    find,
)
from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.status import PeerStatus, Status
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.concurrency import one_error
from medusa.overlay.errors import (
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
    UntrustedError,
)
from medusa.overlay.names import ObjectName, PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import Caller

LISTED_QUERIES: Final = 64
"""Queries of a listing whose availability is looked up, at once: each is a lookup in the DHT."""

LOOK_UP_S: Final = 2.0
"""How long a listing waits for these lookups, seconds: a person is waiting."""


@dataclass(frozen=True, eq=False)
class _Lookup:
    """Asks the catalog for the objects of one name, and collects its answers.

    Attributes:
        entries, private, unavailable: see `ObjectDescription`.
    """

    catalog: Catalog
    name: ObjectName
    entries: dict[str, str] = field(default_factory=dict)
    private: list[str] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)

    async def look_up(self, kind: str) -> None:
        """Look the name up under the requested kind, if the caller named one. If nothing of that
        kind exists, look it up under all others.

        Raises:
            UntrustedError, DecodeError: see `Catalog.lookup`.
        """
        looks = {
            SCHEMA.label: partial(self._look_up, SCHEMA),
            STREAM.label: partial(self._look_up, STREAM),
            QUERY.label: partial(self._look_up, QUERY),
        }
        if first := looks.pop(kind, None):
            await first()
        if kind not in self.entries:
            with one_error():
                async with trio.open_nursery() as nursery:
                    for look in looks.values():
                        nursery.start_soon(look)

    async def _look_up(self, kind: Kind[Definition]) -> None:
        try:
            published = await find(self.catalog, kind, self.name)
        except UntrustedError:
            raise
        except NotAuthorisedError:
            self.private.append(kind.label)
        except UnavailableError as error:
            self.unavailable[kind.label] = str(error)
        else:
            if published is not None:
                self.entries[kind.label] = _in_json(published.value)
                if isinstance(published.value, StreamEntry):
                    await self._add_parts(published.value)

    async def _add_parts(self, entry: StreamEntry) -> None:
        """A stream's producers, and its view if it is one."""
        if entry.stream.view is not None:
            self.entries[VIEW.label] = _in_json(entry.stream.view)
        try:
            producers = await self.catalog.lookup_all(PRODUCER, self.name)
        except UnavailableError as error:
            self.unavailable[PRODUCER.label] = str(error)
        else:
            peers = [each.value.worker or each.publisher.hex() for each in producers]
            self.entries[PRODUCER.label] = _in_json(peers)

    def absent(self) -> NotFoundError | UnavailableError:
        """The error for a name under which nothing was found."""
        text = f"nothing is known under {self.name}"
        if not self.unavailable:
            return NotFoundError(text)
        if self.catalog.is_in_doubt:
            return self.catalog.absent(text)
        return UnavailableError("; ".join(self.unavailable.values()))


def _in_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


@dataclass(frozen=True, eq=False)
class ListingCalls:
    """Calls that list the objects; `register` puts them on the peer's service."""

    overlay: Overlay
    catalog: Catalog
    queries: QueryHost

    def register(self) -> None:
        service = self.overlay.service
        # each may ask many peers: only our own clients may cause that
        service.unary("lookup_object", LookupObject, self.lookup_object, clients=True, peers=False)
        service.unary("list_objects", ListObjects, self.list_objects, clients=True, peers=False)

    async def lookup_object(
        self, _caller: Caller, request: LookupObject, _: bytes
    ) -> ObjectDescription:
        name = ObjectName.parse(request.name)
        lookup = _Lookup(self.catalog, name)
        await lookup.look_up(request.kind)
        if not lookup.entries and not lookup.private:
            raise lookup.absent()
        tasks = await self._tasks_of(name) if QUERY.label in lookup.entries else ()
        return ObjectDescription(
            str(name), lookup.entries, tasks, tuple(lookup.private), lookup.unavailable
        )

    async def _tasks_of(self, query: ObjectName) -> tuple[TaskStatus, ...]:
        if query.participant != self.overlay.identity.participant:
            return ()
        return tuple(task for task in await self._tasks_of_ours() if task.query == str(query))

    async def list_objects(self, _caller: Caller, _request: ListObjects, _: bytes) -> Objects:
        listing = await self.catalog.names()
        availability = await self._availability(listing.names.get(QUERY.label, ()))
        failing = {task.query: task.reason for task in await self._tasks_of_ours() if task.reason}
        return Objects(listing.names, listing.unreachable, availability, failing)

    async def _tasks_of_ours(self) -> list[TaskStatus]:
        """The tasks of all queries of our participant whose peers answer."""
        found = list(self.queries.task_status())

        async def ask(peer: PeerId) -> None:
            with suppress(MedusaError):
                connection = await self.overlay.connect(peer)
                said = await connection.call("peer_status", Status(), PeerStatus)
                found.extend(task for task in said.tasks if not task.owner)

        with trio.move_on_after(ASK_PEER_S):
            async with trio.open_nursery() as nursery:
                for peer in self.overlay.living_siblings():
                    nursery.start_soon(ask, peer)
        return found

    async def _availability(self, queries: Sequence[str]) -> dict[str, Availability]:
        found: dict[str, Availability] = {}

        async def look_up(name: str) -> None:
            with suppress(MedusaError):
                published = await find(self.catalog, QUERY, ObjectName.parse(name))
                if published and published.value.query.availability.mode is not Mode.NONE:
                    found[name] = published.value.query.availability

        with trio.move_on_after(LOOK_UP_S):
            async with trio.open_nursery() as nursery:
                for name in queries[:LISTED_QUERIES]:
                    nursery.start_soon(look_up, name)
        return found

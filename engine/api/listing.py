from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec
import trio

from dht.catalog import Catalog, Kind
from engine.api.messages import ListObjects, LookupObject, ObjectDescription, Objects
from engine.api.status import ASK_PEER_S
from engine.objects.availability import Availability, Mode
from engine.objects.catalog_records import PRODUCER, QUERY, SCHEMA, STREAM, VIEW, Definition, find
from engine.replication.queries import QueryHost
from engine.replication.status import PeerStatus, Status
from engine.tasks.status import TaskStatus
from overlay.errors import MedusaError, NotAuthorisedError, UnavailableError, UntrustedError
from overlay.names import ObjectName, PeerId
from overlay.node import Overlay
from overlay.rpc import Caller

LISTED_QUERIES: Final = 64
"""Queries of a listing whose availability is looked up, at once: each is a lookup in the DHT."""

LOOK_UP_S: Final = 2.0
"""How long a listing waits for that, seconds: a person is waiting."""


@dataclass(frozen=True, eq=False)
class ListingCalls:
    """Calls that tell which objects there are; `register` puts them on the peer's service."""

    overlay: Overlay
    catalog: Catalog
    queries: QueryHost

    def register(self) -> None:
        service = self.overlay.service
        # Each asks every peer: only our own clients may cause that.
        service.unary("lookup_object", LookupObject, self.lookup_object, clients=True, peers=False)
        service.unary("list_objects", ListObjects, self.list_objects, clients=True, peers=False)

    async def lookup_object(
        self, _caller: Caller, request: LookupObject, _: bytes
    ) -> ObjectDescription:
        name = ObjectName.parse(request.name)
        catalog = self.catalog
        entries: dict[str, str] = {}
        private: list[str] = []

        async def look_up(kind: Kind[Definition]) -> Definition | None:
            try:
                published = await find(catalog, kind, name)
            except UntrustedError:
                raise
            except NotAuthorisedError:
                private.append(kind.label)
                return None
            except UnavailableError:
                if not catalog.is_in_doubt:
                    raise
                return None
            if published is None:
                return None
            entries[kind.label] = msgspec.json.encode(published.value).decode()
            return published.value

        await look_up(SCHEMA)
        stream = await look_up(STREAM)
        await look_up(QUERY)
        if stream is not None:
            producers = await catalog.lookup_all(PRODUCER, name)
            peers = [each.value.worker or each.publisher.hex() for each in producers]
            entries[PRODUCER.label] = msgspec.json.encode(peers).decode()
            if stream.stream.view is not None:
                entries[VIEW.label] = msgspec.json.encode(stream.stream.view).decode()
        if not entries and not private:
            raise catalog.absent(f"nothing is known under {name}")
        tasks = await self._tasks_of(name) if QUERY.label in entries else ()
        return ObjectDescription(str(name), entries, tasks, tuple(private))

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

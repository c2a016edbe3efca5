"""Calls that tell: lookup_object, the lists of objects, and the status that the monitor draws."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec
import psutil
import trio

from dht.catalog import Kind
from engine.api.hearsay import NONSENSE, SNAPSHOT_BYTES, cut, fitted, for_members, heard
from engine.api.messages import ListObjects, LookupObject, ObjectDescription, Objects
from engine.api.replica_status import replica_status
from engine.engine import Engine
from engine.objects.availability import Availability, Mode
from engine.objects.kinds import PRODUCER, QUERY, SCHEMA, STREAM, VIEW, Definition, find
from engine.replication.status import ClientStatus, EventRecord, PeerStatus, Snapshot, Status
from engine.streams.kept import Role
from engine.streams.messages import StreamStatus
from engine.tasks.status import TaskStatus
from overlay.addresses import shown
from overlay.client_tokens import in_words
from overlay.clients import Clients, Session
from overlay.errors import (
    DecodeError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    UntrustedError,
)
from overlay.names import ObjectName, PeerId
from overlay.rpc import Caller

ASK_PEER_S: Final = 1.0
"""How long one peer's answer is waited for: a screen is drawn once a second."""

LISTED_QUERIES: Final = 64
"""Queries of a listing whose availability is looked up, at once: each is a question to the DHT."""

LOOK_UP_S: Final = 2.0
"""How long a listing waits for that, seconds: a person does."""

SHOWN_EVENTS: Final = 50
"""Events of one peer in a snapshot."""


class StatusCalls:
    """The handlers; `register` puts them on the peer's service."""

    def __init__(self, engine: Engine, clients: Clients) -> None:
        self._engine = engine
        self._clients = clients
        self._overlay = engine.overlay

    def register(self) -> None:
        service = self._overlay.service
        # One of these asks every peer: nobody else has a peer of ours do that.
        service.unary("lookup_object", LookupObject, self.lookup_object, clients=True, peers=False)
        service.unary("list_objects", ListObjects, self.list_objects, clients=True, peers=False)
        service.unary("status", Status, self.status, clients=True, peers=False)
        service.unary("peer_status", Status, self.peer_status)

    async def lookup_object(
        self, _caller: Caller, request: LookupObject, _: bytes
    ) -> ObjectDescription:
        name = ObjectName.parse(request.name)
        catalog = self._engine.catalog
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
            raise NotFoundError(f"nothing is known under {name}")
        tasks: list[TaskStatus] = []
        if QUERY.label in entries and name.participant == self._overlay.identity.participant:
            tasks = [task for task in await self._tasks_of_ours() if task.query == str(name)]
        return ObjectDescription(str(name), entries, tuple(tasks), tuple(private))

    async def list_objects(self, _caller: Caller, _request: ListObjects, _: bytes) -> Objects:
        listing = await self._engine.catalog.names()
        availability = await self._availability(listing.names.get(QUERY.label, ()))
        failing = {task.query: task.reason for task in await self._tasks_of_ours() if task.reason}
        return Objects(listing.names, listing.unreachable, availability, failing)

    async def _tasks_of_ours(self) -> list[TaskStatus]:
        """Of all queries of our participant whose peers answer."""
        found = list(self._engine.queries.task_status())

        async def ask(peer: PeerId) -> None:
            with suppress(MedusaError):
                connection = await self._overlay.connect(peer)
                said = await connection.call("peer_status", Status(), PeerStatus)
                found.extend(task for task in said.tasks if not task.owner)

        with trio.move_on_after(ASK_PEER_S):
            async with trio.open_nursery() as nursery:
                for peer in self._overlay.living_siblings():
                    nursery.start_soon(ask, peer)
        return found

    async def _availability(self, queries: Sequence[str]) -> dict[str, Availability]:
        found: dict[str, Availability] = {}

        async def look_up(name: str) -> None:
            with suppress(MedusaError):
                published = await find(self._engine.catalog, QUERY, ObjectName.parse(name))
                if published and published.value.query.availability.mode is not Mode.NONE:
                    found[name] = published.value.query.availability

        with trio.move_on_after(LOOK_UP_S):
            async with trio.open_nursery() as nursery:
                for name in queries[:LISTED_QUERIES]:
                    nursery.start_soon(look_up, name)
        return found

    async def status(self, _caller: Caller, request: Status, _: bytes) -> Snapshot:
        peers: dict[PeerId, PeerStatus] = {}

        async def ask(peer: PeerId) -> None:
            if peer == self._overlay.identity.peer_id:
                peers[peer] = self._own_status()
                return
            try:
                with trio.fail_after(ASK_PEER_S):
                    connection = await self._overlay.connect(peer)
                    said = await connection.call("peer_status", Status(), PeerStatus)
                who = connection.remote.participant
                known, own = self._known(peer, who), who == self._overlay.identity.participant
                peers[peer] = heard(said, known, own=own)
            except DecodeError:
                peers[peer] = msgspec.structs.replace(self._known(peer), state=NONSENSE)
            except (MedusaError, trio.TooSlowError):
                peers[peer] = self._known(peer)

        if request.federation:
            await self._of_all_peers(ask)
        else:
            await ask(self._overlay.identity.peer_id)
        return Snapshot(
            self._overlay.clock(),
            self._overlay.identity.peer_id.hex(),
            self._overlay.membership.name,
            fitted(
                [
                    msgspec.structs.replace(peer, health=self._health(peer_id))
                    for peer_id, peer in sorted(
                        peers.items(), key=lambda both: (both[1].participant, both[1].peer)
                    )
                ]
            ),
            self._overlay.membership.federation,
        )

    async def peer_status(self, caller: Caller, _request: Status, _: bytes) -> PeerStatus:
        """Load and streams are for all members; what happened here is for our own participant."""
        status = self._own_status()
        if caller.participant != self._overlay.identity.participant:
            who = caller.participant
            status = for_members(status, partial(self._may_read, who), partial(self._may_know, who))
        return cut(status, SNAPSHOT_BYTES)

    def _may_read(self, participant: str, stream: str) -> bool:
        kept = self._engine.rendition(stream) or self._engine.store.get(stream)
        return kept is not None and self._engine.readers.may_read(kept.entry.stream, participant)

    def _may_know(self, participant: str, query: str) -> bool:
        network = self._engine.network(query)
        return network is not None and self._engine.readers.may_know(
            query, network.policies, participant
        )

    async def _of_all_peers(self, ask: Callable[[PeerId], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            for record in self._overlay.peers.all():
                nursery.start_soon(ask, record.peer_id)

    def _own_status(self) -> PeerStatus:
        engine, identity = self._engine, self._overlay.identity
        tasks = engine.queries.task_status() + engine.assignments.task_status()
        host, port = self._overlay.address
        streams, datagrams = self._overlay.transport.traffic, self._overlay.datagrams.counters
        return PeerStatus(
            participant=identity.participant,
            peer=identity.peer_id.hex(),
            address=f"{host}:{port}",
            state="running",
            spark=engine.executor.state,
            uptime_s=trio.current_time() - engine.started_at,
            load=sum(task.load for task in tasks if not task.worker),
            capacity=engine.config.capacity_cores,
            memory_bytes=resident_bytes(),
            streams=tuple(self._stream_status(each) for each in engine.store.status()),
            tasks=tasks,
            events=tuple(
                EventRecord(event.at, event.level, event.text, event.times, event.cause)
                for event in self._overlay.events.recent()[-SHOWN_EVENTS:]
            ),
            links=tuple(
                connection.remote.peer_id.hex()
                for connection in self._overlay.transport.connections()
            ),
            sent_bytes=streams.sent + datagrams.sent_bytes,
            received_bytes=streams.received + datagrams.received_bytes,
            replicas=replica_status(engine),
            clients=tuple(map(_client_status, self._clients.connected())),
            warnings=self._overlay.warnings(),
        )

    def _stream_status(self, status: StreamStatus) -> StreamStatus:
        """As the store has it, with what it does not know: where the stream comes from."""
        if status.role != Role.MIRROR:
            return status
        producer = self._engine.directory.read_from(status.name)
        return msgspec.structs.replace(status, producer=(producer or b"").hex())

    def _health(self, peer: PeerId) -> str:
        """What our failure detector believes of a peer."""
        return self._overlay.gossip.health(peer).value

    def _known(self, peer: PeerId, participant: str = "") -> PeerStatus:
        """The status of a peer that did not answer, from the peer table. participant: as its
        connection has it."""
        record = self._overlay.peers.get(peer)
        host, port = record.addresses[0] if record and record.addresses else ("?", 0)
        participant = participant or (record.participant if record else "?")
        return PeerStatus(participant, peer.hex(), f"{host}:{port}", "unreachable")


def _client_status(session: Session) -> ClientStatus:
    token = session.token
    return ClientStatus(token.name, in_words(token.scopes), shown(session.address), session.since)


def resident_bytes() -> int:
    """Resident memory of this process, bytes (the JVM is another process)."""
    return int(psutil.Process().memory_info().rss)

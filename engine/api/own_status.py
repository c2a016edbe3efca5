from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import psutil
import trio

from engine.api.replica_status import replica_status
from engine.replication.directory import Directory
from engine.replication.moves.assignments import Assignments
from engine.replication.queries import QueryHost
from engine.replication.replicas.primaries import Primaries
from engine.replication.replicas.standbys import Standbys
from engine.replication.status import ClientStatus, EventRecord, PeerStatus, ReplicaStatus
from engine.streams.messages import StreamStatus
from engine.streams.store import StreamStore
from engine.streams.stream_state import Role
from engine.tasks.execution import Executor
from engine.tasks.status import TaskStatus
from overlay.addresses import shown
from overlay.client_tokens import in_words
from overlay.clients import Clients, Session
from overlay.node import Overlay

SHOWN_EVENTS: Final = 50
"""Events of one peer in a snapshot."""


@dataclass(frozen=True)
class OwnTasks:
    """The parts of this peer that have tasks, and their executor."""

    queries: QueryHost
    assignments: Assignments
    primaries: Primaries
    standbys: Standbys
    executor: Executor

    def status(self) -> tuple[TaskStatus, ...]:
        """The tasks of our queries, then those that run here for other peers."""
        return self.queries.task_status() + self.assignments.task_status()

    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """The queries here that have a standby."""
        return replica_status(self.queries, self.primaries, self.standbys)


class OwnStatus:
    """The status of this peer; `now` asks its parts."""

    def __init__(
        self,
        *,
        overlay: Overlay,
        clients: Clients,
        store: StreamStore,
        directory: Directory,
        tasks: OwnTasks,
        capacity_cores: float,
        started_at: float,
    ) -> None:
        self._overlay = overlay
        self._clients = clients
        self._store = store
        self._directory = directory
        self._tasks = tasks
        self._capacity_cores = capacity_cores
        self._started_at = started_at

    def now(self) -> PeerStatus:
        identity = self._overlay.identity
        tasks = self._tasks.status()
        host, port = self._overlay.address
        streams, datagrams = self._overlay.transport.traffic, self._overlay.datagrams.counters
        return PeerStatus(
            participant=identity.participant,
            peer=identity.peer_id.hex(),
            address=f"{host}:{port}",
            state="running",
            spark=self._tasks.executor.state,
            uptime_s=trio.current_time() - self._started_at,
            load=sum(task.load for task in tasks if not task.worker),
            capacity=self._capacity_cores,
            memory_bytes=resident_bytes(),
            streams=tuple(self._stream_status(each) for each in self._store.status()),
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
            replicas=self._tasks.replicas(),
            clients=tuple(map(_client_status, self._clients.connected())),
            warnings=self._overlay.warnings(),
        )

    def _stream_status(self, status: StreamStatus) -> StreamStatus:
        """The store's status, with the producer, which the store does not know."""
        if status.role != Role.MIRROR:
            return status
        producer = self._directory.read_from(status.name)
        return msgspec.structs.replace(status, producer=(producer or b"").hex())


def _client_status(session: Session) -> ClientStatus:
    token = session.token
    return ClientStatus(token.name, in_words(token.scopes), shown(session.address), session.since)


def resident_bytes() -> int:
    """Resident memory of this process, bytes (the JVM is another process)."""
    return int(psutil.Process().memory_info().rss)

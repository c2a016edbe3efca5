from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec
import psutil
import trio

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.status import (
    ClientStatus,
    EventRecord,
    PeerStatus,
    ReplicaStatus,
)
from medusa.engine.replication.records.term import Term
from medusa.engine.replication.replicas.primaries import Primaries
from medusa.engine.replication.replicas.secondary_state import SecondaryState
from medusa.engine.replication.replicas.standby import Standby
from medusa.engine.replication.replicas.standbys import Standbys
from medusa.engine.streams.messages import REFUSES_POSTS, STANDS_STILL, StreamStatus
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role
from medusa.engine.tasks.execution import Executor
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.addresses import shown
from medusa.overlay.client_tokens import in_words
from medusa.overlay.clients import Clients, Session
from medusa.overlay.node.node import Overlay
from medusa.overlay.troubles import Reason, Trouble

SHOWN_EVENTS: Final = 50
"""Events of one peer in a status: a screen."""


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


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnStatus:
    """The status of this peer; `now` asks its parts."""

    overlay: Overlay
    clients: Clients
    store: StreamStore
    directory: Directory
    tasks: OwnTasks
    capacity_cores: float
    started_at: float

    def now(self) -> PeerStatus:
        identity = self.overlay.identity
        tasks, troubles = self.tasks.status(), self.overlay.troubles.now()
        host, port = self.overlay.address
        streams, datagrams = self.overlay.transport.traffic, self.overlay.datagrams.counters
        return PeerStatus(
            participant=identity.participant,
            peer=identity.peer_id.hex(),
            address=f"{host}:{port}",
            state="running",
            spark=self.tasks.executor.state,
            uptime_s=trio.current_time() - self.started_at,
            load=sum(task.load for task in tasks if not task.worker),
            capacity=self.capacity_cores,
            memory_bytes=resident_bytes(),
            streams=tuple(self._stream_status(each, troubles) for each in self.store.status()),
            tasks=tasks,
            events=tuple(
                EventRecord(event.at, event.level, event.text, event.times, event.cause)
                for event in self.overlay.events.recent()[-SHOWN_EVENTS:]
            ),
            links=tuple(
                connection.remote.peer_id.hex()
                for connection in self.overlay.transport.connections()
            ),
            sent_bytes=streams.sent + datagrams.sent_bytes,
            received_bytes=streams.received + datagrams.received_bytes,
            replicas=self.tasks.replicas(),
            clients=tuple(map(_client_status, self.clients.connected())),
            troubles=troubles,
        )

    def _stream_status(self, status: StreamStatus, troubles: Iterable[Trouble]) -> StreamStatus:
        """The store's status, completed by facts that the store does not have: the producer of a
        copy, and whether a source takes posts."""
        if status.role == Role.SOURCE and any(t.stops_posts_to(status.name) for t in troubles):
            return msgspec.structs.replace(status, state=REFUSES_POSTS)
        if any(t.reason is Reason.STANDS_STILL and t.thing == status.name for t in troubles):
            return msgspec.structs.replace(status, state=STANDS_STILL)
        if status.role != Role.FOLLOWER:
            return status
        producer = self.directory.read_from(status.name)
        return msgspec.structs.replace(status, producer=(producer or b"").hex())


def _client_status(session: Session) -> ClientStatus:
    token = session.token
    return ClientStatus(token.name, in_words(token.scopes), shown(session.address), session.since)


def resident_bytes() -> int:
    """Resident memory of this process, bytes (the JVM is another process)."""
    return int(psutil.Process().memory_info().rss)


UNKNOWN: Final = -1
"""`behind_us` if the secondary keeps no outputs, or has not reported its boundaries."""


def replica_status(
    queries: QueryHost, primaries: Primaries, standbys: Standbys
) -> tuple[ReplicaStatus, ...]:
    """The queries of which this peer is primary, then those of which it is secondary."""
    return (
        *(
            _of_primary(running, primaries.secondary_state(running.name))
            for running in queries.replicated()
        ),
        *(_of_standby(standby) for standby in standbys.all()),
    )


def _of_primary(running: QueryCopy, secondary_state: SecondaryState) -> ReplicaStatus:
    gaps = [
        task.boundary - secondary_state.boundaries[task.name]
        for task in running.tasks
        if BEGINNING < task.boundary < END and task.name in secondary_state.boundaries
    ]
    behind_us = max(0, *gaps) if gaps else UNKNOWN
    stored, state = running.stored, _state(running, secondary_state)
    return _status(
        running.name, "primary", stored.availability, stored.term, behind_us=behind_us, state=state
    )


def _of_standby(standby: Standby) -> ReplicaStatus:
    behind_us = standby.behind_us if standby.boundaries else UNKNOWN
    availability, term = standby.stored.availability, standby.term
    return _status(
        standby.name, "secondary", availability, term, behind_us=behind_us, state="standing by"
    )


def _status(
    query: str, role: str, availability: Availability, term: Term, *, behind_us: int, state: str
) -> ReplicaStatus:
    return ReplicaStatus(
        query,
        role,
        availability.mode,
        availability.recovery,
        term.number,
        term.holder.hex(),
        term.secondary.hex(),
        behind_us,
        state,
    )


def _state(running: QueryCopy, secondary_state: SecondaryState) -> str:
    availability = running.stored.availability
    if not running.stored.term.secondary:
        return "alone"
    if secondary_state.sent is None:
        ready = False
    elif availability.mode in {Mode.UPSTREAM_BACKUP, Mode.AMNESIA}:
        ready = True
    elif (availability.mode, availability.recovery) == (Mode.PASSIVE_STANDBY, Recovery.PRECISE):
        ready = secondary_state.caught_up
    else:
        ready = all(
            secondary_state.boundaries.get(task.name, BEGINNING) > BEGINNING
            or task.boundary == BEGINNING
            for task in running.tasks
        )
    return "caught up" if ready else "catching up"

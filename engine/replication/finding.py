from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from medusa.engine.replication.leaders.leaders import Leaders
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.replicas.standbys import Standbys
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import StreamState
from medusa.engine.tasks.network import Network


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Finds this peer's copy of a stream or query: as primary, secondary, worker or voter."""

    store: StreamStore
    queries: QueryHost
    standbys: Standbys
    assignments: Assignments
    leaders: Leaders

    def may_come_to_produce(self, stream: str) -> bool:
        """Whether this peer is a voter of the source stream, or the secondary of the query that
        makes the stream, or is about to resume that query."""
        if self.leaders.get(stream) is not None or self.leaders.abstains(stream):
            return True
        return any(stream in stored.entry.outputs for stored in self._waiting())

    def network(self, query: str) -> Network | None:
        """The network of a query, if this peer has a part in it."""
        for running in self.queries.all():
            if running.name == query:
                return running.stored.network
        for stored in self._waiting():
            if stored.name == query:
                return stored.network
        for assigned in self.assignments.all():
            if assigned.task.query == query:
                return assigned.network
        return None

    def _waiting(self) -> Iterator[StoredQuery]:
        """The queries that it may take over, then those of the last run that it may resume."""
        for standby in self.standbys.all():
            yield standby.stored
        yield from self.queries.pending.values()

    def rendition(self, stream: str) -> StreamState | None:
        """The log of a stream that other peers can read here: this peer serves it, or computes it
        beside a primary."""
        return self.store.serving(stream) or self.standbys.rendition(stream)

    def version(self, state: StreamState) -> int:
        """The number of this peer's version of a stream: it changes when a version of an input
        changes."""
        queries = [running.stored for running in self.queries.all()]
        queries += [standby.stored for standby in self.standbys.all()]
        made = next((stored for stored in queries if state.name in stored.entry.outputs), None)
        if made is None:
            return state.version
        read = sum(each.version for each in self.store.all() if each.name in made.inputs)
        return made.entry.query.version + read

"""Keeps the labels of this peer's streams in step with the readers of their inputs.

When a stream that is read here is altered, or relabelled, the streams that are made from it here
get new labels. They are announced, and their own readers follow. So an owner's decision passes
along every chain of streams, from peer to peer. It may remove

* a subscriber: the peer that serves it ends the call, and keeps no more tuples for it,
* the worker of a task of ours: we take the task home,
* the owner of a task that we run: we stop, and return it,
* us: we receive no more of the stream; the streams that we make from it stop there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import trio
from msgspec.structs import replace

from medusa.engine.objects.definitions import ANY, CONTRACT, StreamEntry
from medusa.engine.objects.readers import Readers
from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.moves.checks import check_worker
from medusa.engine.replication.moves.guest import Guest
from medusa.engine.replication.moves.mover import Mover
from medusa.engine.replication.moves.returning import Returning
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.replicas.standbys import Standbys
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.engine.streams.store.subscriptions import Subscriptions, consumer_of
from medusa.engine.tasks.network import Network
from medusa.overlay.concurrency import Bell, next_beat
from medusa.overlay.errors import MedusaError, NotAuthorisedError
from medusa.overlay.events import Events
from medusa.overlay.names import ObjectName

AGAIN_S: Final = 5.0
"""Seconds before a failed change is tried again, and between two checks without a message."""


Latest = Mapping[str, StreamEntry]
"""The streams here with their newest definitions, by name."""

Looks = Iterator[Callable[[], Awaitable[None]]]
"""Functions that each relabel one query, task or view; one may fail without the others."""


@dataclass(frozen=True, kw_only=True)
class QueryLabels:
    """The labels of the outputs of this peer's queries, and of its standbys."""

    queries: QueryHost
    standbys: Standbys
    mover: Mover
    announcements: Announcements
    readers: Readers
    events: Events

    def looks(self, latest: Latest) -> Looks:
        for running in self.queries.all():
            yield partial(self._look_at_query, running, latest)
        for standby in self.standbys.all():
            inputs = _known(standby.stored.inputs, latest)
            yield partial(standby.relabel, replace(standby.stored, inputs=inputs))

    async def _look_at_query(self, running: QueryCopy, latest: Latest) -> None:
        inputs = _known(running.stored.inputs, latest)
        other = inputs != running.stored.inputs
        if other:
            self.queries.write(running, inputs=inputs)
        for placed in running.tasks:
            await self._look_at_worker(placed, running.stored.network)
        if other:
            made = running.entries(running.stored, running.plan)
            # published first: a peer that receives the change here looks it up
            await self.announcements.announce_altered(made)
            await running.define_outputs(running.stored, running.plan)
            self.queries.publish_soon(running)

    async def _look_at_worker(self, placed: Copy, network: Network) -> None:
        if not placed.current.term.holder or placed.moving.locked():
            return
        worker = self.mover.workers.participant_of(placed.current.term.holder)
        try:
            check_worker(placed.task, network, worker, self.readers)
        except NotAuthorisedError as error:
            self.events.note("warning", f"takes {placed.name} back: {error}")
            await self.mover.take_back(placed.name)


@dataclass(frozen=True)
class AssignedLabels:
    """The labels of the outputs that this peer computes for others."""

    assignments: Assignments
    returning: Returning
    readers: Readers
    participant: str

    def looks(self, latest: Latest) -> Looks:
        for assigned in self.assignments.all():
            yield partial(self._look_at, assigned, latest)

    async def _look_at(self, assigned: Guest, latest: Latest) -> None:
        inputs = _known(assigned.inputs_now, latest)
        if inputs != assigned.inputs_now:
            await self.assignments.relabel(assigned, inputs)
        owner = ObjectName.parse(assigned.task.name).participant
        for participant in (owner, self.participant):
            try:
                check_worker(assigned.task, assigned.network, participant, self.readers)
            except NotAuthorisedError as error:
                self.returning.refuse(assigned, str(error))


class Relabelling:
    """Relabels the streams of one peer; `maintain` runs it.

    Args:
        made: relabel the streams that are made here, except views.
    """

    def __init__(
        self,
        *,
        store: StreamStore,
        subscriptions: Subscriptions,
        readers: Readers,
        announcements: Announcements,
        events: Events,
        made: Sequence[QueryLabels | AssignedLabels],
    ) -> None:
        self._store = store
        self._subscriptions = subscriptions
        self._readers = readers
        self._announcements = announcements
        self._events = events
        self._made = made
        self._changed = Bell()
        store.defined.add(self.defined)
        readers.changed.add(self.contracts_changed)

    def defined(self, _state: StreamState) -> None:
        """Note that a stream here has a new definition."""
        self._changed.ring()

    def contracts_changed(self) -> None:
        """Note that a contract has begun or ended: some streams have other readers."""
        for state in self._store.all():
            if any(CONTRACT in policy.readers for policy in state.entry.stream.policies):
                state.define(state.entry)
        self._changed.ring()

    async def maintain(self) -> None:
        """Relabel streams after each change, for ever."""
        while True:
            self._changed.clear()
            await self._try(self.look)
            with trio.move_on_at(next_beat(AGAIN_S)):
                await self._changed.wait()

    async def look(self) -> None:
        """Compare all streams that are made here with their inputs. One pass relabels the streams
        next to a change; the next pass relabels the streams made from these."""
        latest: dict[str, StreamEntry] = {}
        for state in self._store.all():
            known = latest.setdefault(state.name, state.entry)
            if state.entry.stream.edition > known.stream.edition:
                latest[state.name] = state.entry
        for made in self._made:
            for look in made.looks(latest):
                await self._try(look)
        for state in self._store.all():
            if state.role is Role.VIEW:
                await self._try(partial(self._look_at_view, state, latest))
            self._release(state)

    async def _try(self, look: Callable[[], Awaitable[None]]) -> None:
        try:
            await look()
        except MedusaError as error:
            self._events.note("warning", f"could not tell readers of a change: {error}")

    async def _look_at_view(self, state: StreamState, latest: Latest) -> None:
        stream = state.entry.stream
        assert stream.view is not None, "a view's stream says what it shows"
        source = latest.get(stream.view.stream)
        if source is None:
            return
        changed = replace(
            stream,
            label=source.stream.policies,
            readers=(ANY,),  # without a label, a view has its stream's readers
            edition=source.stream.edition,
        )
        if changed == stream:
            return
        entry = replace(state.entry, stream=changed)
        await self._announcements.announce_altered([entry])
        await self._store.define(state, entry)

    def _release(self, state: StreamState) -> None:
        """Drop the leases of subscribers that may not read the stream any more."""
        if state.role is Role.FOLLOWER:
            return
        for lease in self._subscriptions.of(state.name):
            if not self._readers.may_read(state.entry.stream, lease.holder):
                why = f"{lease.holder} may not read it any more"
                consumer = consumer_of(lease.subscriber)
                self._subscriptions.release(state, consumer, lease.holder, why)


def _known(inputs: Mapping[str, StreamEntry], latest: Latest) -> dict[str, StreamEntry]:
    """The inputs with their present readers; other attributes stay as they were at the start. Args:
    latest: the definitions from logs here.
    """
    return {name: _with_readers_of(entry, latest.get(name)) for name, entry in inputs.items()}


def _with_readers_of(entry: StreamEntry, latest: StreamEntry | None) -> StreamEntry:
    if latest is None or latest.stream.edition < entry.stream.edition:
        return entry
    now = latest.stream
    stream = replace(
        entry.stream,
        readers=now.readers,
        label=now.label,
        declassify=now.declassify,
        edition=now.edition,
    )
    return replace(entry, stream=stream)

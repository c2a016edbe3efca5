"""Spares an owner the inputs of a task that runs at the leader of these inputs.

The worker of a task may be the leader of all its inputs, and no other peer may have them. Then the
owner's copies of them save nothing: while the worker lives it computes, and while it is away no row
comes to the owner either.

So those copies are dormant (`following.dormancy`): their leader keeps for the owner the rows that
it needs to take the task home, and sends none. The owner follows the inputs if it needs them
itself:

* for a bill: it pays by its own count;
* for a secondary, which would go on from them;
* for tentative results: within the query's bound a fork here makes them of the inputs;
* for other tasks and queries here that read them;
* while the task moves, or its worker does not report the boundaries of its inputs.
"""

from __future__ import annotations

from typing import Final

import trio

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.definitions import StreamDefinition, base_of
from medusa.engine.objects.schema import END
from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.placements import Placement
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.overlay.names import NO_PEER, PeerId

REPORT_S: Final = 10.0
"""How old a worker's last report may be, seconds, so that the owner does without the task's inputs;
a worker reports every `Timing.confirm_s`."""


class Sparing:
    """Lets one peer do without the inputs of tasks whose workers have them."""

    def __init__(self, queries: QueryHost) -> None:
        self._queries = queries
        self._followers = queries.shop.followers
        queries.changed.add(self._changed)

    def look_at_all(self) -> None:
        """`look` at every query."""
        for running in self._queries.all():
            self.look(running)

    def look(self, running: QueryCopy) -> None:
        """Find out which inputs of a query are not needed here now."""
        before = [copy for copy in running.tasks if copy.spared.value]
        spared = [copy for copy in running.tasks if is_spared(copy, running.stored)]
        if not before and not spared:
            return
        for copy in running.tasks:
            if copy.spared.value is not (copy in spared):
                copy.spared.set(copy in spared)
        for name in running.stored.inputs:
            readers = [copy for copy in running.tasks if name in copy.inputs]
            source = _common_worker(readers)
            needed = min((copy.runner.inputs.needed(name) for copy in readers), default=END)
            self._followers.spare(running.logs[name].key, running.name, source, needed)

    def _changed(self, task: str, _before: Placement, _now: Placement) -> None:
        copy = self._queries.find(task)[1]
        copy.reading = None
        self.look(self._queries.get(copy.task.query))


def is_spared(copy: Copy, stored: StoredQuery) -> bool:
    """Whether the owner of a task can do without its inputs. stored: the task's query."""
    placement, availability = copy.current, stored.availability
    worker = placement.term.holder
    if not worker or copy.moving.locked() or not copy.running or copy.boundary == END:
        return False
    if placement.owed.contract or placement.deal.contract:
        return False
    if availability.mode is not Mode.NONE or availability.bound_s or copy.task.of is not None:
        return False
    if copy.reading is None or trio.current_time() - copy.reading.at > REPORT_S:
        return False
    return all(_only_at(state.entry.stream, worker) for state in copy.inputs.values())


def _only_at(stream: StreamDefinition, peer: PeerId) -> bool:
    """Whether only that peer can have the stream."""
    is_source = not stream.query and stream.view is None and base_of(stream.name) == stream.name
    return is_source and not stream.k_safety and stream.leader == peer.hex()


def _common_worker(readers: list[Copy]) -> PeerId:
    """The worker of all these tasks, if they are spared; else NO_PEER."""
    workers = {copy.current.term.holder for copy in readers if copy.spared.value}
    every = bool(readers) and all(copy.spared.value for copy in readers)
    return workers.pop() if every and len(workers) == 1 else NO_PEER

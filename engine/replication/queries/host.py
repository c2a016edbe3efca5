from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.query import QueryStatus
from medusa.engine.replication.copies.copy import Copy, Workshop
from medusa.engine.replication.copies.query_copy import QueryCopy
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.records.placements import Placement, replaced
from medusa.engine.replication.records.query_record import QueryRecord
from medusa.engine.replication.records.stored_query import QueryFiles, StoredQuery, written
from medusa.engine.replication.records.term import Term
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.errors import (
    ConflictError,
    NotFoundError,
    StorageError,
)
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import NO_PEER

_DONE: Final = {QueryStatus.RUNNING: "started", QueryStatus.STOPPED: "stopped"}


class QueryHost:
    """The queries whose primary this peer is: their copies, and the decisions about them. Args:
    folder: has one JSON file per query.

    Attributes:
        readers: decides which participants may read a stream.
        files: the files of these queries, and of those whose secondary this peer is.
        announcements: publishes them. shop: makes copies of their tasks.
        changed: called with (task, before, now) when a new placement of a task takes effect.
        appointed: called when a query here has another term.
        pending: queries of the last run whose secondary may have taken over, or is this peer.
        leaving: queries that another peer has by now, until this peer has removed everything of
            them. unfit: queries of the last run that cannot run any more, each with the reason: a
            limit is new.
    """

    def __init__(self, folder: Path, shop: Workshop, announcements: Announcements) -> None:
        self.readers = shop.readers
        self.files = QueryFiles(folder)
        self.announcements = announcements
        self.shop = shop
        self._peer = shop.here
        self._clock = shop.overlay.clock
        self._store = shop.store
        self._directory = shop.directory
        self._followers = shop.followers
        self._executor = shop.executor
        self._events = shop.overlay.events
        self._nursery = shop.nursery
        self._queries: dict[str, QueryCopy] = {}
        self.changed: Listeners[[str, Placement, Placement]] = Listeners()
        self.appointed: Listeners[[]] = Listeners()
        self.pending: dict[str, StoredQuery] = {}
        self.leaving: set[str] = set()
        self.unfit: dict[str, tuple[StoredQuery, str]] = {}

    # -- over restarts and failovers; see also `Resuming` -------------------------------------

    def take_over(self, running: QueryCopy) -> None:
        """Take a query that another peer had, or may have had: run it first, then publish it."""
        running.taken_over_at = trio.current_time()
        self.admit(running)
        if running.stored.entry.status is QueryStatus.RUNNING:
            self.start(running)
        else:
            with suppress(StorageError):  # the query's workers get the same answer when they ask
                self.place_back(running)
        self.publish_soon(running)
        self.appointed.notify()

    async def take_up(self, running: QueryCopy) -> None:
        """Resume a query of the last run."""
        if running.stored.availability.mode is not Mode.NONE:
            # a restart forgets which peer this one has parted from
            running.parted_at = trio.current_time()
        self.admit(running)
        # A crash may have come between the file and the catalog; publishing again changes nothing.
        try:
            await running.publish(self.announcements)
        except ConflictError:  # another peer took it over, and its term will arrive
            self.publish_soon(running)
        if running.stored.entry.status is QueryStatus.RUNNING:
            self.start(running)
        else:
            await self.call_back(running)  # a crash may have prevented it

    def admit(self, running: QueryCopy) -> None:
        """Add the query, so that it can be found here by its name."""
        self._queries[running.name] = running
        for task in running.tasks:
            self._directory.believe(Term(task.name, running.stored.term.number))

    def forget(self, running: QueryCopy) -> None:
        """Remove a stopped query, so that it can no longer be found here."""
        del self._queries[running.name]

    # -- look-ups ------------------------------------------------------------------------------

    def named(self, name: str) -> QueryCopy | None:
        """The query of that name, if this peer is its primary."""
        return self._queries.get(name)

    def get(self, name: str) -> QueryCopy:
        """The query, whose primary this peer is. Raises: NotFoundError."""
        if (running := self._queries.get(name)) is None:
            raise NotFoundError(f"{name} is not kept by this peer")
        return running

    def occupied(self, name: str) -> bool:
        """Whether this peer has, or may have, the query, or still has some of its files."""
        return name in self._queries or name in self.leaving

    def all(self) -> list[QueryCopy]:
        return list(self._queries.values())

    def replicated(self) -> list[QueryCopy]:
        """The queries that ask for a secondary, except pending ones."""
        return [
            running
            for running in self._queries.values()
            if running.stored.availability.mode is not Mode.NONE
            and running.name not in self.pending
        ]

    def consumers(self, stream: str) -> list[QueryEntry]:
        """The queries here that read `stream`."""
        return [
            running.stored.entry
            for running in self._queries.values()
            if stream in running.stored.inputs
        ]

    def task_status(self) -> tuple[TaskStatus, ...]:
        refusals = {state.name: state.refusal for state in self._store.all() if state.refusal}
        return tuple(
            _refused(task.status(stopped=not running.running), refusals)
            for running in self._queries.values()
            for task in running.tasks
        )

    def tasks(self) -> list[Copy]:
        """Every task of the queries that run."""
        return [
            task for running in self._queries.values() if running.running for task in running.tasks
        ]

    def find(self, task: str) -> tuple[StoredQuery, Copy]:
        """The task of that name, and the query that it is part of.

        Raises:
            NotFoundError: no query of this peer has it.
        """
        for running in self._queries.values():
            for placed in running.tasks:
                if placed.name == task:
                    return running.stored, placed
        raise NotFoundError(f"{task} is no task of a query of this peer: ask the query's peer")

    # -- decisions about them -------------------------------------------------------------------

    @failpoint(Failpoint.QUERY_PLACE)
    def place(self, placed: Copy, placement: Placement) -> None:
        """Store the next worker of a task; the placement takes effect then. Blocking.

        Raises:
            NotFoundError: its query is not ours any more.
            StorageError: the disk does not take it; nothing has changed.
        """
        running = self.get(placed.task.query)
        placements = replaced(placed.placements, placement)
        before = placed.current
        stored = running.stored.placed(placed.name, placements)
        self.write(running, written_placements=stored.written_placements)
        placed.placements = placements
        placed.keep_for_consumers()
        self.changed.notify(placed.name, before, placement)

    @failpoint(Failpoint.QUERY_WRITE)
    def write(self, running: QueryCopy, **changes: object) -> None:
        """Store a change of a query; the change takes effect then. Blocking. Raises: NotFoundError:
        the query is not ours any more, and a file would bring it back. StorageError: the disk does
        not take it; nothing has changed.
        """
        if self._queries.get(running.name) is not running:
            raise NotFoundError(f"{running.name} is not kept by this peer any more")
        stored = msgspec.structs.replace(running.stored, **changes)
        running.record.write(stored)

    def appoint(self, running: QueryCopy, term: Term) -> None:
        """Store another term, then announce it. Blocking. Raises: as `write`."""
        parted = tuple(peer for peer in running.stored.parted if peer != term.secondary.hex())
        self.write(running, written_term=written(term), parted=parted)
        self.publish_soon(running)
        self.appointed.notify()

    def publish_soon(self, running: QueryCopy) -> None:
        """`QueryCopy.publish`, in the background, until it is done."""
        self.announcements.publish_soon(running.name, partial(running.publish, self.announcements))

    async def name_worker(self, placed: Copy) -> None:
        """Publish the worker of a task.

        Raises:
            NotFoundError: the task's query is not ours any more. MedusaError: the worker cannot be
                published.
        """
        running = self.get(placed.task.query)
        await running.publish_term(placed, self.announcements)

    # -- their logs and tasks -----------------------------------------------------------------

    async def prepare(
        self, stored: StoredQuery, tasks: tuple[Task, ...] | None = None
    ) -> QueryCopy:
        """A copy of the query whose tasks can be started; see `QueryCopy.prepare`.

        Args:
            tasks: the tasks of the query, if it has just been planned.

        Raises:
            InvalidInputError: it does not type-check.
        """
        participant = self.shop.overlay.identity.participant
        if tasks is None:
            tasks = await self.shop.overlay.threads.run(participant, stored.network.tasks)
        copy = QueryCopy(self.shop, QueryRecord(self.files, stored), tasks)
        await copy.prepare()
        return copy

    def start(self, running: QueryCopy) -> None:
        """Let its tasks continue."""
        self.shop.warm()
        running.start()

    async def call_back(self, running: QueryCopy) -> None:
        """Place the tasks of a stopped query at this peer, and publish that."""
        for task in self.place_back(running):
            await self.name_worker(task)

    def place_back(self, running: QueryCopy) -> list[Copy]:
        """Store that the query's tasks are at this peer; returns the tasks that were elsewhere.
        Blocking."""
        away = [task for task in running.tasks if task.current.term.holder]
        for task in away:
            self.place(task, Placement(task.next_term(NO_PEER, since=task.boundary)))
        return away


def _refused(status: TaskStatus, refusals: Mapping[str, str]) -> TaskStatus:
    """The status of a task; a task stands still if a producer refuses it an input.

    Args:
        refusals: the reasons, by input.
    """
    why = [refusals[name] for name in status.inputs if name in refusals]
    if not why or status.state == "stopped":
        return status
    return msgspec.structs.replace(status, state="failing", reason="; ".join(why))

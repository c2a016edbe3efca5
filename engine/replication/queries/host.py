from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from medusa.dht.catalog import Catalog
from medusa.engine.objects.alteration import queries_differ
from medusa.engine.objects.availability import Mode
from medusa.engine.objects.definitions import QueryEntry
from medusa.engine.objects.query import Query, QueryStatus
from medusa.engine.objects.schema import END
from medusa.engine.replication.copies.copy import Copy, Workshop
from medusa.engine.replication.copies.query_copy import QueryCopy, drop_logs
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.queries.creation import Creation
from medusa.engine.replication.records.placements import Placement, replaced
from medusa.engine.replication.records.query_record import QueryRecord
from medusa.engine.replication.records.stored_query import QueryFiles, StoredQuery, written
from medusa.engine.replication.term import HIGHEST_NUMBER, Term
from medusa.engine.streams.store.stream_state import LogKey
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.errors import (
    ConflictError,
    MedusaError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from medusa.overlay.killpoints import KillPoint, kill_point
from medusa.overlay.listeners import Decision, Listeners
from medusa.overlay.names import NO_PEER

_DONE: Final = {QueryStatus.RUNNING: "started", QueryStatus.STOPPED: "stopped"}


class QueryHost:
    """The queries whose primary this peer is: created, run, deleted, taken over and given up.

    Args:
        folder: has one JSON file per query.

    Attributes:
        readers: decides which participants may read a stream.
        files: of the queries, also of those whose secondary this peer is.
        announcements: publishes them. creation: checks new ones. shop: makes copies of their tasks.
        changed: called with every placement of a task that counts: (task, before, now).
        deleted: called with every query that is deleted.
        vacated: returns once this peer stands by for no query of that name; raises if it has to.
        appointed: called when a query here has another term.
        pending: queries of the last run whose secondary may have taken over, or is this peer.
        leaving: queries that another peer has by now, until nothing of them is left here.
        unfit: queries of the last run that do not run any more, with the reason: a limit is new.
    """

    def __init__(
        self, folder: Path, shop: Workshop, catalog: Catalog, announcements: Announcements
    ) -> None:
        self.readers = shop.readers
        self.files = QueryFiles(folder)
        self.announcements = announcements
        self.shop = shop
        self._peer = shop.here
        self._clock = shop.overlay.clock
        self._store = shop.store
        self.creation = Creation(shop.overlay, catalog, shop.store, shop.readers, shop.functions)
        self._directory = shop.directory
        self._followers = shop.followers
        self._executor = shop.executor
        self._events = shop.overlay.events
        self._nursery = shop.nursery
        self._queries: dict[str, QueryCopy] = {}
        self._changing = trio.Lock()
        self.changed: Listeners[[str, Placement, Placement]] = Listeners()
        self.deleted: Listeners[[QueryCopy]] = Listeners()
        self.vacated: Decision[[str], Awaitable[None]] = Decision(_nobody_is_there)
        self.appointed: Listeners[[]] = Listeners()
        self.pending: dict[str, StoredQuery] = {}
        self.leaving: set[str] = set()
        self.unfit: dict[str, tuple[StoredQuery, str]] = {}

    # -- calls for clients ------------------------------------------------------------------

    async def create(self, query: Query) -> QueryEntry:
        """Check the query, publish it and its outputs; it does not run yet.

        Raises:
            InvalidInputError: it does not type-check, or names an unknown stream.
            NotAuthorisedError: an input is not for us, or an output is not ours.
            ConflictError: an output exists already, or is read here as another peer's.
            MedusaError: this peer stands by for a query of that name.
        """
        async with self._changing:
            self._check_fit(query.name)
            running = self._queries.get(query.name)
            if running is None:
                return await self._create(query)
            if how := queries_differ(running.stored.entry.query, query):
                raise ConflictError(
                    f"{query.name} exists and differs ({how}): delete it first or rename"
                )
            return running.stored.entry

    async def _create(self, query: Query) -> QueryEntry:
        creation = await self.creation.plan(query)
        outputs = creation.entry.outputs
        await self.vacated(query.name)
        for output in outputs:
            await self._followers.make_way(output)
        # consumers may remember the term of a query of that name that was deleted long ago
        known = map(self._directory.number, outputs)
        term = HIGHEST_NUMBER.next(creation.name, known, self._peer, self._clock())
        stored = creation.under(term)
        try:
            for name in stored.kept:
                await self._store.drop(LogKey(name))  # a declared stream is now produced
            running = await self.prepare(stored)
            self.admit(running)
            await running.publish(self.announcements)
            running.record.save()
        except BaseException:
            await self._remove(stored)
            raise
        return stored.entry

    async def set_status(self, name: str, status: QueryStatus) -> None:
        """Start, stop or delete a query.

        Raises:
            NotFoundError: no such query here.
            ConflictError: another query reads a stream of the query to be deleted.
        """
        async with self._changing:
            await self._set_status(name, status)

    async def _set_status(self, name: str, status: QueryStatus) -> None:
        if name in self.pending:
            raise UnavailableError(f"{name}: its secondary is asked about it; try again")
        if status is QueryStatus.DELETED:
            await self._delete(name)
            self._events.note("info", f"deleted {name}", query=name)
            return
        self._check_fit(name)
        running = self.get(name)
        if status is running.stored.entry.status:
            return
        entry = msgspec.structs.replace(running.stored.entry, status=status)
        self.write(running, entry=entry)
        if status is QueryStatus.RUNNING:
            self.start(running)
        else:
            await self._stop(running)
        await self.announcements.publish_query(running.stored)
        self._events.note("info", f"{_DONE[status]} {name}", query=name)

    async def _delete(self, name: str) -> None:
        if name in self.unfit:
            await self._remove(self.unfit[name][0])
            del self.unfit[name]
            return
        running = self.get(name)
        self._check_unread(running)
        await self._remove(running.stored)
        self.deleted.tell(running)

    def _check_fit(self, name: str) -> None:
        if name in self.unfit:
            raise ConflictError(f"{name} does not run: {self.unfit[name][1]}; delete it first")

    # -- over restarts and failovers; see also `Resuming` -------------------------------------

    def take_over(self, running: QueryCopy) -> None:
        """Take a query that another peer had, or may have had: run it first, then publish it."""
        running.taken_over_at = trio.current_time()
        self.admit(running)
        if running.stored.entry.status is QueryStatus.RUNNING:
            self.start(running)
        else:
            with suppress(StorageError):  # its workers are told so when they ask
                self._place_back(running)
        self.publish_soon(running)
        self.appointed.tell()

    async def take_up(self, running: QueryCopy) -> None:
        """Go on with a query of the last run."""
        if running.stored.availability.mode is not Mode.NONE:
            running.parted_at = trio.current_time()  # from which peer, is forgotten
        self.admit(running)
        # A crash may have come between the file and the catalog; the same again is no change.
        try:
            await running.publish(self.announcements)
        except ConflictError:  # another peer took it over, and we shall hear of it
            self.publish_soon(running)
        if running.stored.entry.status is QueryStatus.RUNNING:
            self.start(running)
        else:
            await self._call_back(running)  # a crash may have come between

    def admit(self, running: QueryCopy) -> None:
        """Add the query: it is found here by its name."""
        self._queries[running.name] = running
        for task in running.tasks:
            self._directory.believe(Term(task.name, running.stored.term.number))

    async def relinquish(self, name: str) -> QueryCopy:
        """Stop a query that another peer has and has published, and forget all but its logs.

        Raises:
            NotFoundError: it is not ours.
        """
        async with self._changing:
            running = self.get(name)
            with trio.CancelScope(shield=True):
                await self.announcements.silence(name)
                await running.stop()
                with suppress(StorageError):  # it makes room
                    self._place_back(running)
                del self._queries[name]
                # before the file goes: or a restart would withdraw the other peer's entries
                with suppress(MedusaError):
                    self.announcements.leave_query(running.stored)
                given = {task.name: max(task.boundary, task.given) for task in running.tasks}
                self.files.leave(name, given)
                for task in running.tasks:
                    task.runner.inputs.release()
            return running

    # -- look-ups ------------------------------------------------------------------------------

    def get(self, name: str) -> QueryCopy:
        """The query, whose primary this peer is. Raises: NotFoundError."""
        if (running := self._queries.get(name)) is None:
            raise NotFoundError(f"{name} is not kept by this peer")
        return running

    def occupied(self, name: str) -> bool:
        """Whether this peer has, or may have, the query, or still some part of it."""
        return name in self._queries or name in self.leaving

    def all(self) -> list[QueryCopy]:
        return list(self._queries.values())

    def replicated(self) -> list[QueryCopy]:
        """The queries that ask for a secondary, without pending ones."""
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
        """A task by its name, and the query it is part of.

        Raises:
            NotFoundError: no query of this peer has it.
        """
        for running in self._queries.values():
            for placed in running.tasks:
                if placed.name == task:
                    return running.stored, placed
        raise NotFoundError(f"{task} is no task of a query of this peer: ask the query's peer")

    # -- decisions about them -------------------------------------------------------------------

    @kill_point(KillPoint.QUERY_PLACE)
    def place(self, placed: Copy, placement: Placement) -> None:
        """Store the next worker of a task; it counts from then on. Blocking.

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
        self.changed.tell(placed.name, before, placement)

    @kill_point(KillPoint.QUERY_WRITE)
    def write(self, running: QueryCopy, **changes: object) -> None:
        """Store a change of a query; it counts from then on. Blocking.

        Raises:
            NotFoundError: it is not ours any more: its file would bring it back.
            StorageError: the disk does not take it; nothing has changed.
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
        self.appointed.tell()

    def publish_soon(self, running: QueryCopy) -> None:
        """`QueryCopy.publish`, in the background, until it is done."""
        self.announcements.tell_soon(running.name, partial(running.publish, self.announcements))

    async def name_worker(self, placed: Copy) -> None:
        """Publish the worker of a task.

        Raises:
            NotFoundError: its query is not ours any more.
            MedusaError: it cannot be published.
        """
        running = self.get(placed.task.query)
        await running.publish_term(placed, self.announcements)

    # -- their logs and tasks -----------------------------------------------------------------

    async def prepare(self, stored: StoredQuery) -> QueryCopy:
        """A copy of the query whose tasks can be started; see `QueryCopy.prepare`.

        Raises:
            InvalidInputError: it does not type-check.
        """
        participant = self.shop.overlay.identity.participant
        plan = await self.shop.overlay.threads.run(participant, stored.network.tasks)
        copy = QueryCopy(self.shop, QueryRecord(self.files, stored), plan)
        await copy.prepare()
        return copy

    def warm(self, tasks: Sequence[Task] = ()) -> None:
        """Start the executor, so that the first job, of these tasks say, does not wait for it."""
        self._nursery.start_soon(self._executor.prepare, [task.at(END) for task in tasks])

    async def trouble(self) -> str:
        """Why no task can be computed here, and the remedy; else empty, as far as is known within
        `Timing.trouble_s`. A failed start is tried again."""
        tried = trio.Event()

        async def start() -> None:
            await self._executor.prepare()
            tried.set()

        self._nursery.start_soon(start)
        with trio.move_on_after(self.shop.config.timing.trouble_s):
            await tried.wait()
        return self._executor.trouble

    def start(self, running: QueryCopy) -> None:
        """Let its tasks continue."""
        self.warm()
        running.start()

    async def _stop(self, running: QueryCopy) -> None:
        if running.running:
            await running.stop()
            await self._call_back(running)

    async def _call_back(self, running: QueryCopy) -> None:
        """Place the tasks of a query that does not run at this peer, and publish that."""
        for task in self._place_back(running):
            await self.name_worker(task)

    def _place_back(self, running: QueryCopy) -> list[Copy]:
        away = [task for task in running.tasks if task.current.term.holder]
        for task in away:
            self.place(task, Placement(task.next_term(NO_PEER, since=task.boundary)))
        return away

    def _check_unread(self, running: QueryCopy) -> None:
        for output in running.stored.entry.outputs:
            readers = ", ".join(sorted(entry.query.name for entry in self.consumers(output)))
            if readers:
                raise ConflictError(f"{output} is read by {readers}: delete that first")

    async def _remove(self, stored: StoredQuery) -> None:
        """Remove all of a query, however far its creation came."""
        name = stored.name
        with trio.CancelScope(shield=True):  # half a query is no query
            running = self._queries.get(name)
            if running is not None:
                await self.announcements.silence(name)
                with suppress(StorageError):  # it makes room
                    await self._stop(running)
                del self._queries[name]
                for task in running.tasks:
                    task.runner.inputs.release()
            self.files.remove(name)
            await drop_logs(self.shop, stored)
            await self.announcements.withdraw_query(stored)


async def _nobody_is_there(_query: str) -> None:
    pass


def _refused(status: TaskStatus, refusals: Mapping[str, str]) -> TaskStatus:
    """The status of a task, which stands still if an input is refused to it.

    Args:
        refusals: the reasons, by input.
    """
    why = [refusals[name] for name in status.inputs if name in refusals]
    if not why or status.state == "stopped":
        return status
    return msgspec.structs.replace(status, state="failing", reason="; ".join(why))

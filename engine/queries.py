"""The queries this peer runs: created, started, stopped, deleted, and resumed after a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import trio

from dht.catalog import Catalog
from engine.config import EngineConfig
from engine.definitions import QueryEntry, StreamEntry, check_not_late, may_read
from engine.kept import KeptStream, Role, file_name
from engine.kinds import QUERY, STREAM, find
from engine.messages import TaskStatus
from engine.mirror import Mirrors
from engine.moves.placed_task import PlacedTask
from engine.moves.placements import Placement, of, replaced
from engine.network import Network, StoredQuery, planned
from engine.plan import Task
from engine.producers import Producers
from engine.query import Query, QueryStatus, streams_read, streams_written
from engine.schema import BEGINNING, Schema
from engine.spark.executor import Executor
from engine.stream_store import StreamStore
from engine.task_runner import TaskRunner
from overlay.errors import (
    ConflictError,
    InternalError,
    NotAuthorisedError,
    NotFoundError,
    StorageFullError,
    UnavailableError,
)
from overlay.files import write_atomically
from overlay.names import ObjectName
from overlay.node import Overlay


class RunningQuery:
    """The tasks of one query, and the scope that stops them."""

    def __init__(self, stored: StoredQuery, tasks: list[PlacedTask]) -> None:
        self.stored = stored
        self.tasks = tasks
        self.scope: trio.CancelScope | None = None
        self.stopped = trio.Event()
        self.stopped.set()


class QueryHost:
    """Every query of this peer.

    Args:
        folder: one JSON file a query.
        nursery: runs their tasks.

    Attributes:
        changed: told of every placement of a task that counts: (task, before, now).
    """

    def __init__(
        self,
        folder: Path,
        *,
        overlay: Overlay,
        store: StreamStore,
        catalog: Catalog,
        producers: Producers,
        mirrors: Mirrors,
        executor: Executor,
        config: EngineConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._folder = folder
        self._overlay = overlay
        self._participant = overlay.identity.participant
        self._peer = overlay.identity.peer_id.hex()
        self._store = store
        self._catalog = catalog
        self._producers = producers
        self._mirrors = mirrors
        self._executor = executor
        self._config = config
        self._events = overlay.events
        self._nursery = nursery
        self._queries: dict[str, RunningQuery] = {}
        self.changed: Callable[[str, Placement, Placement], None] = _nobody_minds
        self._changing = trio.Lock()

    async def create(self, query: Query) -> QueryEntry:
        """Check the query, publish it and its outputs; it does not run yet.

        Raises:
            InvalidInputError: it does not type-check, or names an unknown stream.
            NotAuthorisedError: an input is not for us, or an output not ours.
            ConflictError: an output exists already.
        """
        async with self._changing:
            running = self._queries.get(query.name)
            if running is None:
                return await self._create(query)
            if running.stored.entry.query != query:
                raise ConflictError(f"{query.name} exists and differs; delete it first or rename")
            return running.stored.entry

    async def _create(self, query: Query) -> QueryEntry:
        inputs = await self._inputs(query)
        schemas = Network(query, inputs).schemas()
        kept = await self._declared(query, schemas)
        tasks = planned(query, schemas, kept, inputs)
        outputs = tuple(task.output for task in tasks)
        entry = QueryEntry(query, QueryStatus.SETUP, self._peer, outputs)
        stored = StoredQuery(entry, inputs, tuple(kept))
        try:
            for name in kept:
                await self._store.drop(name)  # what was declared is now produced
            await self._prepare(stored)
            await self._catalog.publish(QUERY, ObjectName.parse(query.name), entry)
            self._save(stored)
        except BaseException:
            await self._remove(stored)
            raise
        return entry

    async def set_status(self, name: str, status: QueryStatus) -> None:
        """
        Raises:
            NotFoundError: no such query here.
            ConflictError: another query reads what the one to be deleted produces.
        """
        async with self._changing:
            await self._set_status(name, status)

    async def _set_status(self, name: str, status: QueryStatus) -> None:
        running = self._queries.get(name)
        if running is None:
            raise NotFoundError(f"{name} is not kept by this peer")
        if status is QueryStatus.DELETED:
            self._check_unread(running)
            await self._remove(running.stored)
            self._events.note("info", f"{name} is deleted")
            return
        if status is running.stored.entry.status:
            return
        entry = msgspec.structs.replace(running.stored.entry, status=status)
        running.stored = msgspec.structs.replace(running.stored, entry=entry)
        self._save(running.stored)
        if status is QueryStatus.RUNNING:
            self._start(running)
        else:
            await self._stop(running)
        await self._catalog.publish(QUERY, ObjectName.parse(name), entry)
        self._events.note("info", f"{name} is {status}")

    async def resume(self) -> None:
        """Take up the queries of the last run where they stood."""
        for path in sorted(self._folder.glob("*.json")):
            try:
                stored = msgspec.json.decode(path.read_bytes(), type=StoredQuery)
            except msgspec.DecodeError as error:
                raise InternalError(f"{path} is damaged ({error}); remove it") from None
            running = await self._prepare(stored)
            # A crash may have come between the file and the catalog; the same again is no change.
            await self._catalog.publish(
                QUERY, ObjectName.parse(stored.entry.query.name), stored.entry
            )
            if stored.entry.status is QueryStatus.RUNNING:
                self._start(running)
            else:
                await self._call_home(running)  # a crash may have come between
        await self._tidy()

    async def _tidy(self) -> None:
        """Undo what a crash left of creations and deletions: a query's file says that it is."""
        for kept in self._store.all():
            if kept.role is Role.DERIVED and kept.entry.stream.query not in self._queries:
                await self._store.drop(kept.name)
        for stream in self._catalog.own(STREAM):
            if stream.value.stream.query and self._store.get(str(stream.name)) is None:
                await self._producers.withdraw(str(stream.name))
        for query in self._catalog.own(QUERY):
            if str(query.name) not in self._queries:
                await self._catalog.withdraw(QUERY, query.name)

    def consumers(self, stream: str) -> list[QueryEntry]:
        """The queries here that read `stream`."""
        return [
            running.stored.entry
            for running in self._queries.values()
            if stream in running.stored.inputs
        ]

    def task_status(self) -> tuple[TaskStatus, ...]:
        return tuple(
            task.status(stopped=running.scope is None)
            for running in self._queries.values()
            for task in running.tasks
        )

    def tasks(self) -> list[PlacedTask]:
        """Every task of the queries that run."""
        return [
            task
            for running in self._queries.values()
            if running.scope is not None
            for task in running.tasks
        ]

    def find(self, task: str) -> tuple[StoredQuery, PlacedTask]:
        """A task by its name, and the query it is part of.

        Raises:
            NotFoundError: no query of this peer has it.
        """
        for running in self._queries.values():
            for placed in running.tasks:
                if placed.name == task:
                    return running.stored, placed
        raise NotFoundError(f"{task} is no task of a query of this peer")

    def place(self, placed: PlacedTask, placement: Placement) -> None:
        """Write down who works on a task from now on; it counts from then. Blocking.

        Raises:
            StorageFullError: no room; nothing has changed.
        """
        running = self._queries[placed.runner.task.query]
        placements = replaced(placed.placements, placement)
        stored = running.stored.placed(placed.name, placements)
        self._save(stored)
        before = placed.current
        running.stored, placed.placements = stored, placements
        self.changed(placed.name, before, placement)

    async def _inputs(self, query: Query) -> dict[str, StreamEntry]:
        written = streams_written(query)
        entries: dict[str, StreamEntry] = {}
        for name in sorted(streams_read(query) - written):
            found = await find(self._catalog, STREAM, ObjectName.parse(name))
            if found is None:
                raise NotFoundError(f"{query.name} reads {name}, which is not in the catalog")
            if not may_read(found.value.stream, self._participant, found.name.participant):
                raise NotAuthorisedError(f"{name} may not be read by {self._participant}")
            entries[name] = found.value
        return entries

    async def _declared(self, query: Query, schemas: dict[str, Schema]) -> frozenset[str]:
        """The outputs that were created as streams before: they must fit, and be unused."""
        declared = set()
        for name in sorted(streams_written(query)):
            check_not_late(name)
            if ObjectName.parse(name).participant != self._participant:
                raise NotAuthorisedError(f"{query.name} may not produce {name}: not ours")
            found = await find(self._catalog, STREAM, ObjectName.parse(name))
            if found is None:
                continue
            await self._check_replaceable(query.name, found.value, schemas[name])
            declared.add(name)
        return frozenset(declared)

    async def _check_replaceable(self, query: str, entry: StreamEntry, schema: Schema) -> None:
        name = entry.stream.name
        if entry.stream.query == query:
            return  # of a creation that a crash cut short
        if entry.stream.query:
            raise ConflictError(f"{name} is already produced by {entry.stream.query}")
        declared = [(field.name, field.type) for field in entry.schema.fields]
        if declared != [(field.name, field.type) for field in schema.fields]:
            raise ConflictError(f"{name} was created with other fields than the query gives it")
        kept = self._store.get(name)
        if (
            kept is None
            or kept.home is None
            or kept.log.boundary != BEGINNING
            or kept.home.pending_bytes
        ):
            raise ConflictError(f"{name} has been posted to; a query cannot take it over")

    async def _prepare(self, stored: StoredQuery) -> RunningQuery:
        """Open the logs and hold the inputs, so that nothing is lost until the query runs."""
        query = stored.entry.query
        tasks = stored.network.tasks()
        logs = {
            name: await self._mirrors.follow(entry, query.name)
            for name, entry in stored.inputs.items()
        }
        for task in tasks:
            logs[task.output] = await self._keep_output(stored, task)
        placed = [self._placed(task, logs, stored) for task in tasks]
        for each in placed:
            each.runner.hold()
        running = RunningQuery(stored, placed)
        self._queries[query.name] = running
        return running

    async def _keep_output(self, stored: StoredQuery, task: Task) -> KeptStream:
        entry = stored.network.entry_of(task.output, task.output_schema, self._peer)
        kept = await self._store.keep(entry, Role.DERIVED)
        worker = of(stored.placements.get(task.name))[-1].worker
        await self._producers.announce(entry, worker)
        return kept

    def _placed(
        self, task: Task, logs: Mapping[str, KeptStream], stored: StoredQuery
    ) -> PlacedTask:
        return PlacedTask(
            self._runner(task, logs),
            logs[task.output],
            self._store,
            self._overlay,
            of(stored.placements.get(task.name)),
        )

    def _runner(self, task: Task, logs: Mapping[str, KeptStream]) -> TaskRunner:
        inputs = {name: logs[name].log for name in task.inputs}
        return TaskRunner(
            task,
            inputs=inputs,
            output=logs[task.output].log,
            executor=self._executor,
            config=self._config,
            events=self._events,
        )

    def _start(self, running: RunningQuery) -> None:
        running.stopped = trio.Event()
        running.scope = trio.CancelScope()
        self._nursery.start_soon(self._executor.prepare)
        self._nursery.start_soon(self._run, running, running.scope, running.stopped)

    async def _run(
        self, running: RunningQuery, scope: trio.CancelScope, stopped: trio.Event
    ) -> None:
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    for task in running.tasks:
                        nursery.start_soon(task.run)
        finally:
            stopped.set()

    async def _stop(self, running: RunningQuery) -> None:
        if running.scope is None:
            return
        running.scope.cancel()
        await running.stopped.wait()
        running.scope = None
        await self._call_home(running)

    async def _call_home(self, running: RunningQuery) -> None:
        """A query that does not run has no workers."""
        for task in running.tasks:
            if task.current.worker:
                self.place(task, task.home)
                await self._producers.name_worker(task.name, "")

    def _check_unread(self, running: RunningQuery) -> None:
        for output in running.stored.entry.outputs:
            readers = ", ".join(sorted(entry.query.name for entry in self.consumers(output)))
            if readers:
                raise ConflictError(f"{output} is read by {readers}: delete that first")

    async def _remove(self, stored: StoredQuery) -> None:
        """Leave nothing of a query, however far its creation came."""
        name = stored.entry.query.name
        with trio.CancelScope(shield=True):  # half a query is no query
            running = self._queries.get(name)
            if running is not None:
                with suppress(StorageFullError):  # it makes room
                    await self._stop(running)
                del self._queries[name]
                for task in running.tasks:
                    task.runner.release()
            (self._folder / file_name(name, ".json")).unlink(missing_ok=True)
            for stream in stored.inputs:
                await self._mirrors.leave(stream, name)
            for output in stored.entry.outputs:
                await self._store.drop(output)
                await self._producers.withdraw(output)
            with suppress(NotFoundError, UnavailableError):
                await self._catalog.withdraw(QUERY, ObjectName.parse(name))

    def _save(self, stored: StoredQuery) -> None:
        path = self._folder / file_name(stored.entry.query.name, ".json")
        write_atomically(path, msgspec.json.encode(stored))


def _nobody_minds(_task: str, _before: Placement, _now: Placement) -> None:
    pass

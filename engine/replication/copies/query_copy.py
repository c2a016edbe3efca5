"""A copy of a query: the logs of its streams and, if this peer computes it, copies of its tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import msgspec
import trio

from medusa.engine.objects.availability import Availability, Mode, Recovery
from medusa.engine.objects.definitions import StreamEntry, is_panes
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.copies.copy import Copy, Workshop
from medusa.engine.replication.copies.positions import needed
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.following.origin import FOR_QUERIES, short_digest
from medusa.engine.replication.records.query_record import QueryRecord
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.streams.store.store import REPLICA
from medusa.engine.streams.store.stream_state import Role, StreamState
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.query_editions import changing
from medusa.engine.tasks.windows import read_after
from medusa.overlay.concurrency import Job
from medusa.overlay.errors import StorageError
from medusa.overlay.failpoints import Failpoint, failpoint


def carrier(stored: StoredQuery) -> str:
    """The owner of the followers' logs that a replica of the query reads. Each query has its own
    logs of streams that its primary sends, because another query may have another primary."""
    if stored.availability.mode is Mode.PASSIVE_STANDBY:
        return f"{REPLICA}-{short_digest(stored.name)}"
    return REPLICA


def _forgets(availability: Availability) -> bool:
    """Whether a takeover may leave out results that consumers do not have."""
    begins_empty = availability.mode in {Mode.AMNESIA, Mode.UPSTREAM_BACKUP}
    return begins_empty and availability.recovery is Recovery.GAP


class QueryCopy:
    """A query at this peer. A primary serves it; a secondary's `Standby` decides what to do with
    it. Args: record: the query as this peer believes it, and its file.
        plan: its tasks, each after those whose output it reads.

    Attributes:
        logs: by stream, of its inputs and outputs, as far as they are kept.
        tasks: copies of all its tasks, once they are computed here.
        taken_over_at: when this peer took it over, on trio's clock, seconds.
        modifying: held while it is being modified.
        parted_at: when this peer gave up another one that may still believe to be the query's
            secondary, on trio's clock, seconds.
    """

    def __init__(self, shop: Workshop, record: QueryRecord, plan: Sequence[Task]) -> None:
        self.record = record
        self.plan = tuple(plan)
        self.logs: dict[str, StreamState] = {}
        self.tasks: list[Copy] = []
        self.taken_over_at = float("-inf")
        self.parted_at = float("-inf")
        self.modifying = trio.Lock()
        self._shop = shop
        self._job = Job()

    @property
    def stored(self) -> StoredQuery:
        """The query as this peer believes it; `record` changes it."""
        return self.record.stored

    @property
    def name(self) -> str:
        return self.stored.name

    # -- its logs -----------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Open the logs, and hold the inputs, so that nothing is lost until the query runs.

        Raises:
            StorageFullError: no room is left. InternalError: a log is damaged.
        """
        await self.keep_outputs(Role.DERIVED)
        await self._follow_inputs()
        if self.stored.availability.mode in {Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY}:
            for name in self.stored.inputs:  # held until the secondary's needs are known
                self._shop.followers.need(name, self.name, BEGINNING)
        self.compute()

    async def keep_outputs(self, role: Role) -> None:
        """Open the logs of the outputs, under the query's variant here."""
        for entry in self.entries(self.stored, self.plan):
            self.logs[entry.stream.name] = await self._keep_output(entry, role)

    async def _keep_output(self, entry: StreamEntry, role: Role) -> StreamState:
        stored, store = self.stored, self._shop.store
        state = await store.keep(entry, role, stored.variant)
        position = stored.positions.get(state.name, BEGINNING)
        if state.log.boundary == BEGINNING < position:
            if _forgets(stored.availability) and not is_panes(state.name):
                await state.log.commit(position, None)  # the consumers continue behind the gap
            else:  # windows that a worker folds need panes without a gap
                state.log.begin(position)
        if state.entry != entry:
            await store.define(state, entry)
        if state.role is not role:
            await store.change_role(state, role)
        return state

    async def _follow_inputs(self) -> None:
        """Open the logs of the inputs: whole logs where the query was created, unless it has begun;
        in a replica, logs from the boundary of its outputs on."""
        stored, followers = self.stored, self._shop.followers
        query = stored.entry.query
        reached = {task.output: self.logs[task.output].log.boundary for task in self.plan}
        after = needed(self.plan, reached)
        for name, entry in stored.inputs.items():
            if stored.variant:
                self.logs[name] = await followers.follow_from(
                    entry, self.name, FOR_QUERIES, after[name], owner=carrier(stored)
                )
            elif query.after > BEGINNING:
                since = max(after[name], query.after)
                self.logs[name] = await followers.follow_history(entry, self.name, since)
            else:
                self.logs[name] = await followers.follow(entry, self.name, self._begin_of(name))

    def _begin_of(self, name: str) -> int:
        """The boundary after which an input is needed; the log of an input that was not needed here
        is empty."""
        readers = [task for task in self.plan if name in task.inputs]
        needs = (read_after(task, name, self.logs[task.output].log.boundary) for task in readers)
        return min(needs, default=BEGINNING)

    def compute(self) -> None:
        """Make copies of its tasks, not yet running, that hold the inputs they need."""
        self.tasks = [
            Copy(
                self._shop,
                task,
                self.logs,
                bound_s=self.stored.availability.bound_s,
                placements=self.stored.placements(task.name),
            )
            for task in self.plan
        ]
        for copy in self.tasks:
            copy.runner.inputs.hold()
            if copy.current.term.holder and copy.state.role is Role.DERIVED:
                # held until the worker's first report
                copy.hold_for_consumers(copy.state.log.start)

    def entries(self, stored: StoredQuery, plan: Iterable[Task]) -> list[StreamEntry]:
        """The catalog's entries of the outputs, with this peer as their leader."""
        network, here = stored.network, self._shop.here.hex()
        return [network.entry_of(task.output, task.output_schema, here) for task in plan]

    async def define_outputs(self, stored: StoredQuery, plan: Iterable[Task]) -> None:
        """Give the open logs of the outputs their present definitions."""
        store = self._shop.store
        for entry in self.entries(stored, plan):
            state = store.get(entry.stream.name, stored.variant)
            if state is not None and state.entry != entry:
                await store.define(state, entry)

    async def leave_inputs(self) -> None:
        """Stop reading the inputs."""
        for stream in self.stored.inputs:
            await self._shop.followers.leave(stream, self.name)

    # -- its tasks ----------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether its tasks run."""
        return self._job.started

    def start(self) -> None:
        """Let the tasks continue, unless they do."""
        self._job.start(self._shop.nursery, self._run)

    async def stop(self) -> None:
        """Stop the tasks; returns once none runs."""
        await self._job.stop()

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            for copy in self.tasks:
                nursery.start_soon(copy.run)
        # then the inputs may still be needed for a bill
        moved = any(len(copy.placements) > 1 for copy in self.tasks)
        if self.stored.entry.query.until < END and not moved:
            await self.leave_inputs()

    @asynccontextmanager
    async def paused(self, names: Collection[str]) -> AsyncIterator[None]:
        """Pause the outputs of these tasks within the block."""
        async with AsyncExitStack() as stack:
            for copy in self.tasks:
                if copy.name in names:
                    await stack.enter_async_context(copy.paused())
            yield

    def modify(self, tasks: Iterable[Task]) -> None:
        """Continue with these editions of the tasks. Call it while every task whose next output
        changes stands still."""
        self.plan = tuple(tasks)
        editions = {task.name: task for task in self.plan}
        for copy in self.tasks:
            copy.runner.modify(editions[copy.name])

    def limit(self) -> None:
        """Stop each task where the last modification changes it, until `go_on`."""
        if not self.stored.editions:
            return
        begins = changing(self.plan, self.stored.editions[-1].upto)
        for copy in self.tasks:
            if copy.name in begins and copy.boundary <= begins[copy.name]:
                copy.runner.limit.set(begins[copy.name])

    def stand_still(self, names: Collection[str]) -> None:
        """Stop these tasks at their present boundaries, until `go_on`. Call it while they are
        paused."""
        for copy in self.tasks:
            if copy.name in names:
                copy.runner.limit.set(copy.boundary)

    def go_on(self) -> None:
        """Remove the limits of all tasks."""
        for copy in self.tasks:
            copy.runner.limit.set(END)

    @property
    def limited(self) -> bool:
        """Whether a task has a limit."""
        return any(copy.runner.limit.value < END for copy in self.tasks)

    def wait_s(self, parted_s: float) -> float:
        """How long another peer may still emit its results, seconds. parted_s: the time until a
        peer finds out that it is no longer the secondary."""
        return max(self.parted_at, self.taken_over_at) + parted_s - trio.current_time()

    # -- its entries in the catalog -----------------------------------------------------------

    @failpoint(Failpoint.CATALOG_PUBLISH_QUERY)
    async def publish(self, announcements: Announcements) -> None:
        """Publish the query and its outputs. Raises: MedusaError: the catalog does not take
        them."""
        for copy in self.tasks:
            await announcements.publish_entry(copy.state.entry)
            await self.publish_term(copy, announcements)
        await announcements.publish_query(self.stored)

    async def publish_term(self, copy: Copy, announcements: Announcements) -> None:
        """Publish the worker of a task. Raises: as `publish`."""
        # read and published in one step: of two concurrent calls the later one is right
        await announcements.publish_term(
            msgspec.structs.replace(self.stored.term, subject=copy.name),
            worker=copy.current.term.holder,
            edition=self.stored.entry.edition,
        )


async def drop_logs(shop: Workshop, stored: StoredQuery) -> None:
    """Drop the logs of a query, except logs that others read here."""
    for stream in stored.inputs:
        await shop.followers.leave(stream, stored.name)
    for output in stored.entry.outputs:
        state = shop.store.get(output, stored.variant)
        if state is not None:
            await shop.followers.part_with(state)


async def tidy_logs(shop: Workshop, known: Mapping[str, StoredQuery]) -> None:
    """Undo creations, deletions and failovers that a crash cut short: a query exists if its file
    does. Logs that are read here become followers' logs.

    Args:
        known: the queries, by name.
    """
    read = {stream for stored in known.values() if not stored.variant for stream in stored.inputs}
    for state in shop.store.all():
        if state.role not in {Role.DERIVED, Role.STANDBY} or state.entry.stream.query in known:
            continue
        if state.name in read and not state.variant:
            # a full disk does not matter here, as in `Followers.part_with`
            with suppress(StorageError):
                await shop.store.change_role(state, Role.FOLLOWER)
            state.role = Role.FOLLOWER
        else:
            await shop.store.drop(state.key)

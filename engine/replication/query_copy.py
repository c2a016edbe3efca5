"""What this peer has of a query: the logs of its streams and, where it computes it, copies of its
tasks. A primary serves what it computes; of what a secondary has, `Standby` decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import msgspec
import trio

from engine.objects.availability import Availability, Mode, Recovery
from engine.objects.definitions import StreamEntry
from engine.objects.schema import BEGINNING, END
from engine.replication.announcements import Announcements
from engine.replication.copy import Copy, Workshop
from engine.replication.following.origin import FOR_QUERIES, short_digest
from engine.replication.replicas.positions import needed
from engine.replication.stored_query import StoredQuery
from engine.streams.store import REPLICA
from engine.streams.stream_state import Role, StreamState
from engine.tasks.former import changing
from engine.tasks.plan import Task
from overlay.concurrency import Job
from overlay.errors import StorageError
from overlay.killpoints import KillPoint, kill_point


def carrier(stored: StoredQuery) -> str:
    """Whose mirrors a replica of the query reads. Those that a primary fills are its own: another
    query's primary knows nothing of it, and may be gone at another time."""
    if stored.availability.mode is Mode.PASSIVE_STANDBY:
        return f"{REPLICA}-{short_digest(stored.name)}"
    return REPLICA


def _forgets(availability: Availability) -> bool:
    """Whether who takes over may leave out what consumers have not had, and it has not."""
    begins_empty = availability.mode in {Mode.AMNESIA, Mode.UPSTREAM_BACKUP}
    return begins_empty and availability.recovery is Recovery.GAP


class QueryCopy:
    """
    Args:
        stored: what a restart needs of it; replaced by whoever writes it down.
        plan: its tasks, each after those whose output it reads.

    Attributes:
        logs: by stream, of what is kept of its inputs and outputs.
        tasks: copies of all its tasks, once they are computed here.
        taken_over_at: when this peer went on with what another had, on trio's clock, seconds.
        modifying: held while it is being modified.
        parted_at: when a peer was given up that may take itself for its secondary yet, on trio's
            clock, seconds.
    """

    def __init__(self, shop: Workshop, stored: StoredQuery, plan: Sequence[Task]) -> None:
        self.stored = stored
        self.plan = tuple(plan)
        self.logs: dict[str, StreamState] = {}
        self.tasks: list[Copy] = []
        self.taken_over_at = float("-inf")
        self.parted_at = float("-inf")
        self.modifying = trio.Lock()
        self._shop = shop
        self._job = Job()

    @property
    def name(self) -> str:
        return self.stored.name

    # -- its logs -----------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Open the logs, as far as they are not open, and hold the inputs, so that nothing is lost
        until the query runs.

        Raises:
            StorageFullError: no room. InternalError: one is damaged.
        """
        await self.keep_outputs(Role.DERIVED)
        await self._follow_inputs()
        if self.stored.availability.mode in {Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY}:
            for name in self.stored.inputs:  # until it is known what a secondary needs
                self._shop.followers.need(name, self.name, BEGINNING)
        self.compute()

    async def keep_outputs(self, role: Role) -> None:
        """Open the logs of the outputs, under the variant that the query has here."""
        for entry in self.entries(self.stored, self.plan):
            self.logs[entry.stream.name] = await self._keep_output(entry, role)

    async def _keep_output(self, entry: StreamEntry, role: Role) -> StreamState:
        stored, store = self.stored, self._shop.store
        state = await store.keep(entry, role, stored.variant)
        position = stored.positions.get(state.name, BEGINNING)
        if state.log.boundary == BEGINNING < position:
            if _forgets(stored.availability):
                await state.log.commit(position, None)  # the gap: consumers go on behind it
            else:
                state.log.begin(position)
        if state.entry != entry:
            await store.define(state, entry)
        if state.role is not role:
            await store.change_role(state, role)
        return state

    async def _follow_inputs(self) -> None:
        """The logs of what a query reads from elsewhere: whole ones where it was created; where it
        came by as a replica, from the boundary that its outputs are at."""
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
                self.logs[name] = await followers.follow_past(entry, self.name, since)
            else:
                self.logs[name] = await followers.follow(entry, self.name)

    def compute(self) -> None:
        """Have copies of its tasks, not yet running, that hold what they need of their inputs."""
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
            copy.runner.hold()

    def entries(self, stored: StoredQuery, plan: Iterable[Task]) -> list[StreamEntry]:
        """What the catalog holds of the outputs, with this peer as their leader."""
        network, here = stored.network, self._shop.here.hex()
        return [network.entry_of(task.output, task.output_schema, here) for task in plan]

    async def define_outputs(self, stored: StoredQuery, plan: Iterable[Task]) -> None:
        """Let the logs that are open be of the streams as the query makes them now."""
        store = self._shop.store
        for entry in self.entries(stored, plan):
            state = store.get(entry.stream.name, stored.variant)
            if state is not None and state.entry != entry:
                await store.define(state, entry)

    async def leave_inputs(self) -> None:
        """It reads nothing any more."""
        for stream in self.stored.inputs:
            await self._shop.followers.leave(stream, self.name)

    # -- its tasks ----------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether its tasks run."""
        return self._job.started

    def start(self) -> None:
        """Let the tasks go on; nothing where they do."""
        self._job.start(self._shop.nursery, self._run)

    async def stop(self) -> None:
        """Returns once none runs any more."""
        await self._job.stop()

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            for copy in self.tasks:
                nursery.start_soon(copy.run)
        moved = any(len(copy.placements) > 1 for copy in self.tasks)  # its input may be counted yet
        if self.stored.entry.query.until < END and not moved:
            await self.leave_inputs()

    @asynccontextmanager
    async def paused(self, names: Collection[str]) -> AsyncIterator[None]:
        """The outputs of these tasks stand still within the block."""
        async with AsyncExitStack() as stack:
            for copy in self.tasks:
                if copy.name in names:
                    await stack.enter_async_context(copy.paused())
            yield

    def modify(self, tasks: Iterable[Task]) -> None:
        """Go on with these editions of the tasks. While those stand still that make something else
        of what follows for now."""
        self.plan = tuple(tasks)
        editions = {task.name: task for task in self.plan}
        for copy in self.tasks:
            copy.runner.modify(editions[copy.name])

    def limit(self) -> None:
        """Do not go beyond the boundary of the last modification, until `go_on`."""
        if not self.stored.former:
            return
        upto = self.stored.former[-1].upto
        names = changing(self.plan, upto)
        for copy in self.tasks:
            if copy.name in names and copy.boundary <= upto:
                copy.runner.limit.set(upto)

    def stand_still(self, names: Collection[str]) -> None:
        """Let these tasks go no further than they are, until `go_on`. While they are paused."""
        for copy in self.tasks:
            if copy.name in names:
                copy.runner.limit.set(copy.boundary)

    def go_on(self) -> None:
        """No task has to wait any more."""
        for copy in self.tasks:
            copy.runner.limit.set(END)

    @property
    def halted(self) -> bool:
        """Whether one has to."""
        return any(copy.runner.limit.value < END for copy in self.tasks)

    def wait_s(self, parted_s: float) -> float:
        """How long until nobody else gives out results of it, if it takes a peer so long to find
        out that it is no secondary any more; seconds."""
        return max(self.parted_at, self.taken_over_at) + parted_s - trio.current_time()

    # -- what the catalog says of it ----------------------------------------------------------

    @kill_point(KillPoint.CATALOG_PUBLISH_QUERY)
    async def publish(self, announcements: Announcements) -> None:
        """Tell the catalog of it and its outputs.

        Raises:
            MedusaError: that cannot be published.
        """
        for copy in self.tasks:
            await announcements.publish_entry(copy.state.entry)
            await self.publish_term(copy, announcements)
        await announcements.publish_query(self.stored)

    async def publish_term(self, copy: Copy, announcements: Announcements) -> None:
        """Tell the catalog which peer computes a task now. Raises: as `publish`."""
        # read and declared in one step: of two that publish, the later one says what is so
        await announcements.publish_term(
            msgspec.structs.replace(self.stored.term, subject=copy.name),
            worker=copy.current.term.holder,
            edition=self.stored.entry.edition,
        )


async def drop_logs(shop: Workshop, stored: StoredQuery) -> None:
    """Keep nothing of a query any more, but what is read here by others."""
    for stream in stored.inputs:
        await shop.followers.leave(stream, stored.name)
    for output in stored.entry.outputs:
        state = shop.store.get(output, stored.variant)
        if state is not None:
            await shop.followers.part_with(state)


async def tidy_logs(shop: Workshop, known: Mapping[str, StoredQuery]) -> None:
    """Undo what a crash left of creations, deletions and failovers: a query's file says that it is.
    What is read here goes on as a mirror.

    Args:
        known: the queries that there are.
    """
    read = {stream for stored in known.values() if not stored.variant for stream in stored.inputs}
    for state in shop.store.all():
        if state.role not in {Role.DERIVED, Role.STANDBY} or state.entry.stream.query in known:
            continue
        if state.name in read and not state.variant:
            with suppress(StorageError):  # as `Followers.part_with`
                await shop.store.change_role(state, Role.MIRROR)
            state.role = Role.MIRROR
        else:
            await shop.store.drop(state.key)

"""The logs and tasks of a query at the peer that computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from engine.objects.availability import Availability, Mode, Recovery
from engine.objects.definitions import StreamEntry
from engine.objects.schema import BEGINNING, END
from engine.replication.following.book import Followers
from engine.replication.following.origin import FOR_QUERIES, short_digest
from engine.replication.moves.placed_task import PlacedTask
from engine.replication.replicas.positions import needed
from engine.replication.running_query import RunningQuery
from engine.replication.stored_query import StoredQuery
from engine.streams.config import EngineConfig
from engine.streams.kept import KeptStream, Role
from engine.streams.store import REPLICA, StreamStore
from engine.tasks.execution import Executor
from engine.tasks.plan import Task
from engine.tasks.revisions.runner import runner_of
from engine.tasks.runner import TaskRunner
from engine.tasks.tentative.fork import Fork
from overlay.errors import StorageError
from overlay.node import Overlay


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


class QueryLogs:
    """Opens them, as far as they are not open."""

    def __init__(
        self, store: StreamStore, followers: Followers, overlay: Overlay, config: EngineConfig
    ) -> None:
        self._store = store
        self._followers = followers
        self._overlay = overlay
        self._peer = overlay.identity.peer_id.hex()
        self._config = config

    async def prepare(self, stored: StoredQuery, executor: Executor) -> RunningQuery:
        """Open the logs and hold the inputs, so that nothing is lost until the query runs.

        Raises:
            StorageFullError: no room. InternalError: one is damaged.
            InvalidInputError: it does not type-check.
        """
        overlay = self._overlay
        tasks = await overlay.threads.run(overlay.identity.participant, stored.network.tasks)
        logs = {task.output: await self.keep_output(stored, task, Role.DERIVED) for task in tasks}
        logs |= await self._follow_inputs(stored, tasks, logs)
        if stored.availability.mode in {Mode.UPSTREAM_BACKUP, Mode.PASSIVE_STANDBY}:
            for name in stored.inputs:  # until it is known what a secondary needs
                self._followers.need(name, stored.name, BEGINNING)
        return self.build(stored, tasks, logs, executor)

    async def keep_output(self, stored: StoredQuery, task: Task, role: Role) -> KeptStream:
        """The log of an output, under the variant that the query has here."""
        entry = stored.network.entry_of(task.output, task.output_schema, self._peer)
        kept = await self._store.keep(entry, role, stored.variant)
        position = stored.positions.get(task.output, BEGINNING)
        if kept.log.boundary == BEGINNING < position:
            if _forgets(stored.availability):
                await kept.log.commit(position, None)  # the gap: consumers go on behind it
            else:
                kept.log.begin(position)
        await self._define(kept, entry)
        if kept.role is not role:
            await self._store.change_role(kept, role)
        return kept

    async def define_outputs(self, stored: StoredQuery, tasks: Sequence[Task]) -> None:
        """Let the logs that are open be of the streams as the query makes them now."""
        for entry in self.entries(stored, tasks):
            kept = self._store.get(entry.stream.name, stored.variant)
            if kept is not None:
                await self._define(kept, entry)

    def entries(self, stored: StoredQuery, tasks: Sequence[Task]) -> list[StreamEntry]:
        """What the catalog holds of their outputs, with this peer as their home."""
        network = stored.network
        return [network.entry_of(task.output, task.output_schema, self._peer) for task in tasks]

    async def _define(self, kept: KeptStream, entry: StreamEntry) -> None:
        if kept.entry != entry:
            await self._store.define(kept, entry)

    async def _follow_inputs(
        self, stored: StoredQuery, tasks: Sequence[Task], logs: Mapping[str, KeptStream]
    ) -> dict[str, KeptStream]:
        """The logs of what a query reads from elsewhere: whole ones where it was created; where it
        came by as a replica, from the boundary that its outputs (`logs`) are at."""
        query = stored.entry.query
        if not stored.variant and query.after > BEGINNING:
            at = needed(tasks, {task.output: logs[task.output].log.boundary for task in tasks})
            return {
                name: await self._followers.follow_past(
                    entry, query.name, max(at[name], query.after)
                )
                for name, entry in stored.inputs.items()
            }
        if not stored.variant:
            return {
                name: await self._followers.follow(entry, stored.name)
                for name, entry in stored.inputs.items()
            }
        after = needed(tasks, {task.output: logs[task.output].log.boundary for task in tasks})
        return {
            name: await self._followers.follow_from(
                entry, stored.name, FOR_QUERIES, after[name], owner=carrier(stored)
            )
            for name, entry in stored.inputs.items()
        }

    async def tidy(self, known: Mapping[str, StoredQuery]) -> None:
        """Undo what a crash left of creations, deletions and failovers: a query's file says that it
        is. What is read here goes on as a mirror."""
        read = {
            stream for stored in known.values() if not stored.variant for stream in stored.inputs
        }
        for kept in self._store.all():
            if kept.role not in {Role.DERIVED, Role.STANDBY} or kept.entry.stream.query in known:
                continue
            if kept.name in read and not kept.variant:
                with suppress(StorageError):  # as `Followers.part_with`
                    await self._store.change_role(kept, Role.MIRROR)
                kept.role = Role.MIRROR
            else:
                await self._store.drop(kept.key)

    async def leave_inputs(self, stored: StoredQuery) -> None:
        """It reads nothing any more."""
        for stream in stored.inputs:
            await self._followers.leave(stream, stored.name)

    async def drop(self, stored: StoredQuery) -> None:
        """Keep nothing of it any more, but what is read here by others."""
        await self.leave_inputs(stored)
        for output in stored.entry.outputs:
            kept = self._store.get(output, stored.variant)
            if kept is not None:
                await self._followers.part_with(kept)

    def build(
        self,
        stored: StoredQuery,
        tasks: Sequence[Task],
        logs: Mapping[str, KeptStream],
        executor: Executor,
    ) -> RunningQuery:
        """Its tasks, not yet running, that hold what they need of their inputs."""
        runners = [self._runner(task, logs, executor) for task in tasks]
        placed = [
            PlacedTask(
                runner,
                logs[task.output],
                reach=self._followers.reach,
                clock=self._overlay.clock,
                placements=stored.placements(task.name),
                fork=self._fork(runner, stored.availability.bound_s, logs, executor),
            )
            for task, runner in zip(tasks, runners, strict=True)
        ]
        for each in placed:
            each.runner.hold()
        running = RunningQuery(stored, placed)

        async def ended() -> None:
            moved = any(len(each.placements) > 1 for each in placed)  # its input may be counted yet
            if stored.entry.query.until < END and not moved:
                await self.leave_inputs(stored)

        running.ended = ended
        return running

    def _fork(
        self,
        runner: TaskRunner,
        bound_s: float,
        logs: Mapping[str, KeptStream],
        executor: Executor,
    ) -> Fork | None:
        task = runner.task
        if not bound_s or task.of is not None:  # revisions come when they come
            return None
        return Fork(
            runner,
            inputs={name: logs[name] for name in task.inputs},
            output=logs[task.output],
            bound_s=bound_s,
            executor=executor,
            config=self._config,
            events=self._overlay.events,
        )

    def _runner(self, task: Task, logs: Mapping[str, KeptStream], executor: Executor) -> TaskRunner:
        return runner_of(
            task,
            inputs={name: logs[name].log for name in task.inputs},
            output=logs[task.output].log,
            executor=executor,
            config=self._config,
            events=self._overlay.events,
        )

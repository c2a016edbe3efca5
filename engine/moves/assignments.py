"""The worker's side: the tasks that this peer runs for others.

An assignment is a file from the moment it is taken, so that a restart goes on with it. What it
stands on is the owner's word alone: the worker asks for it every few seconds, and drops what the
owner does not know of any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import trio

from engine.config import EngineConfig
from engine.definitions import may_read
from engine.kept import KeptStream, Role, key_of
from engine.messages import TaskStatus
from engine.mirror import Mirrors
from engine.moves.assigned_task import AssignedTask, FromOwner, StoredAssignment, network_of
from engine.moves.messages import (
    Activate,
    Assignment,
    Confirm,
    Confirmed,
    GiveBackTask,
    MoveRecord,
    PassOn,
    Progress,
    Release,
    Standing,
)
from engine.plan import Task
from engine.producers import Producers
from engine.schema import BEGINNING
from engine.spark.executor import Executor
from engine.stream_store import OUTPUT, StreamStore
from engine.task_runner import TaskRunner
from engine.windows import horizon_us
from overlay.errors import (
    BusyError,
    ConflictError,
    InternalError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from overlay.events import wall_clock
from overlay.files import write_atomically
from overlay.identity import parse_peer_id
from overlay.names import ObjectName
from overlay.node import Overlay

CONFIRM_S: Final = 2.0
"""How often the owner is asked whether it still counts on us, seconds."""

CALL_S: Final = 10.0
"""Patience with the owner, seconds."""

PASS_ON_S: Final = 120.0
"""Patience with a whole move that the owner makes for us, seconds."""

ORPHAN_S: Final = 300.0
"""How long an assignment that was never activated waits for its owner, seconds."""

MAX_ASSIGNMENTS: Final = 1000
"""Tasks run for others at once: each has logs, mirrors and a job an epoch."""


class Assignments:
    """
    Args:
        folder: one JSON file an assignment.
        nursery: runs their tasks.

    Attributes:
        admit: decides whether a peer (hex) of a participant may have that task run here; raises
            NotAuthorisedError or BusyError where not. Contracts put their own here.
        activated: told when a task has become ours, from which boundary on; at least once.
        ended: told when it no longer is, from which boundary on; its inputs can still be counted.
            At least once. Both: (assignment, boundary).
    """

    def __init__(
        self,
        folder: Path,
        *,
        overlay: Overlay,
        store: StreamStore,
        producers: Producers,
        mirrors: Mirrors,
        executor: Executor,
        config: EngineConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._folder = folder
        self._overlay = overlay
        self._participant = overlay.identity.participant
        self._store = store
        self._producers = producers
        self._mirrors = mirrors
        self._executor = executor
        self._config = config
        self._nursery = nursery
        self._tasks: dict[tuple[str, int], AssignedTask] = {}
        self._changing = trio.Lock()
        self.admit: Callable[[str, str, Assignment, Task], None] = self._only_siblings
        self.activated: Callable[[StoredAssignment, int], None] = lambda _stored, _since: None
        self.ended: Callable[[StoredAssignment, int], None] = lambda _stored, _until: None

    def all(self) -> list[AssignedTask]:
        return list(self._tasks.values())

    def task_status(self) -> tuple[TaskStatus, ...]:
        return tuple(
            each.runner.status(stopped=False, owner=each.stored.owner)
            for each in self.all()
            if each.runner is not None
        )

    async def assign(self, owner: str, participant: str, request: Assignment) -> Progress:
        """Run a task from a boundary on; the same again only asks how far it is.

        Args:
            owner: peer id (hex) of the caller. participant: its participant.

        Raises:
            NotAuthorisedError: it is not theirs, we may not read its inputs, or `admit` says so.
            ConflictError: we have a later assignment of that task.
            InvalidInputError: the definition makes no sense, or has no such task.
            BusyError: too many already.
        """
        async with self._changing:
            known = self._tasks.get((request.task, request.fence))
            if known is None or known.stored.assignment != request:
                known = await self._take(owner, participant, request)
            return known.progress

    async def _take(self, owner: str, participant: str, request: Assignment) -> AssignedTask:
        for each in self.all():
            if each.task.name == request.task:
                if each.stored.assignment.fence > request.fence:
                    raise ConflictError(f"{request.task}: fence {request.fence} is over")
                await self._drop(each)
        task = self._planned(participant, request)
        if len(self._tasks) >= MAX_ASSIGNMENTS:
            raise BusyError(f"this peer runs {MAX_ASSIGNMENTS} tasks for others already")
        self.admit(owner, participant, request, task)
        stored = StoredAssignment(request, owner, wall_clock())
        self._save(stored)
        return await self._start(AssignedTask(stored, task))

    def _planned(self, participant: str, request: Assignment) -> Task:
        for name in (request.task, request.query.name):
            if ObjectName.parse(name).participant != participant:
                raise NotAuthorisedError(f"{name} is not of {participant}, who wants it run")
        for name, entry in request.inputs.items():
            owner = ObjectName.parse(name).participant
            if entry.stream.name != name or not may_read(entry.stream, self._participant, owner):
                raise NotAuthorisedError(f"{name} may not be read by {self._participant}")
        for task in network_of(request).tasks():
            if task.name == request.task:
                return task
        raise InvalidInputError(f"{request.query.name} has no task {request.task}")

    async def _start(self, assigned: AssignedTask) -> AssignedTask:
        """Open its logs, and run it."""
        stored, task = assigned.stored, assigned.task
        self._tasks[stored.key] = assigned
        inputs = await self._follow_inputs(assigned)
        assigned.inputs = tuple(inputs.values())
        assigned.kept = await self._keep_output(stored, task)
        assigned.runner = TaskRunner(
            task,
            inputs={name: kept.log for name, kept in inputs.items()},
            output=assigned.kept.log,
            executor=self._executor,
            config=self._config,
            events=self._overlay.events,
        )
        assigned.runner.expect(stored.assignment.load, stored.assignment.rate)
        assigned.runner.hold()
        if stored.since is not None:
            self._tell_activated(assigned, stored.since)
        self._nursery.start_soon(self._executor.prepare)
        self._nursery.start_soon(assigned.run)
        return assigned

    def _tell_activated(self, assigned: AssignedTask, since: int) -> None:
        assigned.hold_for_bill(since)
        self.activated(assigned.stored, since)

    async def _follow_inputs(self, assigned: AssignedTask) -> dict[str, KeptStream]:
        request, task = assigned.stored.assignment, assigned.task
        source = FromOwner(self._producers, self._overlay, assigned.stored)
        needed = request.after if request.after == BEGINNING else request.after - horizon_us(task)
        network = network_of(request)
        return {
            name: await self._mirrors.follow_from(
                network.entry_of(name, schema, assigned.stored.owner), assigned.user, source, needed
            )
            for name, schema in zip(task.inputs, task.input_schemas, strict=True)
        }

    async def _keep_output(self, stored: StoredAssignment, task: Task) -> KeptStream:
        request = stored.assignment
        entry = network_of(request).entry_of(task.output, task.output_schema, stored.owner)
        kept = self._store.get(key_of(task.output, OUTPUT))
        if kept is not None and not kept.log.start <= request.after <= kept.log.boundary:
            await self._store.drop(kept.key)  # of an earlier assignment
        kept = await self._store.keep(entry, Role.ASSIGNED, OUTPUT)
        if kept.log.boundary == BEGINNING and request.after > BEGINNING:
            kept.log.begin(request.after)
        return kept

    async def activate(self, owner: str, request: Activate) -> None:
        """What follows `since` is ours.

        Raises:
            NotFoundError: we do not run that.
        """
        async with self._changing:
            assigned = self._theirs(owner, request.task, request.fence)
            if assigned.stored.since != request.since:
                stored = msgspec.structs.replace(assigned.stored, since=request.since)
                self._save(stored)
                assigned.stored = stored
            self._tell_activated(assigned, request.since)

    async def release(self, owner: str, request: Release) -> None:
        """Run it no more. What we do not run is released already."""
        async with self._changing:
            with suppress(NotFoundError):
                assigned = self._theirs(owner, request.task, request.fence)
                if request.until is not None:
                    self.ended(assigned.stored, request.until)
                await self._drop(assigned)

    async def pass_on(self, task: str, request: PassOn) -> MoveRecord:
        """Ask the owner to let another peer go on with a task.

        Raises:
            MedusaError: it does not.
        """
        owner = self.of_task(task).stored.owner
        connection = await self._overlay.connect(parse_peer_id(owner))
        return await connection.call("task.pass_on", request, MoveRecord, timeout_s=PASS_ON_S)

    async def give_back(self, task: str) -> MoveRecord:
        """Ask the owner to take a task home.

        Raises:
            MedusaError: it does not.
        """
        assigned = self.of_task(task)
        connection = await self._overlay.connect(parse_peer_id(assigned.stored.owner))
        request = GiveBackTask(task, assigned.stored.assignment.fence)
        return await connection.call("task.give_back", request, MoveRecord, timeout_s=PASS_ON_S)

    def of_task(self, task: str) -> AssignedTask:
        """
        Raises:
            NotFoundError: it does not run here.
        """
        for each in self.all():
            if each.task.name == task:
                return each
        raise NotFoundError(f"{task} is not run here for another peer")

    def find(self, task: str, fence: int) -> AssignedTask:
        """
        Raises:
            NotFoundError: it does not run here.
        """
        assigned = self._tasks.get((task, fence))
        if assigned is None:
            raise NotFoundError(f"{task} with fence {fence} is not run here")
        return assigned

    def _theirs(self, owner: str, task: str, fence: int) -> AssignedTask:
        assigned = self.find(task, fence)
        if assigned.stored.owner != owner:
            raise NotFoundError(f"{task} with fence {fence} is not run here for {owner[:8]}")
        return assigned

    # -- over time ----------------------------------------------------------------------------

    async def resume(self) -> None:
        """Take up the assignments of the last run where they stood."""
        for path in sorted(self._folder.glob("*.json")):
            try:
                stored = msgspec.json.decode(path.read_bytes(), type=StoredAssignment)
            except msgspec.DecodeError as error:
                raise InternalError(f"{path} is damaged ({error}); remove it") from None
            participant = ObjectName.parse(stored.assignment.task).participant
            task = self._planned(participant, stored.assignment)
            await self._start(AssignedTask(stored, task))
        outputs = {key_of(each.task.output, OUTPUT) for each in self.all()}
        for kept in self._store.all():
            if kept.role is Role.ASSIGNED and kept.key not in outputs:
                await self._store.drop(kept.key)

    async def tend(self) -> None:
        """Ask the owners, for ever."""
        while True:
            await trio.sleep(CONFIRM_S)
            async with trio.open_nursery() as nursery:
                for assigned in self.all():
                    nursery.start_soon(self._confirm, assigned)

    async def _confirm(self, assigned: AssignedTask) -> None:
        stored = assigned.stored
        now = wall_clock()
        try:
            connection = await self._overlay.connect(parse_peer_id(stored.owner))
            answer = await connection.call(
                "task.confirm", Confirm(*stored.key), Confirmed, timeout_s=CALL_S
            )
        except MedusaError:
            # in a partition a task goes on; what was never ours waits for its owner for a while
            if stored.since is None and now - stored.taken_at > ORPHAN_S:
                await self.release(stored.owner, Release(*stored.key))
            return
        await self._heed(stored, answer)

    async def _heed(self, stored: StoredAssignment, answer: Confirmed) -> None:
        if answer.standing is Standing.RELEASED:
            await self.release(stored.owner, Release(*stored.key, answer.until))
        elif answer.since is not None and answer.since != stored.since:
            with suppress(NotFoundError):
                await self.activate(stored.owner, Activate(*stored.key, answer.since))

    async def _stop(self, assigned: AssignedTask) -> None:
        """End the work; who reads its output from here finds the next worker."""
        if assigned.runner is None or assigned.kept is None:
            return
        assigned.scope.cancel()
        await assigned.at_rest.wait()
        assigned.runner.release()
        await self._store.drop(assigned.kept.key)
        assigned.runner = assigned.kept = None

    async def _drop(self, assigned: AssignedTask) -> None:
        with trio.CancelScope(shield=True):
            self._path(assigned.stored).unlink(missing_ok=True)
            await self._stop(assigned)
            for kept in assigned.inputs:
                kept.log.release(f"bill {assigned.user}")
            for name in assigned.task.inputs:
                await self._mirrors.leave(name, assigned.user)
            del self._tasks[assigned.stored.key]

    def _save(self, stored: StoredAssignment) -> None:
        write_atomically(self._path(stored), msgspec.json.encode(stored))

    def _path(self, stored: StoredAssignment) -> Path:
        task, fence = stored.key  # a name may be as long as a file's
        return self._folder / f"{hashlib.sha256(task.encode()).hexdigest()[:32]}-{fence}.json"

    def _only_siblings(self, _owner: str, participant: str, request: Assignment, _: Task) -> None:
        if participant != self._participant:
            raise NotAuthorisedError(
                f"{self._participant} has no contract with {participant} to run {request.task}"
            )

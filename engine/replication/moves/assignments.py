"""The worker's side: the tasks that this peer runs for others.

An assignment is a file from the moment it is taken, so that a restart goes on with it. It depends
on the owner alone: the worker asks the owner every few seconds, and drops a task that the owner
does not know any more.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from medusa.engine.objects.definitions import StreamEntry, check_stream
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.copies.copy import Copy, Workshop
from medusa.engine.replication.moves.checks import (
    check_form,
    check_owner,
    network_of,
    permitted_task,
    planned_task,
)
from medusa.engine.replication.moves.guest import (
    AssignmentFiles,
    Guest,
    StoredAssignment,
    ask_owner,
)
from medusa.engine.replication.moves.messages import (
    Activate,
    Assignment,
    Confirmed,
    PlacementStatus,
    Progress,
    Release,
    Released,
)
from medusa.engine.replication.records.placements import Placement
from medusa.engine.replication.records.term import Term
from medusa.engine.streams.store.store import OUTPUT
from medusa.engine.streams.store.stream_state import LogKey, Role, StreamState
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.status import TaskStatus
from medusa.engine.tasks.windows import read_after
from medusa.overlay.concurrency import Locks
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
)
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.listeners import Decision, Listeners
from medusa.overlay.names import PeerId

MAX_ASSIGNMENTS: Final = 1000
"""Tasks run for others at once: each has logs, followers and a job per epoch."""


class Assignments:
    """The tasks that this peer runs for other peers, as their worker.

    Args:
        folder: has one JSON file per assignment. Attributes: expect: as `admit`, but called before
            the task is planned, because planning costs seconds.
        admit: decides whether a peer of a participant may have that task run here; raises
            NotAuthorisedError or BusyError if not. The market sets it. activated: called when a
            task has become ours, with the boundary; at least once.
        ended: called, at least once, when the task is no longer ours, with the boundary; its inputs
            can still be counted. Both take (assignment, boundary).
    """

    def __init__(self, folder: Path, shop: Workshop) -> None:
        self._files = AssignmentFiles(folder)
        self._shop = shop
        self._overlay = shop.overlay
        self._participant = shop.overlay.identity.participant
        self._store = shop.store
        self._followers = shop.followers
        self._nursery = shop.nursery
        self._tasks: dict[tuple[str, int], Guest] = {}
        self._released: dict[tuple[PeerId, str, int], int] = {}
        # each of these calls may wait for an owner, and other owners have tasks here as well
        self._changing = Locks()
        self.expect: Decision[[PeerId, str, Assignment], None] = Decision(lambda *_: None)
        self.admit: Decision[[PeerId, str, Assignment, Task], None] = Decision(self._only_siblings)
        self.activated: Listeners[[StoredAssignment, int]] = Listeners()
        self.ended: Listeners[[StoredAssignment, int]] = Listeners()

    def all(self) -> list[Guest]:
        return list(self._tasks.values())

    def task_status(self) -> tuple[TaskStatus, ...]:
        return tuple(
            each.copy.status(owner=each.stored.owner)
            for each in self.all()
            if each.copy is not None
        )

    async def assign(self, owner: PeerId, participant: str, request: Assignment) -> Progress:
        """Run a task from a boundary on; a repetition only returns its progress.

        Args:
            owner: the caller. participant: its participant.

        Raises:
            NotAuthorisedError: the task is not the caller's, this peer may not read its inputs, or
                `admit` refuses.
            ConflictError: we have a later assignment of that task.
            InvalidInputError: the definition makes no sense, or has no such task; or it calls a
                function that is not allowed here.
            BusyError: this peer has too many assignments; or it cannot compute now, and tries to
                recover.
        """
        check_owner(request, participant)
        async with self._changing.of(request.task):
            known = self._tasks.get((request.task, request.term_number))
            if known is None or (known.stored.owner_id, known.stored.assignment) != (
                owner,
                request,
            ):
                known = await self._take(owner, participant, request)
            return known.progress

    async def _take(self, owner: PeerId, participant: str, request: Assignment) -> Guest:
        earlier = [each for each in self.all() if each.task.name == request.task]
        if any(each.stored.assignment.term_number > request.term_number for each in earlier):
            raise ConflictError(f"{request.task}: term {request.term_number} is over")
        self.expect(owner, participant, request)
        check_form(request, self._overlay.clock())
        task = await permitted_task(request, participant, self._shop)
        self._shop.check_functions([task])
        if len(self._tasks) - len(earlier) >= MAX_ASSIGNMENTS:
            raise BusyError(f"this peer runs {MAX_ASSIGNMENTS} tasks for others already")
        executor = self._shop.executor
        if trouble := executor.trouble:
            self._nursery.start_soon(executor.prepare)
            raise BusyError(f"this peer computes nothing now: {trouble}")
        self.admit(owner, participant, request, task)
        for each in earlier:
            await self._settle(each)
        assigned = Guest(StoredAssignment(request, owner.hex()), task)
        self._files.save(assigned.stored)
        self._tasks[assigned.stored.key] = assigned
        # done in the background: the caller may leave while the disk is slow, and call again
        self._nursery.start_soon(self._open, assigned)
        await assigned.opened.wait()
        return assigned

    async def _open(self, assigned: Guest, resumed: bool = False) -> None:
        """Run the task, or store for its owner why it cannot run."""
        try:
            await self._start(assigned, resumed)
        except MedusaError as error:
            assigned.reason = str(error)
            self._overlay.events.note("error", f"does not run {assigned.task.name}: {error}")
        finally:
            assigned.opened.set()

    async def _settle(self, assigned: Guest) -> None:
        """End an assignment that another term replaces: the owner knows how much of it was used."""
        answer = Confirmed(PlacementStatus.RELEASED)
        with suppress(MedusaError):
            answer = await ask_owner(self._overlay, self._shop.directory, assigned)
        await self._end(assigned, answer.until, answer.since)

    async def _start(self, assigned: Guest, resumed: bool) -> None:
        """Open the logs of an assigned task, and compute it. resumed: whether it ran here before a
        restart."""
        request, task = assigned.stored.assignment, assigned.task
        state = await self._keep_output(assigned.stored, task, resumed=resumed)
        logs = await self._follow_inputs(assigned, state.log.boundary)
        taken = Placement(Term(task.name), load=request.load, rate=request.rate)
        assigned.copy = copy = Copy(
            self._shop,
            task,
            {**logs, task.output: state},
            bound_s=request.query.availability.bound_s,
            placements=(taken,),
            user=assigned.user,
        )
        await self._define(assigned)  # the owner may have altered the output meanwhile
        copy.runner.inputs.hold()
        if assigned.stored.since is not None:
            self._notify_activated(assigned, assigned.stored.since)
        elif request.deal.contract:
            # the task computes before this peer learns that it is the worker
            copy.hold_for_bill(copy.boundary)
        self._nursery.start_soon(self._shop.executor.prepare)
        assigned.work.start(self._nursery, assigned.run)

    def _notify_activated(self, assigned: Guest, since: int) -> None:
        if assigned.stored.assignment.deal.contract:
            assigned.hold_for_bill(since)
        self.activated.notify(assigned.stored, since)

    @failpoint(Failpoint.ASSIGNMENT_FOLLOW_INPUTS)
    async def _follow_inputs(self, assigned: Guest, boundary: int) -> dict[str, StreamState]:
        """Follow the inputs of a task. boundary: the boundary of its output."""
        task, owner = assigned.task, assigned.stored.owner
        network = network_of(assigned.stored.assignment)
        return {
            name: await self._followers.follow_from(
                network.entry_of(name, schema, owner),
                assigned.user,
                assigned.origin,
                read_after(task, name, boundary),
                owner,
            )
            for name, schema in zip(task.inputs, task.input_schemas, strict=True)
        }

    async def _keep_output(
        self, stored: StoredAssignment, task: Task, *, resumed: bool
    ) -> StreamState:
        request = stored.assignment
        entry = network_of(request).entry_of(task.output, task.output_schema, stored.owner)
        state = self._store.get(task.output, OUTPUT)
        if state is not None:
            # after a restart the log continues from its end, even if its beginning was dropped
            begun = resumed or state.log.start <= request.after
            if not begun or state.log.boundary < request.after:
                await self._store.drop(state.key)  # a log of an earlier assignment
        state = await self._store.keep(entry, Role.ASSIGNED, OUTPUT)
        if state.log.boundary == BEGINNING and request.after > BEGINNING:
            state.log.begin(request.after)
        return state

    async def activate(self, owner: PeerId, request: Activate) -> None:
        """Become the worker of a task from the boundary `since` on. Raises: NotFoundError: this
        peer does not run the task.
        """
        self._theirs(owner, request.task, request.term_number)
        async with self._changing.of(request.task):
            assigned = self._theirs(owner, request.task, request.term_number)
            before = assigned.stored
            assignment = msgspec.structs.replace(before.assignment, altered=request.altered)
            stored = StoredAssignment(assignment, before.owner, request.since)
            if stored != before:
                self._files.save(stored)
                assigned.stored = stored
            await self._define(assigned)
            self._notify_activated(assigned, request.since)

    async def _define(self, assigned: Guest) -> None:
        if assigned.copy is None:
            return  # the output gets the definition when it is opened
        task, state = assigned.task, assigned.copy.state
        if self._store.get(*state.key) is not state:
            return  # the log is being dropped
        entry = assigned.network.entry_of(task.output, task.output_schema, assigned.stored.owner)
        if state.entry != entry:
            check_stream(entry.stream)
            await self._store.define(state, entry)

    async def release(self, owner: PeerId, request: Release) -> Released:
        """Stop running a task. A task that does not run here counts as released."""
        with suppress(NotFoundError):
            self._theirs(owner, request.task, request.term_number)
            async with self._changing.of(request.task):
                assigned = self._theirs(owner, request.task, request.term_number)
                await self._end(assigned, request.until, request.since)
        reached = self._released.get((owner, request.task, request.term_number), BEGINNING)
        return Released(reached)

    async def _end(self, assigned: Guest, until: int | None, since: int | None) -> None:
        """End an assignment. If the owner's boundary is not known, ours counts; the payer then
        corrects how much was used. This peer may learn only now that it was the task's worker."""
        if assigned.stored.since is None and until is not None and since is not None:
            self.activated.notify(assigned.stored, since)
        if until is None and assigned.stored.since is not None:
            until = assigned.boundary
        if until is not None:
            self.ended.notify(assigned.stored, until)
        await self._drop(assigned)

    async def relabel(self, assigned: Guest, inputs: dict[str, StreamEntry]) -> None:
        """Give the inputs of the task's query the readers that these entries have.

        Raises:
            InvalidInputError: the output would be made of too many streams with restricted readers.
        """
        assigned.inputs_now = inputs
        await self._define(assigned)

    def of_task(self, task: str) -> Guest:
        """The assignment of a task. Raises: NotFoundError: the task does not run here."""
        for each in self.all():
            if each.task.name == task:
                return each
        raise NotFoundError(f"{task} is not run here for another peer")

    def find(self, task: str, term_number: int) -> Guest:
        """The assignment under that term. Raises: NotFoundError: the task does not run here."""
        assigned = self._tasks.get((task, term_number))
        if assigned is None:
            raise NotFoundError(f"{task} with term {term_number} is not run here")
        return assigned

    def _theirs(self, owner: PeerId, task: str, term_number: int) -> Guest:
        assigned = self.find(task, term_number)
        if assigned.stored.owner_id != owner:
            raise NotFoundError(
                f"{task} with term {term_number} is not run here for {owner.hex()[:8]}"
            )
        return assigned

    # -- over time ----------------------------------------------------------------------------

    async def resume(self) -> None:
        """Resume the assignments of the last run from their boundaries."""
        for stored in self._files.load():
            planning = partial(planned_task, stored.assignment)
            try:
                task = await self._overlay.threads.run(self._participant, planning)
            # a new release may have stricter limits: then the owner takes the task back
            except InvalidInputError as error:
                self._files.remove(stored)
                text = f"does not run {stored.assignment.task} any more: {error}"
                self._overlay.events.note("error", text)
                continue
            self._tasks[stored.key] = assigned = Guest(stored, task)
            await self._open(assigned, resumed=True)
        outputs = {LogKey(each.task.output, OUTPUT) for each in self.all()}
        for state in self._store.all():
            if state.role is Role.ASSIGNED and state.key not in outputs:
                await self._store.drop(state.key)

    def _remember(self, stored: StoredAssignment, reached: int) -> None:
        """Remember a release: the owner asks again if our answer is lost."""
        self._released[stored.owner_id, *stored.key] = reached
        if len(self._released) > MAX_ASSIGNMENTS:
            del self._released[next(iter(self._released))]

    async def _stop(self, assigned: Guest) -> int:
        """End the work; readers of its output find the next worker. Returns its boundary."""
        await assigned.opened.wait()
        await assigned.work.stop()
        if assigned.copy is not None:
            assigned.copy.runner.inputs.release()
        await self._store.drop(LogKey(assigned.task.output, OUTPUT))
        assigned.hold_for_bill(None)
        return assigned.boundary

    @failpoint(Failpoint.ASSIGNMENT_DROP)
    async def _drop(self, assigned: Guest) -> None:
        with trio.CancelScope(shield=True):
            self._files.remove(assigned.stored)
            self._remember(assigned.stored, await self._stop(assigned))
            async with trio.open_nursery() as nursery:  # each release may wait for a producer
                for name in assigned.task.inputs:
                    nursery.start_soon(self._followers.leave, name, assigned.user)
            del self._tasks[assigned.stored.key]

    def _only_siblings(
        self, _owner: PeerId, participant: str, request: Assignment, _: Task
    ) -> None:
        if participant != self._participant:
            raise NotAuthorisedError(
                f"{self._participant} has no contract with {participant} to run {request.task}"
            )

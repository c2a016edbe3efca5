"""Returns tasks that this peer runs for others.

Only the owner moves a task: this peer asks it to take the task back, or to let a third peer
continue the task.

Copies of a task's inputs stay here as long as the task, or its bill, needs them. These copies must
not block our own posts: a partner's tasks return once their inputs exceed the bounds of `foreign`,
which count inputs of tasks apart from the holds of subscribers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import trio

from medusa.engine.replication.copies.copy import Workshop
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.moves.guest import Guest
from medusa.engine.replication.moves.messages import GiveBackTask, MoveRecord, PassOn, Release
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.disk_quota import Held, to_release
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import MedusaError
from medusa.overlay.names import ObjectName

PASS_ON_S: Final = 120.0
"""The longest wait for a whole move that the owner makes, seconds."""


class Returning:
    """Gives back the tasks that one peer runs for others."""

    def __init__(self, assignments: Assignments, shop: Workshop) -> None:
        self._assignments = assignments
        self._overlay = shop.overlay
        self._store = shop.store
        self._nursery = shop.nursery
        self._timing = shop.config.timing
        self._going: set[str] = set()

    async def pass_on(self, task: str, request: PassOn) -> MoveRecord:
        """Ask the owner to let another peer continue a task.

        Raises:
            MedusaError: the owner refuses.
        """
        owner = self._assignments.of_task(task).stored.owner_id
        connection = await self._overlay.connect(owner)
        return await connection.call("task.pass_on", request, MoveRecord, timeout_s=PASS_ON_S)

    async def give_back(self, task: str) -> MoveRecord:
        """Ask the owner to take a task back. After `Timing.leave_s` of refusals the task is
        dropped: the owner has the whole output, and continues from there at any time.

        Raises:
            MedusaError: the owner refuses.
        """
        assigned = self._assignments.of_task(task)
        stored = assigned.stored
        asked_at = trio.current_time() if assigned.asked_at is None else assigned.asked_at
        request = GiveBackTask(task, stored.assignment.term_number)
        try:
            connection = await self._overlay.connect(stored.owner_id)
            return await connection.call("task.give_back", request, MoveRecord, timeout_s=PASS_ON_S)
        except MedusaError:
            assigned.asked_at = asked_at
            if trio.current_time() - asked_at > self._timing.leave_s:
                await self._assignments.release(stored.owner_id, Release(*stored.key))
            raise

    def refuse(self, assigned: Guest, why: str) -> None:
        """Stop computing a task, and ask its owner to take it back, repeatedly until the owner
        does."""
        if assigned.reason != why:
            assigned.refuse(why)
        self._send_back(assigned.task.name, why)

    async def maintain(self) -> None:
        """Give back tasks that crowd our own streams, for ever."""
        while True:
            await trio.sleep_until(next_beat(self._timing.crowded_s))
            for task, why in self._crowding().items():
                self._send_back(task, why)

    def _crowding(self) -> dict[str, str]:
        """Return the tasks to return, each with the reason, for people."""
        quota, own = self._store.quota, self._overlay.identity.participant
        held = [held for guest in self._assignments.all() for held in _held(guest)]
        gone = to_release(
            [each for each in held if each.holder != own],
            disk_bytes=quota.limit_bytes,
            short_bytes=quota.short_bytes,
            hold_s=1.0,
            now=0.0,
        )
        return {each.consumer.id: why for each, why in gone.items()}

    def _send_back(self, task: str, why: str) -> None:
        if task not in self._going:
            self._overlay.events.note("warning", f"sends {task} home: {why}")
            self._going.add(task)
            self._nursery.start_soon(self._try_to_give_back, task)

    async def _try_to_give_back(self, task: str) -> None:
        try:
            await self.give_back(task)
        except MedusaError as error:  # the next round tries again
            self._overlay.events.note("warning", f"could not give back {task}: {error}")
        finally:
            self._going.discard(task)


def _held(guest: Guest) -> Iterator[Held]:
    """The logs that are kept for its inputs."""
    consumer, owner = Hold("task", guest.task.name), ObjectName.parse(guest.task.name).participant
    inputs = () if guest.copy is None else guest.copy.inputs.values()
    for state in inputs:
        yield Held(state.key, consumer, owner, state.log.files.bytes, since=0.0)

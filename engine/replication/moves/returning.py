"""The worker's side: tasks that this peer runs for others, and is to run no longer.

Only the owner moves a task: it is asked to take it home, or to let a third peer go on with it.
"""

from __future__ import annotations

from typing import Final

import trio

from engine.replication.moves.assigned_task import AssignedTask
from engine.replication.moves.assignments import Assignments
from engine.replication.moves.crowding import crowding
from engine.replication.moves.messages import GiveBackTask, MoveRecord, PassOn, Release
from engine.streams.store import StreamStore
from overlay.errors import MedusaError
from overlay.identity import parse_peer_id
from overlay.node import Overlay

LOOK_S: Final = 2.0
"""How often it is looked for tasks that crowd our own streams, seconds."""

PASS_ON_S: Final = 120.0
"""Patience with a whole move that the owner makes for us, seconds."""

LEAVE_S: Final = 300.0
"""How long an owner may refuse to take a task back before it is left, seconds."""


class Returning:
    """
    Args:
        nursery: runs what waits for an owner.
    """

    def __init__(
        self,
        assignments: Assignments,
        overlay: Overlay,
        store: StreamStore,
        nursery: trio.Nursery,
    ) -> None:
        self._assignments = assignments
        self._overlay = overlay
        self._store = store
        self._nursery = nursery
        self._going: set[str] = set()

    async def pass_on(self, task: str, request: PassOn) -> MoveRecord:
        """Ask the owner to let another peer go on with a task.

        Raises:
            MedusaError: it does not.
        """
        owner = self._assignments.of_task(task).stored.owner
        connection = await self._overlay.connect(parse_peer_id(owner))
        return await connection.call("task.pass_on", request, MoveRecord, timeout_s=PASS_ON_S)

    async def give_back(self, task: str) -> MoveRecord:
        """Ask the owner to take a task home. One that would not for `LEAVE_S` is left with it:
        it has the whole output, and goes on from there when it likes.

        Raises:
            MedusaError: it does not.
        """
        assigned = self._assignments.of_task(task)
        stored = assigned.stored
        asked_at = trio.current_time() if assigned.asked_at is None else assigned.asked_at
        request = GiveBackTask(task, stored.assignment.fence)
        try:
            connection = await self._overlay.connect(parse_peer_id(stored.owner))
            return await connection.call("task.give_back", request, MoveRecord, timeout_s=PASS_ON_S)
        except MedusaError:
            assigned.asked_at = asked_at
            if trio.current_time() - asked_at > LEAVE_S:
                await self._assignments.release(stored.owner, Release(*stored.key))
            raise

    def refuse(self, assigned: AssignedTask, why: str) -> None:
        """Compute no more of a task, and ask its owner to take it home, until it does."""
        if assigned.reason != why:
            assigned.reason, assigned.ready = why, False
            assigned.scope.cancel()
        self._send_home(assigned.task.name, why)

    async def tend(self) -> None:
        """Send home what crowds our own streams, for ever."""
        while True:
            await trio.sleep(LOOK_S)
            found = crowding(
                self._assignments.all(),
                self._overlay.identity.participant,
                disk_bytes=self._store.room.limit_bytes,
                short_bytes=self._store.room.short_bytes,
            )
            for task, why in found.items():
                self._send_home(task, why)

    def _send_home(self, task: str, why: str) -> None:
        if task not in self._going:
            self._overlay.events.note("warning", f"sends {task} home: {why}")
            self._going.add(task)
            self._nursery.start_soon(self._try_to_give_back, task)

    async def _try_to_give_back(self, task: str) -> None:
        try:
            await self.give_back(task)
        except MedusaError as error:  # it is tried again
            self._overlay.events.note("warning", f"could not give back {task}: {error}")
        finally:
            self._going.discard(task)

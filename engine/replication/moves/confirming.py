"""The worker asks its owners, every few seconds, whether it still has their tasks."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from medusa.engine.replication.copies.copy import Workshop
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.moves.guest import Guest, StoredAssignment, ask_owner
from medusa.engine.replication.moves.messages import Activate, Confirmed, PlacementStatus, Release
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import MedusaError, NotFoundError

ORPHAN_S: Final = 300.0
"""How long an assignment that was never activated waits for its owner, seconds."""


class Confirming:
    """Asks owners about the tasks that this peer runs for them, and acts on their answers."""

    def __init__(self, assignments: Assignments, shop: Workshop) -> None:
        self._assignments = assignments
        self._overlay = shop.overlay
        self._directory = shop.directory
        self._timing = shop.config.timing

    async def maintain(self) -> None:
        """Ask each owner, every `confirm_s`, whether this peer is still the worker of its task; for
        ever."""
        while True:
            await trio.sleep_until(next_beat(self._timing.confirm_s))
            async with trio.open_nursery() as nursery:
                for assigned in self._assignments.all():
                    nursery.start_soon(self._confirm, assigned)

    async def _confirm(self, assigned: Guest) -> None:
        stored, known_s = assigned.stored, trio.current_time() - assigned.known_at
        try:
            try:
                answer = await ask_owner(self._overlay, self._directory, assigned)
            except MedusaError:
                # during a partition a task continues; one that was never activated waits a while
                # for its owner
                if stored.since is None and known_s > ORPHAN_S:
                    await self._assignments.release(stored.owner_id, Release(*stored.key))
            else:
                await self._act_on(stored, answer)
        except MedusaError as error:  # for example, the disk is full: the owner is asked again
            self._overlay.events.note(
                "warning", f"could not confirm {stored.assignment.task}: {error}"
            )

    async def _act_on(self, stored: StoredAssignment, answer: Confirmed) -> None:
        if answer.status is PlacementStatus.RELEASED:
            release = Release(*stored.key, answer.until, answer.since)
            await self._assignments.release(stored.owner_id, release)
        elif answer.since is not None and answer.since != stored.since:
            with suppress(NotFoundError):
                activate = Activate(*stored.key, answer.since, stored.assignment.altered)
                await self._assignments.activate(stored.owner_id, activate)

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.copies.copy import Workshop
from medusa.engine.replication.copies.query_copy import QueryCopy, carrier
from medusa.engine.replication.following.book import INPUT
from medusa.engine.replication.following.follower import Course, Follower
from medusa.engine.replication.following.origin import (
    FROM_PRODUCERS,
    PRODUCER,
    READ_REPLICA,
    Place,
    Right,
)
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.store import REPLICA
from medusa.engine.streams.store.stream_state import Role
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.windows import needed_after, read_after
from medusa.overlay.concurrency import Job

PRIMARY: Final = Hold("primary")
"""The name of the hold on the standby's outputs; it begins at the boundary that the primary's
consumers need."""

GRACE_S: Final = 60.0
"""How long that hold lasts after the primary's last message, seconds: by then its consumers have
come here."""


class KeptStreams:
    """The streams of a query at its secondary: the logs that the mode needs, and the followers that
    fill them, from the primary or from producers."""

    def __init__(self, copy: QueryCopy, shop: Workshop) -> None:
        self._copy = copy
        self._shop = shop
        self._followers = shop.followers
        right = Right(copy.name, copy.stored.term.number)
        self._primary = Place(copy.stored.term.holder, method=READ_REPLICA, right=right)
        self._copying: list[Follower] = []
        self._following = Job()

    @property
    def lost(self) -> bool:
        """Whether the primary has dropped the tuples that the copies need next."""
        logs = self._copy.logs
        inputs = (logs[name].key for name in self._copy.stored.inputs if name in logs)
        gone = [each.gone for each in self._copying] + [self._followers.gone(key) for key in inputs]
        return self._primary in gone

    async def keep_inputs(self) -> None:
        """Keep the outputs, and the inputs from the boundaries of the tasks' outputs on."""
        await self._keep_outputs()
        # the producer sends them; the primary sends only the part that the producer has dropped
        await self._follow(self._copy.plan, (PRODUCER, self._primary), carried=False)

    async def keep_checkpoints(self) -> None:
        """Keep copies of the primary's outputs, and of the part of the inputs that the primary
        sends: the part that the tasks may still read."""
        await self._keep_outputs()
        # the primary has the producers keep the part that it has not sent
        await self._follow(self._stateful, (self._primary, PRODUCER), carried=True)
        self.trim()  # trim at once: retention knows no task that needs the rows
        self._following.start(self._shop.nursery, self._follow_outputs)

    @property
    def _stateful(self) -> list[Task]:
        """The tasks with windows or joins: their state is a suffix of their inputs."""
        return [task for task in self._copy.plan if task.has_state]

    async def _keep_outputs(self) -> None:
        await self._copy.keep_outputs(Role.STANDBY)
        self.hold(
            {
                state.name: self._copy.stored.positions.get(state.name, state.log.start)
                for state in self._copy.logs.values()
            }
        )

    def hold(self, positions: dict[str, int]) -> None:
        """Keep the outputs for the primary's consumers. positions: for each stream, the consumers'
        boundary."""
        expires = trio.current_time() + GRACE_S
        for name, state in self._copy.logs.items():
            if state.role is Role.STANDBY and name in positions:
                state.log.retention.hold(PRIMARY, positions[name], expires)

    async def _follow(
        self, tasks: Sequence[Task], origin: tuple[Place, ...], *, carried: bool
    ) -> None:
        stored = self._copy.stored
        for name, entry in stored.inputs.items():
            readers = [task for task in tasks if name in task.inputs]
            if not readers:
                continue
            owner = carrier(stored)
            after = min(read_after(task, name, self._made(task)) for task in readers)
            # the copy begins as far back as the primary has the stream, or as the last run kept it
            if carried:
                before = self._shop.store.get(name, f"{INPUT}-{owner}")
                start = BEGINNING if before is None else before.log.start
                after = max(stored.positions.get(name, BEGINNING), start)
            self._copy.logs[name] = await self._followers.follow_from(
                entry, self._copy.name, origin, after, owner=owner
            )

    def _made(self, task: Task) -> int:
        return self._copy.logs[task.output].log.boundary

    async def _follow_outputs(self) -> None:
        """Follow the outputs of the primary, checkpoint by checkpoint."""
        reach, origin = self._followers.reach, (self._primary,)
        async with trio.open_nursery() as nursery:
            for task in self._copy.plan:
                since = self._copy.stored.positions.get(task.output, BEGINNING)
                course = Course(BEGINNING if task.recalls else since, committed=self.trim)
                state = self._copy.logs[task.output]
                follower = Follower(state, origin, reach, REPLICA, course)
                self._copying.append(follower)
                nursery.start_soon(follower.run)

    def trim(self) -> None:
        """Keep (by the hold `carry`) the part of the inputs that the tasks may still read."""
        for name in self._copy.stored.inputs:
            readers = [task for task in self._stateful if name in task.inputs]
            if readers:
                needed = min(needed_after(task, self._made(task), name) for task in readers)
                carry = Hold("carry", self._copy.name)
                self._copy.logs[name].log.retention.hold(carry, needed)

    def release(self) -> None:
        """End the hold `carry` on the inputs, because by now the tasks hold their inputs
        themselves."""
        for name in self._copy.stored.inputs:
            if name in self._copy.logs:
                self._copy.logs[name].log.retention.release(Hold("carry", self._copy.name))

    async def leave_primary(self) -> None:
        """Stop following the primary. The logs stay."""
        await self._following.stop()
        self._followers.take_from(self._copy.name, FROM_PRODUCERS)

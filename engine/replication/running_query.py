"""The tasks of one query at a peer that computes them, and what stops them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import trio

from engine.objects.schema import END
from engine.replication.announcements import Announcements
from engine.replication.moves.placed_task import PlacedTask
from engine.replication.stored_query import StoredQuery
from engine.tasks.former import changing
from engine.tasks.plan import Task
from overlay.errors import ClosedError
from overlay.killpoints import KillPoint, kill_point


class RunningQuery:
    """
    Attributes:
        stored: what a restart needs of it; replaced by whoever writes it down.
        running: whether its tasks run.
        taken_over_at: when this peer went on with what another had, on trio's clock, seconds.
        ended: called once all its outputs have ended.
        modifying: held while it is being modified.
        parted_at: when a peer was given up that may take itself for its secondary yet, on trio's
            clock, seconds.
    """

    def __init__(self, stored: StoredQuery, tasks: list[PlacedTask]) -> None:
        self.stored = stored
        self.tasks = tasks
        self.taken_over_at = float("-inf")
        self.ended: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.parted_at = float("-inf")
        self.modifying = trio.Lock()
        self._scope: trio.CancelScope | None = None
        self._stopped = trio.Event()

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def running(self) -> bool:
        return self._scope is not None

    def start(self, nursery: trio.Nursery) -> None:
        """Let the tasks go on; nothing where they do."""
        if self._scope is None:
            self._stopped = trio.Event()
            self._scope = trio.CancelScope()
            nursery.start_soon(self._run, self._scope)

    async def stop(self) -> None:
        """Returns once none runs any more, even if its caller would rather leave: half stopped it
        could not be started again."""
        if self._scope is not None:
            self._scope.cancel()
            with trio.CancelScope(shield=True):
                await self._stopped.wait()
            self._scope = None

    @asynccontextmanager
    async def paused(self, names: Collection[str]) -> AsyncIterator[None]:
        """The outputs of these tasks stand still within the block."""
        async with AsyncExitStack() as stack:
            for task in self.tasks:
                if task.name in names:
                    await stack.enter_async_context(task.paused())
            yield

    def modify(self, tasks: Iterable[Task]) -> None:
        """Go on with these editions of the tasks. While those stand still that make something else
        of what follows for now."""
        editions = {task.name: task for task in tasks}
        for placed in self.tasks:
            placed.runner.modify(editions[placed.name])

    def halt(self) -> None:
        """Do not go beyond the boundary of the last modification, until `go_on`."""
        if not self.stored.former:
            return
        upto = self.stored.former[-1].upto
        names = changing((task.runner.task for task in self.tasks), upto)
        for task in self.tasks:
            if task.name in names and task.boundary <= upto:
                task.runner.halt.set(upto)

    def stand_still(self, names: Collection[str]) -> None:
        """Let these tasks go no further than they are, until `go_on`. While they are paused."""
        for task in self.tasks:
            if task.name in names:
                task.runner.halt.set(task.boundary)

    def go_on(self) -> None:
        """No task has to wait any more."""
        for task in self.tasks:
            task.runner.halt.set(END)

    def wait_s(self, parted_s: float) -> float:
        """How long until nobody else gives out results of it, if it takes a peer so long to find
        out that it is no secondary any more; seconds."""
        return max(self.parted_at, self.taken_over_at) + parted_s - trio.current_time()

    @property
    def halted(self) -> bool:
        """Whether one has to."""
        return any(task.runner.halt.value < END for task in self.tasks)

    @kill_point(KillPoint.CATALOG_PUBLISH_QUERY)
    async def publish(self, announcements: Announcements) -> None:
        """Tell the catalog of it and its outputs.

        Raises:
            MedusaError: that cannot be published.
        """
        for task in self.tasks:
            await announcements.publish_entry(task.kept.entry)
            await self.publish_term(task, announcements)
        await announcements.publish_query(self.stored)

    async def publish_term(self, placed: PlacedTask, announcements: Announcements) -> None:
        """Tell the catalog which peer computes a task now. Raises: as `publish`."""
        # read and declared in one step: of two that publish, the later one says what is so
        await announcements.publish_term(
            msgspec.structs.replace(self.stored.term, subject=placed.name),
            worker=placed.current.term.holder,
            edition=self.stored.entry.edition,
        )

    async def _run(self, scope: trio.CancelScope) -> None:
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    for task in self.tasks:
                        nursery.start_soon(_drive, task)
                await self.ended()
        finally:
            self._stopped.set()


async def _drive(task: PlacedTask) -> None:
    """One whose log was dropped under it stands still; the peer, and the others, go on."""
    try:
        await task.run()
    except ClosedError:
        await trio.sleep_forever()

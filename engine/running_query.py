"""The tasks of one query at a peer that computes them, and what stops them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from engine.moves.placed_task import PlacedTask
from engine.network import StoredQuery
from overlay.errors import ClosedError


class RunningQuery:
    """
    Attributes:
        stored: what a restart needs of it; replaced by whoever writes it down.
        running: whether its tasks run.
        taken_over_at: when this peer went on with what another had, on trio's clock, seconds.
        ended: called once all its outputs have ended.
    """

    def __init__(self, stored: StoredQuery, tasks: list[PlacedTask]) -> None:
        self.stored = stored
        self.tasks = tasks
        self.taken_over_at = float("-inf")
        self.ended: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
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

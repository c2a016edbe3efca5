"""Tasks that are due together are one Spark job.

Runners whose inputs move at the same moment give their orders at the same moment. An order waits
for the others of its group, the tasks that can be in one job with it, but only until all that were
there the last time have come, or for `GATHER_S`. While a job runs, later orders gather for the next
one.

* If the job fails, each of its tasks runs alone: a task that fails takes no neighbour along. It
  stays alone until it has not failed.
* An order that reads much runs alone, too: no neighbour waits for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from medusa.engine.tasks.execution import Result
from medusa.engine.tasks.plan import Task
from medusa.overlay.concurrency import Bell
from medusa.overlay.errors import MedusaError

if TYPE_CHECKING:  # PySpark is imported with the first job
    from medusa.engine.spark.shared_jobs import Order, SharedJob

GATHER_S: Final = 0.02
"""How long an order waits for others, seconds: the runners of a hundred tasks wake up meanwhile."""

MOST_GROUPS: Final = 512
"""Groups that are remembered; each has a plan in the JVM, some 100 KB."""

MOST_ORDERS: Final = 256
"""The most orders of one job; further ones wait for the next job."""

Outcome = Result | None
"""The outcome of an order; None: it has to run alone."""

Run = Callable[["SharedJob", "list[Order]"], Awaitable[list[Result | None]]]
"""A function that runs a job in a worker thread."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """An order, until it has its outcome."""

    order: Order
    outcome: Outcome = None
    done: trio.Event = field(default_factory=trio.Event)


@dataclass(eq=False, slots=True)
class _Group:
    """Tasks that can be in one job.

    Attributes:
        usual: the number of orders of the last job.
    """

    job: SharedJob
    waiting: list[_Waiting] = field(default_factory=list)
    came: Bell = field(default_factory=Bell)
    usual: int = 1
    serving: bool = False


class Sharing:
    """Gathers orders, and runs their jobs.

    Args:
        run: runs one job. nursery: lives as long as the executor.
    """

    def __init__(self, run: Run, nursery: trio.Nursery) -> None:
        self._run = run
        self._nursery = nursery
        self._groups: OrderedDict[Hashable, _Group] = OrderedDict()
        self._failed: set[str] = set()

    async def compute(self, key: Hashable, make: Callable[[], SharedJob], order: Order) -> Outcome:
        """The outcome of an order in a shared job.

        Args:
            key: the key of its group. make: makes the group's job, if the order is the group's
                first.
        """
        if order.task.name in self._failed:
            return None
        group = self._group(key, make)
        mine = _Waiting(order)
        group.waiting.append(mine)
        group.came.ring()
        if not group.serving:
            group.serving = True
            self._nursery.start_soon(self._serve, group)
        try:
            await mine.done.wait()
        finally:
            if mine in group.waiting:  # the order's runner was stopped
                group.waiting.remove(mine)
        return mine.outcome

    def note(self, task: Task, *, failed: bool) -> None:
        """Note how a task ran alone: it runs alone until a run succeeds."""
        if failed:
            self._failed.add(task.name)
        else:
            self._failed.discard(task.name)

    def _group(self, key: Hashable, make: Callable[[], SharedJob]) -> _Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(make())
            idle = [k for k, each in self._groups.items() if not each.serving]
            for old in idle[: max(0, len(self._groups) - MOST_GROUPS)]:
                del self._groups[old]
        self._groups.move_to_end(key)
        return group

    async def _serve(self, group: _Group) -> None:
        try:
            while group.waiting:
                await self._gather(group)
                if batch := _next(group):
                    await self._compute(group, batch)
        finally:
            group.serving = False

    async def _gather(self, group: _Group) -> None:
        """Wait for the orders that usually come together."""
        with trio.move_on_after(GATHER_S):
            while len(group.waiting) < group.usual:
                group.came.clear()
                await group.came.wait()

    async def _compute(self, group: _Group, batch: list[_Waiting]) -> None:
        try:
            outcomes: list[Outcome] = [*await self._run(group.job, [b.order for b in batch])]
        except MedusaError:  # an error of any order, or of their shared input
            outcomes = [None] * len(batch)
        for waiting, outcome in zip(batch, outcomes, strict=True):
            waiting.outcome = outcome
            waiting.done.set()


def _next(group: _Group) -> list[_Waiting]:
    """The orders of the next job: the first one and all that can share its job."""
    if not group.waiting:
        return []
    first = group.waiting[0]
    batch = [each for each in group.waiting if go_together(first.order, each.order)][:MOST_ORDERS]
    group.waiting = [each for each in group.waiting if each not in batch]
    group.usual = len(batch)
    return batch


def go_together(one: Order, other: Order) -> bool:
    """Whether two orders of a group can be one job: orders for windows always can, others if they
    read the same files and the same interval."""
    if one.task.windows is not None:
        return True
    return one.interval == other.interval and one.paths == other.paths

"""The tasks that a peer trades: its own, and those that it runs for others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from medusa.contracts.market.events import TaskHere, TaskOut
from medusa.contracts.market.messages import Item
from medusa.contracts.terms import UNITS_PER_CORE
from medusa.engine.objects.readers import Readers
from medusa.engine.objects.schema import END
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.moves.checks import check_worker, network_of
from medusa.engine.replication.moves.mover import Mover
from medusa.engine.replication.moves.returning import Returning
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.tasks.plan import Task
from medusa.overlay.errors import NotAuthorisedError, NotFoundError


@dataclass(frozen=True)
class Tasks:
    """The parts of the engine that the market of a peer uses.

    Attributes:
        queries: its own tasks. mover: moves them to other peers.
        assignments: the tasks that it runs for others. returning: gives them back to their owners.
        readers: the readers of the tasks' inputs.
    """

    queries: QueryHost
    mover: Mover
    assignments: Assignments
    returning: Returning
    readers: Readers

    def own(self, here: str) -> Iterator[TaskHere | TaskOut]:
        """The participant's own tasks that have not ended, each with its place. here: this peer's
        id (hex)."""
        for placed in self.queries.tasks():
            if placed.boundary == END or placed.task.recalls:
                continue  # the task stays at its peer
            placed.measure()
            item = item_of(placed.task, owner=here, load=placed.load, cost_ns=placed.cost_ns)
            current = placed.current
            if current.term.holder:
                yield TaskOut(item, current.payee.hex(), current.owed.contract, current.owed.price)
            else:
                yield TaskHere(item)

    def guests(self) -> Iterator[TaskHere]:
        """The tasks that it runs for others."""
        for assigned in self.assignments.all():
            if assigned.stored.since is None or assigned.copy is None:
                continue  # the load of this task is counted as reserved room
            status = assigned.copy.status()
            deal = assigned.stored.assignment.deal
            item = item_of(
                assigned.task,
                owner=assigned.stored.owner,
                load=status.load,
                cost_ns=status.cost_ns or deal.cost_ns,
            )
            yield TaskHere(item, deal.giver, deal.contract, deal.price)

    def may_work(self, item: Item, participant: str) -> bool:
        """Whether that participant may read the inputs of a task of ours, or of a task that we run
        for its owner."""
        try:
            stored, placed = self.queries.find(item.task)
            task, network = placed.task, stored.network
        except NotFoundError:
            try:
                assigned = self.assignments.of_task(item.task)
            except NotFoundError:
                return False
            task, network = assigned.task, network_of(assigned.stored.assignment)
        try:
            check_worker(task, network, participant, self.readers)
        except NotAuthorisedError:
            return False
        return True


def kinds_of(task: Task) -> tuple[str, ...]:
    """The kinds of a task's boxes, as contracts name them."""
    kinds = {step.word for step in task.steps}
    if len(task.inputs) > 1 and not task.sided:
        kinds.add("union")
    return tuple(sorted(kinds))


def item_of(task: Task, *, owner: str, load: float, cost_ns: int) -> Item:
    """The market's description of a task.

    Args:
        owner: peer id (hex). load: cores. cost_ns: CPU nanoseconds an input tuple.
    """
    return Item(
        task=task.name,
        load=max(0.0, load) * UNITS_PER_CORE,
        owner=owner,
        cost_ns=cost_ns,
        kinds=kinds_of(task),
        inputs=task.inputs,
    )

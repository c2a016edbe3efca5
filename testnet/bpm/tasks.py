"""The tasks and their moves between nodes: the part of the engine in a simulated federation.

* A task has one move at a time, and the owner decides: a recall that meets a move waits for it; a
  move fails if the task is gone. So a task has one worker, whatever the Brains request.
* A request that no correct Brain makes is an `InternalError`.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from medusa.contracts.market import events
from medusa.contracts.market.messages import Item
from medusa.overlay.errors import InternalError
from medusa.testnet.virtual.clock import Arguments, Clock

TINY: Final = 1e-6
"""Units of load that count as none: far below any task, above the rounding errors of sums."""


class Tally:
    """Counters of a run.

    Attributes:
        capacity: the capacity of each node, units.
        excess: load above capacity, units, of all nodes; unused: capacity without load.
        over, under: nodes above and below capacity, by more than TINY.
        moves: tasks that changed their worker, for any reason. recalls: moves back to the owner.
            failed: moves without result.
        prices: the prices of the moves since the last call of `mean_price`.
        paid: micros per second over all contracts now.
        messages: the number of messages sent in all.
    """

    __slots__ = (
        "_price_count",
        "_price_sum",
        "capacity",
        "excess",
        "failed",
        "messages",
        "moves",
        "over",
        "paid",
        "recalls",
        "under",
        "unused",
    )

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.excess = self.unused = self.paid = 0.0
        self.over = self.under = 0
        self.moves = self.recalls = self.failed = self.messages = 0
        self._price_sum = self._price_count = 0

    def enter(self, load: float, sign: int = 1) -> None:
        """Count a node with that load; sign -1: remove it."""
        over = load - self.capacity
        if over > TINY:
            self.excess += sign * over
            self.over += sign
        elif over < -TINY:
            self.unused -= sign * over
            self.under += sign

    def change(self, before: float, after: float) -> None:
        """Replace a node's load."""
        self.enter(before, -1)
        self.enter(after)

    def moved(self, price: int) -> None:
        """A task went to a partner at that price, micros per unit and second."""
        self.moves += 1
        self._price_sum += price
        self._price_count += 1

    def went_home(self) -> None:
        """A task was taken home."""
        self.moves += 1
        self.recalls += 1

    def mean_price(self) -> float | None:
        """The mean price of the moves since the last call; None if there were none."""
        count, total = self._price_count, self._price_sum
        self._price_count = self._price_sum = 0
        return total / count if count else None


TASK_LOAD: Final = 1.0
"""Units of load of a task at the start: 1 % of a core."""
COST_NS: Final = 1_000
"""CPU nanoseconds for a tuple; here nothing depends on it."""

MOVE_S: Final = (1.0, 3.0)
"""Shortest and longest time of a move, seconds: a catch-up and a switch, of an epoch each."""

NOWHERE: Final = -1
"""The place of a task whose worker is gone, while its owner has not noticed this, or is gone,
too."""


class Link(NamedTuple):
    """A payment for a task: from the owner to a partner, and from a partner that passed it on to
    its own.

    Attributes:
        price: micros per unit and second.
    """

    payer: int
    payee: int
    contract: str
    price: int


class Tasks:
    """The tasks of all nodes.

    Attributes:
        owner, at: for each task, the node that owns it and the node that runs it.
        loads: the load of each task; node_loads: the load of each node, units.
        running: for each node, whether it is there.
        away: for each task that is not at home, the chain of payments, the owner first, the worker
            last.
    """

    def __init__(
        self,
        counts: list[int],
        peers: list[str],
        *,
        notify: Callable[[int, events.Event], None],
        clock: Clock,
        tally: Tally,
        rng: random.Random,
    ) -> None:
        """
        Args:
            counts: tasks of each node. peers: their ids (hex).
            notify: gives an event to a node's Brain, if it lives.
        """
        self.owner = array("i")
        self.first = [0]
        for node, count in enumerate(counts):
            self.owner.extend([node] * count)
            self.first.append(len(self.owner))
        self.at = array("i", [NOWHERE]) * len(self.owner)
        self.loads = [TASK_LOAD] * len(self.owner)
        self.node_loads = [0.0] * len(counts)
        self.running = [False] * len(counts)
        self.away: dict[int, tuple[Link, ...]] = {}
        self._moving: dict[int, int] = {}
        self._token = 0
        self._peers = peers
        self._notify = notify
        self._clock = clock
        self._tally = tally
        self._rng = rng

    def owned(self, node: int) -> range:
        """The tasks of a node."""
        return range(self.first[node], self.first[node + 1])

    def item(self, task: int) -> Item:
        """A task as the market describes it."""
        owner = self._peers[self.owner[task]]
        return Item(f"{task:x}", self.loads[task], owner, COST_NS)

    def start_node(self, node: int) -> Iterator[events.TaskHere]:
        """Let a node join, with its own tasks at home; returns the events for its Brain."""
        tasks = self.owned(node)
        self.at[tasks.start : tasks.stop] = array("i", [node]) * len(tasks)
        self.node_loads[node] = sum(self.loads[task] for task in tasks)
        self.running[node] = True
        self._tally.enter(self.node_loads[node])
        return (events.TaskHere(self.item(task)) for task in tasks)

    # -- the Brains' requests ----------------------------------------------------------------------

    def move(self, source: int, move: events.Move) -> None:
        """Begin a move; MoveEnded answers."""
        task, target = int(move.item.task, 16), int(move.to, 16)
        if target in {source, self.owner[task]}:
            raise InternalError(f"node {source} moves task {task:x} to {target}: its own or itself")
        if self.at[task] != source or task in self._moving:
            self._clock.after(0, self._end, source, move, "it runs elsewhere, or is on its way")
            return
        self._token += 1
        self._moving[task] = self._token
        self._later(self._arrive, source, target, task, move, self._token)

    def recall(self, node: int, recall: events.Recall) -> None:
        """Take a task home, at its owner's request."""
        task = int(recall.task, 16)
        if self.owner[task] != node:
            raise InternalError(f"node {node} recalls task {task:x}, which it does not own")
        if task in self.away:
            self._later(self._come_home, task)

    def give_back(self, node: int, wanted: events.GiveBack) -> None:
        """Take a task home, at its worker's request."""
        task = int(wanted.task, 16)
        if self.at[task] == node and task in self.away:
            self._later(self._come_home, task)

    def _later(self, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        self._clock.after(self._rng.uniform(*MOVE_S), do, *arguments)

    # -- carrying them out -------------------------------------------------------------------------

    def _arrive(self, source: int, target: int, task: int, move: events.Move, token: int) -> None:
        if self._moving.get(task) != token:
            self._end(source, move, "it was taken home meanwhile")
            return
        del self._moving[task]
        if not self.running[target]:
            self._end(source, move, "the partner is gone")
            return
        link = Link(source, target, move.contract, move.price)
        chain = cut((*self.away.get(task, ()), link))
        self._set_chain(task, chain)
        self._place(task, target)
        self._tally.moved(move.price)
        name = move.item.task
        self._notify(target, self._here(task))
        self._notify(source, events.TaskGone(name))
        if source == self.owner[task]:
            self._notify(
                source, events.TaskOut(self.item(task), move.to, move.contract, move.price)
            )
        self._notify(source, events.MoveEnded(name, ok=True))

    def _end(self, source: int, move: events.Move, reason: str) -> None:
        self._tally.failed += 1
        self._notify(source, events.MoveEnded(move.item.task, ok=False, reason=reason))

    def _come_home(self, task: int) -> None:
        if task not in self.away or not self.running[self.owner[task]]:
            return  # requested twice; or its owner is gone
        if task in self._moving:
            self._later(self._come_home, task)
            return
        worker, owner, name = self.at[task], self.owner[task], f"{task:x}"
        self._set_chain(task, ())
        self._place(task, owner)
        self._tally.went_home()
        if worker != NOWHERE:
            self._notify(worker, events.TaskGone(name))
        self._notify(owner, events.TaskHere(self.item(task)))
        self._notify(owner, events.TaskBack(name))

    def reload(self, task: int, load: float) -> None:
        """Change a task's load: its worker measures it, its owner learns of it."""
        worker, owner = self.at[task], self.owner[task]
        self._place(task, NOWHERE)
        chain = self.away.get(task, ())
        self._set_chain(task, ())
        self.loads[task] = load
        self._set_chain(task, chain)
        self._place(task, worker)
        if worker != NOWHERE:
            self._notify(worker, self._here(task))
        if not chain:
            return
        first = chain[0]
        out = events.TaskOut(self.item(task), self._peers[first.payee], first.contract, first.price)
        self._notify(owner, out)

    # -- nodes that leave --------------------------------------------------------------------------

    def stop_node(self, node: int) -> tuple[list[int], list[int]]:
        """Remove a node with its tasks and guests.

        Returns:
            Its own tasks, which end; and others' tasks for which it was paid: their owners take
            them home once they notice.
        """
        others = [task for task, chain in self.away.items() if any(node in link for link in chain)]
        others = [task for task in others if self.owner[task] != node]
        for task in (*others, *self.owned(node)):
            if self.at[task] == node:
                self._place(task, NOWHERE)
            self._moving.pop(task, None)
        self._tally.enter(self.node_loads[node], -1)
        self.running[node] = False
        return list(self.owned(node)), others

    def end(self, tasks: Iterable[int]) -> None:
        """End tasks whose owner is gone, at their workers."""
        for task in tasks:
            worker = self.at[task]
            self._moving.pop(task, None)
            self._set_chain(task, ())
            self._place(task, NOWHERE)
            if worker != NOWHERE:
                self._notify(worker, events.TaskGone(f"{task:x}"))

    def take_home(self, tasks: Iterable[int]) -> None:
        """Take tasks home whose owners have noticed that a node in between is gone."""
        for task in tasks:
            self._come_home(task)

    def _here(self, task: int) -> events.TaskHere:
        """The event by which a task's worker learns of it."""
        chain = self.away.get(task)
        if not chain:
            return events.TaskHere(self.item(task))
        last = chain[-1]
        return events.TaskHere(self.item(task), self._peers[last.payer], last.contract, last.price)

    # -- the books ---------------------------------------------------------------------------------

    def _place(self, task: int, node: int) -> None:
        """Set a task's worker: the one place where it changes."""
        before, load = self.at[task], self.loads[task]
        self.at[task] = node
        for where, change in ((before, -load), (node, load)):
            if where != NOWHERE and before != node:
                old = self.node_loads[where]
                self.node_loads[where] = old + change
                self._tally.change(old, old + change)

    def _set_chain(self, task: int, chain: tuple[Link, ...]) -> None:
        """Set a task's payments: the one place where they change."""
        load = self.loads[task]
        self._tally.paid -= load * sum(link.price for link in self.away.pop(task, ()))
        if chain:
            self.away[task] = chain
            self._tally.paid += load * sum(link.price for link in chain)


def cut(chain: tuple[Link, ...]) -> tuple[Link, ...]:
    """Cut loops: a task that returns to an earlier node runs there under the earlier payments, so
    that payments do not go in circles."""
    *before, last = chain
    for place, link in enumerate(before):
        if link.payee == last.payee:
            return tuple(before[: place + 1])
    return chain

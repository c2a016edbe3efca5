"""Where the tasks run, and the moves between nodes: what the engine does in a federation.

One move of a task at a time, and the owner's word counts: a recall that meets a move waits for it;
a move that finds the task gone fails. So a task has one worker, whatever the Brains ask for; each
thing they ask that no correct Brain would is an `InternalError`.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from contracts.market.events import (
    Event,
    GiveBack,
    Move,
    MoveEnded,
    Recall,
    TaskBack,
    TaskGone,
    TaskHere,
    TaskOut,
)
from contracts.market.messages import Item
from overlay.errors import InternalError
from testnet.virtual.clock import Arguments, Clock

TINY: Final = 1e-6
"""Units of load that count as none: far below any task, above the rounding of sums of floats."""


class Tally:
    """
    Attributes:
        capacity: of each node, units.
        excess: load above capacity, units, of all nodes; unused: capacity without load.
        over, under: nodes above and below capacity, by more than TINY.
        moves: tasks that changed their worker, for whatever reason. recalls: those among them that
            went home. failed: moves that came to nothing.
        prices: of the moves since the last look, for `mean_price`.
        paid: micros per second that flow over all contracts now.
        messages: sent in all.
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
        """Count a node with that load; sign -1: count it no more."""
        over = load - self.capacity
        if over > TINY:
            self.excess += sign * over
            self.over += sign
        elif over < -TINY:
            self.unused -= sign * over
            self.under += sign

    def change(self, before: float, after: float) -> None:
        """A node's load is another."""
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
        """Of the moves since this was last asked; None where there were none."""
        count, total = self._price_count, self._price_sum
        self._price_count = self._price_sum = 0
        return total / count if count else None


TASK_LOAD: Final = 1.0
"""Units of load of a task at the start: 1 % of a core."""
COST_NS: Final = 1_000
"""CPU nanoseconds of a tuple; here nothing depends on it."""

MOVE_S: Final = (1.0, 3.0)
"""Shortest and longest time of a move, seconds: a catch-up and a switch, of an epoch each."""

NOWHERE: Final = -1
"""Where a task runs whose worker is gone and whose owner has not yet noticed, or is gone too."""


class Link(NamedTuple):
    """Who pays whom for a task: owner to partner, and that one to its own where it passed it on.

    Attributes:
        price: micros per unit and second.
    """

    payer: int
    payee: int
    contract: str
    price: int


class Tasks:
    """
    Attributes:
        owner, at: by task, the node that owns it and the node that runs it.
        loads: by task; node_loads: by node, units.
        running: by node, whether it is there.
        away: by task that is not at home: who pays whom, the owner first, its worker last.
    """

    def __init__(
        self,
        counts: list[int],
        peers: list[str],
        *,
        tell: Callable[[int, Event], None],
        clock: Clock,
        tally: Tally,
        rng: random.Random,
    ) -> None:
        """
        Args:
            counts: tasks of each node. peers: their ids (hex).
            tell: gives an event to a node's Brain, if it lives.
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
        self._tell = tell
        self._clock = clock
        self._tally = tally
        self._rng = rng

    def owned(self, node: int) -> range:
        """The tasks of a node."""
        return range(self.first[node], self.first[node + 1])

    def item(self, task: int) -> Item:
        """A task as the market sees it."""
        owner = self._peers[self.owner[task]]
        return Item(f"{task:x}", self.loads[task], owner, COST_NS)

    def start_node(self, node: int) -> Iterator[TaskHere]:
        """A node joins, its own tasks at home; the events that its Brain is to be told."""
        tasks = self.owned(node)
        self.at[tasks.start : tasks.stop] = array("i", [node]) * len(tasks)
        self.node_loads[node] = sum(self.loads[task] for task in tasks)
        self.running[node] = True
        self._tally.enter(self.node_loads[node])
        return (TaskHere(self.item(task)) for task in tasks)

    # -- what Brains want --------------------------------------------------------------------------

    def move(self, source: int, move: Move) -> None:
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

    def recall(self, node: int, recall: Recall) -> None:
        """The owner wants it home."""
        task = int(recall.task, 16)
        if self.owner[task] != node:
            raise InternalError(f"node {node} recalls task {task:x}, which it does not own")
        if task in self.away:
            self._later(self._come_home, task)

    def give_back(self, node: int, wanted: GiveBack) -> None:
        """The worker wants the owner to take it home."""
        task = int(wanted.task, 16)
        if self.at[task] == node and task in self.away:
            self._later(self._come_home, task)

    def _later(self, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        self._clock.after(self._rng.uniform(*MOVE_S), do, *arguments)

    # -- what then happens -------------------------------------------------------------------------

    def _arrive(self, source: int, target: int, task: int, move: Move, token: int) -> None:
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
        self._tell(target, self._here(task))
        self._tell(source, TaskGone(name))
        if source == self.owner[task]:
            self._tell(source, TaskOut(self.item(task), move.to, move.contract, move.price))
        self._tell(source, MoveEnded(name, ok=True))

    def _end(self, source: int, move: Move, reason: str) -> None:
        self._tally.failed += 1
        self._tell(source, MoveEnded(move.item.task, ok=False, reason=reason))

    def _come_home(self, task: int) -> None:
        if task not in self.away or not self.running[self.owner[task]]:
            return  # asked for twice; or nobody is there to take it
        if task in self._moving:
            self._later(self._come_home, task)
            return
        worker, owner, name = self.at[task], self.owner[task], f"{task:x}"
        self._set_chain(task, ())
        self._place(task, owner)
        self._tally.went_home()
        if worker != NOWHERE:
            self._tell(worker, TaskGone(name))
        self._tell(owner, TaskHere(self.item(task)))
        self._tell(owner, TaskBack(name))

    def reload(self, task: int, load: float) -> None:
        """A task's load is another: its worker measures it, its owner hears of it."""
        worker, owner = self.at[task], self.owner[task]
        self._place(task, NOWHERE)
        chain = self.away.get(task, ())
        self._set_chain(task, ())
        self.loads[task] = load
        self._set_chain(task, chain)
        self._place(task, worker)
        if worker != NOWHERE:
            self._tell(worker, self._here(task))
        if not chain:
            return
        first = chain[0]
        out = TaskOut(self.item(task), self._peers[first.payee], first.contract, first.price)
        self._tell(owner, out)

    # -- nodes that leave --------------------------------------------------------------------------

    def stop_node(self, node: int) -> tuple[list[int], list[int]]:
        """A node is gone, and with it what it ran.

        Returns:
            Its own tasks, which end; others', for which it was paid: their owners will take them
            home once they have noticed.
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
        """Tasks whose owner is gone: their workers stop them."""
        for task in tasks:
            worker = self.at[task]
            self._moving.pop(task, None)
            self._set_chain(task, ())
            self._place(task, NOWHERE)
            if worker != NOWHERE:
                self._tell(worker, TaskGone(f"{task:x}"))

    def take_home(self, tasks: Iterable[int]) -> None:
        """Their owners have noticed that somebody in between is gone."""
        for task in tasks:
            self._come_home(task)

    def _here(self, task: int) -> TaskHere:
        """What its worker is told of a task."""
        chain = self.away.get(task)
        if not chain:
            return TaskHere(self.item(task))
        last = chain[-1]
        return TaskHere(self.item(task), self._peers[last.payer], last.contract, last.price)

    # -- the books ---------------------------------------------------------------------------------

    def _place(self, task: int, node: int) -> None:
        """The one place where a task's worker changes."""
        before, load = self.at[task], self.loads[task]
        self.at[task] = node
        for where, change in ((before, -load), (node, load)):
            if where != NOWHERE and before != node:
                old = self.node_loads[where]
                self.node_loads[where] = old + change
                self._tally.change(old, old + change)

    def _set_chain(self, task: int, chain: tuple[Link, ...]) -> None:
        """The one place where it changes who pays for it."""
        load = self.loads[task]
        self._tally.paid -= load * sum(link.price for link in self.away.pop(task, ()))
        if chain:
            self.away[task] = chain
            self._tally.paid += load * sum(link.price for link in chain)


def cut(chain: tuple[Link, ...]) -> tuple[Link, ...]:
    """A task that comes back to where it has been is there as it was: nobody pays in circles."""
    *before, last = chain
    for place, link in enumerate(before):
        if link.payee == last.payee:
            return tuple(before[: place + 1])
    return chain

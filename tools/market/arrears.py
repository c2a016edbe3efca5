"""Returns the tasks of partners that do not pay, and takes no more tasks from them.

The payee bills a debt again and again in any case (`medusa.contracts.payee`). This module only
limits how long a peer works for a partner that does not sign. A partner that is away is not in
arrears: in a partition its tasks continue.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

import trio

from medusa.contracts.config import MarketTiming
from medusa.contracts.deals import Account, DealKey
from medusa.contracts.ledger import Ledger
from medusa.contracts.settlement import Settlement
from medusa.engine.replication.moves.guest import Guest
from medusa.overlay.errors import MedusaError
from medusa.overlay.gossip.events import Health
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.node.node import Overlay
from medusa.tools.market.tasks import Tasks

DISTRUST_S: Final = 86_400.0
"""Seconds for which no task is run under the contract of a partner whose count was much lower than
ours: time for a person to look."""


class Arrears:
    """Watches the deals of running tasks for receipts that stay unsigned.

    Args:
        nursery: gives tasks back.
    """

    def __init__(
        self,
        *,
        overlay: Overlay,
        tasks: Tasks,
        settlement: Settlement,
        ledger: Ledger,
        timing: MarketTiming,
        nursery: trio.Nursery,
    ) -> None:
        self._overlay = overlay
        self._tasks = tasks
        self._settlement = settlement
        self._ledger = ledger
        self._timing = timing
        self._nursery = nursery
        self._own = overlay.identity.peer_id
        self._since: dict[Hashable, float] = {}
        self._asked: dict[tuple[str, int], float] = {}
        self._owing: frozenset[str] = frozenset()

    def owing(self, contract: str) -> bool:
        """Whether that contract is in arrears, or its counts are disputed: no more tasks are taken
        under it then."""
        return contract in self._owing

    def look(self, now: float) -> None:
        """Give back the tasks that run unpaid. To be called regularly.

        Args:
            now: seconds, of a clock that never goes back.
        """
        running = [task for task in self._tasks.assignments.all() if _is_paid_for(task)]
        unpaid = {(key, upto): key.account.contract for key, upto in self._unpaid()}
        unbilled = [task.stored.key for task in running if not self._is_billed(task)]
        self._since = {what: self._since.get(what, now) for what in (*unpaid, *unbilled)}
        begun = now - self._timing.arrears_s
        late = {what for what, since in self._since.items() if since <= begun}
        self._note_owing(frozenset(unpaid[what] for what in unpaid if what in late))
        self._asked = {key: at for key, at in self._asked.items() if at > now}
        for task in running:
            key = task.stored.key
            owes = key in late or self.owing(task.stored.assignment.deal.contract)
            if owes and key not in self._asked:
                self._asked[key] = now + self._timing.arrears_again_s
                self._nursery.start_soon(self._give_back, task.task.name)

    def _unpaid(self) -> Iterator[tuple[DealKey, int]]:
        """Deals with unsigned receipts whose payer is alive, each with the boundary of the oldest
        one."""
        health = self._overlay.gossip.health
        for standing in self._ledger.deals():
            key = standing.deal.key
            upto = self._settlement.unpaid_upto(key)
            if upto is not None and health(key.account.payer) is Health.ALIVE:
                yield key, upto

    def _is_billed(self, task: Guest) -> bool:
        """Whether the task's deal is still open: an owner may declare the deal ended, and let the
        task run."""
        deal, key = task.stored.assignment.deal, task.stored.key
        account = Account(deal.contract, parse_peer_id(deal.giver), self._own)
        standing = self._ledger.deal(DealKey(account, *key))
        return standing is not None and standing.end is None

    def _note_owing(self, unpaid: frozenset[str]) -> None:
        owing = unpaid | self._settlement.disputed_since(self._overlay.clock() - DISTRUST_S)
        for contract in owing - self._owing:
            text = f"gives back the tasks of contract {contract[:8]}: what ran is not paid"
            self._overlay.events.note("warning", text)
        self._owing = owing

    async def _give_back(self, task: str) -> None:
        try:
            await self._tasks.returning.give_back(task)
        except MedusaError as error:
            text = f"could not give back {task}, which runs unpaid: {error}"
            self._overlay.events.note("warning", text)


def _is_paid_for(task: Guest) -> bool:
    return task.stored.since is not None and bool(task.stored.assignment.deal.contract)

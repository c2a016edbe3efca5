"""The owner takes home the tasks whose workers are gone or stand still.

`homecoming` decides which; this drives it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

import trio

from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.moves.homecoming import Away, to_take_home
from medusa.engine.replication.moves.messages import MoveRecord
from medusa.engine.replication.queries.host import QueryHost
from medusa.overlay.errors import MedusaError
from medusa.overlay.listeners import Listeners
from medusa.overlay.names import PeerId

REACH_S: Final = 3.0
"""How long a worker that the failure detector believes dead may take to accept a connection,
seconds: several times as long as a busy machine takes."""


class TakingHome:
    """Takes back tasks whose workers no longer compute them.

    Args:
        take_back: moves a task back to this peer.

    Attributes:
        missed: called with a worker that let a task stand still, or is gone; once for all its
            tasks.
    """

    def __init__(
        self, queries: QueryHost, take_back: Callable[[str], Awaitable[MoveRecord]]
    ) -> None:
        shop = queries.shop
        self._queries = queries
        self._overlay = shop.overlay
        self._nursery = shop.nursery
        self._take_back = take_back
        self._patience_s = shop.config.patience_s
        self._dialling: set[PeerId] = set()
        self.missed: Listeners[[PeerId]] = Listeners()

    def be_patient(self, patience_s: float) -> None:
        """Set how long a task at a worker may stand still, seconds."""
        self._patience_s = patience_s

    def look(self) -> None:
        """Find the lost tasks, and begin to take them back."""
        away = {
            self._away(placed): placed
            for placed in self._queries.tasks()
            if placed.is_away and placed.running and not placed.moving.locked()
        }
        home = to_take_home(away, self._overlay.gossip.health)
        for worker in dict.fromkeys(each.worker for each in home.at_once):
            self.missed.notify(worker)
        for each in home.at_once:
            why = "stands still" if each.is_late else "is not run"
            self._nursery.start_soon(self._take_home, away[each], why)
        for worker, lost in home.unless_reached.items():
            if worker not in self._dialling:
                tasks = [away[each] for each in lost]
                self._nursery.start_soon(self._take_home_unless_reached, worker, tasks)

    def fetch(self, placed: Copy) -> None:
        """Take a task back whose worker does not run it."""
        if placed.running:
            self._nursery.start_soon(self._take_home, placed, "is not run")

    def _away(self, placed: Copy) -> Away:
        placement, spared = placed.current, placed.spared.value
        patience_s = placement.owed.availability_s or self._patience_s
        behind_s = placed.watch(trio.current_time())
        return Away(placed.name, placement.term.holder, behind_s, patience_s, spared)

    async def _take_home_unless_reached(self, worker: PeerId, lost: Sequence[Copy]) -> None:
        self._dialling.add(worker)
        try:
            with trio.move_on_after(REACH_S):
                await self._overlay.connect(worker)
                return
        except MedusaError:
            pass
        finally:
            self._dialling.discard(worker)
        self.missed.notify(worker)
        for placed in lost:
            if placed.running and placed.current.term.holder == worker:
                self._nursery.start_soon(self._take_home, placed, "is not run")

    async def _take_home(self, placed: Copy, why: str) -> None:
        worker = placed.current.term.holder
        self._overlay.events.note(
            "warning", f"takes {placed.name} home: it {why} at {worker.hex()[:8]}", task=placed.name
        )
        with suppress(MedusaError):
            await self._take_back(placed.name)

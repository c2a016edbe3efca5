"""Compares the open deals of the ledger with the placements of the engine.

* The inputs of unbilled intervals are kept, for a while.
* A deal that a crash, or a full disk, left open is over if the owner's placements say so.
"""

from __future__ import annotations

from collections.abc import Iterator

from medusa.contracts.config import MarketTiming
from medusa.contracts.deals import DealKey, LoadRate
from medusa.contracts.ledger import Ledger, Standing
from medusa.contracts.settlement import Ended
from medusa.engine.objects.schema import END
from medusa.engine.replication.copies.copy import Copy
from medusa.overlay.errors import NotFoundError
from medusa.tools.market.boundaries import clamped, stime_of
from medusa.tools.market.tasks import Tasks


class OpenDeals:
    """The open deals for load.

    Args:
        own: this peer's id.
    """

    def __init__(self, tasks: Tasks, ledger: Ledger, own: bytes, timing: MarketTiming) -> None:
        self._tasks = tasks
        self._ledger = ledger
        self._own = own
        self._timing = timing
        self._progress: dict[DealKey, tuple[int, float]] = {}

    def hold_inputs(self, now: float) -> None:
        """Keep the unbilled inputs of tasks.

        Args:
            now: on trio's clock, seconds.
        """
        earned: dict[tuple[str, int], int] = {}
        owed: dict[str, int] = {}
        progress: dict[DealKey, tuple[int, float]] = {}
        for standing in self._ledger.deals():
            deal, at = standing.deal, stime_of(standing.billed)
            if not isinstance(deal.rate, LoadRate) or standing.paid:
                continue
            if not self._gets_on(standing, progress, now):
                continue
            if deal.payee == self._own:
                earned[deal.task, deal.term_number] = at
            else:
                owed[deal.task] = min(at, owed.get(deal.task, END))
        self._progress = progress
        for placed in self._tasks.queries.tasks():
            placed.hold_for_bill(owed.get(placed.name))
        for assigned in self._tasks.assignments.all():
            if assigned.stored.since is not None:
                assigned.hold_for_bill(earned.get(assigned.stored.key))

    def _gets_on(
        self, standing: Standing, progress: dict[DealKey, tuple[int, float]], now: float
    ) -> bool:
        key, billed = standing.deal.key, standing.billed
        known = self._progress.get(key)
        progress[key] = known if known is not None and known[0] == billed else (billed, now)
        return now <= progress[key][1] + self._timing.keep_s

    def over(self) -> Iterator[Ended]:
        """The deals of our tasks whose placement has ended although no event said so."""
        for standing in self._ledger.deals():
            deal = standing.deal
            if standing.end is None and deal.payer == self._own and isinstance(deal.rate, LoadRate):
                try:
                    placed = self._tasks.queries.find(deal.task)[1]
                except NotFoundError:
                    continue  # another participant's task, which this peer passed on
                end = _end_of(placed, standing)
                if end is not None:
                    yield Ended(deal.task, deal.term_number, end)


def _end_of(placed: Copy, standing: Standing) -> int | None:
    """The boundary at which the placement ended; None: it lasts."""
    for placement in placed.placements:
        if placement.term.number == standing.deal.term_number:
            return None if placement.until is None else clamped(placement.until)
    return standing.billed  # the placement never took effect, or that was long ago

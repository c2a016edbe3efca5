from __future__ import annotations

from medusa.engine.replication.moves.messages import Confirmed, PlacementStatus
from medusa.engine.replication.records.placements import Placements
from medusa.overlay.names import PeerId


def status_of(placements: Placements, worker: PeerId, number: int) -> Confirmed:
    """The owner's answer to a worker's `Confirm`."""
    for placement in placements:
        term = placement.term
        if (term.number, term.holder) == (number, worker):
            if placement.until is None:
                return Confirmed(PlacementStatus.ACTIVE, since=term.since)
            return Confirmed(PlacementStatus.RELEASED, term.since, placement.until)
    return Confirmed(PlacementStatus.RELEASED)

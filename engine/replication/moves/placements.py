"""The owner's record of who works on a task: its placements, one after the other."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from engine.objects.schema import BEGINNING
from engine.replication.moves.messages import Confirmed, Deal, Standing

REMEMBERED: Final = 16
"""Placements of a task that are kept, the current one included: those before are long settled."""


class Placement(Struct, frozen=True):
    """Who works on a task from one boundary to the next.

    Attributes:
        fence: its number; the owner's decisions count up.
        worker: peer id (hex), "" for the owner itself.
        since, until: the boundaries of the output, microseconds; until: None while it lasts.
        deal: what the worker was told, that is its terms with whoever gave it the task.
        payee, owed: whom the owner pays (hex), and on what terms: the worker, unless the task
            was passed on; then the one that it was given to.
        load, rate: cores that it took at the owner, and rows per second that it read, by then: what
            a restart goes on from.
    """

    fence: int = 0
    worker: str = ""
    since: int = BEGINNING
    until: int | None = None
    deal: Deal = Deal()
    payee: str = ""
    owed: Deal = Deal()
    load: float = 0.0
    rate: float = 0.0


Placements = tuple[Placement, ...]
"""Oldest first; the last is the current one."""

AT_HOME: Final[Placements] = (Placement(),)


def replaced(placements: Placements, new: Placement) -> Placements:
    """The record with another current placement, which begins where the last one ends."""
    ended = msgspec.structs.replace(placements[-1], until=new.since)
    return (*placements[:-1], ended, new)[-REMEMBERED:]


def standing(placements: Placements, worker: str, fence: int) -> Confirmed:
    """What the owner says to a worker that asks whether it is the task's worker."""
    for placement in placements:
        if (placement.fence, placement.worker) == (fence, worker):
            if placement.until is None:
                return Confirmed(Standing.ACTIVE, since=placement.since)
            return Confirmed(Standing.RELEASED, placement.since, placement.until)
    return Confirmed(Standing.RELEASED)


def of(placements: Placements | None) -> Placements:
    """A stored record, or that of a task that has never moved."""
    return placements or AT_HOME

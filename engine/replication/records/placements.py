"""The owner's record of a task's workers: its placements, one after the other."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.records.term import Term
from medusa.overlay.identity import parse_optional_peer_id
from medusa.overlay.names import NO_PEER, PeerId

REMEMBERED: Final = 16
"""Placements of a task that are kept, the current one included: earlier ones are settled by
then."""


class Deal(Struct, frozen=True):
    """The terms on which a worker runs a task; contracts define their meaning.

    Attributes:
        contract: the contract's id; "" between peers of one participant: nothing is paid.
        giver: id (hex) of the peer that the worker bills: the owner, or the peer that passed the
            task on.
        price: micros per unit of load and second. cost_ns: CPU nanoseconds an input tuple.
        availability_s: standstill after which the owner takes the task back; 0: the owner's setting
            decides.
    """

    contract: str = ""
    giver: str = ""
    price: int = 0
    cost_ns: int = 0
    availability_s: int = 0


class Placement(Struct, frozen=True):
    """A term of a task, with its deal.

    Attributes:
        term: its holder is the worker, NO_PEER for the owner itself.
        until: the boundary of the output at which it ended, microseconds; None while it lasts.
        deal: the worker's terms with the peer that gave it the task.
        payee, owed: the peer that the owner pays, and its terms: the worker, unless the task was
            passed on; then the peer that the owner gave it to.
        load, rate: cores that the task took at the owner, and rows per second that it read, up to
            then: a restart starts from these.
    """

    term: Term
    until: int | None = None
    deal: Deal = Deal()
    payee: PeerId = NO_PEER
    owed: Deal = Deal()
    load: float = 0.0
    rate: float = 0.0


Placements = tuple[Placement, ...]
"""The placements of a task, the oldest first; the last one is current."""


def at_owner(task: str) -> Placements:
    """The placements of a task that has never moved."""
    return (Placement(Term(task)),)


def replaced(placements: Placements, new: Placement) -> Placements:
    """The record with another current placement, which begins at the boundary where the last one
    ends."""
    ended = msgspec.structs.replace(placements[-1], until=new.term.since)
    return (*placements[:-1], ended, new)[-REMEMBERED:]


class WrittenPlacement(Struct, frozen=True):
    """A placement in the form of the query's file; see `Placement`. Attributes: term_number: the
    number of its term; grows with each decision of the owner. worker: peer id (hex), "" for the
    owner itself.
    since, until: the boundaries of the output, microseconds; until: None while it lasts. deal: the
    worker's terms with the peer that gave it the task. payee, owed: peer (hex) that the owner pays,
    and their deal. load, rate: cores that the task took at the owner, and rows per second that it
    read.
    """

    term_number: int = 0
    worker: str = ""
    since: int = BEGINNING
    until: int | None = None
    deal: Deal = Deal()
    payee: str = ""
    owed: Deal = Deal()
    load: float = 0.0
    rate: float = 0.0

    def of(self, task: str) -> Placement:
        """The placement. task: its name."""
        worker, payee = parse_optional_peer_id(self.worker), parse_optional_peer_id(self.payee)
        term = Term(task, self.term_number, worker, since=self.since)
        return Placement(term, self.until, self.deal, payee, self.owed, self.load, self.rate)


def written(placement: Placement) -> WrittenPlacement:
    """The form of a placement for the query's file."""
    term = placement.term
    return WrittenPlacement(
        term.number,
        term.holder.hex(),
        term.since,
        placement.until,
        placement.deal,
        placement.payee.hex(),
        placement.owed,
        placement.load,
        placement.rate,
    )

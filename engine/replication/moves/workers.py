from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.moves.messages import Confirm, Confirmed, PlacementStatus
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.placements import Placements
from medusa.overlay.errors import NotAuthorisedError, NotFoundError, UnavailableError
from medusa.overlay.names import PeerId


class Workers:
    """The workers of this peer's tasks: those of the placements, and peers that prepare."""

    def __init__(self, queries: QueryHost) -> None:
        self._queries = queries
        self._overlay = queries.shop.overlay
        self._preparing: dict[tuple[str, PeerId], int] = {}

    def participant_of(self, peer: PeerId) -> str:
        """The peer's participant. Raises: UnavailableError: the peer is unknown, or revoked."""
        record = self._overlay.peers.get(peer)
        if record is None:
            raise UnavailableError(f"peer {peer.hex()[:8]} is unknown here, or revoked")
        return record.participant

    def confirm(self, worker: PeerId, request: Confirm) -> Confirmed:
        """Answer a peer that asks whether it is, or prepares to be, the worker of the task."""
        if self._preparing.get((request.task, worker)) == request.term_number:
            return Confirmed(PlacementStatus.ASSIGNED)
        try:
            _, placed = self._queries.find(request.task)
        except NotFoundError:
            return Confirmed(PlacementStatus.RELEASED)
        answer = status_of(placed.placements, worker, request.term_number)
        if answer.status is PlacementStatus.ACTIVE and request.consumed is not None:
            placed.hold_for_consumers(request.consumed, self._stranger(worker))
        if answer.status is PlacementStatus.ACTIVE and request.reached is not None:
            placed.receive(request.reached, request.rate)
        return answer

    def _stranger(self, worker: PeerId) -> str:
        """The worker's participant, if it is not ours."""
        with suppress(UnavailableError):
            participant = self.participant_of(worker)
            if participant != self._overlay.identity.participant:
                return participant
        return ""

    def task_of(self, worker: PeerId, task: str, term_number: int) -> Copy:
        """The task, if that peer is its worker. Raises: NotAuthorisedError: the peer is not the
        worker."""
        _, placed = self._queries.find(task)
        if (placed.current.term.holder, placed.current.term.number) != (worker, term_number):
            raise NotAuthorisedError(f"{task}: you are not its worker")
        return placed

    def prepared_by(self, peer: PeerId, task: str, term_number: int) -> Copy:
        """The task, if that peer works on it or prepares to.

        Raises:
            NotAuthorisedError: the peer has no part in the task. NotFoundError: this peer has no
                such task.
        """
        if self.confirm(peer, Confirm(task, term_number)).status is PlacementStatus.RELEASED:
            raise NotAuthorisedError(f"{task}: you are not its worker")
        return self._queries.find(task)[1]

    @contextmanager
    def preparing(self, task: str, worker: PeerId, term_number: int) -> Iterator[None]:
        """Within the block, `confirm` answers that the worker prepares; after it, the placements
        decide."""
        self._preparing[task, worker] = term_number
        try:
            yield
        finally:
            del self._preparing[task, worker]


def status_of(placements: Placements, worker: PeerId, number: int) -> Confirmed:
    """The owner's answer to a worker's `Confirm`."""
    for placement in placements:
        term = placement.term
        if (term.number, term.holder) == (number, worker):
            if placement.until is None:
                return Confirmed(PlacementStatus.ACTIVE, since=term.since)
            return Confirmed(PlacementStatus.RELEASED, term.since, placement.until)
    return Confirmed(PlacementStatus.RELEASED)

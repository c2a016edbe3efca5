"""Tracks the contracts that each peer holds, and when to deliver missing ones again. Sans-IO."""

from __future__ import annotations

import random  # noqa: TID251 - for its type; the caller passes one
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from medusa.contracts.contract import Contract
from medusa.overlay.backoff import Backoff
from medusa.overlay.peer_records import PeerRecord

FIRST_WAIT_S: Final = 1.0
"""Seconds after the first failure: the peer may be starting."""

LONGEST_WAIT_S: Final = 300.0
"""Seconds between tries of a peer that is away; a restarted one is tried at once."""

_Stage = tuple[str, bool, bool]
"""The state of a contract: its id, whether it is accepted, whether it is revoked."""


@dataclass(slots=True)
class _Box:
    """The deliveries to one peer since its start.

    Attributes:
        incarnation: the peer's incarnation; after its restart everything is delivered again. held:
            the states of contracts that the peer holds.
        backoff: the waits between tries. retry_at: when the next try is due.
        busy: the number of calls to the peer that are under way.
    """

    incarnation: int
    held: set[_Stage] = field(default_factory=set)
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_WAIT_S, LONGEST_WAIT_S))
    retry_at: float = 0.0
    busy: int = 0


class Outbox:
    """The deliveries to all peers.

    Attributes:
        wake_at: when the next try of a peer is due, seconds, by the last call of `due`; inf: there
            is none.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._boxes: dict[bytes, _Box] = {}
        self.wake_at = float("inf")

    def due(
        self,
        wanted: Mapping[PeerRecord, tuple[Contract, ...]],
        now: float,
        most: int,
        *,
        hurry: bool = False,
    ) -> list[PeerRecord]:
        """The peers to call now: those that miss a contract, the most reliable first. Each call
        must be followed by `done`.

        Args:
            wanted: the contracts that each peer should hold. now: seconds.
            most: calls that may be under way at once.
            hurry: include peers that failed before, or that are being called.
        """
        lacking = [
            (self._box(record), record)
            for record, contracts in wanted.items()
            if self.missing(record, contracts)
        ]
        if hurry:
            chosen = lacking[:most]
        else:
            self._forget({record.peer_id for record in wanted})
            lacking = [(box, record) for box, record in lacking if not box.busy]
            later = (box.retry_at for box, _ in lacking if box.retry_at > now)
            self.wake_at = min(later, default=float("inf"))
            ready = [(box, record) for box, record in lacking if box.retry_at <= now]
            ready.sort(key=lambda pair: pair[0].backoff.failures)
            # a peer without room is tried when a call ends
            room = most - sum(1 for box in self._boxes.values() if box.busy)
            chosen = ready[: max(0, room)]
        for box, _ in chosen:
            box.busy += 1
        return [record for _, record in chosen]

    def _forget(self, wanted: set[bytes]) -> None:
        """Forget peers that should hold nothing."""
        self._boxes = {id_: box for id_, box in self._boxes.items() if box.busy or id_ in wanted}

    def missing(self, record: PeerRecord, contracts: Iterable[Contract]) -> tuple[Contract, ...]:
        """Those of `contracts` that the peer, as far as is known, does not hold in their present
        state."""
        held = self._box(record).held
        return tuple(contract for contract in contracts if _stage(contract) not in held)

    def holds(self, record: PeerRecord, contracts: Iterable[Contract]) -> None:
        """Note that the peer holds these contracts."""
        self._box(record).held.update(_stage(contract) for contract in contracts)

    def done(self, record: PeerRecord, now: float, *, ok: bool) -> None:
        """The call that `due` asked for has ended. now: seconds.

        Args:
            ok: the peer holds everything; else it is tried again, later each time.
        """
        box = self._box(record)
        box.busy = max(0, box.busy - 1)
        if ok:
            box.retry_at = 0.0
            box.backoff.succeeded()
        else:
            box.retry_at = now + box.backoff.failed(self._rng)

    def _box(self, record: PeerRecord) -> _Box:
        box = self._boxes.get(record.peer_id)
        if box is None:
            box = self._boxes[record.peer_id] = _Box(record.incarnation)
        elif box.incarnation != record.incarnation:
            # a call from before its restart may be under way and still counts
            box = self._boxes[record.peer_id] = _Box(record.incarnation, busy=box.busy)
        return box


def _stage(contract: Contract) -> _Stage:
    return contract.id, contract.accepted, bool(contract.revocation)

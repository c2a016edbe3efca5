"""Who holds which contract in which state, and when to try those again that do not. Sans-IO."""

from __future__ import annotations

import random  # noqa: TID251 - for its type; the caller passes one
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts.contract import Contract
from overlay.peers import PeerRecord

FIRST_WAIT_S: Final = 1.0
"""Seconds after the first failure: the peer may be starting."""

LONGEST_WAIT_S: Final = 300.0
"""Seconds between tries of a peer that is away; one that starts again is tried at once."""

_Stage = tuple[str, bool, bool]
"""How far a contract has come: its id, whether it is accepted, whether it is revoked."""


@dataclass(slots=True)
class _Box:
    """What is known of one peer since it started.

    Attributes:
        incarnation: its start; when it starts again, it is told everything once more.
        held: what it holds. failures: tries in a row that failed. retry_at: see `Outbox.due`.
        busy: whether it is being called.
    """

    incarnation: int
    held: set[_Stage] = field(default_factory=set)
    failures: int = 0
    retry_at: float = 0.0
    busy: int = 0


class Outbox:
    """
    Attributes:
        wake_at: when somebody is due next, of those passed to the last `due`; seconds, inf: nobody.
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
        """Whom to call now: those that miss something, the most reliable first. Each must be
        followed by `done`.

        Args:
            wanted: what each peer ought to hold. now: seconds.
            most: peers that may be under way at once.
            hurry: whoever failed before, or is being called, is called all the same.
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
            ready.sort(key=lambda pair: pair[0].failures)
            # whoever finds no room is looked at when one of those under way is done
            room = most - sum(1 for box in self._boxes.values() if box.busy)
            chosen = ready[: max(0, room)]
        for box, _ in chosen:
            box.busy += 1
        return [record for _, record in chosen]

    def _forget(self, wanted: set[bytes]) -> None:
        """Peers come and go; those that nothing is wanted of are remembered no longer."""
        self._boxes = {id_: box for id_, box in self._boxes.items() if box.busy or id_ in wanted}

    def missing(self, record: PeerRecord, contracts: Iterable[Contract]) -> tuple[Contract, ...]:
        """Those of these that the peer is not known to hold as they are."""
        held = self._box(record).held
        return tuple(contract for contract in contracts if _stage(contract) not in held)

    def holds(self, record: PeerRecord, contracts: Iterable[Contract]) -> None:
        """The peer has said that it holds these, or has brought them."""
        self._box(record).held.update(_stage(contract) for contract in contracts)

    def done(self, record: PeerRecord, now: float, *, ok: bool) -> None:
        """The call that `due` asked for is over. now: seconds.

        Args:
            ok: the peer took everything; else it is tried again, later each time.
        """
        box = self._box(record)
        box.busy = max(0, box.busy - 1)
        if ok:
            box.failures, box.retry_at = 0, 0.0
            return
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(box.failures, 16))
        box.failures += 1
        box.retry_at = now + wait_s * self._rng.uniform(0.5, 1.0)

    def _box(self, record: PeerRecord) -> _Box:
        box = self._boxes.get(record.peer_id)
        if box is None:
            box = self._boxes[record.peer_id] = _Box(record.incarnation)
        elif box.incarnation != record.incarnation:
            # a call to its former self may be under way: it is still to be counted
            box = self._boxes[record.peer_id] = _Box(record.incarnation, busy=box.busy)
        return box


def _stage(contract: Contract) -> _Stage:
    return contract.id, contract.accepted, bool(contract.revocation)

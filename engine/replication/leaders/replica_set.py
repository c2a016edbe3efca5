from __future__ import annotations

from collections.abc import Iterable, Sequence

from medusa.engine.replication.leaders.events import Committed, Effect, Ship
from medusa.engine.streams.journal.journal import START, Position


class ReplicaSet:
    """The replicas of one term: which are in step, how far each is, which are missing.

    Args:
        again_s: the wait before shipping to a failed peer is tried again, seconds.
    """

    def __init__(self, number: int, size: int, again_s: float) -> None:
        self.number = number
        self._size = size
        self._again_s = again_s
        self._in_step: dict[str, bool] = {}
        self._stored: dict[str, Position] = {}
        self._avoided: dict[str, float] = {}
        self._missing: dict[str, float] = {}

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(self._in_step)

    @property
    def complete(self) -> bool:
        return len(self._in_step) == self._size and all(self._in_step.values())

    @property
    def everywhere(self) -> Position:
        """Return the position before which all replicas have everything."""
        return min((self._stored.get(peer, START) for peer in self._in_step), default=START)

    def recruit(self, candidates: Iterable[str], now: float) -> list[Effect]:
        """Ship to as many more peers as the set needs; a peer that failed just now must wait."""
        free = [
            peer
            for peer in candidates
            if peer not in self._in_step and self._avoided.get(peer, now) <= now
        ]
        chosen = free[: self._size - len(self._in_step)]
        self._in_step.update(dict.fromkeys(chosen, False))
        return [Ship(peer, self.number) for peer in chosen]

    def dismiss(self, peer: str, now: float) -> bool:
        """Drop a peer that was lost before all were in step; returns whether it was a replica."""
        self._avoided[peer] = now + self._again_s
        return self._in_step.pop(peer, None) is not None

    def in_step(self, peer: str, upto: Position) -> bool:
        """Note that a peer has the whole journal; returns whether it is a replica."""
        if peer not in self._in_step:
            return False
        self._in_step[peer] = True
        self._missing.pop(peer, None)
        self.stored(peer, upto)
        return True

    def stored(self, peer: str, upto: Position) -> None:
        if self._in_step.get(peer):
            self._stored[peer] = max(upto, self._stored.get(peer, START))

    def miss(self, peer: str, now: float) -> None:
        """Note that a replica of an installed term was lost."""
        if peer in self._in_step:
            self._in_step[peer] = False
            self._missing.setdefault(peer, now)
            self._avoided[peer] = now + self._again_s

    def is_missing(self, peer: str) -> bool:
        return peer in self._missing

    def missing_since(self, before: float) -> Sequence[str]:
        """The replicas that have been missing since that time or longer."""
        return [peer for peer, since in self._missing.items() if since <= before]

    def ship_again(self, now: float) -> list[Effect]:
        """Ship to missing replicas, now and then."""
        due = [peer for peer in self._missing if self._avoided.get(peer, now) <= now]
        for peer in due:
            self._avoided[peer] = now + self._again_s
        return [Ship(peer, self.number) for peer in due]


class Commitment:
    """The positions that the replicas of this peer's term have stored, and the resulting committed
    position.

    Args:
        size: the number of replicas of a term. again_s: see `ReplicaSet`.

    Attributes:
        committed: everything before it is committed.
        replicas: the replicas of the present term.
    """

    def __init__(self, size: int, again_s: float) -> None:
        self._size = size
        self._again_s = again_s
        self.committed: Position = START
        self.replicas = ReplicaSet(0, size, again_s)

    def begin(self, number: int) -> None:
        """Begin a term without replicas."""
        self.replicas = ReplicaSet(number, self._size, self._again_s)

    def advance(self) -> list[Effect]:
        """As the leader: commit everything that all replicas have."""
        everywhere = self.replicas.everywhere
        if everywhere <= self.committed:
            return []
        self.committed = everywhere
        return [Committed(everywhere)]

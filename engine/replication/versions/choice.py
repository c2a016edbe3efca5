"""Which version of a stream is read. Sans IO.

The order of preference is Borealis' (TODS 2008, section 4.4), with one change: there a producer
that corrects what it has put out has no time for what is new, so one that is still failing is
better. Here it gives both (`engine.streams.cursors`), and so is the better one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from engine.objects.schema import BEGINNING
from engine.replication.versions.messages import Version
from engine.streams.suffix import State
from overlay.names import NO_PEER, PeerId

MISSED: Final = 3
"""Keep-alives that a producer may miss, one after the other (Borealis)."""


class Rank(IntEnum):
    """The best first."""

    STABLE = 0
    STABILIZATION = 1
    UP_FAILURE = 2
    STANDING = 3
    """It seems well, but others have been further for a while: it has nothing to read."""
    FAILURE = 4
    """It does not answer, has not answered yet, or does not produce the stream."""


_RANKS: Final = {
    State.STABLE: Rank.STABLE,
    State.STABILIZATION: Rank.STABILIZATION,
    State.UP_FAILURE: Rank.UP_FAILURE,
}


@dataclass(slots=True)
class _Producer:
    """What is known of one. heard_at: when it last said that it produces the stream; moved_at: when
    it last had come further; seconds."""

    version: Version | None = None
    heard_at: float = float("-inf")
    moved_at: float = float("-inf")


class Choice:
    """One stream's.

    Args:
        keep_alive_s: how often producers are asked, seconds.
        standing_s: one that has not moved for so long while others have is missing something.

    `now` is in seconds of any steady clock.
    """

    def __init__(self, keep_alive_s: float, standing_s: float) -> None:
        self._silence_s = (MISSED + 1) * keep_alive_s
        self._standing_s = standing_s
        self._producers: dict[PeerId, _Producer] = {}

    def known(self, peers: Sequence[PeerId]) -> None:
        """These produce it, or may; the first is the first choice."""
        self._producers = {peer: self._producers.get(peer, _Producer()) for peer in peers}

    def heard(self, peer: PeerId, version: Version | None, now: float) -> None:
        """What a producer says. version: None: it does not produce the stream."""
        producer = self._producers.get(peer)
        if producer is None:
            return
        before, producer.version = producer.version, version
        if version is not None:
            producer.heard_at = now
            if before is None or version.reaches > before.reaches:
                producer.moved_at = now

    def rank(self, peer: PeerId, now: float) -> Rank:
        """How good a version is."""
        producer = self._producers.get(peer)
        if producer is None or producer.version is None:
            return Rank.FAILURE
        if now - producer.heard_at > self._silence_s:
            return Rank.FAILURE
        furthest = max(
            (each.version.boundary for each in self._producers.values() if each.version),
            default=BEGINNING,
        )
        behind = producer.version.reaches < furthest
        if behind and now - producer.moved_at > self._standing_s:
            return Rank.STANDING
        return _RANKS[producer.version.state]

    def number(self, peer: PeerId) -> int:
        """Of its version; 0: it said nothing yet."""
        producer = self._producers.get(peer)
        return 0 if producer is None or producer.version is None else producer.version.number

    def choose(self, current: PeerId | None, now: float) -> PeerId | None:
        """Whom to read from: whoever is read as long as nobody is better.

        Args:
            current: who is read; None: nobody.
        """
        ranks = {peer: self.rank(peer, now) for peer in self._producers}
        best = min(ranks.values(), default=Rank.FAILURE)
        if best is Rank.FAILURE or ranks.get(current or NO_PEER) == best:
            return current
        return next(peer for peer, rank in ranks.items() if rank == best)

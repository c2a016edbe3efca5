"""The keep-alive with a stream's producers, and the choice of the version that is read. Sans IO.

The order of preference is Borealis' (TODS 2008, section 4.4), with one change: there a producer
that corrects earlier tuples has no time for new ones, so one that is still failing is better. Here
a producer gives both (`engine.streams.feed`), so the one that corrects is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from msgspec import Struct

from engine.objects.schema import BEGINNING
from engine.streams.suffix import State
from overlay.names import NO_PEER, PeerId

MAX_STREAMS: Final = 256
"""Streams in one question; a peer that reads more asks several, one after the other."""


class AskVersions(Struct, frozen=True):
    """Asks a producer for the state of these streams."""

    streams: tuple[str, ...]


class Version(Struct, frozen=True):
    """One producer's rendition of a stream.

    Attributes:
        boundary: of its stable tuples, microseconds. reaches: the same with tentative ones.
        number: changes with the versions of the stream's inputs.
    """

    stream: str
    state: State
    boundary: int
    reaches: int
    number: int


class Versions(Struct, frozen=True):
    """The answer to `AskVersions`, without streams that the peer does not produce."""

    versions: tuple[Version, ...] = ()


MISSED: Final = 3
"""Keep-alives that a producer may miss, one after the other (Borealis)."""


class Rank(IntEnum):
    """How good a version is, the best first."""

    STABLE = 0
    STABILIZATION = 1
    UP_FAILURE = 2
    STANDING = 3
    """It seems well, but others have been further for a while: an input of it is missing."""
    FAILURE = 4
    """It does not answer, has not answered yet, or does not produce the stream."""


_RANKS: Final = {
    State.STABLE: Rank.STABLE,
    State.STABILIZATION: Rank.STABILIZATION,
    State.UP_FAILURE: Rank.UP_FAILURE,
}


@dataclass(slots=True)
class _Producer:
    """One producer. heard_at: when it last said that it produces the stream; moved_at: when it last
    advanced; seconds."""

    version: Version | None = None
    heard_at: float = float("-inf")
    moved_at: float = float("-inf")


class Choice:
    """The choice of one stream's version.

    Args:
        keep_alive_s: how often producers are asked, seconds.
        standing_s: one that has not moved for so long while others have misses an input.

    `now` is in seconds of any steady clock.
    """

    def __init__(self, keep_alive_s: float, standing_s: float) -> None:
        self._silence_s = (MISSED + 1) * keep_alive_s
        self._standing_s = standing_s
        self._producers: dict[PeerId, _Producer] = {}

    def known(self, peers: Sequence[PeerId]) -> None:
        """Set the producers, and possible ones; the first is preferred."""
        self._producers = {peer: self._producers.get(peer, _Producer()) for peer in peers}

    def heard(self, peer: PeerId, version: Version | None, now: float) -> None:
        """Note a producer's answer. version: None: it does not produce the stream."""
        producer = self._producers.get(peer)
        if producer is None:
            return
        before, producer.version = producer.version, version
        if version is not None:
            producer.heard_at = now
            if before is None or version.reaches > before.reaches:
                producer.moved_at = now

    def rank(self, peer: PeerId, now: float) -> Rank:
        """How good a producer's version is."""
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
        """The number of a producer's version; 0: it has not answered yet."""
        producer = self._producers.get(peer)
        return 0 if producer is None or producer.version is None else producer.version.number

    def choose(self, current: PeerId | None, now: float) -> PeerId | None:
        """The producer to read from: the present one, unless another is better.

        Args:
            current: the present one; None: none.
        """
        ranks = {peer: self.rank(peer, now) for peer in self._producers}
        best = min(ranks.values(), default=Rank.FAILURE)
        if best is Rank.FAILURE or ranks.get(current or NO_PEER) == best:
            return current
        return next(peer for peer, rank in ranks.items() if rank == best)

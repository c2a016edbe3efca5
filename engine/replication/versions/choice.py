"""The keep-alive with a stream's producers, and the choice of the version that is read. Sans IO.

The order of preference is Borealis' (TODS 2008, section 4.4), with one change: there a producer
that corrects earlier tuples has no time for new ones, so one that is still failing is better. Here
a producer gives both (`medusa.engine.streams.reading.feed`), so the one that corrects is better.

Among equally good versions Borealis stays with the one that is read. Here one of them is preferred:
the peer at work, from which the others have their tuples. A reader that had to leave that peer, or
could not reach it once, returns when it has been well for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from random import Random  # noqa: TID251 - its type: the driver passes one
from typing import Final

from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.streams.log.suffix import State
from medusa.overlay.names import NO_PEER, PeerId

MAX_STREAMS: Final = 256
"""Streams in one question; a peer that reads more asks several, one after the other."""


class AskVersions(Struct, frozen=True):
    """Asks a producer for the state of these streams."""

    streams: tuple[str, ...]


class Version(Struct, frozen=True):
    """One producer's rendition of a stream.

    Attributes:
        boundary: the boundary of its stable tuples, microseconds. reaches: the boundary of its
            stable and tentative tuples.
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


RETURN: Final = 20
"""Keep-alives for which the preferred producer must have been stable before a reader returns to it:
so a reader does not return to a machine that is busy in bursts."""

MOST_RETURNS: Final = 64
"""The greatest factor of the wait until a reader returns to a producer. The factor doubles each
time that the reader returns: a producer that it has to leave again and again answers, but its
tuples do not come."""


class Rank(IntEnum):
    """The quality of a version, the best first."""

    STABLE = 0
    STABILIZATION = 1
    UP_FAILURE = 2
    STANDING = 3
    """The producer seems stable, but others were ahead of it for a while: it lacks an input."""
    FAILURE = 4
    """The producer does not answer, has not answered yet, or does not produce the stream."""


_RANKS: Final = {
    State.STABLE: Rank.STABLE,
    State.STABILIZATION: Rank.STABILIZATION,
    State.UP_FAILURE: Rank.UP_FAILURE,
}


@dataclass(slots=True)
class _Producer:
    """One producer. Times are in seconds. received_at: when its last answer came that it produces
    the stream; moved_at: when it last advanced; well_since: since when all its answers have been
    STABLE."""

    version: Version | None = None
    received_at: float = float("-inf")
    moved_at: float = float("-inf")
    well_since: float = float("inf")


class Choice:
    """The choice of one stream's version.

    Args:
        keep_alive_s: how often producers are asked, seconds.
        standing_s: a producer that has not advanced for so long, while others have, lacks an input.
            rng: shortens waits by up to a half, so that readers do not return together.

    `now` is in seconds of any steady clock.
    """

    def __init__(self, keep_alive_s: float, standing_s: float, rng: Random) -> None:
        self._silence_s = (MISSED + 1) * keep_alive_s
        self._standing_s = standing_s
        self._return_s = RETURN * keep_alive_s
        self._rng = rng
        self._returns = 1
        self._returned_at = float("-inf")
        self._wait_s = self._next_wait_s()
        self._producers: dict[PeerId, _Producer] = {}

    def known(self, peers: Sequence[PeerId]) -> None:
        """Set the producers, and possible ones; the first is preferred."""
        self._producers = {peer: self._producers.get(peer, _Producer()) for peer in peers}

    def receive(self, peer: PeerId, version: Version | None, now: float) -> None:
        """Note a producer's answer. version: None: it does not produce the stream."""
        producer = self._producers.get(peer)
        if producer is None:
            return
        before, producer.version = producer.version, version
        if version is None:
            producer.well_since = float("inf")
        else:
            was_silent = before is None or now - producer.received_at > self._silence_s
            if was_silent or version.state is not State.STABLE:
                producer.well_since = now
            producer.received_at = now
            if before is None or version.reaches > before.reaches:
                producer.moved_at = now

    def rank(self, peer: PeerId, now: float) -> Rank:
        """The rank of a producer's version."""
        producer = self._producers.get(peer)
        if producer is None or producer.version is None:
            return Rank.FAILURE
        if now - producer.received_at > self._silence_s:
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
        """The producer to read from: the present one, unless another one is better, or the
        preferred one has been as good for a while.

        Args:
            current: the present one; None: none.
        """
        ranks = {peer: self.rank(peer, now) for peer in self._producers}
        best = min(ranks.values(), default=Rank.FAILURE)
        if best is Rank.FAILURE:
            return current
        first = next(peer for peer, rank in ranks.items() if rank == best)
        if current == first or ranks.get(current or NO_PEER) != best:
            return first
        return first if self._goes_back(self._producers[first], now) else current

    def _goes_back(self, preferred: _Producer, now: float) -> bool:
        """Whether to return to the preferred producer now. If the last return was short, the wait
        is twice as long."""
        # the last return was not short
        if self._returns > 1 and now - self._returned_at > 2 * self._wait_s:
            self._returns = 1
            self._wait_s = self._next_wait_s()
        if now - max(preferred.well_since, self._returned_at) < self._wait_s:
            return False
        self._returned_at = now
        self._returns = min(2 * self._returns, MOST_RETURNS)
        self._wait_s = self._next_wait_s()
        return True

    def _next_wait_s(self) -> float:
        return self._returns * self._return_s * self._rng.uniform(0.5, 1.0)

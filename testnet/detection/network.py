"""What lies between two peers and within one: delays, losses, machines without processor time."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

TURN_S: Final = 0.2
"""How long a starved machine runs at a time, seconds, in the mean."""
SLOWNESS: Final = 10.0
"""It runs a tenth of the time: pauses are nine times as long as turns, 1.8 s in the mean and of
exponential length, so that one in a hundred lasts over 8 s. The anomalies of the Lifeguard paper
(arXiv 1707.00788, section V) last from 0.1 to 33 s."""


@dataclass(frozen=True)
class Link:
    """One way of a datagram: never shorter than `least`, longer by `more` in the mean (both in
    seconds), exponentially distributed, as queues make it."""

    least: float
    more: float


LINKS: Final = {
    "local": Link(0.000_05, 0.000_05),
    "lan": Link(0.000_5, 0.000_5),
    "wan": Link(0.02, 0.02),
}
"""By preset: one machine, one building, one continent."""


class Network:
    """Datagrams come late, out of order, or not at all; each for itself.

    Attributes:
        lost, carried: datagrams so far.
    """

    __slots__ = ("_link", "_loss", "_rng", "carried", "lost")

    def __init__(self, link: Link, loss: float, rng: random.Random) -> None:
        """loss: share of the datagrams."""
        self._link = link
        self._loss = loss
        self._rng = rng
        self.lost = 0
        self.carried = 0

    def delay(self) -> float | None:
        """Seconds that the next datagram takes; None if it never arrives."""
        if self._loss and self._rng.random() < self._loss:
            self.lost += 1
            return None
        self.carried += 1
        return self._link.least + self._rng.expovariate(1.0) * self._link.more

    def stream_delay(self) -> float:
        """Seconds that a message takes over a connection, which repeats what is lost: a round trip
        for each time."""
        delay = self._link.least + self._rng.expovariate(1.0) * self._link.more
        while self._loss and self._rng.random() < self._loss:
            self.lost += 1
            delay += 2 * (self._link.least + self._link.more)
        self.carried += 1
        return delay


class Starved:
    """A machine that gets its processor in threads: what comes in a pause waits for the next one.

    Messages and timers alike wait, and are dealt with in the order in which they were due; so a
    peer may hold the answer in its queue and still run into the timeout. That is the anomaly of
    the Lifeguard paper.
    """

    __slots__ = ("_begin", "_end", "_rng")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._begin = 0.0
        # Somewhere in its cycle: not all of them start with a turn.
        self._end = 0.0

    def turn(self, time: float) -> float:
        """When something that is due then gets done. Times must not decrease."""
        while self._end <= time:
            self._begin = self._end + self._rng.expovariate(1.0) * TURN_S * (SLOWNESS - 1)
            self._end = self._begin + self._rng.expovariate(1.0) * TURN_S
        return max(time, self._begin)

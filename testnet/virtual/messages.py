"""A simulated network of messages: sans-IO cores on one virtual clock, with links between them.

A node costs nothing while its core sleeps, so quiet nodes cost no time.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import Final, Generic, TypeVar

from medusa.overlay.errors import InternalError
from medusa.testnet.virtual.clock import Clock

MOST_TICKS: Final = 64
"""Ticks of a core at one moment: a tick may reveal that another one was due already."""

TURN_S: Final = 0.2
"""Mean seconds that a starved machine runs at a time."""
SLOWNESS: Final = 10.0
"""A starved machine runs a tenth of the time: pauses are nine times as long as turns, 1.8 s in the
mean and exponentially distributed, so that one in a hundred lasts over 8 s. The anomalies of the
Lifeguard paper (arXiv 1707.00788, section V) last from 0.1 to 33 s."""

C = TypeVar("C")
V = TypeVar("V")
"""The type of a core, `C`, and of its events, `V`."""


class Nodes(ABC, Generic[C, V]):
    """Nodes with cores on a virtual clock.

    Attributes:
        cores: the core of each node; None if the node is gone.
    """

    def __init__(self, count: int, tick: V) -> None:
        """tick: the event for a core whose time has come."""
        self.clock = Clock()
        self.cores: list[C | None] = [None] * count
        self._wakes = [inf] * count
        self._tick_event = tick

    @abstractmethod
    def _due(self, core: C) -> float:
        """When a core's next tick is due, seconds."""

    @abstractmethod
    def _handle(self, node: int, core: C, event: V) -> None:
        """Let a core handle an event, and carry out its effects."""

    def _wake(self, node: int, due: float) -> None:
        self._tick(node, due)

    def stop(self, node: int) -> None:
        """Remove a node."""
        self.cores[node] = None
        self._wakes[node] = inf

    def notify(self, node: int, event: V) -> None:
        """Pass an event to a node."""
        core = self.cores[node]
        if core is None:
            return
        self._handle(node, core, event)
        self._schedule(node, core)

    def _schedule(self, node: int, core: C) -> None:
        # an earlier tick stays in the queue, and checks again when it comes
        wake = self._due(core)
        if wake < self._wakes[node]:
            self._wakes[node] = wake
            self.clock.at(wake, self._wake, node, wake)

    def _tick(self, node: int, due: float) -> None:
        core = self.cores[node]
        if core is None or due != self._wakes[node]:
            return
        self._wakes[node] = inf
        now = self.clock.now
        if self._due(core) > now:
            self._schedule(node, core)
            return
        for _ in range(MOST_TICKS):
            self.notify(node, self._tick_event)
            if self._due(core) > now:
                return
        raise InternalError(f"node {node}: its core wants the tick of {now} s again and again")


@dataclass(frozen=True)
class Link:
    """The delay of a datagram: at least `least`, plus an exponential time with mean `more` (both in
    seconds), as queues cause."""

    least: float
    more: float


LINKS: Final = {
    "local": Link(0.000_05, 0.000_05),
    "lan": Link(0.000_5, 0.000_5),
    "wan": Link(0.02, 0.02),
}
"""The link of each preset: in one machine, in one building, on one continent."""


class Network:
    """Datagrams come late, out of order, or not at all; each independently.

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
        """Seconds that a message takes over a connection, which repeats lost packets: a round trip
        for each repetition."""
        delay = self._link.least + self._rng.expovariate(1.0) * self._link.more
        while self._loss and self._rng.random() < self._loss:
            self.lost += 1
            delay += 2 * (self._link.least + self._link.more)
        self.carried += 1
        return delay


class Starved:
    """A machine that gets its processor in turns: events in a pause wait for the next turn.

    Messages and timers both wait, and are handled in the order in which they were due. So a peer
    may have the answer in its queue and still hit the timeout: the anomaly of the Lifeguard paper.
    """

    __slots__ = ("_begin", "_end", "_rng")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._begin = 0.0
        # the first turn begins after a random pause, so that not all machines begin with a turn
        self._end = 0.0

    def turn(self, time: float) -> float:
        """When an event that is due then is handled. Times must not decrease."""
        while self._end <= time:
            self._begin = self._end + self._rng.expovariate(1.0) * TURN_S * (SLOWNESS - 1)
            self._end = self._begin + self._rng.expovariate(1.0) * TURN_S
        return max(time, self._begin)

"""Links between hosts: delay, loss, duplicates, cuts, clogs.

As in TigerBeetle's packet simulator, every ordered pair of hosts has its own weather, faults last,
and a fault in one direction does not affect the other.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

LOOPBACK_S: Final = 20e-6
"""Delay from a host to itself, seconds; nothing gets lost there."""

RETRANSMIT_S: Final = 0.2
"""TCP's first wait for an acknowledgement, seconds (Linux), doubled by each further one."""

MOST_RETRANSMIT_S: Final = 8.0
"""Longest wait, seconds. Linux waits up to 120 s, but simulated faults are shorter, so longer waits
would test nothing more."""


@dataclass(frozen=True, slots=True)
class LinkModel:
    """One direction of a link.

    Attributes:
        delay_s, jitter_s: a packet takes the first plus an exponential time with the second as its
            mean.
        loss: share of packets that vanish; TCP sends them again, later.
        duplicate: share of datagrams that arrive twice.
        reorder: share of datagrams that take up to `reorder_s` longer.
    """

    delay_s: float = 0.0005
    jitter_s: float = 0.0005
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_s: float = 0.05

    def __post_init__(self) -> None:
        assert self.delay_s > 0
        assert min(self.jitter_s, self.loss, self.duplicate, self.reorder, self.reorder_s) >= 0
        assert max(self.loss, self.duplicate, self.reorder) < 1


class Links:
    """All links, by ordered pairs of hosts. `now` is trio's time.

    Attributes:
        default: the model of every link that has no model of its own.
    """

    def __init__(self, rng: random.Random) -> None:
        self.default = LinkModel()
        self._rng = rng
        self._models: dict[tuple[str, str], LinkModel] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._clogs: dict[tuple[str, str], float] = {}

    def set(self, source: str, target: str, model: LinkModel | None) -> None:
        """Give a link a model of its own, or with None the default again."""
        if model is None:
            self._models.pop((source, target), None)
        else:
            self._models[source, target] = model

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        """Drop everything, also packets now under way, until it is healed."""
        self._cuts.add((source, target))
        if both:
            self._cuts.add((target, source))

    def heal(self, source: str, target: str, *, both: bool = True) -> None:
        """End cut and clog."""
        for link in ((source, target), (target, source))[: 1 + both]:
            self._cuts.discard(link)
            self._clogs.pop(link, None)

    def heal_all(self) -> None:
        self._cuts.clear()
        self._clogs.clear()

    def partition(self, *groups: Iterable[str]) -> None:
        """Cut every link between hosts of different groups."""
        for one, other in permutations([list(group) for group in groups], 2):
            self.separate(one, other)

    def separate(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Cut the links from these hosts to those, and not the way back."""
        for source in sources:
            for target in targets:
                self.cut(source, target, both=False)

    def clog(self, source: str, target: str, until: float) -> None:
        """Delay packets that are under way, or are sent later, until that time."""
        self._clogs[source, target] = until

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def open_at(self, source: str, target: str, now: float) -> float:
        """When a packet that arrives now is delivered: now, or when its clog ends."""
        return max(now, self._clogs.get((source, target), now))

    def arrivals(self, source: str, target: str, now: float) -> tuple[float, ...]:
        """The times at which a datagram sent now arrives: none, one or two."""
        if source == target:
            return (now + LOOPBACK_S,)
        model = self._models.get((source, target), self.default)
        if self.is_cut(source, target) or self._happens(model.loss):
            return ()
        copies = 2 if self._happens(model.duplicate) else 1
        return tuple(self._arrival(model, source, target, now) for _ in range(copies))

    def segment_arrival(self, source: str, target: str, now: float) -> float:
        """When a TCP segment sent now arrives, repeated as often as it is lost."""
        if source == target:
            return now + LOOPBACK_S
        model = self._models.get((source, target), self.default)
        wait = RETRANSMIT_S
        while self._happens(model.loss):
            now += wait
            wait = min(2 * wait, MOST_RETRANSMIT_S)
        return now + self._delay(model)

    def _arrival(self, model: LinkModel, source: str, target: str, now: float) -> float:
        late = self._rng.uniform(0, model.reorder_s) if self._happens(model.reorder) else 0.0
        return self.open_at(source, target, now) + self._delay(model) + late

    def _delay(self, model: LinkModel) -> float:
        jitter = self._rng.expovariate(1 / model.jitter_s) if model.jitter_s else 0.0
        return model.delay_s + jitter

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability

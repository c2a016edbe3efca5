from __future__ import annotations

import math
from dataclasses import dataclass

SMOOTHING_S = 10.0
"""Time constant of rates, seconds: long against an epoch, short against a person's look."""

EARLY = 0.5
"""How early an epoch may start before it is due, as a share of an epoch."""


class Pacer:
    """Starts at most one epoch per `epoch_s` on average, and none while another one goes on.

    After a late epoch the next may start early (the generic cell rate algorithm, ITU-T I.371 Annex
    A): one late input does not delay the next.

    Args:
        epoch_s: shortest time from one start to the next on average, seconds.
    """

    def __init__(self, epoch_s: float) -> None:
        self._epoch_s = epoch_s
        self._due = -math.inf
        self._started = -math.inf
        self._finished = -math.inf

    def delay(self, now: float) -> float:
        """Seconds until the next epoch may start."""
        return max(0.0, max(self._due - EARLY * self._epoch_s, self._finished) - now)

    def started(self, now: float) -> None:
        """Note the start of an epoch. One that starts before its time, because memory is short,
        delays the next one no longer than any other epoch does."""
        self._started = now
        self._due = min(max(self._due, now), now + EARLY * self._epoch_s) + self._epoch_s

    def finished(self, now: float) -> float:
        """Note the end of the epoch; returns its duration, seconds."""
        self._finished = now
        return now - self._started


@dataclass
class Rate:
    """An exponentially smoothed amount per second; `now` in seconds of any steady clock."""

    value: float = 0.0
    _at: float = -math.inf
    _pending: float = 0.0

    def add(self, amount: float, now: float) -> None:
        self._pending += amount
        elapsed = now - self._at
        if math.isinf(elapsed):
            self._at = now
            return
        if elapsed < 0.1:  # too short to divide by
            return
        weight = -math.expm1(-elapsed / SMOOTHING_S)
        self.value += weight * (self._pending / elapsed - self.value)
        self._pending = 0.0
        self._at = now

    def read(self, now: float) -> float:
        """The rate now: it decays while nothing is added."""
        self.add(0.0, now)
        return self.value

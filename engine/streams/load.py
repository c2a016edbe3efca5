"""The pace of epochs, and the load of a task: per second, per input row, and at another rate.

A sample is an epoch: its input rows and its CPU seconds, over the time since the epoch before.
Loads are in cores, rates in input rows per second, `now` in seconds of any steady clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, ParamSpec, TypeVar

SMOOTHING_S = 10.0
"""Time constant of rates, seconds: long against an epoch, short for a person who watches."""

EARLY = 0.5
"""How early an epoch may start before it is due, as a share of an epoch."""


class Pacer:
    """Starts at most one epoch per `epoch_s` on average, and none while another one is computed.
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
        if elapsed < 0.1:  # too short a time to divide by
            return
        weight = -math.expm1(-elapsed / SMOOTHING_S)
        self.value += weight * (self._pending / elapsed - self.value)
        self._pending = 0.0
        self._at = now

    def read(self, now: float) -> float:
        """The present rate: it decays while nothing is added."""
        self.add(0.0, now)
        return self.value


P = ParamSpec("P")
T = TypeVar("T")

LEAST_ELAPSED_S: Final = 0.1
"""Epochs that follow each other within this time count as one, because it is too short to divide
by."""

JUMP: Final = 3.0
"""A sample this many times the smoothed value is a jump, until a second one confirms it. Window
closes of every other epoch stay below."""

SMALL: Final = 0.02
"""Cores below which nothing is a jump: two units of load, a fifth of an epoch job a second."""

SPREAD_S: Final = 120.0
"""Time constant over which a jump is averaged, seconds: several closes of the longest usual
window."""

MEMORY_S: Final = 300.0
"""Time constant of the model's memory, seconds: rates vary within minutes, costs with the data."""

STEADY: Final = 0.05
"""Relative spread of the rate below which its slope is mostly noise."""

LEAST_RATE: Final = 1e-3
"""Rows per second, about three an hour: below it there is no cost per row."""

MOST_COST_NS: Final = 2**40
"""CPU nanoseconds a row at most, 18 minutes: a task with a row an hour is not priced by the row."""


def metered(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[T, float]:
    """The function's result, and the CPU seconds that this thread spent in it."""
    started = time.thread_time()
    result = function(*args, **kwargs)
    return result, time.thread_time() - started


@dataclass(slots=True)
class Smoothed:
    """An amount per second, exponentially smoothed, in which a single jump does not count as a
    rise. A sample far above the smoothed value waits for the next. If the next sample is far above
    as well, the amount has risen, and both count. If not, the excess is averaged over `SPREAD_S`,
    so that seldom but regular costs (a window's close) are still in the mean.

    Attributes:
        small: below this (per second) nothing is a jump.
    """

    small: float = 0.0
    _steady: float = 0.0
    _jumps: float = 0.0
    _excess: float = 0.0
    _pending: float = 0.0
    _at: float = -math.inf
    _usual_s: float = 0.0

    def expect(self, value: float) -> None:
        """Start from a value that another peer measured."""
        self._steady = value

    def add(self, amount: float, now: float) -> None:
        """Note the amount used since the call before; the first call only starts the clock."""
        elapsed = now - self._at
        if math.isinf(elapsed):
            self._at = now
            return
        self._pending += amount
        if elapsed < LEAST_ELAPSED_S:
            return
        amount, self._pending, self._at, self._usual_s = self._pending, 0.0, now, elapsed
        weight = _weight(elapsed, SMOOTHING_S)
        usual = min(amount, JUMP * max(self._steady, self.small) * elapsed)
        confirmed = self._excess > 0 and amount > usual
        late = self._excess  # the sample that waited
        self._excess = 0.0 if confirmed else amount - usual
        counted = amount + late if confirmed else usual
        self._steady += weight * (counted / elapsed - self._steady)
        jumped = 0.0 if confirmed else late
        self._jumps += _weight(elapsed, SPREAD_S) * (jumped / elapsed - self._jumps)

    def read(self, now: float) -> float:
        """The present smoothed value: it decays if a usual sample does not come."""
        silent = max(0.0, now - self._at - self._usual_s) if self._usual_s else 0.0
        fading = math.exp(-silent / SMOOTHING_S)
        return self._steady * fading + self._jumps * math.exp(-silent / SPREAD_S)


@dataclass(slots=True)
class LoadModel:
    """load = c0 + c1 * rate with c0, c1 >= 0, fitted to recent samples.

    The fit is least squares with exponential forgetting, kept as five sums. If the rate hardly
    varied, the slope is unknown; then the load is assumed to be proportional to the rate.
    """

    _weight: float = 0.0
    _rate: float = 0.0
    _load: float = 0.0
    _rate_rate: float = 0.0
    _rate_load: float = 0.0
    _at: float = -math.inf

    def add(self, rate: float, load: float, now: float) -> None:
        """Note the load that was measured at this rate."""
        keep = math.exp(-max(0.0, now - self._at) / MEMORY_S)
        self._at = now
        self._weight = self._weight * keep + 1
        share = 1 / self._weight
        # Means and central moments, not plain sums, which lose digits at large rates.
        to_rate, to_load = rate - self._rate, load - self._load
        self._rate += share * to_rate
        self._load += share * to_load
        self._rate_rate = (1 - share) * (self._rate_rate + share * to_rate * to_rate)
        self._rate_load = (1 - share) * (self._rate_load + share * to_rate * to_load)

    @property
    def coefficients(self) -> tuple[float, float]:
        """(c0, c1): cores, and CPU seconds a row."""
        if self._rate < LEAST_RATE:
            return self._load, 0.0
        proportional = self._load / self._rate
        doubt = (STEADY * self._rate) ** 2
        slope = (self._rate_load + doubt * proportional) / (self._rate_rate + doubt)
        slope = min(max(slope, 0.0), proportional)  # otherwise c0 would be negative
        return self._load - slope * self._rate, slope

    def predict(self, rate: float) -> float:
        """Cores at that many input rows per second."""
        c0, c1 = self.coefficients
        return c0 + c1 * rate


@dataclass(slots=True)
class LoadMeter:
    """The load of one task, from its epochs.

    Attributes:
        model: predicts it at another rate.
    """

    model: LoadModel = field(default_factory=LoadModel)
    _load: Smoothed = field(default_factory=lambda: Smoothed(SMALL))
    _rate: Smoothed = field(default_factory=Smoothed)
    _cost_ns: int = 0

    def add(self, rows: int, cpu_s: float, now: float) -> None:
        """Note an epoch that has just ended: its input rows, and all its CPU seconds."""
        self._load.add(cpu_s, now)
        self._rate.add(rows, now)
        self._learn(self._load.read(now), self._rate.read(now), now)

    def _learn(self, load: float, rate: float, now: float) -> None:
        if load > 0:
            self.model.add(rate, load, now)
        if rate >= LEAST_RATE:
            self._cost_ns = min(MOST_COST_NS, round(1e9 * load / rate))

    def expect(self, load: float, rate: float, now: float) -> None:
        """Start from the task's load at its former peer: otherwise a new task would seem to cost
        little for some `SMOOTHING_S`."""
        self._load.expect(load)
        self._rate.expect(rate)
        self._learn(load, rate, now)

    def add_elsewhere(self, rows: float, now: float) -> None:
        """Note the input rows of epochs that another peer computed."""
        self._rate.add(rows, now)

    def predicted(self, now: float) -> float:
        """Cores that the task would need here at the present rate."""
        return self.model.predict(self._rate.read(now))

    def load(self, now: float) -> float:
        """The cores that the task takes."""
        return self._load.read(now)

    def rate(self, now: float) -> float:
        """The input rows per second that the task reads."""
        return self._rate.read(now)

    @property
    def cost_ns(self) -> int:
        """CPU nanoseconds for an input row at the latest rate; 0 before any row was read."""
        return self._cost_ns


def _weight(elapsed: float, constant: float) -> float:
    """The weight of the latest sample in an exponential mean; all in seconds."""
    return -math.expm1(-elapsed / constant)

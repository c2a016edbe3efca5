"""Whether an allocation is acceptable, and when it can be called settled.

Acceptable (NSDI 2004): either nobody is above capacity, or, if all together are more than all
capacities, nobody is below. Tasks move whole, so below means: with room for a whole task that
somebody above capacity could give away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

MEAN_S: Final = 10.0
"""Loads are judged by their mean over so long, seconds: a task works when a window closes, every
few seconds, so a moment says little."""
NOISE: Final = 0.03
"""Above capacity by no more than this share is at capacity: measured load is never still."""


@dataclass(frozen=True, slots=True)
class Load:
    """One peer's load and capacity, units, and the loads of the tasks that run there."""

    load: float
    capacity: float
    tasks: tuple[float, ...] = ()

    @property
    def is_above(self) -> bool:
        return self.load > self.capacity * (1 + NOISE)

    @property
    def free(self) -> float:
        return self.capacity - self.load


def is_overload(loads: Iterable[Load]) -> bool:
    """Whether there is more to do than all can, together."""
    return sum(load.free for load in loads) < 0


def is_acceptable(loads: Sequence[Load]) -> bool:
    above = [load for load in loads if load.is_above]
    if not above:
        return True
    grain = min((task for load in above for task in load.tasks if task > 0), default=0.0)
    return is_overload(loads) and all(load.free < grain for load in loads)


@dataclass(frozen=True, slots=True)
class Sample:
    """What every peer said at one time, seconds of the run."""

    at: float
    loads: Mapping[str, Load]


class Recent:
    """The samples of the last `MEAN_S`, and their means."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)
        while self._samples[0].at < sample.at - MEAN_S:
            self._samples.popleft()

    def means(self) -> dict[str, Load]:
        """By peer; tasks as they were last, capacity too."""
        if not self._samples:
            return {}
        means = {}
        for name, last in self._samples[-1].loads.items():
            loads = [sample.loads[name].load for sample in self._samples if name in sample.loads]
            means[name] = Load(sum(loads) / len(loads), last.capacity, last.tasks)
        return means


class Settling:
    """Tells when an allocation has been acceptable for long enough to stay so.

    Args:
        hold_s: for how long without a break, seconds.
    """

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._since: float | None = None

    def is_settled(self, now: float, *, good: bool) -> bool:
        if not good:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return now - self._since >= self._hold_s

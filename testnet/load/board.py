"""The state of the load demonstration for its screen and picture, and the rule for an acceptable
allocation.

Acceptable (NSDI 2004): either no peer is above capacity, or, if all loads exceed all capacities,
none is below. Tasks move whole, so below means: with room for a whole task that a peer above
capacity could give away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Struct

from testnet.kit.stages import Stages, State


class Step(Struct, frozen=True):
    """One step of the papers' demonstration, at its end.

    Attributes:
        acceptable: no peer above capacity, or in overload none below.
        due: whether it can be acceptable at all: a peer that has just joined has taken nothing.
        overload: whether all loads exceeded all capacities.
        loads, capacities: by participant, in units of 1 % of a core; before: loads at its
            beginning. seconds: its duration.
    """

    name: str
    acceptable: bool
    loads: dict[str, float]
    capacities: dict[str, float]
    due: bool = True
    overload: bool = False
    before: dict[str, float] = {}
    seconds: float = 0.0


class Moved(Struct, frozen=True, order=True):
    """A task that moved.

    Attributes:
        at: seconds of the run. origin, to: participants; the JSON says `from`.
        price: micros per unit and second. stall_ms: the additional wait of its consumers.
        carry_bytes: transferred state and input.
    """

    at: float
    task: str
    origin: str = msgspec.field(name="from")
    to: str
    price: int
    stall_ms: float
    carry_bytes: int


class LoadResult(Struct, frozen=True):
    """The result of the demonstration.

    Attributes:
        answers: standing questions. answers_exact: whether every answer equals the batch run's.
        different: the answers that do not. rows: connections posted.
        speed: seconds of trace per second at which a task has its intended load.
    """

    steps: tuple[Step, ...]
    moves: tuple[Moved, ...]
    answers_exact: bool
    answers: int = 0
    different: tuple[str, ...] = ()
    rows: int = 0
    speed: float = 0.0
    seconds: float = 0.0
    plot: str | None = None
    folder: str | None = None

    @property
    def good(self) -> bool:
        """Whether all answers are exact, and all steps acceptable that can be."""
        return self.answers_exact and all(step.acceptable for step in self.steps if step.due)


MEAN_S: Final = 10.0
"""Seconds over which loads are averaged: a task works when a window closes, every few seconds, so a
single sample says little."""
NOISE: Final = 0.03
"""Share above capacity that counts as noise: measured load always varies."""


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
    """Whether all loads together exceed all capacities."""
    return sum(load.free for load in loads) < 0


def is_acceptable(loads: Sequence[Load]) -> bool:
    above = [load for load in loads if load.is_above]
    if not above:
        return True
    grain = min((task for load in above for task in load.tasks if task > 0), default=0.0)
    return is_overload(loads) and all(load.free < grain for load in loads)


@dataclass(frozen=True, slots=True)
class Sample:
    """The loads of all peers at one time, seconds of the run."""

    at: float
    loads: Mapping[str, Load]


class Recent:
    """The samples of the last seconds, and their means."""

    def __init__(self, mean_s: float = MEAN_S) -> None:
        self._mean_s = mean_s
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)
        while self._samples[0].at < sample.at - self._mean_s:
            self._samples.popleft()

    def means(self) -> dict[str, Load]:
        """Mean loads by peer; tasks and capacity by the latest sample."""
        if not self._samples:
            return {}
        means = {}
        for name, last in self._samples[-1].loads.items():
            loads = [sample.loads[name].load for sample in self._samples if name in sample.loads]
            means[name] = Load(sum(loads) / len(loads), last.capacity, last.tasks)
        return means


class Settling:
    """Detects when an allocation has been acceptable for long enough to count as settled.

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


STAGES: Final[dict[str, str]] = {
    "start": "start A, B and C",
    "define": "publish streams and queries",
    "calibrate": "find the traffic's speed",
    "shed": "1 A sheds to B and C",
    "rise": "2 load rises at B",
    "join": "3 D joins at 0.8 p",
    "flow": "4 load flows to D",
    "end": "end the traffic",
    "compare": "compare with a batch run",
}
"""By stage, its text for people."""

SHORT_STAGES: Final = {
    **{name: STAGES[name] for name in STAGES if name not in {"rise", "join", "flow"}},
    "start": "start A and B",
    "shed": "1 A sheds to B",
}

EXPECTED_S: Final = {
    "start": 15.0,
    "define": 15.0,
    "calibrate": 90.0,
    "shed": 60.0,
    "rise": 120.0,
    "join": 60.0,
    "flow": 60.0,
    "end": 20.0,
    "compare": 5.0,
}
"""By stage, its estimated duration on two cores, seconds."""
SHORT_SHARE: Final = 0.7
"""Share of that with two peers."""


@dataclass
class LoadBoard(Stages):
    """The state of the demonstration.

    Attributes:
        mean_s: seconds over which loads are averaged.
        samples: the loads over time. recent: their means. moves: by when they ended.
        rows: posted so far, by participant. answers: rows received of all answers.
    """

    words: Mapping[str, str] = field(default_factory=lambda: STAGES)
    mean_s: float = MEAN_S
    samples: list[Sample] = field(default_factory=list)
    recent: Recent = field(init=False)
    moves: list[Moved] = field(default_factory=list)
    rows: int = 0
    answers: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.forget()

    @property
    def left_s(self) -> float:
        """Estimated remaining time, seconds."""
        share = 1.0 if "flow" in self.stages else SHORT_SHARE
        left = 0.0
        for name, stage in self.stages.items():
            if stage.state is State.WAITING:
                left += share * EXPECTED_S[name]
            elif stage.state is State.RUNNING:
                left += max(share * EXPECTED_S[name] - (self.now - stage.began), 0.0)
        return left

    def sampled(self, loads: dict[str, Load]) -> None:
        """Add a sample of the peers' loads."""
        sample = Sample(self.now, loads)
        self.samples.append(sample)
        self.recent.add(sample)

    def forget(self) -> None:
        """Drop the samples so far, because the scenario has changed something."""
        self.recent = Recent(self.mean_s)

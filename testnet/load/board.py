"""What is going on in the demonstration, for whoever shows it or draws it.

Whether an allocation is acceptable, and when it can be called settled.

Acceptable (NSDI 2004): either nobody is above capacity, or, if all together are more than all
capacities, nobody is below. Tasks move whole, so below means: with room for a whole task that
somebody above capacity could give away.
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
        acceptable: nobody above capacity, or in overload nobody below.
        due: whether it can be acceptable at all: a peer that has just joined has taken nothing.
        overload: whether all loads were more than all capacities.
        loads, capacities: by participant, in units of 1 % of a core; before: loads at its
            beginning. seconds: how long it took.
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
        price: micros per unit and second. stall_ms: what its consumers saw.
        carry_bytes: state and input that were taken over.
    """

    at: float
    task: str
    origin: str = msgspec.field(name="from")
    to: str
    price: int
    stall_ms: float
    carry_bytes: int


class LoadResult(Struct, frozen=True):
    """
    Attributes:
        answers: standing questions. answers_exact: whether every answer is the batch run's.
        different: the answers that are not. rows: connections posted.
        speed: seconds of trace per second that made a task as large as it was meant to be.
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
        """Exact answers, and acceptable wherever it can be."""
        return self.answers_exact and all(step.acceptable for step in self.steps if step.due)


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
"""Stage -> what a person reads."""

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
"""About how long each takes on two cores, seconds."""
SHORT_SHARE: Final = 0.7
"""Of that, where there are two peers."""


@dataclass
class LoadBoard(Stages):
    """
    Attributes:
        samples: the loads over time. recent: their means. moves: by when they ended.
        rows: posted so far, by participant. answers: rows received of all answers.
    """

    words: Mapping[str, str] = field(default_factory=lambda: STAGES)
    samples: list[Sample] = field(default_factory=list)
    recent: Recent = field(default_factory=Recent)
    moves: list[Moved] = field(default_factory=list)
    rows: int = 0
    answers: int = 0

    @property
    def left_s(self) -> float:
        """About how long it goes on, seconds."""
        share = 1.0 if "flow" in self.stages else SHORT_SHARE
        left = 0.0
        for name, stage in self.stages.items():
            if stage.state is State.WAITING:
                left += share * EXPECTED_S[name]
            elif stage.state is State.RUNNING:
                left += max(share * EXPECTED_S[name] - (self.now - stage.began), 0.0)
        return left

    def sampled(self, loads: dict[str, Load]) -> None:
        """What the peers say now."""
        sample = Sample(self.now, loads)
        self.samples.append(sample)
        self.recent.add(sample)

    def forget(self) -> None:
        """Judge by what comes from now on: something has changed on purpose."""
        self.recent = Recent()

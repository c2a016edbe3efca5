"""What is going on in the demonstration, for whoever shows it or draws it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from testnet.board import Stage, State
from testnet.load.judge import Load, Recent, Sample
from testnet.load.result import Moved

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


@dataclass
class LoadBoard:
    """
    Attributes:
        seconds: a monotonic clock; zero: what it said when the run began.
        on_stage: called when a stage begins, ends or fails.
        samples: the loads over time. recent: their means. moves: by when they ended.
        rows: posted so far, by participant. answers: rows received of all answers.
    """

    seconds: Callable[[], float] = time.monotonic
    on_stage: Callable[[Stage], None] = lambda stage: None
    stages: dict[str, Stage] = field(default_factory=lambda: {name: Stage(name) for name in STAGES})
    samples: list[Sample] = field(default_factory=list)
    recent: Recent = field(default_factory=Recent)
    moves: list[Moved] = field(default_factory=list)
    rows: int = 0
    answers: int = 0
    zero: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.zero = self.seconds()

    @property
    def now(self) -> float:
        """Seconds of the run."""
        return self.seconds() - self.zero

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """A stage, from here to the end of the block; its times are seconds of the run."""
        stage = self.stages[name]
        stage.state, stage.began = State.RUNNING, self.now
        self.on_stage(stage)
        finished = False
        try:
            yield stage
            finished = True
        finally:
            stage.state = State.DONE if finished else State.FAILED
            stage.ended = self.now
            self.on_stage(stage)

    def say(self, name: str, detail: str) -> None:
        """Change a stage's last word."""
        self.stages[name].detail = detail

    def sampled(self, loads: dict[str, Load]) -> None:
        """What the peers say now."""
        sample = Sample(self.now, loads)
        self.samples.append(sample)
        self.recent.add(sample)

    def forget(self) -> None:
        """Judge by what comes from now on: something has changed on purpose."""
        self.recent = Recent()

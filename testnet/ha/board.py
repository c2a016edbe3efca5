"""What is going on in the demonstration, for whoever shows it or draws it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from testnet.board import Stage, State
from testnet.ha.observations import Observations
from testnet.ha.result import ModeResult
from testnet.ha.variants import Variant

STAGES: Final[dict[str, str]] = {
    "start": "start the peers",
    "define": "publish the chain",
    "warm": "until the chain is warm",
    "steady": "measure delay and costs",
    "kill": "kill B, C, D and E; watch",
    "return": "the killed come back",
    "end": "end and compare",
}
"""Stage of a run -> what a person reads."""


@dataclass
class HaBoard:
    """
    Attributes:
        seconds: a monotonic clock; zero: what it said when the demonstration began.
        on_stage: called when a stage begins, ends or fails.
        planned: the runs there will be. stages: of the run under way.
        runs: what was seen of each run so far. results: of those that ended.
    """

    seconds: Callable[[], float] = time.monotonic
    on_stage: Callable[[Stage], None] = lambda stage: None
    planned: Sequence[Variant] = ()
    stages: dict[str, Stage] = field(default_factory=lambda: {name: Stage(name) for name in STAGES})
    runs: list[Observations] = field(default_factory=list)
    results: list[ModeResult] = field(default_factory=list)
    zero: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.zero = self.seconds()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.seconds() - self.zero

    def begin(self, run: Observations) -> None:
        """Another run: its stages are to come."""
        self.runs.append(run)
        self.stages = {name: Stage(name) for name in STAGES}

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """A stage of the run, from here to the end of the block."""
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

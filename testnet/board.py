"""What is going on in a scenario, for whoever shows it: stages, posts, answers, the federation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from engine.messages import Snapshot
from testnet.history import History

STAGES: Final[dict[str, str]] = {
    "traces": "read the traces",
    "start": "start the first peer",
    "admit": "admit the others",
    "define": "publish streams and query",
    "post": "post the connections",
    "answers": "receive the answers",
    "compare": "compare with a batch run",
}
"""Stage -> what a person reads."""


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass
class Stage:
    """One stage. Times are seconds of the run; detail is its last word."""

    name: str
    state: State = State.WAITING
    began: float = 0.0
    ended: float = 0.0
    detail: str = ""


@dataclass
class Posting:
    """What one participant posts: rows handed over, of so many."""

    rows: int
    total: int


@dataclass
class Toll:
    """Who is killed on purpose.

    Attributes:
        planned: kills in all; 0: none. restarts: processes started for those that were killed.
        down: who is not up, and whether it is started already.
    """

    planned: int = 0
    kills: int = 0
    restarts: int = 0
    down: dict[str, str] = field(default_factory=dict)


@dataclass
class Board:
    """
    Attributes:
        seconds: a monotonic clock; zero: what it said when the run began.
        on_stage: called when a stage begins, ends or fails.
        posting: by participant. answers: rows received so far, by answer.
        snapshot: the federation as the subscriber's peer sees it, or None as yet.
        history: every epoch that the subscriber received.
        moved: when anything last moved on, seconds; silence for long is a fault.
    """

    seconds: Callable[[], float] = time.monotonic
    on_stage: Callable[[Stage], None] = lambda stage: None
    stages: dict[str, Stage] = field(default_factory=lambda: {name: Stage(name) for name in STAGES})
    posting: dict[str, Posting] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    first_answer: float | None = None
    snapshot: Snapshot | None = None
    toll: Toll = field(default_factory=Toll)
    history: History = field(default_factory=History)
    moved: float = 0.0
    zero: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.zero = self.seconds()

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """A stage, from here to the end of the block."""
        stage = self.stages[name]
        stage.state, stage.began = State.RUNNING, self.seconds()
        self.moved = stage.began
        self.on_stage(stage)
        finished = False
        try:
            yield stage
            finished = True
        finally:
            stage.state = State.DONE if finished else State.FAILED
            stage.ended = self.moved = self.seconds()
            self.on_stage(stage)

    def say(self, name: str, detail: str) -> None:
        """Change a stage's last word."""
        self.stages[name].detail = detail
        self.moved = max(self.moved, self.seconds())

    def wait(self, seconds: float) -> None:
        """Nothing is due for so long: that it is quiet meanwhile is no fault."""
        self.moved = max(self.moved, self.seconds() + seconds)

    def posted(self, participant: str, rows: int) -> None:
        """Rows handed over for a participant."""
        self.posting[participant].rows += rows
        done = sum(posting.rows for posting in self.posting.values())
        self.say("post", f"{done:,} of {self.total:,} connections")

    def received(self, answer: str, rows: int) -> None:
        """Rows of an answer that the subscriber received; 0 for an epoch without any."""
        self.answers[answer] = self.answers.get(answer, 0) + rows
        if rows and self.first_answer is None:
            self.first_answer = self.seconds()
        self.say("answers", ", ".join(f"{count} {name}" for name, count in self.answers.items()))

    def killed(self, peer: str) -> None:
        """A peer is killed."""
        self.toll.kills += 1
        self.toll.down[peer] = "down"
        self.moved = max(self.moved, self.seconds())

    def restarted(self, peer: str) -> None:
        """It is started, and not yet up."""
        self.toll.restarts += 1
        self.toll.down[peer] = "starting"

    def up(self, peer: str) -> None:
        """It answers again."""
        self.toll.down.pop(peer, None)
        self.moved = max(self.moved, self.seconds())

    def answered_since(self, at: float) -> bool:
        """Whether an epoch of an answer was received later than that, seconds."""
        last = self.history.last_at()
        return last is not None and last > at

    @property
    def all_posted(self) -> bool:
        """Whether every row was handed over."""
        return all(posting.rows == posting.total for posting in self.posting.values())

    @property
    def total(self) -> int:
        """Rows to post in all."""
        return sum(posting.total for posting in self.posting.values())

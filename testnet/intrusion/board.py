"""The state of a scenario, for its screen: stages, posts, answers, the federation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from medusa.engine.replication.records.status import Snapshot
from medusa.testnet.kit.answers import History
from medusa.testnet.kit.stages import Stage, Stages

STAGES: Final[dict[str, str]] = {
    "traces": "read the traces",
    "start": "start the first peer",
    "admit": "admit the others",
    "define": "publish streams and query",
    "post": "post the connections",
    "answers": "receive the answers",
    "compare": "compare with a batch run",
}
"""By stage, its text for people."""


@dataclass
class Posting:
    """One participant's posts: queued rows, and their total."""

    rows: int
    total: int


@dataclass
class Toll:
    """The deliberate kills.

    Attributes:
        planned: kills in all; 0: none. restarts: processes started for killed peers.
        down: the peers that are down, each with whether it is started already.
    """

    planned: int = 0
    kills: int = 0
    restarts: int = 0
    down: dict[str, str] = field(default_factory=dict)


@dataclass
class Board(Stages):
    """The state of a scenario.

    Attributes:
        posting: by participant. answers: rows received so far, by answer.
        snapshot: the federation as the subscriber's peer sees it, or None as yet.
        first_answer: when its first row was received, seconds since the run began.
        history: every epoch that the subscriber received.
        moved: time of the latest progress, seconds; long silence is a fault.
    """

    words: Mapping[str, str] = field(default_factory=lambda: STAGES)
    posting: dict[str, Posting] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    first_answer: float | None = None
    snapshot: Snapshot | None = None
    toll: Toll = field(default_factory=Toll)
    history: History = field(default_factory=History)
    moved: float = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """A stage, from here to the end of the block."""
        self.moved = self.seconds()
        with super().stage(name) as stage:
            yield stage
        self.moved = self.seconds()

    def say(self, name: str, detail: str) -> None:
        """Change a stage's detail."""
        super().say(name, detail)
        self.moved = max(self.moved, self.seconds())

    def wait(self, seconds: float) -> None:
        """Announce a pause of so many seconds: silence meanwhile is no fault."""
        self.moved = max(self.moved, self.seconds() + seconds)

    def posted(self, participant: str, rows: int) -> None:
        """Rows queued for a participant."""
        self.posting[participant].rows += rows
        done = sum(posting.rows for posting in self.posting.values())
        self.say("post", f"{done:,} of {self.total:,} connections")

    def received(self, answer: str, rows: int) -> None:
        """Rows of an answer that the subscriber received; 0 for an empty epoch."""
        self.answers[answer] = self.answers.get(answer, 0) + rows
        if rows and self.first_answer is None:
            self.first_answer = self.now
        self.say("answers", ", ".join(f"{count} {name}" for name, count in self.answers.items()))

    def killed(self, peer: str) -> None:
        """A peer is killed."""
        self.toll.kills += 1
        self.toll.down[peer] = "down"
        self.moved = max(self.moved, self.seconds())

    def restarted(self, peer: str) -> None:
        """The peer is started, and not yet up."""
        self.toll.restarts += 1
        self.toll.down[peer] = "starting"

    def up(self, peer: str) -> None:
        """The peer answers again."""
        self.toll.down.pop(peer, None)
        self.moved = max(self.moved, self.seconds())

    def answered_since(self, at: float) -> bool:
        """Whether an epoch of an answer was received later than that, seconds."""
        last = self.history.last_at()
        return last is not None and last > at

    @property
    def all_posted(self) -> bool:
        """Whether every row was queued."""
        return all(posting.rows == posting.total for posting in self.posting.values())

    @property
    def total(self) -> int:
        """Rows to post in all."""
        return sum(posting.total for posting in self.posting.values())

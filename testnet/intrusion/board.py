"""The state of a scenario, for its screen: stages, posts, answers, the federation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Final

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from medusa.engine.replication.records.status import Snapshot
from medusa.testnet.kit.answers import History
from medusa.testnet.kit.stages import Stage, Stages
from medusa.tools.monitor.render import render as render_monitor

STAGES: Final[dict[str, str]] = {
    "traces": "read the traces",
    "start": "start the first peer",
    "admit": "admit the others",
    "define": "publish streams and query",
    "post": "post the connections",
    "answers": "receive the answers",
    "compare": "compare with a batch run",
}
"""The text that the screen shows for each stage."""


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
        down: for each peer that is down, whether it is started already.
    """

    planned: int = 0
    kills: int = 0
    restarts: int = 0
    down: dict[str, str] = field(default_factory=dict)


@dataclass
class Board(Stages):
    """The state of a scenario.

    Attributes:
        posting: the progress of posting, by participant. answers: rows received so far, by answer.
        snapshot: the federation as the subscriber's peer sees it, or None as yet.
        first_answer: when its first row was received, seconds since the run began.
        history: every epoch that the subscriber received.
        moved: time of the latest progress, seconds; long silence is a fault.
    """

    frame_s: ClassVar[float] = 0.125  # smooth enough for a bar, cheap enough for the peers' cores

    words: Mapping[str, str] = field(default_factory=lambda: STAGES)
    name: str = "intrusion"
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
        """Announce a pause of `seconds` seconds: silence meanwhile is no fault."""
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

    def parts(self, width: int, height: int) -> list[RenderableType]:
        """The posts and answers, the kills, and the monitor if there is room."""
        parts = [render_posting(self)] if self.posting else []
        if self.toll.planned:
            parts.append(render_toll(self))
        room = height - len(self.stages) - len(self.posting) - 5 - bool(self.toll.planned)
        if self.snapshot is not None and room >= MONITOR_LINES:
            parts += [Rule(style="dim"), render_monitor(self.snapshot, width, room)]
        return parts


MONITOR_LINES: Final = 8
"""Least lines for the monitor: fewer show nothing useful of the federation."""


def render_posting(board: Board) -> RenderableType:
    """A bar for each participant that posts, and the answers so far beside them."""
    bars = Table.grid(padding=(0, 1))
    for participant, posting in board.posting.items():
        bars.add_row(
            Text(participant),
            ProgressBar(max(posting.total, 1), posting.rows, width=24, complete_style="cyan"),
            Text(f"{posting.rows:,}", justify="right"),
        )
    counts = Table.grid(padding=(0, 1))
    for answer, rows in board.answers.items():
        counts.add_row(Text(answer, "bold"), Text(f"{rows:,}", "yellow", justify="right"))
    both = Table.grid(padding=(0, 4))
    both.add_row(bars, counts)
    return both


def render_toll(board: Board) -> Text:
    """The kills so far, and the peers that are down."""
    toll = board.toll
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{toll.kills} of {count_of(toll.planned, 'kill')}", "bold red")
    text.append(f", {count_of(toll.restarts, 'restart')}; ")
    if not toll.down:
        text.append("all peers are up", "green")
    for index, (peer, state) in enumerate(toll.down.items()):
        text.append(", " if index else "")
        text.append(peer, "bold")
        text.append(f" {state}", "red" if state == "down" else "yellow")
    return text


def count_of(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

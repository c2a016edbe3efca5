"""The state of the load demonstration, asked of its peers, and the rule for an acceptable
allocation.

Acceptable (NSDI 2004): either no peer is above capacity, or, if all loads exceed all capacities,
none is below. Tasks move whole, so below means: with room for a whole task that a peer above
capacity could give away.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

import msgspec
import trio
from msgspec import Struct
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from medusa.engine.replication.records.status import PeerStatus
from medusa.overlay.errors import BusyError, DeadlineError, UnavailableError
from medusa.testnet.kit.stages import Stages, State, about
from medusa.testnet.load.script import EVERYBODY
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.home.messages import MarketStatus, MoveStatus


class Step(Struct, frozen=True):
    """One step of the papers' demonstration, at its end.

    Attributes:
        acceptable: no peer above capacity, or in overload none below.
        due: whether it can be acceptable at all: a peer that has just joined has taken no load.
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
        answers: the number of continuous queries. answers_exact: whether every answer equals the
        batch run's. different: the answers that differ from the batch run's. rows: the number of
        posted connections.
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
        hold_s: how long the loads must be acceptable without a break, seconds.
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
"""The text that the screen shows for each stage."""

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
"""The estimated duration of each stage on two cores, in seconds."""
SHORT_SHARE: Final = 0.7
"""The duration of a stage with two peers, as a share of `EXPECTED_S`."""


@dataclass
class LoadBoard(Stages):
    """The state of the demonstration.

    Attributes:
        mean_s: seconds over which loads are averaged.
        samples: the loads over time. recent: their means over the last `mean_s`. moves: the moves
        in the order in which they ended. rows: the number of rows posted so far, by participant.
        answers: the number of received rows of all answers.
    """

    frame_s: ClassVar[float] = 0.25

    words: Mapping[str, str] = field(default_factory=lambda: STAGES)
    name: str = "load"
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
        """Drop the samples so far, because the scenario has changed the load or the peers."""
        self.recent = Recent(self.mean_s)

    @property
    def subtitle(self) -> str:
        return f"{self.rows:,} connections, {self.answers:,} answers{self._left}"

    @property
    def after(self) -> str:
        loads = ", ".join(
            f"{letter_of(name)} {load.load:.1f}/{load.capacity:.0f}"
            for name, load in self.recent.means().items()
        )
        return (f" ({loads})" if loads else "") + self._left

    @property
    def _left(self) -> str:
        return f", {about(self.left_s)} left" if self.left_s else ""

    def parts(self, width: int, height: int) -> list[RenderableType]:
        """The loads against the capacities, and the latest moves."""
        means = self.recent.means()
        moves = [render_moves(self.moves[-MOVES_SHOWN:])] if self.moves else []
        return [*([render_loads(means)] if means else []), *moves]


MOVES_SHOWN: Final = 8
BAR: Final = 30
"""Columns of a bar of load; capacity is at two thirds."""

_LETTERS: Final = {place.participant: place.letter for place in EVERYBODY}


def render_loads(loads: dict[str, Load]) -> RenderableType:
    """A bar for each peer, with a mark at its capacity."""
    table = Table.grid(padding=(0, 1))
    for name, load in loads.items():
        table.add_row(
            Text(letter_of(name), "bold"),
            Text(name, "dim"),
            _bar(load),
            Text(f"{load.load:5.1f}", "red" if load.is_above else "green", justify="right"),
            Text(f"of {load.capacity:.0f}", "dim"),
            Text(f"{sum(task > 0 for task in load.tasks):2} tasks", "dim"),
        )
    return table


def _bar(load: Load) -> Text:
    mark = BAR * 2 // 3
    filled = min(round(load.load / max(load.capacity, 0.01) * mark), BAR)
    colour = "red" if load.is_above else "green"
    text = Text()
    for column in range(BAR):
        sign = "┃" if column == mark else "━" if column < filled else "─"
        text.append(sign, "bold" if column == mark else colour if column < filled else "dim")
    return text


def render_moves(moves: list[Moved]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for move in moves:
        table.add_row(
            Text(f"{move.at:.0f} s", "dim", justify="right"),
            Text(f"{letter_of(move.origin)} → {letter_of(move.to)}", "bold"),
            Text(move.task, no_wrap=True, overflow="ellipsis"),
            Text(f"at {move.price / 1e6:.3f}", "yellow"),
            Text(f"stall {move.stall_ms:.0f} ms", "dim"),
        )
    return table


def letter_of(participant: str) -> str:
    return _LETTERS.get(participant, participant)


LOOK_S: Final = 1.0
UNITS: Final = 100
"""Units of load in a core."""
SAME_S: Final = 2.0
"""Seconds within which both ends of a move report it; no task makes the same move again so soon."""


class Observer:
    """Fills a board.

    Args:
        clients: the clients, by participant; may grow while it runs.
        wall: seconds since the epoch, as in the peers' moves.
    """

    def __init__(
        self,
        clients: Mapping[str, AsyncMedusaClient],
        board: LoadBoard,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._clients = clients
        self._board = board
        self._wall = wall
        self._loads: dict[str, Load] = {}
        self._names: dict[str, str] = {}
        self._told: list[tuple[str, MoveStatus]] = []
        self._noted: list[MoveStatus] = []
        self._looked = trio.Event()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            due = trio.current_time() + LOOK_S
            async with trio.open_nursery() as nursery:
                for participant, client in tuple(self._clients.items()):
                    nursery.start_soon(self._look, participant, client)
            if self._loads:
                # in the order of the peers, not of their answers
                known = [name for name in self._clients if name in self._loads]
                self._board.sampled({name: self._loads[name] for name in known})
            for reporter, move in self._told:
                self._note(reporter, move)
            self._told.clear()
            self._looked.set()
            self._looked = trio.Event()
            await trio.sleep_until(due)

    async def next_look(self) -> None:
        """Returns after the next look."""
        await self._looked.wait()

    async def _look(self, participant: str, client: AsyncMedusaClient) -> None:
        # a busy peer keeps its last figures, which are only for the screen
        with contextlib.suppress(BusyError, UnavailableError, DeadlineError):
            snapshot = await client.status(federation=False)
            (status,) = snapshot.peers
            market = await client.market_status()
            self._names[status.peer] = participant
            self._loads[participant] = load_of(status, market)
            self._told += [(participant, m) for m in (market.moves if market is not None else ())]

    def _note(self, reporter: str, move: MoveStatus) -> None:
        """Record each move once. The task's owner reports it repeatedly, and so does a peer that
        passed it on. The owner knows the stall, the giver the price."""
        for position, noted in enumerate(self._noted):
            if is_same(move, noted):
                known = self._board.moves[position]
                price = move.price if reporter == known.origin else known.price
                stall_ms = max(move.stall_ms, known.stall_ms)
                merged = msgspec.structs.replace(known, price=price, stall_ms=stall_ms)
                self._board.moves[position] = merged
                return
        self._noted.append(move)
        self._board.moves.append(
            Moved(
                at=round(move.at - self._wall() + self._board.now, 1),
                task=move.task,
                origin=self._names.get(move.source, move.source),
                to=self._names.get(move.target, move.target),
                price=move.price,
                stall_ms=move.stall_ms,
                carry_bytes=move.carry_bytes,
            )
        )


def is_same(one: MoveStatus, other: MoveStatus) -> bool:
    """Whether two reports, of the two ends, are about the same move."""
    return (one.task, one.source, one.target) == (other.task, other.source, other.target) and (
        abs(one.at - other.at) < SAME_S
    )


def load_of(status: PeerStatus, market: MarketStatus | None) -> Load:
    """The load in units, from the market's figures if there are some, because it decides by
    them."""
    tasks = tuple(round(task.load * UNITS, 3) for task in status.tasks if not task.worker)
    if market is not None and market.capacity:
        return Load(market.load, market.capacity, tasks)
    return Load(status.load * UNITS, status.capacity * UNITS, tasks)

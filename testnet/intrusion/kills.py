"""Kills peers with SIGKILL at random times and starts them again, while a scenario runs.

A seed draws the times, the victims, how long each stays down, and which are killed again before
they are up.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import trio
from msgspec import structs

from medusa.overlay.errors import DeadlineError
from medusa.testnet.intrusion.board import Board
from medusa.testnet.intrusion.run import Options, Result, run_intrusion
from medusa.testnet.kit.patience import until, while_moving
from medusa.testnet.kit.peers import Federation, Peer

AFTERLIFE_S: Final = 90.0
"""Longest time that a JVM may outlive its peer, seconds of the machine's time: a JVM that was just
starting looks at its standard input only when it is up."""
LOOK_S: Final = 0.1


@dataclass(frozen=True)
class Remains:
    """The processes that outlived a killed peer.

    Attributes:
        longest_s: the longest time for which a process outlived its peer, seconds.
        orphans: the processes that had not ended by themselves within `AFTERLIFE_S`.
    """

    longest_s: float = 0.0
    orphans: tuple[str, ...] = ()

    def __or__(self, other: Remains) -> Remains:
        return Remains(max(self.longest_s, other.longest_s), self.orphans + other.orphans)


async def left_by(home: Path) -> list[psutil.Process]:
    """The processes of the peer in that home: every program it starts has the folder among its
    arguments, even in a session of its own."""
    return await trio.to_thread.run_sync(_processes_of, home)


def _processes_of(home: Path) -> list[psutil.Process]:
    mine = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(_is_in(home, argument) for argument in process.cmdline()):
                mine.append(process)
    return mine


def _is_in(home: Path, argument: str) -> bool:
    return f"{home}/" in argument or argument.endswith(str(home))


async def watch(processes: Iterable[psutil.Process], limit_s: float = AFTERLIFE_S) -> Remains:
    """Wait until the processes of a dead peer have ended; kill those that do not end."""
    began = trio.current_time()
    left = [process for process in processes if _goes_on(process)]
    longest = 0.0
    with contextlib.suppress(DeadlineError):
        async with while_moving("until they end", still_s=limit_s):
            while left:
                await trio.sleep(LOOK_S)
                longest = trio.current_time() - began
                left = [process for process in left if _goes_on(process)]
    orphans = []
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            orphans.append(f"{process.name()} ({process.pid})")
            process.kill()
    return Remains(longest, tuple(orphans))


def _goes_on(process: psutil.Process) -> bool:
    """Whether the process runs. A zombie does not count as running, because there may be no process
    that reaps an orphan."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


GAP_S: Final = (0.5, 10.0)
"""Seconds between two strokes: some hit peers that have long been up, some those that have not yet
caught up."""
TWO_AT_ONCE: Final = 0.2
"""Share of the strokes that hit two peers."""
PAUSE_S: Final = (0.0, 5.0)
"""Seconds that a killed peer stays down: less and more than others need to notice."""
SETTLED: Final = 0.4
"""Share of the strokes that wait until all peers are up and answers have come since; the others hit
peers that are still catching up."""
SETTLE_S: Final = 60.0
"""Limit of that wait, seconds: the speed of answers is not judged here."""
AGAIN: Final = 0.3
"""Share of the starts that a further kill interrupts."""
AGAIN_S: Final = (0.05, 2.5)
"""Seconds after its start: while it imports, reads its logs, dials the others."""
MOMENT_S: Final = 0.1
"""Seconds between two checks of an awaited condition."""

IN_FLIGHT_S: Final = 1.0
"""Seconds after which a dead peer's last messages have reached the subscriber; no failure is
detected faster."""
FAILOVER_S: Final = 60.0
"""Longest pause of the answers after a kill with a standby, seconds of the machine's time; a longer
one is a fault."""


@dataclass(frozen=True)
class Stroke:
    """One or two kills at once.

    Attributes:
        settled: wait until answers come again. gap_s: seconds after that, or after the last stroke.
        victims: number of peers.
    """

    settled: bool
    gap_s: float
    victims: int


@dataclass(frozen=True)
class Fate:
    """The fate of a killed peer.

    Attributes:
        pause_s: how long it stays down.
        again_s: the time after its start at which it is killed again, unless it is up by then;
            None: it is not killed again.
    """

    pause_s: float
    again_s: float | None


class Dice:
    """All random choices of the kills. The same seed gives the same strokes, and the n-th kill the
    same fate, however the peers' own pace interleaves them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random(f"strokes {seed}")

    def stroke(self) -> Stroke:
        settled, gap = self._rng.random() < SETTLED, self._rng.uniform(*GAP_S)
        return Stroke(settled, gap, 2 if self._rng.random() < TWO_AT_ONCE else 1)

    def among(self, peers: Sequence[Peer], count: int) -> list[Peer]:
        return self._rng.sample(list(peers), min(count, len(peers)))

    def fate(self, kill: int) -> Fate:
        rng = random.Random(f"fate {self._seed} {kill}")
        pause, again = rng.uniform(*PAUSE_S), rng.uniform(*AGAIN_S)
        return Fate(pause, again if rng.random() < AGAIN else None)


class Killer:
    """Kills peers and starts them again. Of a participant with several peers, which stand in for
    each other, one is killed at a time, and started again once the answers go on without it.

    Args:
        kills: the number of kills in all; a stroke at two peers counts two. Attributes:
        remains: processes that outlived a killed peer.
        faults: events that should not have happened.
        log: the kills and starts, with the seconds of the run.
        victims: the killed peers, one entry for each kill.
    """

    def __init__(self, kills: int, seed: int) -> None:
        self.remains = Remains()
        self.faults: list[str] = []
        self.log: list[str] = []
        self.victims: list[str] = []
        self._kills = kills
        self._guarded: set[str] = set()
        self._dice = Dice(seed)

    async def __call__(self, federation: Federation, board: Board) -> None:
        """Kill until all kills are done and every peer is up again.

        Raises:
            MedusaError: a peer did not come up again.
        """
        counts = Counter(peer.participant for peer in federation.peers)
        self._guarded = {participant for participant, peers in counts.items() if peers > 1}
        toll = board.toll
        toll.planned = self._kills
        # before the first answers a kill affects little
        await until(lambda: board.answered_since(0.0) or board.all_posted, MOMENT_S)
        async with trio.open_nursery() as nursery:
            while toll.kills < self._kills:
                stroke = self._dice.stroke()
                if stroke.settled:
                    await self._until_settled(board)
                await trio.sleep(stroke.gap_s)
                mortal = partial(self._mortal, federation.peers, board)
                await until(lambda: bool(mortal()), MOMENT_S)  # noqa: B023 - it is awaited here
                left = self._kills - toll.kills
                for peer in self._dice.among(mortal(), min(stroke.victims, left)):
                    if peer in mortal():  # its sibling may have been killed just now
                        kill = self._count(peer, board)
                        nursery.start_soon(self._down_and_up, peer, kill, board, nursery)

    def _mortal(self, peers: Sequence[Peer], board: Board) -> list[Peer]:
        """The peers that may be killed now: those that are up and, with a standby, whose sibling is
        up."""
        down = [peer for peer in peers if peer.name in board.toll.down]
        spared = {peer.participant for peer in down} & self._guarded
        return [peer for peer in peers if peer not in down and peer.participant not in spared]

    def _count(self, peer: Peer, board: Board) -> int:
        """The number of the next kill."""
        board.killed(peer.name)
        self.victims.append(peer.name)
        self._note(board, f"kill {board.toll.kills}: {peer.name}")
        return board.toll.kills

    async def _down_and_up(
        self, peer: Peer, kill: int, board: Board, nursery: trio.Nursery
    ) -> None:
        """Kill a peer, start it, and kill it again if its `Fate` says so; returns when it is up."""
        while True:
            fate = self._dice.fate(kill)
            await self._kill(peer, nursery)
            died = board.seconds()
            await trio.sleep(fate.pause_s)
            if peer.participant in self._guarded:
                await self._until_answers_go_on(peer, died, board)
            await peer.start()
            board.restarted(peer.name)
            self._note(board, f"start {peer.name} after {board.seconds() - died:.1f} s")
            if fate.again_s is None or await _is_up_within(peer, fate.again_s):
                break
            if board.toll.kills >= self._kills:
                break
            kill = self._count(peer, board)
        await peer.ready()
        board.up(peer.name)
        self._note(board, f"{peer.name} is up")

    async def _kill(self, peer: Peer, nursery: trio.Nursery) -> None:
        await peer.kill_9()
        # before it is started again: all its processes found now are leftovers
        left = await left_by(peer.home.folder)

        async def bury() -> None:
            remains = await watch(left)
            self.remains |= remains
            self.faults += [f"{peer.name} was dead, and {each} went on" for each in remains.orphans]

        nursery.start_soon(bury)

    async def _until_settled(self, board: Board) -> None:
        with trio.move_on_after(SETTLE_S):
            await until(lambda: not board.toll.down, MOMENT_S)
            up = board.seconds()
            await until(lambda: board.answered_since(up) or board.all_posted, MOMENT_S)
            if board.answered_since(up):
                self._note(board, f"answers come {board.seconds() - up:.1f} s after all were up")

    async def _until_answers_go_on(self, peer: Peer, died: float, board: Board) -> None:
        try:
            async with while_moving("until answers go on", still_s=FAILOVER_S):
                # once all rows are posted, no later answer may come
                await until(
                    lambda: board.answered_since(died + IN_FLIGHT_S) or board.all_posted, MOMENT_S
                )
        except DeadlineError:
            self.faults.append(f"answers stood still for {FAILOVER_S:.0f} s without {peer.name}")
            return
        if board.answered_since(died + IN_FLIGHT_S):
            self._note(board, f"answers go on without {peer.name}")

    def _note(self, board: Board, text: str) -> None:
        self.log.append(f"{board.now:8.2f} {text}")


async def _is_up_within(peer: Peer, seconds: float) -> bool:
    with trio.move_on_after(seconds):
        await peer.ready()
        return True
    return False


FIRST_S: Final = 60.0
"""Seconds over which posting is stretched until the first answers, for which the kills wait."""
SECONDS_A_KILL: Final = 10.0
"""Seconds of posting for each kill: more than a kill takes on a busy machine, so that connections
flow during all of them. The rest is posted at once after the last kill."""


class KillsResult(Result, frozen=True, kw_only=True):
    """The result of a run with kills.

    Attributes:
        exact: answers equal the batch run's, and there are no faults.
        restarts: processes started for killed peers.
        longest_pause_seconds: the longest time for which an answer's boundary stood still.
        longest_afterlife_seconds: the longest time for which a JVM outlived its peer.
        faults: epochs received out of order, JVMs that did not end, a standby that did not take
            over.
        history: kills and starts, with the seconds of the run.
        victims: the killed peers, one entry for each kill.
    """

    kills: int
    restarts: int
    longest_pause_seconds: float
    longest_afterlife_seconds: float
    faults: tuple[str, ...]
    history: tuple[str, ...]
    victims: tuple[str, ...]


async def run_intrusion_kills(options: Options, kills: int, board: Board) -> KillsResult:
    """`run_intrusion` with `kills` kills, drawn from the options' seed.

    Raises:
        as `run_intrusion`.
    """
    killer = Killer(kills, options.seed)
    if options.stretch_s is None:
        options = replace(options, stretch_s=FIRST_S + kills * SECONDS_A_KILL)
    try:
        result = await run_intrusion(options, board, killer)
    except Exception as error:
        error.add_note("\n".join(("--- kills", *killer.log)))
        raise
    faults = (*killer.faults, *board.history.faults())
    posting = board.zero + board.stages["post"].began
    plain = {**structs.asdict(result), "exact": result.exact and not faults}
    return KillsResult(
        **plain,
        kills=board.toll.kills,
        restarts=board.toll.restarts,
        longest_pause_seconds=round(board.history.longest_pause_s(posting), 3),
        longest_afterlife_seconds=round(killer.remains.longest_s, 3),
        faults=faults,
        history=tuple(killer.log),
        victims=tuple(killer.victims),
    )

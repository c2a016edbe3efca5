"""One task of a query of ours, wherever it runs.

Its output log grows epoch by epoch, by our own runner or by following the worker's output; its
boundary is the task's whole position either way. So who works can change at any boundary, and what
a worker took with it when it died is only work, never data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from engine.objects.schema import BEGINNING, END
from engine.replication.following.follower import Course, Follower
from engine.replication.following.origin import Place, Reach
from engine.replication.moves.placements import Placement, Placements
from engine.replication.term import TASKS
from engine.streams.kept import KeptStream
from engine.tasks.runner import TaskRunner
from engine.tasks.status import TaskStatus
from engine.tasks.tentative.fork import Fork
from overlay.concurrency import until_one_ends
from overlay.identity import parse_peer_id

OWNER = "owner"
"""The owner's name as a subscriber of its workers."""


class PlacedTask:
    """
    Args:
        runner: computes the task here.
        fork: goes on without what is missing, wherever the task runs; None: it waits for that.
        kept: its output.

    Attributes:
        placements: who worked and works on it.
        moving: held while that is being changed.
        tried: the number of the last move, which may have failed: no two workers hear of one.
        load, rate, cost_ns: cores it takes here, or would take; rows per second it reads; CPU
            nanoseconds a row, as last measured here.
        behind_since: since when a worker has let us wait for what its inputs already allow, on
            trio's clock, seconds; None where it does not.
        given: as far as former workers had come when they heard that they are none, microseconds:
            their consumers may know as much.
    """

    def __init__(
        self,
        runner: TaskRunner,
        kept: KeptStream,
        *,
        reach: Reach,
        clock: Callable[[], float],
        placements: Placements,
        fork: Fork | None,
    ) -> None:
        self.runner = runner
        self.fork = fork
        self.kept = kept
        self.placements = placements
        self.moving = trio.Lock()
        self.tried = 0
        self.behind_since: float | None = None
        self.given = BEGINNING
        self.load, self.rate = self.current.load, self.current.rate
        self.cost_ns = self.current.owed.cost_ns
        self._reach = reach
        self._clock = clock
        self._scope: trio.CancelScope | None = None
        self._at_rest = trio.Event()
        self._at_rest.set()
        self._paused: trio.Event | None = None

    @property
    def name(self) -> str:
        return self.runner.task.name

    @property
    def boundary(self) -> int:
        return self.kept.log.boundary

    @property
    def current(self) -> Placement:
        return self.placements[-1]

    def next_number(self) -> int:
        """For the next placement; receipts name a placement by it."""
        known = (self.current.term.number, self.tried)
        self.tried = TASKS.next(known, self._clock())
        return self.tried

    @property
    def running(self) -> bool:
        """Whether its query runs and its output has not ended."""
        return self._scope is not None

    async def run(self) -> None:
        """Let the output grow until it has ended; cancel to stop."""
        forks = () if self.fork is None else (self.fork.run,)
        await until_one_ends(self._grow, *forks)

    async def _grow(self) -> None:
        try:
            while self.boundary < END:
                self._at_rest = trio.Event()
                with trio.CancelScope() as self._scope:
                    if self._paused is None:
                        await self._work()
                self._at_rest.set()
                if self._paused is not None:
                    await self._paused.wait()
        finally:
            self._scope = None
            self._at_rest.set()

    async def _work(self) -> None:
        self.runner.expect(self.load, self.rate)
        if not self.current.term.holder:
            await self.runner.run()
            return
        seen = self.boundary

        def committed() -> None:
            nonlocal seen
            self.runner.followed(seen)
            seen = self.boundary

        follower = Follower(
            self.kept,
            (
                Place(parse_peer_id(self.current.term.holder)),
            ),  # if it lost it, the task is taken home
            self._reach,
            f"{OWNER} {self.current.term.number}",
            Course(
                due=self.runner.wait_for_inputs,  # or its word alone could end the stream
                committed=committed,
                tentative=True,
            ),
        )
        await follower.run()

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """The output stands still within the block; afterwards it grows by whom `placements` says
        by then."""
        assert self._paused is None, "one pauses it at a time: see `moving`"
        self._paused = trio.Event()
        try:
            if self._scope is not None:
                self._scope.cancel()
            await self._at_rest.wait()
            yield
        finally:
            self._paused.set()
            self._paused = None

    def measure(self) -> None:
        """Note what it takes here, or would take."""
        status = self.status(stopped=False)
        self.rate = status.input_rate
        if self.current.term.holder:
            self.load = self.runner.predicted_load
        else:
            self.load, self.cost_ns = status.load, status.cost_ns

    def watch(self, now: float) -> float:
        """How long a worker has let us wait, seconds. now: on trio's clock."""
        if not self.current.term.holder or self.boundary >= self.runner.input_boundary:
            self.behind_since = None
            return 0.0
        if self.behind_since is None or self.kept.moved_at > self.behind_since:
            self.behind_since = now
        return now - self.behind_since

    def hold_for_bill(self, boundary: int | None) -> None:
        """Keep the input tuples after this boundary, to be counted; None: no more."""
        self.runner.hold_for_bill(boundary)

    def count(self, after: int, upto: int) -> int:
        """Input tuples with after < stime <= upto: what a worker is paid for.

        Raises:
            NotRetainedError: some are gone.
        """
        return self.runner.count(after, upto)

    def status(self, *, stopped: bool) -> TaskStatus:
        return self.runner.status(stopped=stopped, worker=self.current.term.holder)

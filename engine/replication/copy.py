"""What this peer has of one task: the logs of its inputs and of its output, and what makes the
output grow.

It grows epoch by epoch: the task is computed here, or the output of the peer that computes it is
followed. Its boundary is the copy's whole position either way. So who computes can change at any
boundary, and what a peer took with it when it died is only work, never data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from engine.objects.readers import Readers
from engine.objects.schema import BEGINNING, END
from engine.replication.deciders import OWNERS_WORD
from engine.replication.directory import Directory
from engine.replication.following.book import Followers
from engine.replication.following.follower import Course, Follower
from engine.replication.following.origin import Place
from engine.replication.moves.placements import Placement, Placements, at_owner
from engine.replication.term import Term
from engine.streams.config import EngineConfig
from engine.streams.retention import Hold
from engine.streams.store import StreamStore
from engine.streams.stream_state import StreamState
from engine.tasks.execution import Executor
from engine.tasks.plan import Task
from engine.tasks.revisions.runner import runner_of
from engine.tasks.status import TaskStatus
from engine.tasks.tentative.fork import Fork
from engine.tasks.windows import needed_after
from overlay.concurrency import until_one_ends
from overlay.errors import ClosedError, NotRetainedError
from overlay.names import PeerId
from overlay.node import Overlay

OWNER = "owner"
"""The owner's name as a subscriber of its workers."""


@dataclass(frozen=True)
class Workshop:
    """What a peer makes copies of tasks with.

    Attributes:
        followers: bring their inputs. readers: who may read what.
        executor: computes them. nursery: runs them.
    """

    overlay: Overlay
    followers: Followers
    readers: Readers
    executor: Executor
    config: EngineConfig
    nursery: trio.Nursery

    @property
    def store(self) -> StreamStore:
        return self.followers.reach.store

    @property
    def directory(self) -> Directory:
        return self.followers.reach.directory

    @property
    def here(self) -> PeerId:
        """This peer."""
        return self.overlay.identity.peer_id


class Copy:
    """
    Args:
        logs: by stream, of its inputs and of its output.
        bound_s: how long results may wait for an input that is missing, seconds; 0: they wait.
        placements: who computed and computes it; this peer unless said.
        user: as whom inputs are kept that are still to be counted; the task's name unless said.

    Attributes:
        state: its output. inputs: by name.
        runner: computes it here. fork: goes on without what is missing, wherever the task is
            computed; None: it waits for that.
        placements: see above. moving: held while they are being changed.
        ready: `catch_up` has got to where the output is.
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
        shop: Workshop,
        task: Task,
        logs: Mapping[str, StreamState],
        *,
        bound_s: float,
        placements: Placements = (),
        user: str = "",
    ) -> None:
        self.state = logs[task.output]
        self.inputs = {name: logs[name] for name in task.inputs}
        self.runner = runner_of(
            task,
            inputs={name: state.log for name, state in self.inputs.items()},
            output=self.state.log,
            executor=shop.executor,
            config=shop.config,
            events=shop.overlay.events,
        )
        self.fork: Fork | None = None
        if bound_s and task.of is None:  # revisions come when they come
            self.fork = Fork(
                self.runner,
                inputs=self.inputs,
                output=self.state,
                bound_s=bound_s,
                executor=shop.executor,
                config=shop.config,
                events=shop.overlay.events,
            )
        self.placements = placements or at_owner(task.name)
        self.moving = trio.Lock()
        self.ready = False
        self.tried = 0
        self.behind_since: float | None = None
        self.given = BEGINNING
        self.load, self.rate = self.current.load, self.current.rate
        self.cost_ns = self.current.owed.cost_ns
        self._reach = shop.followers.reach
        self._clock = shop.overlay.clock
        self._bill = Hold("bill", user or task.name)
        self._scope: trio.CancelScope | None = None
        self._at_rest = trio.Event()
        self._at_rest.set()
        self._paused: trio.Event | None = None

    @property
    def task(self) -> Task:
        """As it is now."""
        return self.runner.task

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def boundary(self) -> int:
        return self.state.log.boundary

    @property
    def current(self) -> Placement:
        return self.placements[-1]

    def next_term(self, worker: PeerId, *, since: int = BEGINNING) -> Term:
        """The term of the next placement, see `OwnersWord.next`. Receipts name a placement by its
        number."""
        now, tried = self._clock(), self.tried
        term = OWNERS_WORD.next(self.current.term, worker, now, since=since, tried=tried)
        self.tried = term.number
        return term

    @property
    def running(self) -> bool:
        """Whether it was let grow, and its output has not ended."""
        return self._scope is not None

    async def catch_up(self) -> None:
        """Get to where the output is; `run` finds its inputs read, and what computes it warm.

        Raises:
            NotRetainedError: the past of its inputs is gone: the output would be wrong.
        """
        self.runner.expect(self.load, self.rate)
        await self.runner.wait_for_inputs(self.boundary)
        needed = needed_after(self.task, self.boundary)
        if any(state.log.start > needed > BEGINNING for state in self.inputs.values()):
            raise NotRetainedError("the past of its inputs is gone")
        await self.runner.rehearse(self.boundary)
        self.ready = True

    async def run(self) -> None:
        """Let the output grow until it has ended; cancel to stop. One whose log was dropped under
        it stands still; the peer, and its other tasks, go on."""
        forks = () if self.fork is None else (self.fork.run,)
        try:
            await until_one_ends(self._grow, *forks)
        except ClosedError:
            await trio.sleep_forever()

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

        course = Course(
            due=self.runner.wait_for_inputs,  # or its word alone could end the stream
            committed=committed,
            tentative=True,
        )
        term = self.current.term
        worker = (Place(term.holder),)  # if it lost it, the task is taken back
        await Follower(self.state, worker, self._reach, f"{OWNER} {term.number}", course).run()

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
        status = self.status()
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
        if self.behind_since is None or self.state.moved_at > self.behind_since:
            self.behind_since = now
        return now - self.behind_since

    def hold_for_bill(self, boundary: int | None) -> None:
        """Keep the input tuples after this boundary, to be counted; None: no more."""
        for state in self.inputs.values():
            if boundary is None:
                state.log.release(self._bill)
            else:
                state.log.hold(self._bill, boundary)

    def count(self, after: int, upto: int) -> int:
        """Input tuples with after < stime <= upto: what a worker is paid for.

        Raises:
            NotRetainedError: they are not all here, any more or yet.
        """
        return self.runner.count(after, upto)

    def status(self, *, stopped: bool = False, owner: str = "") -> TaskStatus:
        """As the monitor shows it. owner: peer id (hex) of the one that it is computed for."""
        worker = self.current.term.holder.hex()
        return self.runner.status(stopped=stopped, worker=worker, owner=owner)

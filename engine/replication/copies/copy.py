"""A copy of one task: the logs of its inputs and of its output.

The output grows epoch by epoch: this peer computes the task, or follows the peer that computes it.
Either way the output's boundary is the copy's whole position. So the worker can change at any
boundary, and a peer that dies takes only work with it, never data.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio

from medusa.engine.functions.allowed import Functions
from medusa.engine.objects.readers import Readers
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.following.book import Followers
from medusa.engine.replication.following.follower import Course, Follower
from medusa.engine.replication.following.origin import LEASE_S, Place
from medusa.engine.replication.records.placements import Placement, Placements, at_owner
from medusa.engine.replication.records.term import OWNERS_WORD, Term
from medusa.engine.streams.config import EngineConfig
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import StreamState
from medusa.engine.tasks.execution import Executor
from medusa.engine.tasks.fork import Fork
from medusa.engine.tasks.plan import Task
from medusa.engine.tasks.revisions.runner import runner_of
from medusa.engine.tasks.status import TaskStatus
from medusa.engine.tasks.windows import needed_after
from medusa.overlay.concurrency import Watched, until_one_ends
from medusa.overlay.errors import ClosedError, InvalidInputError, NotRetainedError
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay

OWNER = "owner"
"""The owner's name as a subscriber of its workers."""


@dataclass(frozen=True)
class Workshop:
    """The parts of a peer that make copies of tasks.

    Attributes:
        followers: follow the inputs. readers: decides which participants may read a stream.
        executor: computes tasks. functions: the functions of users that tasks may call here.
        nursery: runs the copies.
    """

    overlay: Overlay
    followers: Followers
    readers: Readers
    executor: Executor
    functions: Functions
    config: EngineConfig
    nursery: trio.Nursery

    def check_functions(self, tasks: Iterable[Task]) -> None:
        """Check that this peer may run the functions that tasks call.

        Raises:
            InvalidInputError: a function is not allowed here, or has other code here.
        """
        for function in {each for task in tasks for each in task.functions}:
            try:
                self.functions.find(function)
            except InvalidInputError as error:
                raise InvalidInputError(f"peer {self.here.hex()[:8]}: {error}") from None

    def warm(self, tasks: Sequence[Task] = ()) -> None:
        """Start the executor before the first job of these tasks needs it."""
        self.nursery.start_soon(self.executor.prepare, [task.at(END) for task in tasks])

    async def trouble(self) -> str:
        """Why no task can be computed here, and the remedy; else empty, as far as is known within
        `Timing.trouble_s`. A failed start is tried again."""
        tried = trio.Event()

        async def start() -> None:
            await self.executor.prepare()
            tried.set()

        self.nursery.start_soon(start)
        with trio.move_on_after(self.config.timing.trouble_s):
            await tried.wait()
        return self.executor.trouble

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


@dataclass(frozen=True)
class Reading:
    """A worker's report: the boundary that all its inputs have reached, microseconds, and the time
    of the report on trio's clock, seconds."""

    boundary: int
    at: float


class Copy:
    """A task at this peer: its logs, and the runner or follower that extends its output.

    Args:
        logs: the logs of its inputs and of its output, by stream.
        bound_s: how long results may wait for a missing input, seconds; 0: for ever.
        placements: the record of its workers; this peer alone unless given.
        user: holds inputs until they are billed; the task's name unless given.

    Attributes:
        state: its output. inputs: the inputs, by name.
        runner: computes it here. fork: computes over the inputs that are present, whichever peer
            computes the task; None: results wait. placements: see Args. moving: held while they are
            being changed.
        ready: whether `catch_up` is done. tried: the number of the last move, even of a failed one:
            no two workers get the same number.
        load, rate, cost_ns: cores it takes here, or would take; rows per second it reads; CPU
            nanoseconds a row, as last measured here.
        behind_since: since when the worker has not computed epochs that the inputs allow, on trio's
            clock, seconds; None: it is not behind.
        given: the highest boundary that a released worker reported; consumers may have read up to
            it. spared: whether the worker has the inputs, so that they need not be here; see
            `moves.sparing`.
        reading: the worker's last report of its reading, under this placement; None: none yet.
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
        if bound_s and task.of is None:  # revisions arrive late by nature
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
        self.spared = Watched(False)
        self.reading: Reading | None = None
        self.load, self.rate = self.current.load, self.current.rate
        self.cost_ns = self.current.owed.cost_ns
        self._reach = shop.followers.reach
        self._clock = shop.overlay.clock
        self._bill = Hold("bill", user or task.name)
        self._at_worker = Hold("worker", task.name)
        self._consumed: int | None = None
        self._scope: trio.CancelScope | None = None
        self._at_rest = trio.Event()
        self._at_rest.set()
        self._paused: trio.Event | None = None

    @property
    def task(self) -> Task:
        """The task in its present edition."""
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
        """The term of the next placement, by `OwnersWord.next`. Receipts name a placement by it."""
        now, tried = self._clock(), self.tried
        term = OWNERS_WORD.next(self.current.term, worker, now, since=since, tried=tried)
        self.tried = term.number
        return term

    @property
    def running(self) -> bool:
        """Whether the copy was started, and its output has not ended."""
        return self._scope is not None

    async def catch_up(self) -> None:
        """Wait for the inputs up to the output's boundary, and compute the open windows once, so
        that `run` finds the inputs read and the executor warm.

        Raises:
            NotRetainedError: the history of its inputs is gone: the output would be wrong.
        """
        self.runner.load.expect(self.load, self.rate)
        await self.runner.inputs.wait(self.boundary)
        if any(
            state.log.start > needed_after(self.task, self.boundary, name) > BEGINNING
            for name, state in self.inputs.items()
        ):
            raise NotRetainedError("the past of its inputs is gone")
        await self.runner.warm_up(self.boundary)
        self.ready = True

    async def run(self) -> None:
        """Extend the output until it has ended; cancel to stop. If its log is dropped meanwhile,
        this copy stands still; the peer, and its other tasks, go on."""
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
        self.runner.load.expect(self.load, self.rate)
        if not self.current.term.holder:
            await self.runner.run()
            return
        seen = self.boundary

        def committed() -> None:
            nonlocal seen
            if self.spared.value:
                self.runner.inputs.hold()
            else:
                self.runner.followed(seen)
            seen = self.boundary

        course = Course(
            due=self._wait_for_inputs,  # else the worker alone could end the stream
            committed=committed,
            tentative=True,
        )
        term = self.current.term
        # if the worker has lost tuples, this peer takes the task back
        worker = (Place(term.holder),)
        await Follower(self.state, worker, self._reach, f"{OWNER} {term.number}", course).run()

    async def _wait_for_inputs(self, boundary: int) -> None:
        """Wait until the inputs here have that boundary, unless only the worker has them."""

        async def until_spared() -> None:
            await self.spared.until(lambda spared: spared)

        await until_one_ends(partial(self.runner.inputs.wait, boundary), until_spared)

    def receive(self, boundary: int, rate: float) -> None:
        """Note a worker's report of its inputs. boundary: the boundary that all of them have,
        microseconds. rate: rows per second that it reads."""
        now, before = trio.current_time(), self.reading
        self.reading = Reading(boundary, now)
        if self.spared.value and before is not None:
            self.runner.load.read_elsewhere(rate * (now - before.at))

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Stop the output within the block; afterwards the worker in `placements` extends it."""
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
        """Note the load here, measured or predicted."""
        self.rate = self.runner.load.input_rate
        if self.current.term.holder:
            self.load = self.runner.load.predicted
        else:
            self.load, self.cost_ns = self.runner.load.cores, self.runner.load.cost_ns

    @property
    def is_away(self) -> bool:
        """Whether another peer runs it."""
        return bool(self.current.term.holder)

    def watch(self, now: float) -> float:
        """Return how long a worker has been behind, seconds. now: on trio's clock."""
        reached = self.runner.inputs.boundary
        if self.spared.value and self.reading is not None:
            reached = max(reached, self.reading.boundary)
        if not self.is_away or self.boundary >= reached:
            self.behind_since = None
            return 0.0
        if self.behind_since is None or self.state.moved_at > self.behind_since:
            self.behind_since = now
        return now - self.behind_since

    def hold_for_consumers(self, consumed: int, participant: str = "") -> None:
        """Keep the output for the consumers that read it at the worker: if this peer takes the task
        back, or its secondary takes over, they continue there.

        Args:
            consumed: the boundary that all of them have reached, microseconds.
            participant: the participant of the worker, if it is not ours.
        """
        self._consumed = min(consumed, self.boundary)
        self.state.log.retention.hold(self._at_worker, self._consumed, holder=participant)

    def keep_for_consumers(self) -> None:
        """Begin to keep the output for consumers that go to a worker. If the task is back here,
        keep it until they have come back."""
        if self.current.term.holder:
            self.hold_for_consumers(self.state.log.upkeep.needed(frozenset()))
        elif self._consumed is not None:
            expires = trio.current_time() + LEASE_S
            self.state.log.retention.hold(self._at_worker, self._consumed, expires)

    def hold_for_bill(self, boundary: int | None) -> None:
        """Keep the input tuples after this boundary until they are billed; None: no more."""
        for state in self.inputs.values():
            if boundary is None:
                state.log.retention.release(self._bill)
            else:
                state.log.retention.hold(self._bill, boundary)

    def count(self, after: int, upto: int) -> int:
        """Input tuples with after < stime <= upto, by which a worker is paid.

        Raises:
            NotRetainedError: some of these tuples are not here any more, or not yet.
        """
        return self.runner.inputs.count(after, upto)

    def status(self, *, stopped: bool = False, owner: str = "") -> TaskStatus:
        """The task as the monitor shows it. owner: id (hex) of the peer that it is computed for."""
        worker = self.current.term.holder.hex()
        return self.runner.status(stopped=stopped, worker=worker, owner=owner)

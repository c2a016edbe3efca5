"""One task that this peer runs for another."""

from __future__ import annotations

import trio
from msgspec import Struct
from msgspec.structs import replace

from engine.objects.schema import BEGINNING
from engine.replication.following.origin import PRODUCER, READ_INPUT, Origin, Place, Right
from engine.replication.moves.checks import network_of
from engine.replication.moves.messages import Assignment, Progress
from engine.streams.kept import KeptStream
from engine.streams.retention import Hold
from engine.tasks.network import Network
from engine.tasks.plan import Task
from engine.tasks.runner import TaskRunner, count_all
from engine.tasks.tentative.fork import Fork
from engine.tasks.windows import needed_after
from overlay.concurrency import until_one_ends
from overlay.identity import parse_peer_id


class StoredAssignment(Struct, frozen=True):
    """
    Attributes:
        owner: peer id (hex).
        since: the boundary from which on it is ours; None: we only prepare.
    """

    assignment: Assignment
    owner: str
    since: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.assignment.task, self.assignment.fence


class AssignedTask:
    """One of them.

    Attributes:
        opened: set once it is running, or cannot be.
        inputs_now: what its query reads, with the readers that it has now.
        ready: it goes on with the output. reason: why it never will.
        known_at: when this peer took it, or was started again with it; asked_at: when its owner
            was first asked in vain to take it back: on trio's clock, seconds.
        scope, at_rest: stop it, and say that it has stopped.
    """

    def __init__(self, stored: StoredAssignment, task: Task) -> None:
        self.stored = stored
        self.task = task
        self.runner: TaskRunner | None = None
        self.fork: Fork | None = None
        self.kept: KeptStream | None = None
        self.inputs: tuple[KeptStream, ...] = ()
        self.inputs_now = stored.assignment.inputs
        self.ready = False
        self.reason = ""
        self.known_at = trio.current_time()
        self.asked_at: float | None = None
        self.opened = trio.Event()
        self.scope = trio.CancelScope()
        self.at_rest = trio.Event()

    @property
    def network(self) -> Network:
        """The query that it is part of, as far as it is known here."""
        return replace(network_of(self.stored.assignment), inputs=self.inputs_now)

    @property
    def user(self) -> str:
        """Whom its mirrors are kept for."""
        task, fence = self.stored.key
        return f"{task} {fence}"

    @property
    def origin(self) -> Origin:
        """Of an input: its producer, and the owner for the suffix that the producer let go of."""
        owner = parse_peer_id(self.stored.owner)
        return (PRODUCER, Place(owner, method=READ_INPUT, right=Right(*self.stored.key)))

    @property
    def boundary(self) -> int:
        return BEGINNING if self.kept is None else self.kept.log.boundary

    def count(self, after: int, upto: int) -> int:
        """Input tuples with after < stime <= upto.

        Raises:
            NotRetainedError: they are not all here, any more or yet.
        """
        return sum(count_all(self.task, kept.log, after, upto) for kept in self.inputs)

    def hold_for_bill(self, boundary: int | None) -> None:
        """Keep the input tuples after this boundary, to be counted; None: no more."""
        for kept in self.inputs:
            if boundary is None:
                kept.log.release(Hold("bill", self.user))
            else:
                kept.log.hold(Hold("bill", self.user), boundary)

    @property
    def progress(self) -> Progress:
        runner = self.runner
        if runner is None:
            return Progress(BEGINNING, 0, reason=self.reason or "it is not open yet")
        reason = self.reason or runner.reason
        return Progress(self.boundary, runner.input_bytes, self.ready, reason)

    @property
    def needed(self) -> int:
        """The boundary after which it needs its inputs."""
        return needed_after(self.task, self.boundary)

    async def run(self) -> None:
        assert self.runner is not None
        try:
            with self.scope:
                await self.runner.wait_for_inputs(self.boundary)
                if any(kept.log.start > self.needed > BEGINNING for kept in self.inputs):
                    self.reason = "the past of its inputs is gone"  # the output would be wrong
                    return
                await self.runner.rehearse(self.boundary)
                self.ready = True
                forks = () if self.fork is None else (self.fork.run,)
                await until_one_ends(self.runner.run, *forks)
        finally:
            self.at_rest.set()

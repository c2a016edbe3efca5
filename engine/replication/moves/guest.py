"""A task that this peer runs for another peer: its copy, its file, and the owner's last answer
about it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct
from msgspec.structs import replace

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.following.origin import PRODUCER, READ_INPUT, Origin, Place, Right
from medusa.engine.replication.moves.checks import network_of
from medusa.engine.replication.moves.messages import (
    Assignment,
    Confirm,
    Confirmed,
    PlacementStatus,
    Progress,
)
from medusa.engine.tasks.network import Network
from medusa.engine.tasks.plan import Task
from medusa.overlay.concurrency import Job
from medusa.overlay.errors import DamagedError, NotRetainedError, UnavailableError
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.json_folder import JsonFolder, refuse
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay

CALL_S: Final = 10.0
"""The longest wait for the owner, seconds."""


class StoredAssignment(Struct, frozen=True):
    """An assignment on disk.

    Attributes:
        owner: peer id (hex).
        since: the boundary from which on the task is ours; None: this peer only prepares.
    """

    assignment: Assignment
    owner: str
    since: int | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.assignment.task, self.assignment.term_number

    @property
    def owner_id(self) -> PeerId:
        """The peer that keeps the query, and has assigned the task."""
        return parse_peer_id(self.owner)


class Guest:
    """A task that this peer runs for another: the owner's assignment, and the copy.

    Attributes:
        copy: the copy of the task; None until its logs are open.
        work: the job that runs it. opened: set once it runs, or cannot. inputs_now: the inputs of
            its query, with their present readers. reason: why it can never continue. known_at: when
            this peer accepted it, or restarted with it; asked_at: when its owner was first asked in
            vain to take it back: both on trio's clock, seconds.
    """

    def __init__(self, stored: StoredAssignment, task: Task) -> None:
        self.stored = stored
        self.task = task
        self.copy: Copy | None = None
        self.work = Job()
        self.inputs_now = stored.assignment.inputs
        self.reason = ""
        self.known_at = trio.current_time()
        self.asked_at: float | None = None
        self.opened = trio.Event()

    @property
    def network(self) -> Network:
        """The query that it is part of, with the present readers of its inputs."""
        return replace(network_of(self.stored.assignment), inputs=self.inputs_now)

    @property
    def user(self) -> str:
        """The name under which its inputs are followed."""
        task, term_number = self.stored.key
        return f"{task} {term_number}"

    @property
    def origin(self) -> Origin:
        """The origin of an input: its producer first; then the owner, for tuples that the producer
        has dropped."""
        owner = self.stored.owner_id
        return (PRODUCER, Place(owner, method=READ_INPUT, right=Right(*self.stored.key)))

    @property
    def boundary(self) -> int:
        return BEGINNING if self.copy is None else self.copy.boundary

    @property
    def progress(self) -> Progress:
        copy = self.copy
        if copy is None:
            return Progress(BEGINNING, 0, reason=self.reason or "it is not open yet")
        reason = self.reason or copy.runner.reason
        return Progress(copy.boundary, copy.runner.inputs.bytes, copy.ready, reason)

    @property
    def confirm(self) -> Confirm:
        """Ask the owner to confirm, with a report on the task."""
        if self.copy is None:
            return Confirm(*self.stored.key)
        runner, consumed = self.copy.runner, self.copy.state.log.upkeep.needed(frozenset())
        return Confirm(*self.stored.key, consumed, runner.inputs.boundary, runner.load.input_rate)

    def count(self, after: int, upto: int) -> int:
        """See `Copy.count`."""
        if self.copy is None:
            raise NotRetainedError(f"{self.task.name}: its inputs are not open yet")
        return self.copy.runner.inputs.count(after, upto)

    def hold_for_bill(self, boundary: int | None) -> None:
        """See `Copy.hold_for_bill`."""
        if self.copy is not None:
            self.copy.hold_for_bill(boundary)

    async def run(self) -> None:
        """Compute it until its output has ended, or cannot go on for a known reason."""
        assert self.copy is not None, "it is open"
        try:
            await self.copy.catch_up()
        except NotRetainedError as error:
            self.reason = str(error)
        else:
            await self.copy.run()

    def refuse(self, why: str) -> None:
        """Stop computing the task for good, for the reason `why`."""
        self.reason = why
        if self.copy is not None:
            self.copy.ready = False
        self.work.cancel()


async def ask_owner(overlay: Overlay, directory: Directory, assigned: Guest) -> Confirmed:
    """Ask the owner for the placement of a task, and report the boundary of its consumers here. If
    the owner is away, its successor is asked: the peer with a higher term, in the catalog, under
    the name of its participant.

    Raises:
        MedusaError: neither can be reached.
    """
    stored = assigned.stored
    owner, confirm = stored.owner_id, assigned.confirm
    try:
        return await _ask(overlay, owner, confirm)
    except UnavailableError:
        successor = await directory.successor(stored.assignment.task, owner)
        if successor is None:
            raise
        if successor == overlay.identity.peer_id:  # the successor computes the task itself
            return Confirmed(PlacementStatus.RELEASED)
        return await _ask(overlay, successor, confirm)


async def _ask(overlay: Overlay, owner: PeerId, confirm: Confirm) -> Confirmed:
    connection = await overlay.connect(owner)
    return await connection.call("task.confirm", confirm, Confirmed, timeout_s=CALL_S)


class AssignmentFiles:
    """The assignments of a worker, one file each, so that a restart resumes them."""

    def __init__(self, folder: Path) -> None:
        mend = "remove it: the task's owner takes it home"
        self._files = JsonFolder(folder, StoredAssignment, mend)

    def load(self, damaged: Callable[[DamagedError], None] = refuse) -> Iterator[StoredAssignment]:
        """Load the files, as `JsonFolder.load`."""
        return self._files.load(damaged)

    @failpoint(Failpoint.ASSIGNMENT_SAVE)
    def save(self, stored: StoredAssignment) -> None:
        """Save the guest in its file. Raises: StorageError: the disk does not take it; the old file
        stays."""
        self._files.save(self._name(stored), stored)

    def remove(self, stored: StoredAssignment) -> None:
        self._files.remove(self._name(stored))

    @staticmethod
    def _name(stored: StoredAssignment) -> str:
        task, term_number = stored.key  # a name may be as long as a file's
        return f"{hashlib.sha256(task.encode()).hexdigest()[:32]}-{term_number}.json"

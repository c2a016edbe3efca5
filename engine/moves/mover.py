"""The owner's side of a move.

Step by step, and what a crash leaves after each:

1. assign: the new worker is told the task's definition and a boundary, and begins there while
   the old one still works. A crash of the owner: the assignment is forgotten; the worker asks
   whether it is needed, and drops it. A crash of the worker: it goes on with it, or the move is
   given up after `PREPARE_S`.
2. wait until its output has reached ours: the inputs' suffix is there, and the windows are open.
3. pause the output; write the placement down, which decides. Before it nothing has happened; after
   it, a restart of the owner follows the new worker.
4. go on: our output follows the new worker's from the boundary where it stood. The catalog names
   the new worker, and subscribers from elsewhere are sent to it.
5. activate the new worker, release the old one: repeated until they have heard it.

Whoever dies at whichever step, the output log is ours, its boundary is where it goes on, and all
workers compute the same: nothing is lost and nothing comes twice. The inputs stay here as well, as
far back as the boundary needs, so a task can always be taken home.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import msgspec
import trio

from engine.config import EngineConfig
from engine.messages import Done
from engine.moves.messages import (
    Activate,
    Assignment,
    Confirm,
    Confirmed,
    Deal,
    MoveRecord,
    PassOn,
    Progress,
    Release,
    Standing,
)
from engine.moves.placed_task import PlacedTask
from engine.moves.placements import Placement, standing
from engine.network import StoredQuery
from engine.producers import Producers
from engine.queries import QueryHost
from overlay.errors import (
    ClosedError,
    ConflictError,
    DeadlineError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    StoppedError,
    UnavailableError,
)
from overlay.events import wall_clock
from overlay.identity import parse_peer_id
from overlay.node import Overlay

T = TypeVar("T", bound=msgspec.Struct)

PREPARE_S: Final = 60.0
"""Longest that a new worker may take to reach our output, seconds: a JVM starts in 10 to 20."""

POLL_S: Final = 0.05
"""How often it is asked how far it is, seconds."""

CALL_S: Final = 10.0
"""Patience with one call to a worker, seconds."""

TEND_S: Final = 1.0
"""How often workers are looked after, seconds."""

KEPT_RECORDS: Final = 1000
"""Moves that are remembered, for the monitor."""

FIRST_EPOCH_S: Final = 60.0
"""How long the first epoch after a switch is waited for, to say how long it took, seconds."""


class Mover:
    """
    Attributes:
        records: the last moves, oldest first.
        may_pass_on: decides whether the worker of a task may pass it on; raises
            NotAuthorisedError where not. Contracts put their own here.
        missed: told of a worker that let a task stand still: (worker, task).
        agree: told of a placement before it counts: (task, placement). What it raises stops the
            move. changed: told of one that does: (task, before, now).
    """

    def __init__(
        self,
        queries: QueryHost,
        overlay: Overlay,
        producers: Producers,
        config: EngineConfig,
        nursery: trio.Nursery,
    ) -> None:
        self._queries = queries
        self._overlay = overlay
        self._producers = producers
        self._config = config
        self._nursery = nursery
        self._here = overlay.identity.peer_id.hex()
        self._preparing: dict[tuple[str, str], int] = {}
        self._told: set[tuple[str, int, bool]] = set()
        self._telling: set[str] = set()
        self.records: deque[MoveRecord] = deque(maxlen=KEPT_RECORDS)
        self.may_pass_on: Callable[[Placement], None] = _only_siblings
        self.missed: Callable[[str, str], None] = lambda _worker, _task: None
        self.agree: Callable[[str, Placement], None] = lambda _task, _placement: None
        self.changed: Callable[[str, Placement, Placement], None] = _nobody_minds

    async def move(self, task: str, to: str, deal: Deal) -> MoveRecord:
        """Let another peer work on a task, or ourselves again.

        Args:
            to: peer id (hex); ours or "": home.
            deal: on what terms.

        Raises:
            NotFoundError: no such task here. StoppedError: it does not run.
            ConflictError: it is being moved, or is there already.
            UnavailableError: the worker cannot be reached, or did not catch up in time; nothing has
                changed.
            MedusaError: why the worker refuses.
        """
        return await self._move(task, to, deal, payee=to, owed=deal)

    async def pass_on(self, worker: str, request: PassOn) -> MoveRecord:
        """The worker gives the task to another one, and stays the one whom we pay.

        Raises:
            NotAuthorisedError: it is not the task's worker, or may not pass it on.
            MedusaError: as `move`.
        """
        _, placed = self._queries.find(request.task)
        current = placed.current
        if (current.worker, current.fence) != (worker, request.fence):
            raise NotAuthorisedError(f"{request.task}: you are not its worker")
        self.may_pass_on(current)
        deal, payee = request.deal, current.payee
        if not deal.contract:  # to a peer of its own participant, which steps into its place
            if worker != payee:
                raise NotAuthorisedError(f"{request.task}: bill it yourself, or give it back")
            deal, payee = current.deal, request.to
        return await self._move(request.task, request.to, deal, payee=payee, owed=current.owed)

    async def take_home(self, task: str) -> MoveRecord:
        """`move`, home."""
        return await self._move(task, "", Deal(), payee="", owed=Deal())

    def confirm(self, worker: str, request: Confirm) -> Confirmed:
        """What a peer is to a task that it believes to work on."""
        if self._preparing.get((request.task, worker)) == request.fence:
            return Confirmed(Standing.ASSIGNED)
        try:
            _, placed = self._queries.find(request.task)
        except NotFoundError:
            return Confirmed(Standing.RELEASED)
        return standing(placed.placements, worker, request.fence)

    def worker_of(self, task: str, fence: int, peer: str) -> PlacedTask:
        """The task, if that peer works on it or prepares to.

        Raises:
            NotAuthorisedError: it does not. NotFoundError: no such task here.
        """
        if self.confirm(peer, Confirm(task, fence)).standing is Standing.RELEASED:
            raise NotAuthorisedError(f"{task}: you are not its worker")
        return self._queries.find(task)[1]

    async def _move(self, task: str, to: str, deal: Deal, *, payee: str, owed: Deal) -> MoveRecord:
        to = "" if to == self._here else to
        stored, placed = self._queries.find(task)
        self._check_movable(placed, to)
        async with placed.moving:
            fence = self._next_fence(placed)
            source = placed.current.worker or self._here
            with self._prepared_for(task, to, fence):
                carry_bytes = await self._prepare(stored, placed, to, fence, deal) if to else 0
                self._check_movable(placed, to)
                async with placed.paused():
                    committed_at = placed.kept.log.moved_at
                    placement = Placement(fence, to, placed.boundary, None, deal, payee, owed)
                    self.agree(task, placement)
                    self._queries.place(placed, placement)
                    self.changed(task, placed.placements[-2], placement)
        record = MoveRecord(
            at=wall_clock(),
            task=task,
            fence=fence,
            since=placement.since,
            source=source,
            target=to or self._here,
            contract=owed.contract,
            price=owed.price,
            stall_ms=0.0,
            carry_bytes=carry_bytes,
        )
        self._announce(placed, record, committed_at)
        return record

    @contextmanager
    def _prepared_for(self, task: str, to: str, fence: int) -> Iterator[None]:
        """Within the block a worker that asks is to go on preparing; after it, what the placements
        say holds."""
        self._preparing[task, to] = fence
        try:
            yield
        finally:
            del self._preparing[task, to]

    def _next_fence(self, placed: PlacedTask) -> int:
        """Greater than any before, of a task of that name deleted long ago as well: receipts name
        a placement by it."""
        return max(placed.current.fence + 1, int(wall_clock() * 1000))

    def _check_movable(self, placed: PlacedTask, to: str) -> None:
        if not placed.running:
            raise StoppedError(f"{placed.name} does not run: start its query first")
        if placed.current.worker == to:
            raise ConflictError(f"{placed.name} is there already")
        if to:
            parse_peer_id(to)

    async def _prepare(
        self, stored: StoredQuery, placed: PlacedTask, to: str, fence: int, deal: Deal
    ) -> int:
        """Let the new worker get to where the output is; the bytes that it took over."""
        assignment = Assignment(
            task=placed.name,
            fence=fence,
            query=stored.entry.query,
            inputs=stored.inputs,
            kept=stored.kept,
            after=placed.boundary,
            deal=deal,
            load=placed.load,
            rate=placed.rate,
        )
        return await self._until_there(placed, to, assignment)

    async def _until_there(self, placed: PlacedTask, to: str, assignment: Assignment) -> int:
        reason = "it said nothing"
        with trio.move_on_after(PREPARE_S):
            while True:
                try:
                    progress = await self._call(to, "task.assign", assignment, Progress)
                except UnavailableError as error:
                    reason = str(error)
                    if not self._overlay.peers.get(parse_peer_id(to)):
                        raise
                else:
                    if progress.ready and progress.boundary >= placed.boundary:
                        return progress.carry_bytes
                    reason = progress.reason or "it has not caught up"
                await trio.sleep(POLL_S)
        raise DeadlineError(f"{placed.name} was not moved to {to[:8]}: {reason}")

    def _announce(self, placed: PlacedTask, record: MoveRecord, committed_at: float) -> None:
        self._overlay.events.note(
            "info", f"{placed.name} moved from {record.source[:8]} to {record.target[:8]}"
        )
        self._nursery.start_soon(self._send_subscribers, placed)
        self._nursery.start_soon(self._tell, placed)
        self._nursery.start_soon(self._note_stall, placed, record, committed_at)

    async def _note_stall(
        self, placed: PlacedTask, record: MoveRecord, committed_at: float
    ) -> None:
        """Remember the move, with the time that the output stood still; 0: nothing came."""
        since = placed.current.since
        stood_s = 0.0
        with trio.move_on_after(FIRST_EPOCH_S), suppress(ClosedError):
            await placed.kept.log.wait_beyond(since)
            stood_s = time.monotonic() - committed_at
        self.records.append(msgspec.structs.replace(record, stall_ms=1000 * stood_s))

    async def _send_subscribers(self, placed: PlacedTask) -> None:
        """The catalog first, so that who is sent away finds the worker there."""
        worker = placed.current.worker
        try:
            await self._producers.name_worker(placed.name, worker)
        except MedusaError as error:
            self._overlay.events.note("warning", f"{placed.name}: its worker is untold: {error}")
        if worker:
            placed.kept.send_away()

    def _untold(self, placed: PlacedTask) -> list[Placement]:
        """Of the last two placements, those whose worker does not know yet what it is."""
        return [
            placement
            for placement in placed.placements[-2:]
            if placement.worker and _news(placed.name, placement) not in self._told
        ]

    async def _tell(self, placed: PlacedTask) -> None:
        """Once at a time; `tend` repeats what they did not hear."""
        if placed.name in self._telling:
            return
        self._telling.add(placed.name)
        try:
            for placement in self._untold(placed):
                with suppress(MedusaError):
                    await self._tell_one(placed.name, placement)
                    self._told.add(_news(placed.name, placement))
        finally:
            self._telling.discard(placed.name)

    async def _tell_one(self, task: str, placement: Placement) -> None:
        if placement.until is None:
            request: Activate | Release = Activate(task, placement.fence, placement.since)
            await self._call(placement.worker, "task.activate", request, Done)
        else:
            request = Release(task, placement.fence, placement.until)
            await self._call(placement.worker, "task.release", request, Done)

    async def _call(self, to: str, method: str, request: msgspec.Struct, response: type[T]) -> T:
        connection = await self._overlay.connect(parse_peer_id(to))
        return await connection.call(method, request, response, timeout_s=CALL_S)

    async def tend(self) -> None:
        """Repeat what workers have not heard, and take home what stands still; for ever."""
        while True:
            await trio.sleep(TEND_S)
            for placed in self._queries.tasks():
                placed.measure()
                if placed.moving.locked():
                    continue
                if self._untold(placed):
                    self._nursery.start_soon(self._tell, placed)
                patience_s = placed.current.deal.availability_s or self._config.patience_s
                if placed.watch(trio.current_time()) > patience_s:
                    self._nursery.start_soon(self._miss, placed)

    async def _miss(self, placed: PlacedTask) -> None:
        worker = placed.current.worker
        self._overlay.events.note(
            "warning", f"{placed.name} stands still at {worker[:8]}: it is taken home"
        )
        self.missed(worker, placed.name)
        with suppress(MedusaError):
            await self.take_home(placed.name)


def _news(task: str, placement: Placement) -> tuple[str, int, bool]:
    """What a worker is told once: that it is, and later that it is no more."""
    return task, placement.fence, placement.until is None


def _nobody_minds(_task: str, _before: Placement, _now: Placement) -> None:
    pass


def _only_siblings(placement: Placement) -> None:
    """Where no contracts are, a task stays within the participant that may do with it as it likes.

    Raises:
        NotAuthorisedError: the task is run under a contract.
    """
    if placement.owed.contract:
        raise NotAuthorisedError("the contract does not let it be passed on")

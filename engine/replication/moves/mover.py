"""The owner's side of a move.

The steps, each with the effect of a crash after it:

1. assign: the new worker gets the task's definition and a boundary, and begins there while the old
   one still works. If the owner crashes, it forgets the assignment; the worker asks whether it is
   needed, and drops the task. If the worker crashes, it continues to prepare after its restart, or
   the owner abandons the move after `Timing.prepare_s`.
2. wait until the worker's output has reached the owner's boundary. By then the worker has the
   suffix of the inputs, and has computed the open windows.
3. pause the output; ask `agree`, which may stop the move; store the placement, which decides.
   Before that nothing has happened; after it, a restart of the owner follows the new worker.
4. continue: the owner's output follows the new worker's from the boundary where it paused. At the
   same time the catalog names the new worker, subscribers from elsewhere are sent to it, and the
   owner activates the new worker and releases the old one, again until both have answered.

The owner has the output log, and all workers compute the same. So a crash of any peer at any step
loses nothing, and repeats nothing. The inputs stay at the owner as well, as far back as the
boundary needs, or are kept for it at the one peer that has them (`sparing`). So a task can always
be taken back.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
import trio
from msgspec.structs import replace

from medusa.engine.objects.schema import END
from medusa.engine.replication.copies.copy import Copy
from medusa.engine.replication.moves.checks import check_worker
from medusa.engine.replication.moves.messages import (
    Assignment,
    GiveBackTask,
    MoveRecord,
    PassOn,
    Progress,
)
from medusa.engine.replication.moves.notifications import Notifier
from medusa.engine.replication.moves.sparing import Sparing
from medusa.engine.replication.moves.taking_home import TakingHome
from medusa.engine.replication.moves.workers import Workers
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.placements import Deal, Placement
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.records.term import Term
from medusa.overlay.concurrency import next_beat
from medusa.overlay.errors import (
    ClosedError,
    ConflictError,
    DeadlineError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    StoppedError,
    UnavailableError,
)
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.identity import parse_optional_peer_id
from medusa.overlay.listeners import Decision
from medusa.overlay.names import NO_PEER, PeerId

T = TypeVar("T", bound=msgspec.Struct)

POLL_S: Final = 0.05
"""How often the new worker is asked for its progress, seconds."""

KEPT_RECORDS: Final = 1000
"""Moves that are remembered, for the monitor."""

FETCH_S: Final = 5.0
"""How long a task that is taken back may wait for inputs that were not here, while its worker still
works, seconds: the worker may be dead, and the only peer with the inputs."""

FIRST_EPOCH_S: Final = 60.0
"""How long the first epoch after a switch is waited for, to measure the standstill, seconds."""


class Mover:
    """Moves the tasks of this peer's queries to workers and back.

    Attributes:
        records: the last moves, oldest first.
        may_pass_on: decides whether the worker of a task may pass it on; raises NotAuthorisedError
            if not. The market sets it. workers: the workers of the tasks. home: takes back lost
            tasks. notifier: notifies workers of their placements. agree: called with (task,
            placement) before a placement takes effect. An error stops the move.
    """

    def __init__(self, queries: QueryHost) -> None:
        shop = queries.shop
        self._queries = queries
        self._overlay = shop.overlay
        self._timing = shop.config.timing
        self._nursery = shop.nursery
        self._here = shop.here
        self._sparing = Sparing(queries)
        self.workers = Workers(queries)
        self.home = TakingHome(queries, self.take_back)
        self.notifier = Notifier(shop.overlay, self._stored, self._timing.worker_call_s)
        self.notifier.gone.add(self.home.fetch)
        self.records: deque[MoveRecord] = deque(maxlen=KEPT_RECORDS)
        self.may_pass_on: Decision[[Placement], None] = Decision(_only_siblings)
        self.agree: Decision[[str, Placement], None] = Decision(_nobody_minds)

    async def move(self, task: str, to: PeerId, deal: Deal) -> MoveRecord:
        """Move a task to another peer, or back to this one.

        Args: to: the worker; this peer or NO_PEER: move it back. deal: the worker's terms.

        Raises:
            NotFoundError: this peer has no such task. StoppedError: the task does not run.
                ConflictError: the task is being moved, or is at that peer already.
            UnavailableError: the worker cannot be reached, or did not catch up in time; nothing has
                changed.
            MedusaError: the worker's reason for a refusal.
        """
        if to in {NO_PEER, self._here}:
            return await self.take_back(task)
        if self._queries.find(task)[1].task.recalls:
            raise InvalidInputError(f"{task} keeps a table of its own, and stays with it")
        return await self._move(task, to, deal, payee=to, owed=deal)

    async def pass_on(self, worker: PeerId, request: PassOn) -> MoveRecord:
        """Move a task that its worker passes on; this peer still pays that worker.

        Raises:
            NotAuthorisedError: it is not the task's worker, or may not pass it on.
            MedusaError: as `move`.
        """
        current = self.workers.task_of(worker, request.task, request.term_number).current
        to = parse_optional_peer_id(request.to)
        if to in {NO_PEER, self._here}:  # otherwise this peer would pay the worker for its own work
            raise NotAuthorisedError(f"{request.task}: give it back instead")
        self.may_pass_on(current)
        deal, payee = request.deal, current.payee
        # the new worker belongs to the old worker's participant, and replaces it
        if not deal.contract:
            same = self.workers.participant_of(worker) == self.workers.participant_of(to)
            if worker != payee or not same:
                raise NotAuthorisedError(f"{request.task}: bill it yourself, or give it back")
            deal, payee = current.deal, to
        elif deal.giver != worker.hex():
            raise NotAuthorisedError(f"{request.task}: you pay for what you pass on")
        # the task leaves an unpaid peer of ours: then this peer pays the next worker
        elif not current.owed.contract:
            deal = replace(deal, giver=self._here.hex())
            return await self._move(request.task, to, deal, payee=to, owed=deal)
        return await self._move(request.task, to, deal, payee=payee, owed=current.owed)

    async def give_back(self, worker: PeerId, request: GiveBackTask) -> MoveRecord:
        """Take back a task that its worker gives back.

        Raises:
            NotAuthorisedError: it is not the task's worker.
            MedusaError: as `move`.
        """
        placed = self.workers.task_of(worker, request.task, request.term_number)
        return await self.take_back(placed.name)

    async def take_back(self, task: str) -> MoveRecord:
        """Move a task back to this peer."""
        return await self._move(task, NO_PEER, Deal(), payee=NO_PEER, owed=Deal())

    def _stored(self, placed: Copy) -> StoredQuery | None:
        try:
            return self._queries.find(placed.name)[0]
        except NotFoundError:  # the query was deleted meanwhile
            return None

    async def _move(
        self, task: str, to: PeerId, deal: Deal, *, payee: PeerId, owed: Deal
    ) -> MoveRecord:
        stored, placed = self._queries.find(task)
        self._check_movable(placed, to)
        if to:
            check_worker(
                placed.task, stored.network, self.workers.participant_of(to), self._queries.readers
            )
        known = placed.current
        async with placed.moving:
            if placed.current is not known:
                raise ConflictError(f"{task} has moved meanwhile")
            await self._fetch_inputs(placed, wait_s=0.0 if to else FETCH_S)
            term = placed.next_term(to)
            source = placed.current.term.holder or self._here
            with self.workers.preparing(task, to, term.number):
                carry_bytes = await self._prepare(stored, placed, term, deal) if to else 0
                self._check_movable(placed, to)
                async with placed.paused():
                    # the task may stand still because its query was stopped
                    self._check_movable(placed, to)
                    committed_at = placed.state.log.moved_at
                    placement = Placement(
                        replace(term, since=placed.boundary),
                        deal=deal,
                        payee=payee,
                        owed=owed,
                        load=placed.load,
                        rate=placed.rate,
                    )
                    self.agree(task, placement)
                    self._queries.place(placed, placement)
        record = MoveRecord(
            at=self._overlay.clock(),
            task=task,
            term_number=term.number,
            since=placement.term.since,
            source=source.hex(),
            target=(to or self._here).hex(),
            contract=owed.contract,
            price=owed.price,
            stall_ms=0.0,
            carry_bytes=carry_bytes,
        )
        self._announce(placed, record, committed_at)
        return record

    async def _fetch_inputs(self, placed: Copy, *, wait_s: float) -> None:
        """Fetch the inputs while the task is being moved; wait for them at most that long."""
        self._sparing.look(self._queries.get(placed.task.query))
        with trio.move_on_after(wait_s):
            await placed.runner.inputs.wait(placed.boundary)

    def _check_movable(self, placed: Copy, to: PeerId) -> None:
        if not placed.running:
            raise StoppedError(f"{placed.name} does not run: start its query first")
        if to and placed.runner.limit.value < END:
            raise ConflictError(f"{placed.name} is being modified: try again")
        if placed.current.term.holder == to:
            raise ConflictError(f"{placed.name} is there already")

    @failpoint(Failpoint.MOVE_PREPARE)
    async def _prepare(self, stored: StoredQuery, placed: Copy, term: Term, deal: Deal) -> int:
        """Let the new worker reach the output's boundary; returns the bytes of inputs that it
        fetched."""
        assignment = Assignment(
            task=placed.name,
            term_number=term.number,
            query=stored.entry.query,
            inputs=stored.inputs,
            kept=stored.kept,
            after=placed.boundary,
            deal=deal,
            load=placed.load,
            rate=placed.rate,
            editions=tuple(each for each in stored.editions if each.upto > placed.boundary),
            readers=stored.entry.readers,
            altered=stored.entry.altered,
        )
        return await self._until_there(placed, term.holder, assignment)

    async def _until_there(self, placed: Copy, to: PeerId, assignment: Assignment) -> int:
        reason = "it said nothing"
        with trio.move_on_after(self._timing.prepare_s):
            while True:
                goal = placed.boundary  # read before the call, because the output grows during it
                try:
                    progress = await self._call(to, "task.assign", assignment, Progress)
                except UnavailableError as error:
                    reason = str(error)
                    if not self._overlay.peers.get(to):
                        raise
                else:
                    if progress.ready and progress.boundary >= goal:
                        return progress.carry_bytes
                    reason = progress.reason or "it has not caught up"
                await trio.sleep(POLL_S)
        raise DeadlineError(f"{placed.name} was not moved to {to.hex()[:8]}: {reason}")

    def _announce(self, placed: Copy, record: MoveRecord, committed_at: float) -> None:
        self._overlay.events.note(
            "info",
            f"moved {placed.name} from {record.source[:8]} to {record.target[:8]}",
            task=placed.name,
            term=placed.current.term.number,
        )
        self._nursery.start_soon(self._send_subscribers, placed)
        self._nursery.start_soon(self.notifier.notify, placed)
        self._nursery.start_soon(self._note_stall, placed, record, committed_at)

    async def _note_stall(self, placed: Copy, record: MoveRecord, committed_at: float) -> None:
        """Record the move, with the length of the output's pause; 0: no epoch came in time."""
        since = placed.current.term.since
        stood_s = 0.0
        with trio.move_on_after(FIRST_EPOCH_S), suppress(ClosedError):
            await placed.state.log.wait_beyond(since)
            stood_s = time.monotonic() - committed_at
        self.records.append(replace(record, stall_ms=1000 * stood_s))

    @failpoint(Failpoint.MOVE_SEND_SUBSCRIBERS)
    async def _send_subscribers(self, placed: Copy) -> None:
        """Publish the worker, then end the subscriptions here, so that subscribers find the worker
        in the catalog."""
        worker = placed.current.term.holder
        try:
            await self._queries.name_worker(placed)
        except MedusaError as error:
            self._overlay.events.note(
                "warning", f"could not tell the worker of {placed.name}: {error}"
            )
        if worker:
            placed.state.send_away()

    async def _call(self, to: PeerId, method: str, request: msgspec.Struct, response: type[T]) -> T:
        connection = await self._overlay.connect(to)
        patience_s = self._timing.worker_call_s
        return await connection.call(method, request, response, timeout_s=patience_s)

    async def maintain(self) -> None:
        """Notify workers again, and take back tasks that are lost there; for ever."""
        while True:
            await trio.sleep_until(next_beat(self._timing.workers_s))
            self._sparing.look_at_all()
            for placed in self._queries.tasks():
                placed.measure()
                if placed.moving.locked():
                    continue
                if self.notifier.to_notify(placed):
                    self._nursery.start_soon(self.notifier.notify, placed)
                if placed.boundary == END and placed.current.term.holder:
                    self._nursery.start_soon(self._dismiss, placed)
            self.home.look()

    async def _dismiss(self, placed: Copy) -> None:
        """Take back a task whose output has ended: its worker has no more work."""
        async with placed.moving:
            if placed.running or not placed.current.term.holder:
                return
            at_home = Placement(placed.next_term(NO_PEER, since=END))
            with suppress(MedusaError):  # the disk is full: try at the next round
                self._queries.place(placed, at_home)
                await self._send_subscribers(placed)


def _nobody_minds(_task: str, _placement: Placement) -> None:
    """Agree to every placement: without contracts none is paid for."""


def _only_siblings(placement: Placement) -> None:
    """Without contracts, a task may be passed on unless it runs under a contract.

    Raises:
        NotAuthorisedError: the task runs under a contract.
    """
    if placement.owed.contract:
        raise NotAuthorisedError("the contract does not let it be passed on")

from __future__ import annotations

from dataclasses import dataclass

import trio

from medusa.engine.objects.readers import Readers
from medusa.engine.replication.following.messages import ReadInput
from medusa.engine.replication.following.origin import READ_INPUT
from medusa.engine.replication.moves.assignments import Assignments
from medusa.engine.replication.moves.checks import check_worker
from medusa.engine.replication.moves.messages import (
    Activate,
    Assignment,
    Confirm,
    Confirmed,
    GiveBackTask,
    MoveRecord,
    MoveTask,
    PassOn,
    Progress,
    Release,
    Released,
)
from medusa.engine.replication.moves.mover import Mover
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.placements import Deal
from medusa.engine.streams.messages import Acknowledge, Done, Tuples
from medusa.engine.streams.reading.delivery import Delivery
from medusa.engine.streams.reading.feed import Cursor, Feed
from medusa.overlay.errors import NotAuthorisedError, NotFoundError
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.identity import parse_optional_peer_id
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import MAX_STRUCT_BYTES, Caller, Duplex


@dataclass(frozen=True, eq=False, kw_only=True)
class MovingCalls:
    """Calls between the owner and the workers of a task, and a client's `move_task`."""

    overlay: Overlay
    queries: QueryHost
    readers: Readers
    delivery: Delivery
    mover: Mover
    assignments: Assignments

    def register(self) -> None:
        service = self.overlay.service
        service.unary("task.assign", Assignment, self.assign, limit=MAX_STRUCT_BYTES)
        service.unary("task.activate", Activate, self.activate)
        service.unary("task.release", Release, self.release)
        service.unary("task.confirm", Confirm, self.confirm)
        service.unary("task.pass_on", PassOn, self.pass_on)
        service.unary("task.give_back", GiveBackTask, self.give_back)
        service.streaming(
            READ_INPUT, ReadInput, self.read_input, takes=(Acknowledge,), sends=(Tuples,)
        )
        service.unary("move_task", MoveTask, self.move_task, clients=True, peers=False)

    # -- asked of a worker --------------------------------------------------------------------

    @failpoint(Failpoint.MOVE_ASSIGN)
    async def assign(self, caller: Caller, request: Assignment, _: bytes) -> Progress:
        return await self.assignments.assign(_peer(caller), caller.participant, request)

    @failpoint(Failpoint.MOVE_ACTIVATE)
    async def activate(self, caller: Caller, request: Activate, _: bytes) -> Done:
        await self.assignments.activate(_peer(caller), request)
        return Done()

    @failpoint(Failpoint.MOVE_RELEASE)
    async def release(self, caller: Caller, request: Release, _: bytes) -> Released:
        return await self.assignments.release(_peer(caller), request)

    # -- asked of the owner -------------------------------------------------------------------

    async def confirm(self, caller: Caller, request: Confirm, _: bytes) -> Confirmed:
        await trio.lowlevel.checkpoint()
        return self.mover.workers.confirm(_peer(caller), request)

    async def pass_on(self, caller: Caller, request: PassOn, _: bytes) -> MoveRecord:
        return await self.mover.pass_on(_peer(caller), request)

    async def give_back(self, caller: Caller, request: GiveBackTask, _: bytes) -> MoveRecord:
        return await self.mover.give_back(_peer(caller), request)

    @failpoint(Failpoint.MOVE_READ_INPUT)
    async def read_input(self, caller: Caller, request: ReadInput, duplex: Duplex) -> None:
        """Send the suffix of an input that the owner keeps for itself, up to its present end."""
        placed = self.mover.workers.prepared_by(_peer(caller), request.task, request.term_number)
        stored, _ = self.queries.find(request.task)
        check_worker(placed.task, stored.network, caller.participant, self.readers)
        state = placed.inputs.get(request.stream)
        if state is None:
            raise NotFoundError(f"{request.stream} is no input of {request.task}")
        log, until = state.log, state.log.boundary

        shares = self.delivery.shares(caller)
        await Feed(Cursor(log, request.after), until, shares=shares).serve(duplex)

    # -- asked by a client --------------------------------------------------------------------

    async def move_task(self, caller: Caller, request: MoveTask, _: bytes) -> MoveRecord:
        if caller.participant != self.overlay.identity.participant:
            raise NotAuthorisedError(
                f"only clients of {self.overlay.identity.participant} move its tasks"
            )
        to, here = parse_optional_peer_id(request.to), self.overlay.identity.peer_id
        return await self.mover.move(request.task, to, Deal(giver=here.hex()))


def _peer(caller: Caller) -> PeerId:
    if caller.peer_id is None:
        raise NotAuthorisedError("only peers work for each other")
    return caller.peer_id

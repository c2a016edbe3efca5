from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import trio

from medusa.engine.objects.availability import Mode
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.following.messages import ReadReplica
from medusa.engine.replication.following.origin import READ_REPLICA
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.repair import Repair
from medusa.engine.replication.replicas.messages import (
    Dismiss,
    Dismissed,
    Incumbent,
    KeepUp,
    KeptUp,
    StandBy,
)
from medusa.engine.replication.replicas.primaries import Primaries
from medusa.engine.replication.replicas.standbys import Standbys
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Acknowledge, Done, Tuples
from medusa.engine.streams.reading.feed import Cursor, Feed, at_once
from medusa.overlay.errors import NotAuthorisedError
from medusa.overlay.names import PeerId
from medusa.overlay.node.node import Overlay
from medusa.overlay.rpc import MAX_STRUCT_BYTES, Caller, Duplex


@dataclass(frozen=True, eq=False)
class ReplicaCalls:
    """Calls between the primary and the secondary of a query."""

    overlay: Overlay
    queries: QueryHost
    primaries: Primaries
    standbys: Standbys
    repair: Repair

    def register(self) -> None:
        self.repair.register()
        service = self.overlay.service
        long = partial(service.unary, own=True, limit=MAX_STRUCT_BYTES)
        long("replica.stand_by", StandBy, self.stand_by)
        long("replica.keep_up", KeepUp, self.keep_up)
        service.unary("replica.dismiss", Dismiss, self.dismiss, own=True)
        service.unary("replica.incumbent", Incumbent, self.incumbent, own=True)
        service.streaming(
            READ_REPLICA, ReadReplica, self.read, own=True, takes=(Acknowledge,), sends=(Tuples,)
        )

    # -- asked of a secondary -------------------------------------------------------------------

    async def stand_by(self, caller: Caller, request: StandBy, _: bytes) -> KeptUp:
        return await self.standbys.stand_by(_peer(caller), caller.participant, request)

    async def keep_up(self, caller: Caller, request: KeepUp, _: bytes) -> KeptUp:
        return await self.standbys.keep_up(_peer(caller), request)

    async def dismiss(self, caller: Caller, request: Dismiss, _: bytes) -> Dismissed:
        return await self.standbys.dismiss(_peer(caller), caller.participant, request)

    # -- asked of a primary -----------------------------------------------------------------------

    async def incumbent(self, caller: Caller, request: Incumbent, _: bytes) -> Done:
        await trio.lowlevel.checkpoint()
        self.primaries.incumbent(_peer(caller), request.query, request.term_number)
        return Done()

    async def read(self, caller: Caller, request: ReadReplica, duplex: Duplex) -> None:
        """Send a stream of the query to its secondary: to a passive standby a checkpoint at a time,
        to an active one up to the present boundary."""
        primaries = self.primaries
        log = primaries.replicated(_peer(caller), request.query, request.stream)
        availability = self.queries.get(request.query).stored.availability
        passive = availability.mode is Mode.PASSIVE_STANDBY
        every_s = availability.checkpoint_s if passive else None
        if passive and request.after > BEGINNING:
            primaries.copied(_peer(caller), request.query, request.stream, request.after)

        def copied(upto: int) -> None:
            if passive:
                primaries.copied(_peer(caller), request.query, request.stream, upto)

        after = log.files.whole_from if request.after == BEGINNING else request.after
        released = at_once if every_s is None else _Checkpoints(log, every_s).released
        until = log.boundary if every_s is None else END
        await Feed(Cursor(log, after), until, released, copied).serve(duplex)


class _Checkpoints:
    """The pace of a passive standby's copies: at each checkpoint, the epochs since the last one."""

    def __init__(self, log: StreamLog, every_s: float) -> None:
        self._log = log
        self._every_s = every_s
        self._upto = log.boundary
        self._due = trio.current_time()

    async def released(self, after: int, _upto: int) -> None:
        """Return once the tuples after that boundary are to be copied."""
        if after < self._upto:
            return
        self._due = max(self._due + self._every_s, trio.current_time())
        await trio.sleep_until(self._due)
        self._upto = self._log.boundary


def _peer(caller: Caller) -> PeerId:
    if caller.peer_id is None:
        raise NotAuthorisedError("only peers stand by for each other")
    return caller.peer_id

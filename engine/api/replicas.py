"""Calls between the primary and the secondary of a query."""

from __future__ import annotations

from contextlib import aclosing, suppress
from functools import partial

import trio

from engine.engine import Engine
from engine.objects.availability import Mode
from engine.objects.schema import BEGINNING
from engine.replication.replicas.messages import (
    Dismiss,
    Dismissed,
    Incumbent,
    KeepUp,
    KeptUp,
    ReadReplica,
    StandBy,
)
from engine.streams.feed import Cursor, serve
from engine.streams.log import StreamLog
from engine.streams.messages import Acknowledge, Done, Tuples
from overlay.concurrency import until_one_ends
from overlay.errors import NotAuthorisedError
from overlay.rpc import MAX_STRUCT_BYTES, Caller, Duplex, EndOfCall


class ReplicaCalls:
    """The handlers; `register` puts them on the peer's service."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def register(self) -> None:
        self._engine.mending.register()
        service = self._engine.overlay.service
        long = partial(service.unary, own=True, limit=MAX_STRUCT_BYTES)
        long("replica.stand_by", StandBy, self.stand_by)
        long("replica.keep_up", KeepUp, self.keep_up)
        service.unary("replica.dismiss", Dismiss, self.dismiss, own=True)
        service.unary("replica.incumbent", Incumbent, self.incumbent, own=True)
        service.streaming(
            "replica.read", ReadReplica, self.read, own=True, takes=(Acknowledge,), sends=(Tuples,)
        )

    # -- asked of a secondary -------------------------------------------------------------------

    async def stand_by(self, caller: Caller, request: StandBy, _: bytes) -> KeptUp:
        return await self._engine.standbys.stand_by(_peer(caller), caller.participant, request)

    async def keep_up(self, caller: Caller, request: KeepUp, _: bytes) -> KeptUp:
        return await self._engine.standbys.keep_up(_peer(caller), request)

    async def dismiss(self, caller: Caller, request: Dismiss, _: bytes) -> Dismissed:
        return await self._engine.standbys.dismiss(_peer(caller), caller.participant, request)

    # -- asked of a primary -----------------------------------------------------------------------

    async def incumbent(self, caller: Caller, request: Incumbent, _: bytes) -> Done:
        await trio.lowlevel.checkpoint()
        self._engine.primaries.incumbent(_peer(caller), request.query, request.fence)
        return Done()

    async def read(self, caller: Caller, request: ReadReplica, duplex: Duplex) -> None:
        """A stream of the query, for its secondary to copy: a checkpoint at a time to a passive
        standby, to an active one what there is now."""
        primaries = self._engine.primaries
        log = primaries.replicated(_peer(caller), request.query, request.stream)
        availability = self._engine.queries.get(request.query).stored.availability
        passive = availability.mode is Mode.PASSIVE_STANDBY
        every_s = availability.checkpoint_s if passive else None
        if passive and request.after > BEGINNING:
            primaries.copied(_peer(caller), request.query, request.stream, request.after)

        async def acknowledgements() -> None:
            with suppress(EndOfCall):
                while True:
                    acknowledged, _ = await duplex.receive(Acknowledge)
                    if passive:
                        upto = acknowledged.upto
                        primaries.copied(_peer(caller), request.query, request.stream, upto)

        await until_one_ends(lambda: _ship(log, request.after, duplex, every_s), acknowledgements)


async def _ship(log: StreamLog, after: int, duplex: Duplex, every_s: float | None) -> None:
    """Epochs, every so many seconds those that have come by then; or, None, those that are there,
    once."""
    if after == BEGINNING:
        after = log.whole_from
    until, due = log.boundary, trio.current_time()
    if every_s is None and after >= until:
        return
    async with aclosing(serve(Cursor(log, after))) as feed:
        async for message, body in feed:
            if message.upto is not None and message.after >= until and every_s is not None:
                due = max(due + every_s, trio.current_time())
                await trio.sleep_until(due)
                until = log.boundary
            await duplex.send(message, body)
            if message.upto is not None and message.upto >= until and every_s is None:
                return
    await trio.sleep_forever()  # the last acknowledgement still comes


def _peer(caller: Caller) -> str:
    if caller.peer_id is None:
        raise NotAuthorisedError("only peers stand by for each other")
    return caller.peer_id.hex()

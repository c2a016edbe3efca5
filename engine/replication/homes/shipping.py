"""The home's side of replication: bring a replica into step, then send what the journal grows by.

    home                                   replica
    Follow(fence)                  -->
                                   <--     Standing: what it has
    Plan                           -->
    [epochs of both logs]          -->     only where its journal is not a beginning of ours
    Part, Part, ...                -->
                                   <--     Stored, Stored, ...
    Join                           -->
                                   <--     Stored(joined): on its disk, it belongs to the fence
    Part, Part, ... (or an empty one as a sign of life)

Parts are whole entries of the journal's file, as many as are there: posts that come while one part
is under way make up the next.
"""

from __future__ import annotations

from typing import Final

import trio

from engine.replication.homes.election import BEATS
from engine.replication.homes.events import InStep, StoredAt
from engine.replication.homes.keeper import Keeper
from engine.replication.homes.messages import (
    FOLLOW,
    Follow,
    Join,
    Part,
    Plan,
    Shipped,
    Standing,
    Stored,
)
from engine.streams.cursors import Cursor
from engine.streams.feed import Feed
from engine.streams.home import Home
from engine.streams.journal import START, Position
from engine.streams.log import StreamLog
from engine.streams.source import Source
from overlay.concurrency import until_one_ends
from overlay.errors import ConflictError, UnavailableError
from overlay.identity import parse_peer_id
from overlay.rpc import Duplex, EndOfCall

PART_BYTES: Final = 512 * 2**10
"""Of the journal in one message, about: many small posts, or one."""

PARTS_AHEAD: Final = 32
"""Parts that a replica has not answered: bounds what it holds for us."""


async def ship(keeper: Keeper, peer: str, fence: int) -> None:
    """Until the call ends.

    Raises:
        MedusaError: why it did.
    """
    try:
        with trio.fail_after(keeper.around.quiet_s):
            connection = await keeper.around.overlay.connect(parse_peer_id(peer))
    except trio.TooSlowError:
        raise UnavailableError("it cannot be reached") from None
    async with connection.open(FOLLOW, Follow(keeper.name, fence)) as duplex:
        try:
            await _Ship(keeper, peer, fence, duplex).run()
        except EndOfCall:
            raise UnavailableError("it has left") from None


class _Ship:
    def __init__(self, keeper: Keeper, peer: str, fence: int, duplex: Duplex) -> None:
        self._keeper = keeper
        self._peer = peer
        self._fence = fence
        self._duplex = duplex
        self._at: Position = START
        self._ahead = trio.Semaphore(PARTS_AHEAD)
        self._beat_s = keeper.around.quiet_s / BEATS

    @property
    def _home(self) -> Home:
        return self._keeper.logs.home

    async def run(self) -> None:
        standing, _ = await self._duplex.receive(Standing)
        async with self._home.at_rest():
            await self._catch_up(standing)
        await self._duplex.send(Shipped(Join()))
        stored = Stored(START)
        while not stored.joined:
            stored, _ = await self._duplex.receive(Stored)
        await self._keeper.feed(InStep(self._peer, self._fence, stored.upto))
        await until_one_ends(self._send_on, self._take_answers)

    async def _catch_up(self, standing: Standing) -> None:
        home = self._home
        source, late = home.source, home.late_source
        at = _continues(standing, source)
        log, late_log = home.log, home.late_log
        plan = Plan(at is None, log.boundary, late_log.boundary, *home.whole_from, home.revised)
        if at is None and self._keeper.is_home:
            raise ConflictError("its journal is not that of this term")
        await self._duplex.send(plan)
        if at is None:
            if home.revisions_log is not None:
                await self._send_log(home.revisions_log, standing.revisions_boundary)
            await self._send_log(log, standing.boundary)
            await self._send_log(late_log, standing.late_boundary)
            await self._send_journal(late, (late.segments[0][0], 0), late=True)
            at = (source.segments[0][0], 0)
        await self._send_journal(source, at, late=False)

    async def _send_log(self, log: StreamLog, after: int) -> None:
        after = max(after, log.whole_from)
        await Feed(Cursor(log, after), log.boundary).send(self._duplex)

    async def _send_journal(self, source: Source, at: Position, *, late: bool) -> None:
        """Nobody writes to it meanwhile."""
        while at < source.position:
            at, data = source.read(at, PART_BYTES)
            await self._duplex.send(Shipped(Part(at, START, late)), data)
            at = (at[0], at[1] + len(data))
        if not late:
            self._at = at

    async def _send_on(self) -> None:
        while True:
            with trio.move_on_after(self._beat_s):
                await self._home.wait_grown(self._at)
            await self._ahead.acquire()
            self._at, data = await self._home.read(self._at, PART_BYTES)
            committed = self._keeper.election.committed
            part = Part(self._at, committed, False, *self._home.starts)
            await self._duplex.send(Shipped(part), data)
            self._at = (self._at[0], self._at[1] + len(data))

    async def _take_answers(self) -> None:
        while True:
            stored, _ = await self._duplex.receive(Stored)
            if stored.trouble:
                self._keeper.trouble = f"{self._peer[:8]}: {stored.trouble}"
                continue
            self._ahead.release()
            await self._keeper.feed(StoredAt(self._peer, self._fence, stored.upto))


def _continues(standing: Standing, source: Source) -> Position | None:
    """Where the replica's journal ends in ours; None: it is not a beginning of ours.

    Segments of one number and fence were written by one home: one is a beginning of the other.
    """
    if not standing.joined or not standing.segments:
        return None
    last = standing.segments[-1]
    for number, fence, length in source.segments:
        if (number, fence) == (last.number, last.fence) and last.length <= length:
            return number, last.length
    return None

"""The leader's side of replication: bring a replica into step, then send the journal's growth.

    leader                                   replica
    Follow(term)                  -->
                                   <--     ReplicaState
    Plan                           -->
    [epochs of both logs]          -->     only if its journal is not a beginning of ours
    Part, Part, ...                -->
                                   <--     Stored, Stored, ...
    Join                           -->
                                   <--     Stored(joined): on its disk, it belongs to the term
    Part, Part, ... (or an empty one as a sign of life)

Parts are whole entries of the journal's file, as many as are there: posts that come while one part
is on its way make up the next.
"""

from __future__ import annotations

from typing import Final

import trio

from medusa.engine.replication.leaders.election import BEATS
from medusa.engine.replication.leaders.events import InStep, StoredAt
from medusa.engine.replication.leaders.messages import (
    FOLLOW,
    Follow,
    Join,
    Part,
    Plan,
    ReplicaState,
    Shipped,
    Stored,
)
from medusa.engine.replication.leaders.voter_driver import VoterDriver
from medusa.engine.streams.journal.journal import START, Position
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.reading.feed import Cursor, Feed
from medusa.engine.streams.source.leader import Leader
from medusa.engine.streams.source.source import Source
from medusa.overlay.concurrency import until_one_ends
from medusa.overlay.errors import ConflictError, UnavailableError
from medusa.overlay.identity import parse_peer_id
from medusa.overlay.rpc import Duplex, EndOfCall

PART_BYTES: Final = 512 * 2**10
"""Bytes of the journal in one message, about: many small posts, or one."""

PARTS_AHEAD: Final = 32
"""Parts that may wait for an answer: bounds the memory that the replica needs for us."""


async def ship(voter: VoterDriver, peer: str, term_number: int) -> None:
    """Ship the journal to a peer, until the call ends. Raises: MedusaError: why it ended."""
    try:
        with trio.fail_after(voter.around.quiet_s):
            connection = await voter.around.overlay.connect(parse_peer_id(peer))
    except trio.TooSlowError:
        raise UnavailableError("it cannot be reached") from None
    async with connection.open(FOLLOW, Follow(voter.name, term_number)) as duplex:
        try:
            await _Ship(voter, peer, term_number, duplex).run()
        except EndOfCall:
            raise UnavailableError("it has left") from None


class _Ship:
    def __init__(self, voter: VoterDriver, peer: str, term_number: int, duplex: Duplex) -> None:
        self._voter = voter
        self._peer = peer
        self._term_number = term_number
        self._duplex = duplex
        self._at: Position = START
        self._ahead = trio.Semaphore(PARTS_AHEAD)
        self._beat_s = voter.around.quiet_s / BEATS

    @property
    def _leader(self) -> Leader:
        return self._voter.logs.leader

    async def run(self) -> None:
        has, _ = await self._duplex.receive(ReplicaState)
        async with self._leader.cutter.at_rest():
            await self._catch_up(has)
        await self._duplex.send(Shipped(Join()))
        stored = Stored(START)
        while not stored.joined:
            stored, _ = await self._duplex.receive(Stored)
        await self._voter.feed(InStep(self._peer, self._term_number, stored.upto))
        await until_one_ends(self._send_on, self._take_answers)

    async def _catch_up(self, has: ReplicaState) -> None:
        leader = self._leader
        source, late = leader.source, leader.sources.late
        at = _continues(has, source)
        log, late_log = leader.logs.stream, leader.logs.late
        plan = Plan(
            at is None,
            log.boundary,
            late_log.boundary,
            *leader.logs.whole_from,
            leader.logs.revised,
        )
        if at is None and self._voter.is_leader:
            raise ConflictError("its journal is not that of this term")
        await self._duplex.send(plan)
        if at is None:
            if leader.logs.revisions is not None:
                await self._send_log(leader.logs.revisions, has.revisions_boundary)
            await self._send_log(log, has.boundary)
            await self._send_log(late_log, has.late_boundary)
            await self._send_journal(late, (late.journal.segments[0][0], 0), late=True)
            at = (source.journal.segments[0][0], 0)
        await self._send_journal(source, at, late=False)

    async def _send_log(self, log: StreamLog, after: int) -> None:
        after = max(after, log.files.whole_from)
        await Feed(Cursor(log, after), log.boundary).send(self._duplex)

    async def _send_journal(self, source: Source, at: Position, *, late: bool) -> None:
        """Send a journal to its end; no post is written to it meanwhile."""
        while at < source.journal.position:
            at, data = source.journal.read(at, PART_BYTES)
            await self._duplex.send(Shipped(Part(at, START, late)), data)
            at = (at[0], at[1] + len(data))
        if not late:
            self._at = at

    async def _send_on(self) -> None:
        while True:
            with trio.move_on_after(self._beat_s):
                await self._leader.sources.wait_grown(self._at)
            await self._ahead.acquire()
            self._at, data = await self._leader.sources.read(self._at, PART_BYTES)
            committed = self._voter.election.commitment.committed
            part = Part(self._at, committed, False, *self._leader.logs.starts)
            await self._duplex.send(Shipped(part), data)
            self._at = (self._at[0], self._at[1] + len(data))

    async def _take_answers(self) -> None:
        while True:
            stored, _ = await self._duplex.receive(Stored)
            if stored.trouble:
                self._voter.news.trouble = f"{self._peer[:8]}: {stored.trouble}"
                continue
            self._ahead.release()
            await self._voter.feed(StoredAt(self._peer, self._term_number, stored.upto))


def _continues(has: ReplicaState, source: Source) -> Position | None:
    """The end of the replica's journal in ours; None: it is no prefix of ours. One leader wrote the
    segments of one number and term, so one is a prefix of the other.
    """
    if not has.joined or not has.segments:
        return None
    last = has.segments[-1]
    for number, term_number, length in source.journal.segments:
        if (number, term_number) == (last.number, last.term_number) and last.length <= length:
            return number, last.length
    return None

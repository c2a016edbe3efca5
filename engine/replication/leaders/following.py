"""The replica's side: it stores what the leader ships in a journal of the same bytes.

A journal that is not a beginning of the leader's is replaced. The new one is written beside it, and
counts once the ballot says so, so that a crash in between leaves the old one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
import trio

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.following.follower import epochs
from medusa.engine.replication.leaders.events import Called, CaughtUp
from medusa.engine.replication.leaders.messages import (
    Join,
    Part,
    Plan,
    ReplicaState,
    Segment,
    Shipped,
    Stored,
)
from medusa.engine.replication.leaders.voter_driver import VoterDriver
from medusa.engine.streams.journal.entries import split
from medusa.engine.streams.journal.journal import Journal, Record, remove_journal
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.source.leader import Leader
from medusa.engine.streams.source.sources import journal_folders
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.concurrency import until_one_ends
from medusa.overlay.encoding import decode
from medusa.overlay.errors import ConflictError, DecodeError, StorageError, UnavailableError
from medusa.overlay.rpc import MAX_STRUCT_BYTES, Duplex

ROOM_AGAIN_S: Final = 0.5
"""Seconds between two looks for room on the disk."""

INLINE_BYTES: Final = 16 * 2**10
"""A part below this is stored at once (tens of microseconds); above, in a worker thread."""


async def follow(voter: VoterDriver, leader: str, term_number: int, duplex: Duplex) -> None:
    """Store the journal that a leader ships under a term, until the call ends.

    Raises:
        ConflictError: a higher term was promised, or the stream is deleted.
        MedusaError: a part does not fit, or could not be stored.
    """
    await voter.feed(Called(leader, term_number))
    _check(voter, leader, term_number)
    async with voter.following:
        _check(voter, leader, term_number)
        await voter.open()
        following = _Following(voter, leader, term_number, duplex)
        await until_one_ends(following.run, voter.deleted.wait)
    _check(voter, leader, term_number)


def _check(voter: VoterDriver, leader: str, term_number: int) -> None:
    if voter.election.deleted:
        raise ConflictError(f"{voter.name} is deleted")
    if not voter.election.may_store(leader, term_number):
        promised = voter.election.ballot.promised
        raise ConflictError(f"{voter.name}: term {term_number} is over, {promised} was promised")


@dataclass(frozen=True)
class _Following:
    voter: VoterDriver
    peer: str
    term_number: int
    duplex: Duplex

    @property
    def _state(self) -> StreamState:
        assert self.voter.logs.state is not None
        return self.voter.logs.state

    @property
    def _leader(self) -> Leader:
        return self.voter.logs.leader

    async def run(self) -> None:
        if not self.voter.election.whole:
            await self.voter.forget()
        leader, ballot = self._leader, self.voter.election.ballot
        segments = tuple(Segment(*each) for each in leader.source.journal.segments)
        revised = BEGINNING if leader.logs.revisions is None else _stays(leader.logs.revisions)
        has = ReplicaState(
            ballot.joined, segments, _stays(leader.logs.stream), leader.logs.late.boundary, revised
        )
        await self.duplex.send(has)
        plan, _ = await self.duplex.receive(Plan)
        self._hold(plan)
        if plan.anew:
            await self._begin_anew(plan, has)
        else:
            await self._store_parts()
            await self.voter.feed(CaughtUp(self.term_number, ballot.journal))
        _check(self.voter, self.peer, self.term_number)
        await self.duplex.send(Stored(self._leader.source.journal.position, joined=True))
        await self._store_parts()

    def _hold(self, said: Plan | Part) -> None:
        self.voter.logs.hold(said.start, said.late_start, said.revisions_start)

    # -- in step ------------------------------------------------------------------------------

    async def _store_parts(self) -> None:
        """Store parts until a `Join`, or for ever."""
        while True:
            data, body = await self.duplex.receive_raw()
            part = _part(data)
            if isinstance(part, Join):
                return
            await self._store(part, body)
            _check(self.voter, self.peer, self.term_number)
            await self.duplex.send(Stored(self._leader.source.journal.position))

    async def _store(self, part: Part, body: bytes) -> None:
        leader = self._leader
        rest = memoryview(body)
        while True:
            at = part.at
            try:
                # the beginning of a segment may shorten the logs
                async with leader.sources.exclusive() if at[1] else leader.cutter.at_rest():
                    _check(self.voter, self.peer, self.term_number)
                    leader.note_reopening(at, rest)
                    if len(rest) > INLINE_BYTES:
                        await trio.to_thread.run_sync(leader.replica.follow, at, rest)
                    elif rest:
                        leader.replica.follow(at, rest)
                    if part.committed > leader.replica.settling.settled:
                        leader.replica.settle(part.committed, self.voter.around.overlay.clock())
                break
            except StorageError as error:
                # Entries before the one that found no room are stored.
                done = leader.source.journal.position
                if done[0] == at[0]:
                    rest = rest[done[1] - at[1] :]
                    part = msgspec.structs.replace(part, at=done)
                await self.duplex.send(Stored(done, trouble=str(error)))
                await trio.sleep(ROOM_AGAIN_S)
        self._hold(part)
        self._note_leader()

    # -- all of it ----------------------------------------------------------------------------

    async def _begin_anew(self, plan: Plan, has: ReplicaState) -> None:
        voter = self.voter
        if not _fits(self._leader, self._planned(plan)):
            await self._drop_logs()
        discarded = has.joined and sum(each.length for each in has.segments)
        if discarded:
            text = f"replaced the journal of term {has.joined} of {voter.name}"
            voter.around.events.note("info", f"{text}: what was in it alone had no answer")
        folder = voter.around.store.folders.of(self._state.key)
        async with self._at_rest_over():
            for log, start, upto in self._planned(plan):
                await self._receive_log(log, start, upto)
            for path in journal_folders(folder, self.term_number):
                await trio.to_thread.run_sync(remove_journal, path)
            await self._receive_journals()
            await voter.around.store.opener.replace_journal(self._state, self.term_number)
            await voter.feed(CaughtUp(self.term_number, self.term_number))
        for path in [*folder.glob("journal*"), *folder.glob("late-journal*")]:
            if path.is_dir() and path not in journal_folders(folder, self.term_number):
                await trio.to_thread.run_sync(remove_journal, path)

    async def _drop_logs(self) -> None:
        """Drop the logs, and have the leader ship once more: its epochs would follow the old ones.

        Raises:
            UnavailableError: always.
        """
        voter = self.voter
        await voter.forget()
        await voter.logs.drop()
        await voter.open()
        raise UnavailableError(f"{voter.name}: its logs could not go on: it begins anew")

    def _planned(self, plan: Plan) -> list[tuple[StreamLog, int, int]]:
        """Our logs in the order in which the leader sends theirs, each with the boundaries of the
        sent part."""
        leader = self._leader
        planned = [
            (leader.logs.stream, plan.start, plan.boundary),
            (leader.logs.late, plan.late_start, plan.late_boundary),
        ]
        if leader.logs.revisions is not None:
            first = leader.logs.revisions, plan.revisions_start, plan.revisions_boundary
            planned.insert(0, first)
        return planned

    @asynccontextmanager
    async def _at_rest_over(self) -> AsyncIterator[None]:
        """Within the block no epochs are cut from our old journal's rows: the logs grow by the
        leader's epochs."""
        leader, journal = self._leader, self.voter.election.ballot.journal
        async with leader.cutter.at_rest():
            before = [log.boundary for log in leader.logs.all]
            try:
                yield
            except BaseException:
                if before != [log.boundary for log in leader.logs.all]:
                    with trio.CancelScope(shield=True):
                        await self.voter.around.store.opener.replace_journal(self._state, journal)
                raise

    async def _receive_log(self, log: StreamLog, start: int, upto: int) -> None:
        if log.boundary == END:
            log.reopen(_stays(log))
        if log.boundary == BEGINNING and start > BEGINNING:
            await trio.to_thread.run_sync(log.begin, start)
        found = epochs(self.duplex, log.schema, log.boundary, upto, heard=self._note_leader)
        async with aclosing(found):
            async for epoch in found:
                await log.commit(epoch.upto, epoch.table)

    def _note_leader(self) -> None:
        self.voter.election.note_leader(self.term_number, trio.current_time())

    async def _receive_journals(self) -> None:
        """Receive journals into new folders: they are used once they are complete."""
        folders = journal_folders(
            self.voter.around.store.folders.of(self._state.key), self.term_number
        )
        durable = self.voter.around.store.is_durable
        with ExitStack() as closing:
            journals = [Journal.open(folder, _Anew(), durable=durable) for folder in folders]
            for journal in journals:
                closing.callback(journal.close)
            while True:
                data, body = await self.duplex.receive_raw()
                part = _part(data)
                if isinstance(part, Join):
                    return
                journal = journals[1] if part.late else journals[0]
                await trio.to_thread.run_sync(_copy, journal, part, body)
                self._note_leader()


def _fits(leader: Leader, planned: list[tuple[StreamLog, int, int]]) -> bool:
    """Whether the leader's logs can follow ours. Late tuples get their place in time when they
    enter their log, so our log must not have more of them than the journal that follows."""
    ahead = any(log is leader.logs.late and log.boundary > upto for log, _, upto in planned)
    return not ahead and all(not log.files or _stays(log) >= start for log, start, _ in planned)


def _stays(log: StreamLog) -> int:
    """The boundary up to which a log stays, whatever journal follows: after the end that the log
    has, the stream may have continued, and even have ended again."""
    return log.files.before_end if log.boundary == END else log.boundary


def _copy(journal: Journal, part: Part, body: bytes) -> None:
    number, offset = part.at
    for meta, rest in split(body):
        if offset == 0:
            journal.begin(meta, 0 if journal.segment else number)
        else:
            journal.append(meta, rest)
        if journal.segment != number:
            raise DecodeError(f"part of a journal's segment {number}, not {journal.segment}")
        offset = journal.size


class _Anew:
    """The reader of a new journal, which must be empty."""

    def restore(self, _: Record) -> None:
        raise ConflictError("a journal was there already")

    def missing(self, what: str) -> None:
        raise ConflictError(f"a journal was there already: {what}")

    def torn(self, what: str) -> None:
        self.missing(what)

    def state(self) -> bytes:
        return b""


def _part(data: bytes) -> Part | Join:
    return decode(data, Shipped, limit=MAX_STRUCT_BYTES, what="part of a journal").message

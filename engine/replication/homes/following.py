"""The replica's side: what the home ships goes into a journal of the same bytes.

A journal that is not a beginning of the home's is replaced: the new one is written aside, and
counts once the ballot says so, so that a crash in between leaves the old one.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from typing import Final

import msgspec
import trio

from engine.objects.schema import BEGINNING, END
from engine.replication.following.follower import epochs
from engine.replication.homes.events import Called, CaughtUp
from engine.replication.homes.keeper import Keeper
from engine.replication.homes.messages import Join, Part, Plan, Segment, Shipped, Standing, Stored
from engine.streams.entries import split
from engine.streams.home import Home
from engine.streams.journal import Journal, Record
from engine.streams.kept import KeptStream
from engine.streams.log import StreamLog
from engine.streams.sources import journal_folders
from overlay.concurrency import until_one_ends
from overlay.encoding import decode
from overlay.errors import ConflictError, DecodeError, StorageError, UnavailableError
from overlay.rpc import MAX_STRUCT_BYTES, Duplex

ROOM_AGAIN_S: Final = 0.5
"""Between two looks whether the disk has room again, seconds."""

INLINE_BYTES: Final = 16 * 2**10
"""A part below this is stored at once (tens of microseconds); above, in a worker thread."""


async def follow(keeper: Keeper, home: str, fence: int, duplex: Duplex) -> None:
    """Store what that home ships under that fence, until the call ends.

    Raises:
        ConflictError: a higher fence was promised, or the stream is deleted.
        MedusaError: what it shipped does not fit, or could not be stored.
    """
    await keeper.feed(Called(home, fence))
    _check(keeper, home, fence)
    async with keeper.following:
        _check(keeper, home, fence)
        await keeper.open()
        following = _Following(keeper, home, fence, duplex)
        await until_one_ends(following.run, keeper.deleted.wait)
    _check(keeper, home, fence)


def _check(keeper: Keeper, home: str, fence: int) -> None:
    if keeper.election.deleted:
        raise ConflictError(f"{keeper.name} is deleted")
    if not keeper.election.may_store(home, fence):
        promised = keeper.election.ballot.promised
        raise ConflictError(f"{keeper.name}: fence {fence} is over, {promised} was promised")


class _Following:
    def __init__(self, keeper: Keeper, home: str, fence: int, duplex: Duplex) -> None:
        self._keeper = keeper
        self._peer = home
        self._fence = fence
        self._duplex = duplex

    @property
    def _kept(self) -> KeptStream:
        assert self._keeper.logs.kept is not None
        return self._keeper.logs.kept

    @property
    def _home(self) -> Home:
        return self._keeper.logs.home

    async def run(self) -> None:
        if not self._keeper.election.whole:
            await self._keeper.forget()
        home, ballot = self._home, self._keeper.election.ballot
        segments = tuple(Segment(*each) for each in home.source.segments)
        revised = BEGINNING if home.revisions_log is None else _stays(home.revisions_log)
        standing = Standing(
            ballot.joined, segments, _stays(home.log), home.late_log.boundary, revised
        )
        await self._duplex.send(standing)
        plan, _ = await self._duplex.receive(Plan)
        self._hold(plan)
        if plan.anew:
            await self._begin_anew(plan, standing)
        else:
            await self._store_parts()
            await self._keeper.feed(CaughtUp(self._fence, ballot.journal))
        _check(self._keeper, self._peer, self._fence)
        await self._duplex.send(Stored(self._home.source.position, joined=True))
        await self._store_parts()

    def _hold(self, said: Plan | Part) -> None:
        self._keeper.logs.hold(said.start, said.late_start, said.revisions_start)

    # -- in step ------------------------------------------------------------------------------

    async def _store_parts(self) -> None:
        """Until a `Join`, or for ever."""
        while True:
            data, body = await self._duplex.receive_raw()
            part = _part(data)
            if isinstance(part, Join):
                return
            await self._store(part, body)
            _check(self._keeper, self._peer, self._fence)
            await self._duplex.send(Stored(self._home.source.position))

    async def _store(self, part: Part, body: bytes) -> None:
        home = self._home
        rest = memoryview(body)
        while True:
            at = part.at
            try:
                # what begins a segment may shorten the logs
                async with home.exclusive() if at[1] else home.at_rest():
                    _check(self._keeper, self._peer, self._fence)
                    home.heed_reopening(at, rest)
                    if len(rest) > INLINE_BYTES:
                        await trio.to_thread.run_sync(home.replica.follow, at, rest)
                    elif rest:
                        home.replica.follow(at, rest)
                    if part.committed > home.replica.settling.settled:
                        home.replica.settle(part.committed, self._keeper.around.overlay.clock())
                break
            except StorageError as error:
                # Entries before the one that found no room are stored.
                done = home.source.position
                if done[0] == at[0]:
                    rest = rest[done[1] - at[1] :]
                    part = msgspec.structs.replace(part, at=done)
                await self._duplex.send(Stored(done, trouble=str(error)))
                await trio.sleep(ROOM_AGAIN_S)
        self._hold(part)
        self._hear()

    # -- all of it ----------------------------------------------------------------------------

    async def _begin_anew(self, plan: Plan, standing: Standing) -> None:
        keeper = self._keeper
        if not _fits(self._home, self._planned(plan)):
            await self._drop_logs()
        discarded = standing.joined and sum(each.length for each in standing.segments)
        if discarded:
            text = f"replaced the journal of fence {standing.joined} of {keeper.name}"
            keeper.around.events.note("info", f"{text}: what was in it alone had no answer")
        folder = keeper.around.store.folder_of(self._kept.key)
        async with self._at_rest_over():
            for log, start, upto in self._planned(plan):
                await self._receive_log(log, start, upto)
            for path in journal_folders(folder, self._fence):
                await trio.to_thread.run_sync(shutil.rmtree, path, True)
            await self._receive_journals()
            await keeper.around.store.replace_journal(self._kept, self._fence)
            await keeper.feed(CaughtUp(self._fence, self._fence))
        for path in [*folder.glob("journal*"), *folder.glob("late-journal*")]:
            if path not in journal_folders(folder, self._fence):
                await trio.to_thread.run_sync(shutil.rmtree, path, True)

    async def _drop_logs(self) -> None:
        """And have the home ship once more: what it is about to send goes on where they ended.

        Raises:
            UnavailableError: always.
        """
        keeper = self._keeper
        await keeper.forget()
        await keeper.logs.drop()
        await keeper.open()
        raise UnavailableError(f"{keeper.name}: its logs could not go on: it begins anew")

    def _planned(self, plan: Plan) -> list[tuple[StreamLog, int, int]]:
        """Our logs in the order in which they come: the boundaries from which, and up to which."""
        home = self._home
        planned = [
            (home.log, plan.start, plan.boundary),
            (home.late_log, plan.late_start, plan.late_boundary),
        ]
        if home.revisions_log is not None:
            first = home.revisions_log, plan.revisions_start, plan.revisions_boundary
            planned.insert(0, first)
        return planned

    @asynccontextmanager
    async def _at_rest_over(self) -> AsyncIterator[None]:
        """Our old journal's rows are not cut while the logs grow by the home's epochs."""
        home, journal = self._home, self._keeper.election.ballot.journal
        async with home.at_rest():
            before = [log.boundary for log in home.logs]
            try:
                yield
            except BaseException:
                if before != [log.boundary for log in home.logs]:
                    with trio.CancelScope(shield=True):
                        await self._keeper.around.store.replace_journal(self._kept, journal)
                raise

    async def _receive_log(self, log: StreamLog, start: int, upto: int) -> None:
        if log.boundary == END:
            log.reopen(_stays(log))
        if log.boundary == BEGINNING and start > BEGINNING:
            await trio.to_thread.run_sync(log.begin, start)
        found = epochs(self._duplex, log.schema, log.boundary, upto, heard=self._hear)
        async with aclosing(found):
            async for epoch in found:
                await log.commit(epoch.upto, epoch.table)

    def _hear(self) -> None:
        self._keeper.election.hear(self._fence, trio.current_time())

    async def _receive_journals(self) -> None:
        """Into folders of their own: nothing counts before the last of it is there."""
        folders = journal_folders(self._keeper.around.store.folder_of(self._kept.key), self._fence)
        durable = self._keeper.around.store.is_durable
        with ExitStack() as closing:
            journals = [Journal.open(folder, _Anew(), durable=durable) for folder in folders]
            for journal in journals:
                closing.callback(journal.close)
            while True:
                data, body = await self._duplex.receive_raw()
                part = _part(data)
                if isinstance(part, Join):
                    return
                journal = journals[1] if part.late else journals[0]
                await trio.to_thread.run_sync(_copy, journal, part, body)
                self._hear()


def _fits(home: Home, planned: list[tuple[StreamLog, int, int]]) -> bool:
    """Whether logs that are kept elsewhere can follow ours. Late tuples have no place in time
    before they are in their log: ours must not have more of them than the journal that follows
    tells of."""
    ahead = any(log is home.late_log and log.boundary > upto for log, _, upto in planned)
    return not ahead and all(
        log.boundary == BEGINNING or _stays(log) >= start for log, start, _ in planned
    )


def _stays(log: StreamLog) -> int:
    """So far a log goes on whatever journal it has next: the stream may have gone on after the end
    that the log has, even if it has ended once more."""
    return log.before_end if log.boundary == END else log.boundary


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
    """The reader of a new journal, in which there is nothing to read yet."""

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

"""The files of a voter: its ballots, and a stream's logs and journal."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import trio
from msgspec import Struct

from medusa.engine.objects.definitions import StreamDefinition, StreamEntry
from medusa.engine.replication.leaders.ballot import Ballot
from medusa.engine.streams.log.retention import Hold
from medusa.engine.streams.source.leader import Leader
from medusa.engine.streams.store.store import REPLICATED, StreamStore
from medusa.engine.streams.store.stream_state import LogKey, Role, StreamState
from medusa.overlay.errors import DamagedError, NotFoundError
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.files import load_json, save_json, storing
from medusa.overlay.json_folder import JsonFolder, refuse

ABSTAINS: Final = "abstains"
"""The file that names the streams on which this peer has no vote; no ballot has that name."""

_MEND: Final = "restore it from a copy; do not remove it"


_GONE: Final = (
    "restore it from a copy; if there is none, this peer may vote no more: restore its home from a "
    "backup, which has no votes, or make another peer"
)


class StoredBallot(Struct, frozen=True):
    """A ballot on disk. entry: the stream as published."""

    entry: StreamEntry
    ballot: Ballot


class BallotFiles:
    """The ballots of a voter, a file per stream: a vote is on disk before any peer learns of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = JsonFolder(folder, StoredBallot, _MEND, _GONE)

    def load(self, damaged: Callable[[DamagedError], None] = refuse) -> Iterator[StoredBallot]:
        """As `JsonFolder.load`. A damaged ballot must not be removed: a voter that forgot its vote
        may let two peers believe that they are leader."""
        return self._files.load(damaged)

    def abstaining(self) -> frozenset[str]:
        """The streams on which this peer may not vote any more: it voted in a home that was lost,
        and its votes are not known."""
        try:
            return load_json(self._folder / ABSTAINS, frozenset[str], mend=_MEND)
        except NotFoundError:
            return frozenset()

    def abstain(self, streams: Iterable[str]) -> None:
        """Never vote on those streams. Raises: StorageError: the disk does not take it."""
        with storing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        save_json(self._folder / ABSTAINS, sorted(streams))

    @failpoint(Failpoint.BALLOT_SAVE)
    def save(self, stored: StoredBallot) -> None:
        """Save a ballot. Raises: StorageError: the disk does not take it; the old ballot stays."""
        with storing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        name = stored.entry.stream.name  # a name may be as long as a file's
        self._files.save(f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json", stored)


HOLDER: Final = Hold("home")
"""The hold on a replica's logs, which are kept as far back as the leader's."""


class VoterLogs:
    """A voter's logs and journal. state: None: it is a witness, or has not opened them yet."""

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self.state: StreamState | None = None

    @property
    def leader(self) -> Leader:
        assert self.state is not None
        assert self.state.leader is not None, "a stream with replicas has a journal at each"
        return self.state.leader

    @property
    def definition(self) -> StreamDefinition | None:
        """See `Source.definition`."""
        return None if self.state is None else self.leader.source.state.config.definition

    async def open(self, entry: StreamEntry, journal: int) -> StreamState:
        """Open or make the logs and the journal. journal: see `Ballot.journal`."""
        assert self.state is None, "they are open"
        self.state = await self._store.keep(entry, Role.REPLICA, REPLICATED, journal=journal)
        return self.state

    def hold(self, *starts: int) -> None:
        """As a replica: keep the tuples that the leader keeps for readers. starts: as
        `SourceLogs.starts`."""
        logs = self.leader.logs
        for log, start in zip((logs.stream, *logs.beside), starts, strict=False):
            log.retention.hold(HOLDER, start)

    def hold_for_a_while(self) -> None:
        """Keep the tuples for one lease more.

        The next leader does not know the readers of the last one, whose leases are no longer than
        that.
        """
        expires = trio.current_time() + self._store.lease_s
        for log in self.leader.logs.all:
            if HOLDER in log.retention.consumers:
                log.retention.hold(HOLDER, log.start, expires)

    async def lead(self, term_number: int, *, reopened: bool) -> None:
        """Begin a segment of the journal; see `Won`."""
        if reopened:
            await self.leader.reopen(term_number)
            return
        async with self.leader.sources.exclusive():
            self.leader.replica.lead(term_number)

    @failpoint(Failpoint.VOTER_SERVE)
    async def serve(self) -> None:
        """As the leader: accept posts, and serve readers."""
        async with self.leader.sources.exclusive():
            self.leader.replica.settling.leading = True
        for state in self._all_states:
            state.role = Role.at_leader(state.name)

    async def take_no_posts(self) -> None:
        if self.state is not None:
            async with self.leader.sources.exclusive():
                self.leader.replica.settling.leading = False

    def serve_no_more(self) -> None:
        """End the subscriptions, local ones too: the log of a peer that is no replica does not
        grow."""
        if self.state is None or self.state.role is not Role.SOURCE:
            return
        for state in self._all_states:
            state.role = Role.REPLICA
            state.send_away()

    async def define(self, entry: StreamEntry) -> None:
        """See `StreamStore.define`."""
        assert self.state is not None, "it has a journal"
        await self._store.define(self.state, entry)

    async def drop(self) -> None:
        """Close the logs of the stream, and delete their files."""
        assert self.state is not None, "they are open"
        await self._store.drop(self.state.key)
        self.state = None

    @failpoint(Failpoint.VOTER_ERASE)
    async def erase(self, stream: str) -> None:
        """`drop`, for ever: no post comes any more, and files that are not open are deleted as
        well."""
        state, self.state = self.state, None
        if state is not None and state.leader is not None:
            await state.leader.retire()
        with trio.CancelScope(shield=True):
            await self._store.erase(LogKey(stream, REPLICATED))

    @property
    def _all_states(self) -> list[StreamState]:
        assert self.state is not None
        return [self.state, *self._store.beside(self.state)]

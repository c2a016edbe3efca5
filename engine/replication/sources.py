"""Alters, deletes and reopens the source streams of which this peer is the leader.

A new definition:

1. It becomes an entry of the source's journal, in order with the posts: every replica has it on
   disk before it counts, and every later leader uses it.
2. The catalog receives it.
3. It counts here (`stream.json` follows), and the peer notifies the stream's readers: peers ask
   again, and learn their rights and the new definition.

After a crash behind step 1, the start of the peer, or the next leader, does the rest.

A stream is deleted once its folder is renamed, with its late tuples and revisions; the catalog
follows, after a crash when the peer starts again. Before that nothing has changed.
`medusa.engine.replication.leaders.changing` deletes streams with replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import trio
from msgspec.structs import replace

from medusa.engine.objects.alteration import Alteration, altered, listed
from medusa.engine.objects.schema import END
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.following.book import Followers
from medusa.engine.replication.leaders import changing
from medusa.engine.replication.leaders.leaders import Leaders
from medusa.engine.replication.leaders.logs import HOLDER
from medusa.engine.replication.leaders.voter_driver import VoterDriver
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import Role, StreamState, entries_of
from medusa.engine.streams.store.subscriptions import Subscriptions
from medusa.overlay.concurrency import Locks
from medusa.overlay.errors import (
    ConflictError,
    MedusaError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from medusa.overlay.events import Events


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Changes the source streams of one peer, each by one call at a time."""

    store: StreamStore
    leaders: Leaders
    followers: Followers
    announcements: Announcements
    subscriptions: Subscriptions
    events: Events
    _changing: Locks = field(init=False, default_factory=Locks)

    async def alter(self, stream: str, alteration: Alteration) -> None:
        """Alter a source stream whose leader this peer is; a repetition changes nothing.

        Raises:
            NotFoundError: this peer is not its leader.
            InvalidInputError: the definition would be invalid.
            UnavailableError: its replicas do not answer.
        """
        async with self._changing.of(stream):
            voter = self._leading(stream)
            if voter is not None:
                await changing.alter(voter, alteration)
            else:
                await self._alter(self._source(stream), alteration)
            self.events.note("info", f"altered {stream}: {alteration.in_words()}")

    async def delete(self, stream: str) -> None:
        """Delete a source stream whose leader this peer is, with all its files.

        Raises:
            NotFoundError: this peer is not its leader.
            ConflictError: the stream has readers; names them.
            StorageError: the disk does not allow it.
            UnavailableError: no majority of its voters answers.
        """
        async with self._changing.of(stream):
            voter = self._leading(stream)
            if voter is not None:
                state = await voter.open()
                self._check_unread(state)
                self._check_known_readers(state)
                await changing.delete(voter)
                return
            state = self._source(stream)
            self._check_unread(state)
            assert state.leader is not None, "a source"
            await state.leader.retire()
            with trio.CancelScope(shield=True):  # a half deleted stream must not stay
                await self.store.drop(state.key)
                if self.store.folders.of(state.key).exists():
                    raise StorageError(f"{stream}: its files stay, see the events: start the peer")
                await self._withdraw(each.stream.name for each in entries_of(state.entry))
            self.events.note("info", f"deleted {stream}")

    async def reopen(self, stream: str) -> bool:
        """Let an ended source stream whose leader this peer is go on. Returns whether it had ended.

        Raises:
            NotFoundError: this peer is not its leader.
            ConflictError: an answer depends on its end; the message names the readers.
            StorageError: the disk does not take it; the stream stays ended.
            UnavailableError: its end is not in its log yet; or a voter that may have sent a reader
                its end does not answer.
        """
        async with self._changing.of(stream):
            voter = self._leading(stream)
            if voter is not None:
                return await self._reopen_replicated(voter)
            state = self._source(stream)
            assert state.leader is not None, "a source"
            async with self.store.ends_read.notifying(state):
                if state.leader.boundary < END:
                    return False
                self._check_end_unread(state)
                await state.leader.reopen()
                await trio.to_thread.run_sync(self.store.ends_read.forget, state)
            self.events.note("info", f"reopened {stream}")
            return True

    async def _reopen_replicated(self, voter: VoterDriver) -> bool:
        await voter.open()
        if voter.logs.leader.boundary < END:
            return False
        refused = await changing.reopen(voter)
        if refused is None:
            self.events.note("info", f"reopened {voter.name}")
            return True
        if refused.end_readers:
            raise _has_readers_of_its_end(voter.name, refused.end_readers)
        silent = changing.peers_in_words(refused.silent)
        raise UnavailableError(
            f"{voter.name} has ended still: each of its voters may have told somebody of that, "
            f"and {silent} did not answer: start what is down, and ask again"
        )

    # -----------------------------------------------------------------------------------------

    async def _alter(self, state: StreamState, alteration: Alteration) -> None:
        assert state.leader is not None, "a source"
        before = state.leader.source.state.config.definition or state.entry.stream
        definition = altered(before, alteration)
        if definition != before:
            await state.leader.alter(definition)
        entry = replace(state.entry, stream=definition)
        await self.announcements.announce_altered(entries_of(entry))
        if state.entry != entry:
            await self.store.define(state, entry)

    def _leading(self, stream: str) -> VoterDriver | None:
        """This peer's voter of a stream with replicas; None: it has none.

        Raises:
            UnavailableError: this peer is not its leader.
        """
        voter = self.leaders.get(stream)
        if voter is not None and not voter.is_leader:
            raise UnavailableError(f"{stream}: this peer is not its leader now; ask again")
        return voter

    def _source(self, stream: str) -> StreamState:
        state = self.store.get(stream)
        if state is None or state.role is not Role.SOURCE:
            raise NotFoundError(f"{stream}: this peer is not its leader")
        return state

    def _check_unread(self, source: StreamState) -> None:
        for state in (source, *self.store.beside(source)):
            readers = {name: self._end_of(name) for name in self.followers.readers(state.name)}
            readers |= self.subscriptions.readers(state)
            if readers:
                told = listed(sorted(f"{name} ({end})" for name, end in readers.items()))
                raise ConflictError(f"{state.name} is read, end that first: {told}")

    @staticmethod
    def _end_of(user: str) -> str:
        """The command that ends a reader of a stream here, if the reader is no subscriber."""
        kind, _, view = user.partition(" ")
        if kind == "view":
            return f"`medusa view delete {view}`"
        return "computed here for another peer" if view else f"`medusa query delete {user}`"

    def _check_known_readers(self, source: StreamState) -> None:
        """Refuse a change while a new leader does not yet know the readers of the last one."""
        for state in (source, *self.store.beside(source)):
            if HOLDER in state.log.retention.consumers:
                raise ConflictError(
                    f"{state.name} has another leader: readers of the last one may come back for "
                    f"up to {self.store.lease_s:g} s, try again then"
                )

    def _check_end_unread(self, source: StreamState) -> None:
        readers = set(self.store.ends_read.readers(source))
        for state in (source, *self.store.beside(source)):
            readers |= self.followers.readers(state.name)
        if readers:
            raise _has_readers_of_its_end(source.name, readers)

    async def _withdraw(self, streams: Iterable[str]) -> None:
        for stream in streams:
            with suppress(MedusaError):  # a restart withdraws it as well: `withdraw_sources`
                await self.announcements.withdraw(stream)


def _has_readers_of_its_end(stream: str, readers: Iterable[str]) -> ConflictError:
    return ConflictError(
        f"{stream} has ended, and that was told {listed(sorted(readers))}, whose answers may "
        "depend on it: post to a stream of another name"
    )

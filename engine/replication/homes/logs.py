"""Files of a stream that an elector keeps beside its ballot: logs and journal, if it has any."""

from __future__ import annotations

from typing import Final

import trio

from engine.objects.definitions import StreamDefinition, StreamEntry
from engine.streams.home import Home
from engine.streams.kept import KeptStream, LogKey, Role
from engine.streams.retention import Hold
from engine.streams.store import HOME, StreamStore
from overlay.killpoints import KillPoint, kill_point

HOLDER: Final = Hold("home")
"""The name under which a replica's logs are kept as far back as the home's are."""


class ElectorLogs:
    """
    Attributes:
        kept: None: this peer is a witness, or has not opened them yet.
    """

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self.kept: KeptStream | None = None

    @property
    def home(self) -> Home:
        assert self.kept is not None
        assert self.kept.home is not None, "a stream with replicas has a journal at each"
        return self.kept.home

    @property
    def definition(self) -> StreamDefinition | None:
        """See `Home.definition`."""
        return None if self.kept is None else self.home.definition

    async def open(self, entry: StreamEntry, journal: int) -> KeptStream:
        """Opened, or made. journal: see `Ballot.journal`."""
        assert self.kept is None, "they are open"
        self.kept = await self._store.keep(entry, Role.REPLICA, HOME, journal=journal)
        return self.kept

    def hold(self, *starts: int) -> None:
        """As a replica: keep the tuples that the home keeps for readers. starts: see `Home`."""
        for log, start in zip((self.home.log, *self.home.logs_beside), starts, strict=False):
            log.hold(HOLDER, start)

    def hold_for_a_while(self) -> None:
        """Keep the tuples for one lease more.

        The next home does not know the readers of the last one; no lease of theirs is longer.
        """
        expires = trio.current_time() + self._store.lease_s
        for log in self.home.logs:
            if HOLDER in log.retention.consumers:
                log.hold(HOLDER, log.start, expires)

    async def lead(self, fence: int, *, reopened: bool) -> None:
        """Begin a segment of the journal; see `Won`."""
        if reopened:
            await self.home.reopen(fence)
            return
        async with self.home.exclusive():
            self.home.replica.lead(fence)

    @kill_point(KillPoint.VOTER_SERVE)
    async def serve(self) -> None:
        """As the home: posts go through, and readers are given the stream."""
        async with self.home.exclusive():
            self.home.replica.settling.leading = True
        for kept in self._all_kept:
            kept.role = Role.at_home(kept.name)

    async def take_no_posts(self) -> None:
        if self.kept is not None:
            async with self.home.exclusive():
                self.home.replica.settling.leading = False

    def serve_no_more(self) -> None:
        """Send subscribers away, here too: the log of who is no replica any more stands still."""
        if self.kept is None or self.kept.role is not Role.SOURCE:
            return
        for kept in self._all_kept:
            kept.role = Role.REPLICA
            kept.send_away()

    async def define(self, entry: StreamEntry) -> None:
        """See `StreamStore.define`."""
        assert self.kept is not None, "it has a journal"
        await self._store.define(self.kept, entry)

    async def drop(self) -> None:
        """Close them, and delete what is in them."""
        assert self.kept is not None, "they are open"
        await self._store.drop(self.kept.key)
        self.kept = None

    @kill_point(KillPoint.VOTER_ERASE)
    async def erase(self, stream: str) -> None:
        """`drop`, for good: no post comes any more, and what is not open goes as well."""
        kept, self.kept = self.kept, None
        if kept is not None and kept.home is not None:
            await kept.home.retire()
        with trio.CancelScope(shield=True):
            await self._store.erase(LogKey(stream, HOME))

    @property
    def _all_kept(self) -> list[KeptStream]:
        assert self.kept is not None
        return [self.kept, *self._store.beside(self.kept)]

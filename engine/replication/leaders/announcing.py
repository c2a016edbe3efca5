from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

import trio

from engine.objects.definitions import StreamEntry
from engine.replication.announcements import Announcements
from engine.replication.leaders.ballot import SourceTerm
from overlay.errors import MedusaError
from overlay.events import Events
from overlay.killpoints import KillPoint, kill_point


class Announcing:
    """The announcements of one stream at one of its voters, one after the other. A deleted stream
    is withdrawn last of all, and not announced any more.

    Args:
        stream: its name.
        nursery: runs the announcements.
    """

    def __init__(
        self, stream: str, announcements: Announcements, events: Events, nursery: trio.Nursery
    ) -> None:
        self._stream = stream
        self._announcements = announcements
        self._events = events
        self._nursery = nursery
        self._published = False
        self._deleted = False
        self._telling = trio.Lock()

    def announce_soon(self, entries: Iterable[StreamEntry], term: SourceTerm) -> None:
        """Announce this peer as the leader of that term."""
        self.stop()
        tell = partial(self._announce, tuple(entries), term)
        self._announcements.tell_soon(self._stream, tell)

    def stop(self) -> None:
        """Stop announcing this peer as the leader."""
        self._announcements.stop_telling(self._stream)

    async def _announce(self, entries: tuple[StreamEntry, ...], term: SourceTerm) -> None:
        for entry in entries:
            async with self._telling:
                if self._deleted:
                    return
                await self._announcements.announce(entry, term.of(entry.stream.name))
        self._published = True

    async def announce_altered(self, entries: Iterable[StreamEntry]) -> None:
        """Announce new definitions of the stream and of those beside it."""
        async with self._telling:
            if not self._deleted:
                await self._announcements.announce_altered(entries)

    def leave_soon(self, streams: Iterable[str], leader: str) -> None:
        """Leave the stream to another leader: withdraw this peer as its producer."""
        if self._published:
            self._published = False
            self._events.note("info", f"follows {leader[:8]}, the leader of {self._stream} now")
            self._nursery.start_soon(self._leave, tuple(streams))

    async def _leave(self, streams: tuple[str, ...]) -> None:
        for stream in streams:
            try:
                await self._announcements.leave(stream)
            except MedusaError as error:
                self._events.note("warning", f"could not leave {stream} to its leader: {error}")

    @kill_point(KillPoint.LEADER_WITHDRAW)
    async def withdraw(self, streams: Iterable[str]) -> None:
        """Withdraw the deleted stream."""
        async with self._telling:
            self._deleted = True
            for stream in streams:
                with suppress(MedusaError):  # a restart withdraws it as well
                    await self._announcements.withdraw(stream)

"""Gives streams of this peer other definitions, while they run.

1. The new definition is an entry of the source's journal, in order with the posts: it is on every
   replica's disk before it counts, and whoever is home after that goes by it.
2. The catalog is told.
3. It counts here (`stream.json` follows), and who reads the stream hears of it: peers ask again,
   and so find out what they may and what is new.

A crash after 1 leaves the rest to the start of the peer, or to the next home. Of a query's output
the query's file takes the place of the journal.
"""

from __future__ import annotations

from msgspec.structs import replace

from engine.alteration import Alteration, altered
from engine.homes.homes import Homes
from engine.kept import KeptStream, Role
from engine.producers import Producers
from engine.stream_store import StreamStore
from overlay.concurrency import Locks
from overlay.errors import NotFoundError, UnavailableError
from overlay.events import Events


class Altering:
    """Of one peer."""

    def __init__(
        self, store: StreamStore, homes: Homes, producers: Producers, events: Events
    ) -> None:
        self._store = store
        self._homes = homes
        self._producers = producers
        self._events = events
        self._changing = Locks()

    async def alter(self, stream: str, alteration: Alteration) -> None:
        """A source stream whose home this peer is; the same again is no change.

        Raises:
            NotFoundError: this peer is not its home.
            InvalidInputError: it cannot be defined so.
            UnavailableError: its replicas do not answer.
        """
        async with self._changing.of(stream):
            keeper = self._homes.get(stream)
            if keeper is not None:
                if not keeper.is_home:
                    raise UnavailableError(f"{stream}: this peer is not its home now; ask again")
                await keeper.alter(alteration)
            else:
                await self._alter(self._source(stream), alteration)
            self._events.note("info", f"{stream} is altered: {alteration.in_words()}")

    def _source(self, stream: str) -> KeptStream:
        kept = self._store.get(stream)
        if kept is None or kept.role is not Role.SOURCE:
            raise NotFoundError(f"{stream}: this peer is not its home")
        return kept

    async def _alter(self, kept: KeptStream, alteration: Alteration) -> None:
        assert kept.home is not None, "a source"
        before = kept.home.definition or kept.entry.stream
        definition = altered(before, alteration)
        if definition != before:
            await kept.home.alter(definition)
        entry = replace(kept.entry, stream=definition)
        await self._producers.announce_altered(entry)
        if kept.entry != entry:
            await self._store.define(kept, entry)

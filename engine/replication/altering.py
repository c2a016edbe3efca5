"""Gives streams of this peer other definitions, while they run.

1. The new definition is an entry of the source's journal, in order with the posts: it is on every
   replica's disk before it counts, and every later home goes by it.
2. The catalog is told.
3. It counts here (`stream.json` follows), and the stream's readers hear of it: peers ask again, and
   learn their rights and the new definition.

A crash after 1 leaves the rest to the start of the peer, or to the next home. Of a query's output
the query's entry takes the place of the journal: its file and the secondary have it, then the
workers, and each later primary.
"""

from __future__ import annotations

from msgspec.structs import replace

from engine.objects.alteration import Alteration, altered
from engine.objects.definitions import AlteredOutput
from engine.replication.announcements import Announcements
from engine.replication.homes import changing
from engine.replication.homes.homes import Homes
from engine.replication.queries import QueryHost
from engine.replication.replicas.primaries import Primaries
from engine.replication.running_query import RunningQuery
from engine.streams.kept import KeptStream, Role, entries_of
from engine.streams.store import StreamStore
from overlay.concurrency import Locks
from overlay.errors import MedusaError, NotFoundError, UnavailableError
from overlay.events import Events


class Altering:
    """Of one peer. locks: see `Deleting`."""

    def __init__(
        self,
        *,
        store: StreamStore,
        homes: Homes,
        announcements: Announcements,
        queries: QueryHost,
        primaries: Primaries,
        events: Events,
        locks: Locks,
    ) -> None:
        self._store = store
        self._homes = homes
        self._announcements = announcements
        self._queries = queries
        self._primaries = primaries
        self._events = events
        self._changing = locks

    async def alter_output(self, query: str, stream: str, alteration: Alteration) -> None:
        """A stream that a query of this peer produces; the same again is no change.

        Raises:
            NotFoundError: this peer does not keep the query, or it produces no such stream.
            InvalidInputError: it cannot be defined so.
            UnavailableError: its secondary has not heard of it yet.
        """
        running = self._queries.get(query)
        if query in self._queries.pending:
            raise UnavailableError(f"{query}: its secondary is asked about it; try again")
        task = next((each for each in running.tasks if each.name == stream), None)
        if task is None:
            raise NotFoundError(f"{query} produces no stream {stream}")
        async with running.modifying:
            before, entry = task.kept.entry.stream, running.stored.entry
            definition = altered(before, alteration)
            if definition != before:
                # beyond what another peer may have made of it while it had the query
                edition = max(definition.edition, running.stored.term.number)
                known = replace(
                    entry.altered.get(stream, AlteredOutput()),
                    edition=edition,
                    **alteration.changes,
                )
                entry = replace(entry, altered={**entry.altered, stream: known})
                self._queries.write(running, entry=entry)
            await self._tell_secondary(running)
            logs, tasks = self._queries.logs, [each.runner.task for each in running.tasks]
            await self._announcements.announce_altered(logs.entries(running.stored, tasks))
            await logs.define_outputs(running.stored, tasks)
            self._queries.publish_soon(running)  # what has not been told yet
        self._events.note("info", f"altered {stream}: {alteration.in_words()}")

    async def _tell_secondary(self, running: RunningQuery) -> None:
        if not running.stored.term.secondary:
            return
        async with self._primaries.care(running.name).talking:
            try:
                await self._primaries.tell(running)
            except MedusaError as error:
                raise UnavailableError(
                    f"{running.name}: it is written down, but its secondary has not heard of it "
                    f"yet: ask again: {error}"
                ) from error

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
                await changing.alter(keeper, alteration)
            else:
                await self._alter(self._source(stream), alteration)
            self._events.note("info", f"altered {stream}: {alteration.in_words()}")

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
        await self._announcements.announce_altered(entries_of(entry))
        if kept.entry != entry:
            await self._store.define(kept, entry)

from __future__ import annotations

from msgspec.structs import replace

from medusa.engine.objects.availability import Mode
from medusa.engine.replication.copies.query_copy import tidy_logs
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.records.term import HIGHEST_NUMBER
from medusa.overlay.errors import InvalidInputError, StorageError
from medusa.overlay.names import NO_PEER


class Resuming:
    """Resumes the queries of the last run when the peer restarts."""

    def __init__(self, queries: QueryHost) -> None:
        self._queries = queries
        self._directory = queries.shop.directory
        self._peer = queries.shop.here
        self._clock = queries.shop.overlay.clock
        self._events = queries.shop.overlay.events

    async def resume(self) -> None:
        """Resume the queries of the last run from their boundaries. Queries that others may have
        taken over are in `QueryHost.pending`."""
        queries = self._queries
        known = {stored.name: self._renumbered(stored) for stored in queries.files.load()}
        await tidy_logs(queries.shop, known)  # before leftover logs are read
        for stored in known.values():
            await self._resume(stored)
        await queries.announcements.withdraw_all_but(set(known))

    def clock_was_set(self) -> None:
        """Renumber those terms of our queries that are invalid. No peer believes the numbers that
        our clock made while it was ahead; numbers that it made while it was behind are lower than
        our earlier ones. For a query with a secondary, `Succession` finds out whether another peer
        has it."""
        for running in self._queries.all():
            stored = self._renumbered(running.stored)
            term = stored.term
            if stored.availability.mode is Mode.NONE:
                known = (term.number, *map(self._directory.number, stored.entry.outputs))
                term = HIGHEST_NUMBER.next(running.name, known, self._peer, self._clock())
            if term == running.stored.term:
                continue
            try:
                self._queries.appoint(running, term)
            except StorageError as error:
                self._events.note("error", f"could not renumber {running.name}: {error}")

    def _renumbered(self, stored: StoredQuery) -> StoredQuery:
        """The query in a term that can be believed. If another peer has it, the number is 0: that
        peer's next message counts."""
        term, now = stored.term, self._clock()
        if HIGHEST_NUMBER.believes(term.number, now):
            return stored
        number = 0
        if term.holder in {NO_PEER, self._peer}:
            known = map(self._directory.number, stored.entry.outputs)
            number = HIGHEST_NUMBER.next(stored.name, known, self._peer, now).number
        text = f"goes on with {stored.name} in term {number}: its term {term.number} is of"
        self._events.note("error", f"{text} the future, made by a wrong clock")
        return stored.under(replace(term, number=number))

    async def _resume(self, stored: StoredQuery) -> None:
        queries = self._queries
        if stored.term.holder not in {NO_PEER, self._peer}:
            queries.pending[stored.name] = stored
            return
        try:
            running = await queries.prepare(stored)
        except InvalidInputError as error:
            queries.unfit[stored.name] = stored, str(error)
            self._events.note("error", f"does not run {stored.name} any more: {error}; delete it")
            return
        if stored.term.secondary:
            queries.pending[stored.name] = stored
            queries.admit(running)
        else:
            await queries.take_up(running)

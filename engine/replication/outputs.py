"""Alters the outputs of this peer's queries while they run.

As for a source stream (`engine.replication.sources`), but the query's entry takes the place of the
journal: its file and the secondary get it, then the workers, and each later primary.
"""

from __future__ import annotations

from msgspec.structs import replace

from engine.objects.alteration import Alteration, altered
from engine.objects.definitions import AlteredOutput
from engine.replication.announcements import Announcements
from engine.replication.queries import QueryHost
from engine.replication.query_copy import QueryCopy
from engine.replication.replicas.primaries import Primaries
from overlay.errors import MedusaError, NotFoundError, UnavailableError
from overlay.events import Events


class Outputs:
    """Alters the outputs of one peer's queries."""

    def __init__(
        self,
        queries: QueryHost,
        primaries: Primaries,
        announcements: Announcements,
        events: Events,
    ) -> None:
        self._queries = queries
        self._primaries = primaries
        self._announcements = announcements
        self._events = events

    async def alter(self, query: str, stream: str, alteration: Alteration) -> None:
        """Alter a stream that a query of this peer produces; the same again is no change.

        Raises:
            NotFoundError: this peer does not keep the query, or it produces no such stream.
            InvalidInputError: the definition would be invalid.
            UnavailableError: its secondary has not heard of it yet.
        """
        running = self._queries.get(query)
        if query in self._queries.pending:
            raise UnavailableError(f"{query}: its secondary is asked about it; try again")
        task = next((each for each in running.tasks if each.name == stream), None)
        if task is None:
            raise NotFoundError(f"{query} produces no stream {stream}")
        async with running.modifying:
            before, entry = task.state.entry.stream, running.stored.entry
            definition = altered(before, alteration)
            if definition != before:
                # beyond the edition that another peer may have given it while it had the query
                edition = max(definition.edition, running.stored.term.number)
                known = replace(
                    entry.altered.get(stream, AlteredOutput()),
                    edition=edition,
                    **alteration.changes,
                )
                entry = replace(entry, altered={**entry.altered, stream: known})
                self._queries.write(running, entry=entry)
            await self._tell_secondary(running)
            made = running.entries(running.stored, running.plan)
            await self._announcements.announce_altered(made)
            await running.define_outputs(running.stored, running.plan)
            self._queries.publish_soon(running)  # the entries that are not published yet
        self._events.note("info", f"altered {stream}: {alteration.in_words()}")

    async def _tell_secondary(self, running: QueryCopy) -> None:
        if not running.stored.term.secondary:
            return
        async with self._primaries.secondary_state(running.name).talking:
            try:
                await self._primaries.tell(running)
            except MedusaError as error:
                raise UnavailableError(
                    f"{running.name}: it is written down, but its secondary has not heard of it "
                    f"yet: ask again: {error}"
                ) from error

"""What the catalog says of the queries of this peer: their entries, their outputs, their makers."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import trio

from dht.catalog import Catalog
from engine.objects.definitions import Producer, QueryEntry
from engine.objects.kinds import QUERY, STREAM, lookup
from engine.replication.moves.placed_task import PlacedTask
from engine.replication.producers import Producers
from engine.replication.running_query import RunningQuery
from engine.replication.stored_query import StoredQuery
from overlay.errors import ConflictError, MedusaError, NotFoundError, UnavailableError
from overlay.events import Events
from overlay.names import ObjectName

PUBLISH_AGAIN_S: Final = 1.0
"""After a failure to publish what was taken over, seconds."""


class QueryCatalog:
    """
    Args:
        nursery: runs what is published later.
    """

    def __init__(
        self, catalog: Catalog, producers: Producers, events: Events, nursery: trio.Nursery
    ) -> None:
        self._catalog = catalog
        self._producers = producers
        self._events = events
        self._nursery = nursery
        self._telling: dict[str, _Telling] = {}

    async def entry(self, query: str) -> QueryEntry:
        """As published. Raises: see `engine.objects.kinds.lookup`."""
        return (await lookup(self._catalog, QUERY, ObjectName.parse(query))).value

    async def publish(self, running: RunningQuery) -> None:
        """Tell of a query and its outputs.

        Raises:
            MedusaError: that cannot be published.
        """
        for task in running.tasks:
            await self._producers.publish_entry(task.kept.entry)
            await self.name_worker(running, task)
        await self.publish_entry(running.stored)

    async def publish_entry(self, stored: StoredQuery) -> None:
        """Tell of the query alone. Raises: as `publish`."""
        await self._catalog.publish(QUERY, ObjectName.parse(stored.name), stored.published)

    def publish_soon(self, running: RunningQuery) -> None:
        """`publish`, in the background, until it is done: the catalog is slow when peers die, and
        others wait for us then. What has changed meanwhile is told as well."""
        telling = self._telling.get(running.name)
        if telling is not None:
            telling.again = True
        else:
            self._telling[running.name] = telling = _Telling()
            self._nursery.start_soon(self._tell, running, telling)

    async def _tell(self, running: RunningQuery, telling: _Telling) -> None:
        try:
            with telling.scope:
                while telling.again:
                    telling.again = False
                    try:
                        await self.publish(running)
                    except MedusaError as error:
                        self._events.note(
                            "warning", f"could not publish {running.name} yet: {error}"
                        )
                        telling.again = True
                        await trio.sleep(PUBLISH_AGAIN_S)
        finally:
            del self._telling[running.name]
            telling.over.set()

    async def silence(self, query: str) -> None:
        """Nothing of it is published any more in the background, on return."""
        telling = self._telling.get(query)
        if telling is not None:
            telling.scope.cancel()
            await telling.over.wait()

    async def name_worker(self, running: RunningQuery, placed: PlacedTask) -> None:
        """Tell who computes a task now. Raises: as `publish`."""
        term = running.stored.term
        # read and declared in one step: of two that publish, the later one says what is so
        producer = Producer(
            placed.name,
            worker=placed.current.term.holder,
            secondary=term.secondary,
            fence=term.number,
            edition=running.stored.entry.edition,
        )
        await self._producers.name_producer(producer)

    # -- what is no more ------------------------------------------------------------------------

    def leave(self, stored: StoredQuery) -> None:
        """Another peer has the query, and has published it: what we have said of it is not to be
        said again, nor taken back."""
        for output in stored.entry.outputs:
            self._catalog.leave(STREAM, ObjectName.parse(output))
        self._catalog.leave(QUERY, ObjectName.parse(stored.name))

    async def withdraw_producers(self, stored: StoredQuery) -> None:
        """This peer makes its outputs no more. What cannot be said now is of a fence that nobody
        believes any more."""
        for output in stored.entry.outputs:
            try:
                await self._producers.withdraw_producer(output)
            except MedusaError as error:
                self._events.note("warning", f"could not withdraw {output}: {error}")

    async def withdraw(self, stored: StoredQuery) -> None:
        """There is no such query."""
        for output in stored.entry.outputs:
            await self._producers.withdraw(output)
        await self._withdraw_entry(ObjectName.parse(stored.name))

    async def withdraw_all_but(self, known: set[str]) -> None:
        """Of what the last run has published, what is of no query that is known."""
        for stream in self._catalog.own(STREAM):
            query = "" if stream.value.stream.view else stream.value.stream.query
            if query and query not in known:
                await self._producers.withdraw(str(stream.name))
        for published in self._catalog.own(QUERY):
            if str(published.name) not in known:
                await self._withdraw_entry(published.name)

    async def _withdraw_entry(self, query: ObjectName) -> None:
        # where another peer of ours goes on to publish it, it is that one's
        with suppress(NotFoundError, UnavailableError, ConflictError):
            await self._catalog.withdraw(QUERY, query)


class _Telling:
    """again: something is to be told."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.over = trio.Event()
        self.again = True

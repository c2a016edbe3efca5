from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

import msgspec
import trio

from medusa.dht.catalog import Catalog
from medusa.engine.objects.alteration import queries_differ
from medusa.engine.objects.definitions import QueryEntry, StreamEntry
from medusa.engine.objects.query import Query, QueryStatus
from medusa.engine.operators.typing import TypedBoxes
from medusa.engine.replication.copies.query_copy import QueryCopy, drop_logs
from medusa.engine.replication.queries.creation import Creation
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.stored_query import StoredQuery
from medusa.engine.replication.records.term import HIGHEST_NUMBER
from medusa.engine.streams.store.stream_state import LogKey
from medusa.overlay.errors import (
    ConflictError,
    MedusaError,
    StorageError,
    UnavailableError,
)
from medusa.overlay.listeners import Decision, Listeners

_DONE: Final = {QueryStatus.RUNNING: "started", QueryStatus.STOPPED: "stopped"}


class Lifecycle:
    """Creates, starts, stops, deletes and gives up the queries of this peer, one at a time.

    Attributes:
        deleted: called with every query that is deleted.
        vacated: returns once this peer stands by for no query of that name; raises an error if it
            must stand by. creation: checks new queries.
    """

    def __init__(self, queries: QueryHost, catalog: Catalog) -> None:
        shop = queries.shop
        self._queries = queries
        self._peer = shop.here
        self._clock = shop.overlay.clock
        self._events = shop.overlay.events
        self._store = shop.store
        self._directory = shop.directory
        self._followers = shop.followers
        self._changing = trio.Lock()
        self.creation = Creation(shop.overlay, catalog, shop.store, shop.readers, shop.functions)
        self.deleted: Listeners[[QueryCopy]] = Listeners()
        self.vacated: Decision[[str], Awaitable[None]] = Decision(_nobody_is_there)

    async def create(
        self, query: Query, inputs: dict[str, StreamEntry], boxes: TypedBoxes
    ) -> QueryEntry:
        """Check the query, publish it and its outputs; it does not run yet.

        Args:
            inputs, boxes: see `Creation.plan`.

        Raises:
            InvalidInputError: it does not type-check, or names an unknown stream.
            NotAuthorisedError: this participant may not read an input, or an output is not ours.
                ConflictError: an output exists already, or a reader here reads it from another
                peer. MedusaError: this peer stands by for a query of that name.
        """
        async with self._changing:
            self._check_fit(query.name)
            running = self._queries.named(query.name)
            if running is None:
                return await self._create(query, inputs, boxes)
            if how := queries_differ(running.stored.entry.query, query):
                raise ConflictError(
                    f"{query.name} exists and differs ({how}): delete it first or rename"
                )
            return running.stored.entry

    async def _create(
        self, query: Query, inputs: dict[str, StreamEntry], boxes: TypedBoxes
    ) -> QueryEntry:
        creation, typed = await self.creation.plan(query, inputs, boxes)
        outputs = creation.entry.outputs
        await self.vacated(query.name)
        for output in outputs:
            await self._followers.make_way(output)
        # consumers may remember the term of a deleted query of that name
        known = map(self._directory.number, outputs)
        term = HIGHEST_NUMBER.next(creation.name, known, self._peer, self._clock())
        stored = creation.under(term)
        try:
            for name in stored.kept:
                # a query now produces a stream that was only declared
                await self._store.drop(LogKey(name))
            running = await self._queries.prepare(stored, typed.tasks)
            self._queries.admit(running)
            await running.publish(self._queries.announcements)
            running.record.save()
        except BaseException:
            await self._remove(stored)
            raise
        return stored.entry

    async def set_status(self, name: str, status: QueryStatus) -> None:
        """Start, stop or delete a query.

        Raises:
            NotFoundError: no such query here.
            ConflictError: another query reads a stream of the query to be deleted.
        """
        async with self._changing:
            await self._set_status(name, status)

    async def _set_status(self, name: str, status: QueryStatus) -> None:
        if name in self._queries.pending:
            raise UnavailableError(f"{name}: its secondary is asked about it; try again")
        if status is QueryStatus.DELETED:
            await self._delete(name)
            self._events.note("info", f"deleted {name}", query=name)
            return
        self._check_fit(name)
        running = self._queries.get(name)
        if status is running.stored.entry.status:
            return
        entry = msgspec.structs.replace(running.stored.entry, status=status)
        self._queries.write(running, entry=entry)
        if status is QueryStatus.RUNNING:
            self._queries.start(running)
        else:
            await self._stop(running)
        await self._queries.announcements.publish_query(running.stored)
        self._events.note("info", f"{_DONE[status]} {name}", query=name)

    async def _delete(self, name: str) -> None:
        if name in self._queries.unfit:
            await self._remove(self._queries.unfit[name][0])
            del self._queries.unfit[name]
            return
        running = self._queries.get(name)
        self._check_unread(running)
        await self._remove(running.stored)
        self.deleted.notify(running)

    def _check_fit(self, name: str) -> None:
        if (unfit := self._queries.unfit.get(name)) is not None:
            raise ConflictError(f"{name} does not run: {unfit[1]}; delete it first")

    async def relinquish(self, name: str) -> QueryCopy:
        """Stop a query that another peer has and has published, and forget everything except its
        logs.

        Raises:
            NotFoundError: it is not ours.
        """
        async with self._changing:
            running = self._queries.get(name)
            with trio.CancelScope(shield=True):
                await self._queries.announcements.silence(name)
                await running.stop()
                with suppress(StorageError):  # the removal makes room
                    self._queries.place_back(running)
                self._queries.forget(running)
                # done before the file is removed: otherwise a restart would withdraw the other
                # peer's entries
                with suppress(MedusaError):
                    self._queries.announcements.leave_query(running.stored)
                given = {task.name: max(task.boundary, task.given) for task in running.tasks}
                self._queries.files.leave(name, given)
                for task in running.tasks:
                    task.runner.inputs.release()
            return running

    async def _stop(self, running: QueryCopy) -> None:
        if running.running:
            await running.stop()
            await self._queries.call_back(running)

    def _check_unread(self, running: QueryCopy) -> None:
        for output in running.stored.entry.outputs:
            names = sorted(entry.query.name for entry in self._queries.consumers(output))
            if names:
                readers = ", ".join(names)
                raise ConflictError(f"{output} is read by {readers}: delete that first")

    async def _remove(self, stored: StoredQuery) -> None:
        """Remove everything of a query, even if its creation was cut short."""
        name = stored.name
        with trio.CancelScope(shield=True):  # a half created query must not stay
            running = self._queries.named(name)
            if running is not None:
                await self._queries.announcements.silence(name)
                with suppress(StorageError):  # the removal makes room
                    await self._stop(running)
                self._queries.forget(running)
                for task in running.tasks:
                    task.runner.inputs.release()
            self._queries.files.remove(name)
            await drop_logs(self._queries.shop, stored)
            await self._queries.announcements.withdraw_query(stored)


async def _nobody_is_there(_query: str) -> None:
    pass

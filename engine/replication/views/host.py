from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
import trio

from medusa.dht.catalog import Catalog
from medusa.engine.objects.catalog_records import STREAM, VIEW, find
from medusa.engine.objects.definitions import ANY, StreamDefinition, StreamEntry, check_not_late
from medusa.engine.objects.readers import Readers
from medusa.engine.objects.view import View, check_order, check_view
from medusa.engine.replication.directory.announcements import Announcements
from medusa.engine.replication.queries.host import QueryHost
from medusa.engine.replication.records.term import Term
from medusa.engine.replication.views.feeding import Feedings, view_of
from medusa.engine.replication.views.locating import Locator
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.errors import (
    BusyError,
    ConflictError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.failpoints import Failpoint, failpoint
from medusa.overlay.names import ObjectName
from medusa.overlay.node.node import Overlay

MAX_VIEWS: Final = 256
"""The most views of one peer: the tuples of a moving one are written a second time, epoch by
epoch."""


@dataclass(frozen=True, kw_only=True)
class Views:
    """The views that this peer keeps: created, deleted, and resumed after a restart.

    Args:
        queries: they may read the views. feedings: fills them.
    """

    overlay: Overlay
    catalog: Catalog
    announcements: Announcements
    readers: Readers
    queries: QueryHost
    locator: Locator
    feedings: Feedings
    _changing: trio.Lock = field(init=False, default_factory=trio.Lock)

    def all(self) -> list[StreamState]:
        return self.feedings.views()

    async def create(self, asked: View) -> View:
        """Make a view, and publish it; returns it with its interval.

        Raises:
            InvalidInputError: the view makes no sense, or its stream has nothing yet to freeze.
            NotFoundError: there is no such stream. NotAuthorisedError: this participant may not
                read it.
            NotRetainedError: some of the shown part is not kept any more.
            ConflictError: something else has that name.
            BusyError: this peer keeps too many.
        """
        check_view(asked)
        check_not_late(asked.name)
        async with self._changing:
            existing = await self._existing(asked)
            if existing is not None:
                return existing
            if len(self.all()) >= MAX_VIEWS:
                raise BusyError(
                    f"{asked.name}: this peer keeps {MAX_VIEWS} views, no more are allowed: delete "
                    "one, or ask another peer"
                )
            source = await self._source(asked)
            found = await self.locator.locate(asked.stream, asked.shows, fixed=asked.is_fixed)
            view = msgspec.structs.replace(asked, after=found.after, until=found.until)
            await self.feedings.make_way(view.name)
            entry = self._entry_of(view, source)
            try:
                await self.feedings.keep(entry)
                await self._publish(entry)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await self._remove(view)
                raise
            return view

    async def delete(self, name: str) -> None:
        """Delete a view and its log.

        Raises:
            NotFoundError: this peer does not keep the view. ConflictError: a reader here reads the
                view.
        """
        async with self._changing:
            state = next((each for each in self.all() if each.name == name), None)
            if state is None:
                raise NotFoundError(f"{name} is no view that this peer keeps")
            if readers := ", ".join(sorted(self._read_by(name))):
                raise ConflictError(f"{name} is read by {readers}: delete that first")
            with trio.CancelScope(shield=True):  # a half created view must not stay
                await self._remove(view_of(state))

    def _read_by(self, name: str) -> list[str]:
        """The queries, and the views that are still filled, that read a view here."""
        queries = [entry.query.name for entry in self.queries.consumers(name)]
        return queries + self.feedings.readers(name)

    async def resume(self) -> None:
        """Resume the views of the last run."""
        for state in self.all():
            await self.feedings.resume(state)
            # a crash may have prevented it; publishing again changes nothing
            self.announcements.announce_soon(state.entry)
            self.catalog.publish_soon(VIEW, ObjectName.parse(state.name), view_of(state))
        known = {state.name for state in self.all()}
        for published in self.catalog.own(VIEW):
            if str(published.name) not in known:
                await self._withdraw(str(published.name))

    async def _existing(self, asked: View) -> View | None:
        """The same view, if it was made before.

        Raises:
            ConflictError: something else has that name.
        """
        found = await find(self.catalog, STREAM, ObjectName.parse(asked.name))
        if found is None:
            return None
        view = found.value.stream.view
        if view is None:
            raise ConflictError(f"{asked.name} exists: it is a stream; take another name")
        if not view.asks_as(asked):
            raise ConflictError(f"{asked.name} exists and differs; delete it first or rename")
        return view

    async def _source(self, view: View) -> StreamEntry:
        """The stream that it shows.

        Raises:
            NotFoundError: no stream has that name. NotAuthorisedError: this participant may not
                read it. InvalidInputError: the stream has another order.
        """
        name = ObjectName.parse(view.stream)
        found = await find(self.catalog, STREAM, name)
        if found is None:
            raise NotFoundError(
                f"{view.name} is to show {view.stream}, which is not in the catalog"
            )
        self.readers.check(found.value.stream, self.overlay.identity.participant)
        check_order(view, found.value.schema)
        return found.value

    def _entry_of(self, view: View, source: StreamEntry) -> StreamEntry:
        """The entry of a view: its stream's readers may read the same tuples; so may its owner."""
        definition = StreamDefinition(
            name=view.name,
            schema=source.stream.schema,
            history_us=0,
            readers=(ANY,),
            leader=self.overlay.identity.peer_id.hex(),
            query=source.stream.query,
            view=view,
            label=source.stream.policies,
            edition=source.stream.edition,
        )
        return StreamEntry(definition, source.schema)

    @failpoint(Failpoint.VIEW_PUBLISH)
    async def _publish(self, entry: StreamEntry) -> None:
        assert entry.stream.view is not None, "a view's stream says what it shows"
        await self.announcements.announce(entry, Term(entry.stream.name))
        await self.catalog.publish(VIEW, ObjectName.parse(entry.stream.name), entry.stream.view)

    @failpoint(Failpoint.VIEW_REMOVE)
    async def _remove(self, view: View) -> None:
        await self.feedings.drop(view.name)
        await self._withdraw(view.name)

    async def _withdraw(self, name: str) -> None:
        await self.announcements.withdraw(name)
        with suppress(NotFoundError, UnavailableError):
            await self.catalog.withdraw(VIEW, ObjectName.parse(name))

"""Calls that make and delete views, and that locate parts of a stream's history.

The peer that is asked makes a view. The peer that made it deletes it, whichever peer of the
participant is asked.
"""

from __future__ import annotations

from engine.api.administration import Administration
from engine.objects.catalog_records import VIEW, lookup
from engine.objects.readers import Readers
from engine.objects.view import View
from engine.replication.views.host import Views
from engine.replication.views.locating import Locator
from engine.replication.views.messages import CreateView, DeleteView, Locate, Located
from engine.streams.messages import Done
from engine.streams.store import StreamStore
from engine.streams.stream_state import Role
from overlay.errors import NotFoundError
from overlay.rpc import Caller


class ViewCalls:
    """The handlers; `register` puts them on the peer's service."""

    def __init__(
        self,
        ours: Administration,
        store: StreamStore,
        views: Views,
        locator: Locator,
        readers: Readers,
    ) -> None:
        self._ours = ours
        self._store = store
        self._views = views
        self._locator = locator
        self._readers = readers

    def register(self) -> None:
        service = self._ours.overlay.service
        service.unary("create_view", CreateView, self.create_view, clients=True, own=True)
        service.unary("delete_view", DeleteView, self.delete_view, clients=True, own=True)
        service.unary("locate", Locate, self.locate)

    async def create_view(self, caller: Caller, request: CreateView, _: bytes) -> View:
        self._ours.own_name(request.view.name)
        return await self._views.create(request.view)

    async def delete_view(self, caller: Caller, request: DeleteView, _: bytes) -> Done:
        name = self._ours.own_name(request.name)
        state = self._store.get(request.name)
        here = state is not None and state.role is Role.VIEW
        if here or caller.peer_id is not None:  # else outdated records would make a circle
            await self._views.delete(request.name)
            return Done()
        published = await lookup(self._ours.catalog, VIEW, name)
        if published.publisher == self._ours.overlay.identity.peer_id:
            raise NotFoundError(f"{name} is not kept by this peer any more")
        return await self._ours.route(published.publisher, "delete_view", request, Done)

    async def locate(self, caller: Caller, request: Locate, _: bytes) -> Located:
        """Locate a part of a stream of ours for another peer that may read it."""
        state = self._store.serving(request.stream)
        if state is None or state.role is Role.ASSIGNED:
            raise NotFoundError(f"{request.stream} is not produced by this peer")
        self._readers.check(state.entry.stream, caller.participant)
        return await self._locator.locate_here(
            state, request.shows, caller.participant, fixed=request.fixed
        )

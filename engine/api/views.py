"""Calls that make and delete views, and that tell where parts of a stream's history lie.

A view is made by the peer that is asked, and deleted by the one that made it, whichever of the
participant's is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.engine import Engine
from engine.objects.kinds import VIEW, lookup
from engine.objects.view import View
from engine.replication.views.messages import CreateView, DeleteView, Locate, Located
from engine.streams.kept import Role
from engine.streams.messages import Done
from overlay.errors import NotFoundError
from overlay.names import ObjectName
from overlay.rpc import Caller

ROUTED_CALL_S: Final = 20.0
"""Patience with another peer of ours that keeps the view, seconds."""


class ViewCalls:
    """The handlers; `register` puts them on the peer's service.

    Args:
        own_name: an object name, if it is one of our participant; else it raises.
    """

    def __init__(self, engine: Engine, own_name: Callable[[str], ObjectName]) -> None:
        self._engine = engine
        self._own_name = own_name

    def register(self) -> None:
        service = self._engine.overlay.service
        service.unary("create_view", CreateView, self.create_view, clients=True, own=True)
        service.unary("delete_view", DeleteView, self.delete_view, clients=True, own=True)
        service.unary("locate", Locate, self.locate)

    async def create_view(self, caller: Caller, request: CreateView, _: bytes) -> View:
        self._own_name(request.view.name)
        return await self._engine.views.create(request.view)

    async def delete_view(self, caller: Caller, request: DeleteView, _: bytes) -> Done:
        name = self._own_name(request.name)
        kept = self._engine.store.get(request.name)
        here = kept is not None and kept.role is Role.VIEW
        if here or caller.peer_id is not None:  # else records out of date would make a circle
            await self._engine.views.delete(request.name)
            return Done()
        published = await lookup(self._engine.catalog, VIEW, name)
        if published.publisher == self._engine.overlay.identity.peer_id:
            raise NotFoundError(f"{name} is not kept by this peer any more")
        connection = await self._engine.overlay.connect(published.publisher)
        return await connection.call("delete_view", request, Done, timeout_s=ROUTED_CALL_S)

    async def locate(self, caller: Caller, request: Locate, _: bytes) -> Located:
        """Another peer asks about a stream of ours that it may read."""
        kept = self._engine.store.serving(request.stream)
        if kept is None or kept.role is Role.ASSIGNED:
            raise NotFoundError(f"{request.stream} is not produced by this peer")
        self._engine.readers.check(kept.entry.stream, caller.participant)
        return await self._engine.locator.locate_here(
            kept, request.shows, caller.participant, fixed=request.fixed
        )

"""The service of a peer while it starts, while it runs, and while it stops.

The overlay listens before the engine is ready and longer than it runs. A caller that comes too
early or too late receives "unavailable", not an error about a missing method or a closed file. So
it retries.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio

from medusa.overlay.client_tokens import Scope
from medusa.overlay.concurrency import Bell
from medusa.overlay.errors import UnavailableError
from medusa.overlay.events import Events
from medusa.overlay.rpc import Caller, Duplex, Service


class PeerService(Service):
    """The methods of a peer, filled by its parts while it starts. See `Service`."""

    def __init__(self, scopes: Mapping[str, frozenset[Scope]] | None = None) -> None:
        super().__init__(scopes)
        self._ready = False
        self._stopping = False
        self._under_way: dict[trio.CancelScope, None] = {}  # the oldest first
        self._left = Bell()

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Serve every method; when the block ends no call is under way, and none begins."""
        self._ready = True
        try:
            yield
        finally:
            self._stopping = True
            for scope in self._under_way:
                scope.cancel()
            with trio.CancelScope(shield=True):
                while self._under_way:
                    self._left.clear()
                    await self._left.wait()

    async def serve(self, caller: Caller, duplex: Duplex, events: Events) -> None:
        if not self._ready and duplex.method not in self._methods:
            _refuse(duplex, "starting")
            return
        with trio.CancelScope() as scope:
            if self._stopping:
                scope.cancel()
            self._under_way[scope] = None
            try:
                await trio.lowlevel.checkpoint_if_cancelled()
                await super().serve(caller, duplex, events)
            finally:
                del self._under_way[scope]
                self._left.ring()
        if scope.cancelled_caught:
            _refuse(duplex, "stopping")


def _refuse(duplex: Duplex, state: str) -> None:
    duplex.fail(UnavailableError(f"the peer is {state}"))
    duplex.abandon()

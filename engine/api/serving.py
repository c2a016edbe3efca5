"""What a peer answers while it starts, while it runs, and while it stops.

The overlay listens before the engine stands and longer than it does. A caller that comes too early
or too late is told that the peer is unavailable, which passes, and not that there is no such method
or that a file is closed: it tries again and goes on where it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from overlay.errors import MedusaError, UnavailableError
from overlay.events import Events
from overlay.rpc import Caller, Duplex, Service


class PeerService(Service):
    """The methods of a peer, filled by its parts while it starts."""

    def __init__(self) -> None:
        super().__init__()
        self._ready = False
        self._stopping = False
        self._under_way: set[trio.CancelScope] = set()
        self._left = trio.Event()

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Every method is there; when the block ends no call is under way, and none begins."""
        self._ready = True
        try:
            yield
        finally:
            self._stopping = True
            for scope in self._under_way:
                scope.cancel()
            with trio.CancelScope(shield=True):
                while self._under_way:
                    self._left = trio.Event()
                    await self._left.wait()

    def missing(self, method: str) -> MedusaError:
        return super().missing(method) if self._ready else UnavailableError("the peer is starting")

    async def serve(self, caller: Caller, duplex: Duplex, events: Events) -> None:
        with trio.CancelScope() as scope:
            if self._stopping:
                scope.cancel()
            self._under_way.add(scope)
            try:
                await trio.lowlevel.checkpoint_if_cancelled()
                await super().serve(caller, duplex, events)
            finally:
                self._under_way.discard(scope)
                self._left.set()
        if scope.cancelled_caught:
            duplex.fail(UnavailableError("the peer is stopping"))
            duplex.abandon()

"""Who reads the streams of this peer, and so what their retention waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from engine.kept import KeptStream
from engine.leases import Lease, Leases
from engine.schema import END
from overlay.errors import MedusaError
from overlay.events import Events

GRACE_S: Final = 10.0
"""How long what an unnamed subscriber has not acknowledged is kept when its call breaks, seconds:
it may only be on its way to another peer."""


class Reader:
    """One subscription's hold on a stream: retention keeps what it has not acknowledged."""

    def __init__(self, take: Callable[[int], None], boundary: int) -> None:
        self._take = take
        self.boundary = boundary

    def acknowledge(self, boundary: int) -> None:
        """Boundaries only grow; what a stranger says beyond the stream harms only itself."""
        if boundary > self.boundary:
            self.boundary = boundary
            self._take(boundary)


class Subscriptions:
    """
    Args:
        lease_s: how long a named subscriber that went away is waited for, seconds.
        clock: seconds since the epoch.
    """

    def __init__(
        self, leases: Leases, lease_s: float, clock: Callable[[], float], events: Events
    ) -> None:
        self._leases = leases
        self._lease_s = lease_s
        self._clock = clock
        self._events = events
        self._saving = trio.Lock()
        self._calls = 0

    @asynccontextmanager
    async def hold(
        self, kept: KeptStream, subscriber: str, holder: str, after: int
    ) -> AsyncIterator[Reader]:
        """Hold the stream for a reader, from the boundary `after` on. The hold outlives the block:
        a named one's by its lease, another's by `GRACE_S`.

        Raises:
            BusyError: too many named subscribers.
        """
        self._calls += 1
        consumer = f"{holder} {subscriber}" if subscriber else f"call {self._calls}"

        def take(boundary: int) -> None:
            expires = None
            if subscriber:
                self._leases.renew(kept.name, consumer, holder, boundary, self._clock())
                expires = trio.current_time() + self._lease_s
            kept.log.hold(consumer, boundary, expires)

        take(after)
        reader = Reader(take, after)
        kept.subscribers += 1
        try:
            if subscriber:
                await self.save()  # from the first tuple on it is waited for, also after a crash
            yield reader
        finally:
            kept.subscribers -= 1
            if not subscriber and reader.boundary < END:
                kept.log.hold(consumer, reader.boundary, trio.current_time() + GRACE_S)
            elif not subscriber:
                kept.log.release(consumer)

    def of(self, stream: str) -> list[Lease]:
        """What named subscribers of a stream were promised."""
        return self._leases.of(stream)

    def adopt(self, lease: Lease, kept: KeptStream | None) -> None:
        """Promise a subscriber what another peer has promised it. kept: the stream, if it is here.

        Raises:
            BusyError: too many named subscribers.
        """
        self._leases.take(lease)
        if kept is not None:
            self._hold(kept, lease)

    def restore(self, kept: KeptStream) -> None:
        """Hold a stream that was opened again for those that were promised it."""
        for lease in self._leases.of(kept.name):
            self._hold(kept, lease)

    def _hold(self, kept: KeptStream, lease: Lease) -> None:
        left_s = min(lease.expires - self._clock(), self._lease_s)
        kept.log.hold(lease.subscriber, lease.boundary, trio.current_time() + left_s)

    def forget(self, stream: str) -> None:
        """There is no such stream any more."""
        for lease in self._leases.of(stream):
            self._leases.drop(stream, lease.subscriber)

    async def tend(self) -> None:
        """Drop the leases that ran out, and save what has changed."""
        self._leases.expire(self._clock())
        await self.save()

    async def save(self) -> None:
        """What cannot be saved now, on a full disk, is the next time."""
        async with self._saving:
            try:
                await trio.to_thread.run_sync(self._leases.save)
            except MedusaError as error:
                self._events.note("error", f"leases of subscribers are not saved: {error}")

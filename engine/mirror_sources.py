"""Where a mirror gets its stream from: who produces it, or a better place."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol

from engine.messages import Subscribe
from engine.producers import Producers
from engine.schema import BEGINNING
from overlay.errors import MedusaError
from overlay.rpc import Duplex


class MirrorSource(Protocol):
    """Where a stream comes from."""

    def subscribe(self, request: Subscribe) -> AbstractAsyncContextManager[Duplex]:
        """An open subscription.

        Raises:
            NotRetainedError: what follows the boundary is gone there.
        """

    def catch_up(self, request: Subscribe) -> AbstractAsyncContextManager[Duplex]:
        """The same from who has more of the past; it may end before the stream does."""


class Place(NamedTuple):
    """Where a stream is read. peer: an id; empty: who produces it. stream: its name there."""

    peer: bytes
    stream: str


class FromProducers:
    """A stream as the catalog says who produces it."""

    def __init__(self, producers: Producers) -> None:
        self._producers = producers

    @asynccontextmanager
    async def subscribe(self, request: Subscribe) -> AsyncIterator[Duplex]:
        oldest = request.after == BEGINNING
        connection = await self._producers.connect(request.stream, oldest=oldest)
        async with connection.open("subscribe", request) as duplex:
            yield duplex

    @asynccontextmanager
    async def catch_up(self, request: Subscribe) -> AsyncIterator[Duplex]:
        connection = await self._producers.connect(request.stream, oldest=True)
        async with connection.open("subscribe", request) as duplex:
            yield duplex


class ForQueries(FromProducers):
    """What our own queries read: from its producers too, unless there is a better place.

    Attributes:
        choose: tells the place where a stream is to be read; None: who produces it is asked.
        opening: told before a stream is read anew: its name, the name that it is read by, and the
            boundary from which on.
        failed: told that reading a stream from a chosen place failed.
    """

    def __init__(self, producers: Producers) -> None:
        super().__init__(producers)
        self.choose: Callable[[str], Awaitable[Place | None]] = _nowhere_else
        self.opening: Callable[[str, str, int], Awaitable[None]] = _unheard
        self.failed: Callable[[str, Place, MedusaError], None] = lambda *_: None

    @asynccontextmanager
    async def subscribe(self, request: Subscribe) -> AsyncIterator[Duplex]:
        place = await self.choose(request.stream)
        if place is None:
            await self.opening(request.stream, request.stream, request.after)
            async with super().subscribe(request) as duplex:
                yield duplex
            return
        await self.opening(request.stream, place.stream, request.after)
        try:
            connection = await self._producers.connect(place.stream, at=place.peer)
            async with connection.open("subscribe", _at(place, request)) as duplex:
                yield duplex
        except MedusaError as error:
            self.failed(request.stream, place, error)
            raise

    @asynccontextmanager
    async def catch_up(self, request: Subscribe) -> AsyncIterator[Duplex]:
        await self.opening(request.stream, request.stream, request.after)
        async with super().catch_up(request) as duplex:
            yield duplex


def _at(place: Place, request: Subscribe) -> Subscribe:
    """The same of the stream's name there; who follows that one too is another subscriber of it."""
    if place.stream == request.stream:
        return request
    label = f"{request.subscriber} {short_digest(request.stream)}"
    return Subscribe(place.stream, request.after, label)


async def _nowhere_else(_: str) -> Place | None:
    return None


async def _unheard(*_: object) -> None:
    return None


def short_digest(text: str) -> str:
    """Tells names apart where they would be too long."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]

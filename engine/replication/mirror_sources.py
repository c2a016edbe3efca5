"""Where a mirror gets its stream from: who produces it, or a better place."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
import trio
from msgspec import Struct

from engine.objects.schema import BEGINNING
from engine.replication.directory import Directory
from engine.streams.feed import serve
from engine.streams.kept import KeptStream, Role
from engine.streams.messages import Acknowledge, Subscribe
from engine.streams.store import StreamStore
from engine.tasks.tentative.serving import cursor_for
from overlay.concurrency import until_one_ends
from overlay.errors import BrokenError, MedusaError
from overlay.rpc import EndOfCall
from overlay.streams import Buffer

T = TypeVar("T", bound=Struct)

LEASE_S: Final = 60.0
"""How long what a local reader needs is kept while it does not read, seconds."""


class Feed(Protocol):
    """An open subscription, as a mirror uses it: a call's `Duplex`, or one within this peer."""

    async def receive(self, kind: type[T]) -> tuple[T, bytes]: ...

    async def send(self, message: Struct, body: Buffer = b"") -> None: ...


class MirrorSource(Protocol):
    """Where a stream comes from."""

    def subscribe(self, request: Subscribe) -> AbstractAsyncContextManager[Feed]:
        """An open subscription.

        Raises:
            NotRetainedError: what follows the boundary is gone there.
        """

    def catch_up(self, request: Subscribe) -> AbstractAsyncContextManager[Feed]:
        """The same from who has more of the past; it may end before the stream does."""


class Place(NamedTuple):
    """Where a stream is read. peer: an id; empty: who produces it. stream: its name there."""

    peer: bytes
    stream: str


class FeedHere:
    """A stream that this peer itself produces by now, for one of its own mirrors."""

    def __init__(self, kept: KeptStream, request: Subscribe) -> None:
        # as `engine.api.flow` serves it: the beginning is the oldest that is kept
        after = kept.log.oldest if request.after == BEGINNING else request.after
        self._kept = kept
        self._moved_away = kept.moved_away
        self._consumer = f"here {request.subscriber}"
        self._parts = serve(cursor_for(kept, after, request.tentative))
        self._held = after if request.keep is None else min(after, request.keep)
        self._hold(None)

    async def receive(self, kind: type[T]) -> tuple[T, bytes]:
        found: list[tuple[Struct, Buffer]] = []

        async def read() -> None:
            with suppress(StopAsyncIteration):
                found.append(await anext(self._parts))

        await until_one_ends(read, self._moved_away.wait)
        if not found:
            if self._moved_away.is_set():
                raise BrokenError(f"{self._kept.name} is produced by another peer from now on")
            raise EndOfCall
        message, body = found[0]
        assert isinstance(message, kind)
        return message, bytes(body)

    async def send(self, message: Struct, body: Buffer = b"") -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(message, Acknowledge):
            self._held = message.upto
            self._hold(None)

    def _hold(self, expires: float | None) -> None:
        self._kept.log.hold(self._consumer, max(self._held, self._kept.log.start), expires)

    async def close(self) -> None:
        """What it has not acknowledged stays for a while: it may come back."""
        self._hold(trio.current_time() + LEASE_S)
        await self._parts.aclose()


class FromProducers:
    """A stream as the catalog says who produces it, unless this peer does."""

    def __init__(self, directory: Directory, store: StreamStore) -> None:
        self._directory = directory
        self._store = store

    @asynccontextmanager
    async def subscribe(self, request: Subscribe) -> AsyncIterator[Feed]:
        oldest = request.after == BEGINNING
        kept = self._store.serving(request.stream)
        if kept is not None and (
            kept.log.start <= request.after or (oldest and kept.role is not Role.ASSIGNED)
        ):
            feed = FeedHere(kept, request)
            try:
                yield feed
            finally:
                await feed.close()
            return
        connection = await self._directory.connect(request.stream, oldest=oldest)
        async with connection.open("subscribe", request) as duplex:
            yield duplex

    @asynccontextmanager
    async def catch_up(self, request: Subscribe) -> AsyncIterator[Feed]:
        connection = await self._directory.connect(request.stream, oldest=True)
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

    def __init__(self, directory: Directory, store: StreamStore) -> None:
        super().__init__(directory, store)
        self.choose: Callable[[str], Awaitable[Place | None]] = _nowhere_else
        self.opening: Callable[[str, str, int], Awaitable[None]] = _unheard
        self.failed: Callable[[str, Place, MedusaError], None] = lambda *_: None

    @asynccontextmanager
    async def subscribe(self, request: Subscribe) -> AsyncIterator[Feed]:
        place = await self.choose(request.stream)
        if place is None:
            await self.opening(request.stream, request.stream, request.after)
            async with super().subscribe(request) as duplex:
                yield duplex
            return
        await self.opening(request.stream, place.stream, request.after)
        try:
            connection = await self._directory.connect(place.stream, at=place.peer)
            async with connection.open("subscribe", _at(place, request)) as duplex:
                yield duplex
        except MedusaError as error:
            self.failed(request.stream, place, error)
            raise

    @asynccontextmanager
    async def catch_up(self, request: Subscribe) -> AsyncIterator[Feed]:
        await self.opening(request.stream, request.stream, request.after)
        async with super().catch_up(request) as duplex:
            yield duplex


def _at(place: Place, request: Subscribe) -> Subscribe:
    """The same of the stream's name there; who follows that one too is another subscriber of it."""
    if place.stream == request.stream:
        return request
    label = f"{request.subscriber} {short_digest(request.stream)}"
    return msgspec.structs.replace(request, stream=place.stream, subscriber=label)


async def _nowhere_else(_: str) -> Place | None:
    return None


async def _unheard(*_: object) -> None:
    return None


def short_digest(text: str) -> str:
    """Tells names apart where they would be too long."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]

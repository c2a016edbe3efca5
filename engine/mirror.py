"""A local copy of a remote stream: what a task reads when the stream's home is elsewhere.

The copy is committed epoch by epoch, so after any failure it goes on from its own boundary: nothing
is lost, and what comes twice is dropped by the assembler.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from random import SystemRandom  # noqa: TID251 - jitter in a driver
from typing import Final, Protocol

import trio

from engine.definitions import StreamEntry
from engine.kept import KeptStream, Role
from engine.messages import Acknowledge, Subscribe, Tuples
from engine.producers import Producers
from engine.schema import BEGINNING, END
from engine.stream_store import StreamStore
from engine.streams.feed import Assembler
from overlay.errors import BrokenError, MedusaError, NotRetainedError
from overlay.events import Events
from overlay.rpc import Duplex, EndOfCall

RETRY_S = (0.1, 5.0)
"""Shortest and longest wait before subscribing again, seconds; doubled in between, with jitter."""

LAST_WORD_S = 5.0
"""How long the end of a stream may take to be acknowledged, seconds: else a lease runs out."""


INPUT: Final = "in"
"""The variant of the mirrors that tasks read which this peer runs for others. One that begins too
late for a task leaves it a mirror of its own."""


class MirrorSource(Protocol):
    """Where a stream comes from."""

    def subscribe(self, request: Subscribe) -> AbstractAsyncContextManager[Duplex]:
        """An open subscription.

        Raises:
            NotRetainedError: what follows the boundary is gone there.
        """

    def catch_up(self, request: Subscribe) -> AbstractAsyncContextManager[Duplex]:
        """The same from who has more of the past; it may end before the stream does."""


class Mirror:
    """Keeps one log going.

    Args:
        kept: the log that follows the stream.
        source: where the stream comes from.
        subscriber: this peer's name at the producer, whose retention waits for it.
        after: the boundary that a new log begins with.
        committed: told whenever the log's boundary has moved.
    """

    def __init__(
        self,
        kept: KeptStream,
        source: MirrorSource,
        *,
        store: StreamStore,
        subscriber: str,
        events: Events,
        after: int = BEGINNING,
        committed: Callable[[], None] = lambda: None,
    ) -> None:
        self._kept = kept
        self._source = source
        self._store = store
        self._subscriber = subscriber
        self._events = events
        self._after = after
        self._committed = committed
        self._jitter = SystemRandom()

    async def run(self) -> None:
        """Follow the stream to its end; cancel to stop."""
        wait_s = RETRY_S[0]
        while self._kept.log.boundary < END:
            before = self._kept.log.boundary
            try:
                await self._follow()
            except MedusaError as error:
                if self._kept.log.boundary > before:
                    wait_s = RETRY_S[0]
                self._note(error, wait_s)
            await trio.sleep(wait_s * self._jitter.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, RETRY_S[1])

    @property
    def _request(self) -> Subscribe:
        return Subscribe(
            self._kept.name, max(self._kept.log.boundary, self._after), self._subscriber
        )

    async def _follow(self) -> None:
        request = self._request
        try:
            await self._take(self._source.subscribe(request))
        except NotRetainedError:
            # who produces the stream now may have begun later than we need: others have the rest
            await self._take(self._source.catch_up(request))

    async def _take(self, opening: AbstractAsyncContextManager[Duplex]) -> None:
        async with opening as duplex:
            try:
                await self._receive(duplex)
            except EndOfCall:
                raise BrokenError(f"the call that brought {self._kept.name} was ended") from None

    async def take_leave(self) -> None:
        """Tell the producer that it need not keep anything for us; if that fails, a lease ends."""
        request = Subscribe(self._kept.name, END, self._subscriber)
        with suppress(MedusaError, EndOfCall), trio.move_on_after(LAST_WORD_S):
            async with self._source.subscribe(request) as call:
                await call.receive(Tuples)

    async def _receive(self, duplex: Duplex) -> None:
        log = self._kept.log
        assembler = Assembler(log.schema, after=log.boundary)
        while log.boundary < END:
            message, body = await duplex.receive(Tuples)
            epoch = assembler.add(message, body)
            if epoch is None:
                continue
            await self._store.wait_for_room()
            if log.boundary == BEGINNING and epoch.after > BEGINNING:
                log.begin(epoch.after)  # the stream is no longer kept from its beginning
            await log.commit(epoch.upto, epoch.table)
            self._committed()
            await duplex.send(Acknowledge(log.boundary))
        with suppress(EndOfCall), trio.move_on_after(LAST_WORD_S):
            await duplex.receive(Tuples)  # the producer ends the call once it has the last of them

    def _note(self, error: MedusaError, wait_s: float) -> None:
        if wait_s >= RETRY_S[1]:  # a short absence is nobody's news
            self._events.note("warning", f"{self._kept.name} does not come: {error}")


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


class Mirrors:
    """The mirrors of one peer: one a remote stream, however many queries read it, unless they need
    it from different boundaries on.

    Args:
        peer: this peer's id, hex.
    """

    def __init__(
        self,
        store: StreamStore,
        producers: Producers,
        peer: str,
        events: Events,
        nursery: trio.Nursery,
    ) -> None:
        self._store = store
        self._from_producers = FromProducers(producers)
        self._peer = peer
        self._events = events
        self._nursery = nursery
        self._users: dict[str, set[str]] = {}
        self._running: dict[str, _Run] = {}

    async def follow(self, entry: StreamEntry, user: str) -> KeptStream:
        """The log of a stream, on behalf of a query: our own, or a mirror that is kept going."""
        kept = self._store.get(entry.stream.name)
        if kept is None:
            kept = await self._store.keep(entry, Role.MIRROR)
        if kept.role is Role.MIRROR:
            self._use(kept, user, self._from_producers, BEGINNING)
        return kept

    async def follow_from(
        self, entry: StreamEntry, user: str, source: MirrorSource, after: int
    ) -> KeptStream:
        """The log of a stream that has what follows the boundary `after`, on behalf of a task that
        we run for another peer: one that is here and reaches back so far, or its own mirror."""
        own = self._store.get(entry.stream.name)
        if own is not None and own.role is not Role.MIRROR and own.log.start <= after:
            return own
        kept = await self._store.keep(entry, Role.MIRROR, INPUT)
        if kept.log.boundary > BEGINNING and kept.log.start > after:
            alone = hashlib.sha256(user.encode()).hexdigest()[:6]
            kept = await self._store.keep(entry, Role.MIRROR, alone)
        self._use(kept, user, source, after)
        return kept

    def _use(self, kept: KeptStream, user: str, source: MirrorSource, after: int) -> None:
        self._users.setdefault(kept.key, set()).add(user)
        if kept.key not in self._running:
            mirror = Mirror(
                kept,
                source,
                store=self._store,
                subscriber=f"{self._peer} {kept.variant}".rstrip(),
                events=self._events,
                after=after,
            )
            self._running[kept.key] = run = _Run(mirror)
            self._nursery.start_soon(run.drive)

    async def leave(self, name: str, user: str) -> None:
        """`user` needs the stream no more; the last one to leave takes the mirror down."""
        left = [
            kept.key
            for kept in self._store.all()
            if kept.name == name and user in self._users.get(kept.key, ())
        ]
        for key in left:
            users = self._users[key]
            users.discard(user)
            if not users:
                del self._users[key]
                await self._take_down(key)

    async def _take_down(self, key: str) -> None:
        run = self._running.pop(key)
        run.scope.cancel()
        await run.ended.wait()
        await run.mirror.take_leave()
        await self._store.drop(key)

    async def drop_unused(self) -> None:
        """Drop the mirrors of earlier runs that nobody follows any more."""
        for kept in self._store.all():
            if kept.role is Role.MIRROR and kept.key not in self._running:
                await self._store.drop(kept.key)


class _Run:
    """A mirror's task, and what ends it."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.scope = trio.CancelScope()
        self.ended = trio.Event()

    async def drive(self) -> None:
        try:
            with self.scope:
                await self.mirror.run()
        finally:
            self.ended.set()

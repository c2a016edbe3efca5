"""A local copy of a remote stream: what a task reads when the stream's home is elsewhere.

The copy is committed epoch by epoch, so after any failure it goes on from its own boundary: nothing
is lost, and what comes twice is dropped by the assembler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from random import SystemRandom  # noqa: TID251 - jitter in a driver
from typing import Final

import trio

from engine.definitions import StreamEntry
from engine.kept import KeptStream, Role
from engine.messages import Acknowledge, Subscribe, Tuples
from engine.mirror_sources import ForQueries, MirrorSource, short_digest
from engine.producers import Producers
from engine.schema import BEGINNING, END
from engine.stream_store import StreamStore
from engine.streams.feed import Assembler
from overlay.concurrency import until_one_ends
from overlay.errors import BrokenError, MedusaError, NotFoundError, NotRetainedError
from overlay.events import Events
from overlay.rpc import Duplex, EndOfCall

RETRY_S = (0.1, 5.0)
"""Shortest and longest wait before subscribing again, seconds; doubled in between, with jitter."""

LAST_WORD_S = 5.0
"""How long the end of a stream may take to be acknowledged, seconds: else a lease runs out."""


INPUT: Final = "in"
"""The variant of the mirrors that tasks read which this peer runs for others: one a stream and
owner, since an owner may give us the past of it. One that begins too late for a task leaves it a
mirror of its own."""


class Mirror:
    """Keeps one log going.

    Args:
        kept: the log that follows the stream.
        source: where the stream comes from.
        subscriber: this peer's name at the producer, whose retention waits for it.
        after: the boundary that a new log begins with.
        committed: told whenever the log's boundary has moved.
        due: returns once the stream may have that boundary; a sender that is ahead waits.
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
        due: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self._kept = kept
        self._source = source
        self._store = store
        self._subscriber = subscriber
        self._events = events
        self._after = after
        self._committed = committed
        self._due = due
        self._jitter = SystemRandom()
        self._elsewhere = trio.Event()

    async def run(self) -> None:
        """Follow the stream to its end; cancel to stop."""
        wait_s = RETRY_S[0]
        while self._kept.log.boundary < END:
            before = self._kept.log.boundary
            try:
                await self._follow()
            except MedusaError as error:
                self._note(error, wait_s)
            if self._kept.log.boundary > before:
                wait_s = RETRY_S[0]
            await trio.sleep(wait_s * self._jitter.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, RETRY_S[1])

    def subscribe_anew(self) -> None:
        """The stream is to be read from another place now."""
        self._elsewhere.set()
        self._elsewhere = trio.Event()

    @property
    def _request(self) -> Subscribe:
        return Subscribe(
            self._kept.name, max(self._kept.log.boundary, self._after), self._subscriber
        )

    async def _follow(self) -> None:
        request = self._request
        try:
            await self._take(self._source.subscribe(request))
        except (NotRetainedError, NotFoundError):
            # who produces the stream now may have begun later than we need: others have the rest
            await self._take(self._source.catch_up(request))

    async def _take(self, opening: AbstractAsyncContextManager[Duplex]) -> None:
        async with opening as duplex:
            try:
                await until_one_ends(partial(self._receive, duplex), self._elsewhere.wait)
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
        if log.boundary == BEGINNING < self._after:
            log.begin(self._after)  # what follows may be long in coming, where nothing is posted
        assembler = Assembler(log.schema, after=log.boundary)
        while log.boundary < END:
            message, body = await duplex.receive(Tuples)
            epoch = assembler.add(message, body)
            if epoch is None:
                continue
            await self._store.wait_for_room()
            if self._due is not None:
                await self._due(epoch.upto)
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


class Mirrors:
    """The mirrors of one peer: one a remote stream, however many queries read it, unless they need
    it from different boundaries on.

    Args:
        peer: this peer's id, hex.

    Attributes:
        reading: where our own queries read.
        left: told when none of them reads a stream any more, before its log is dropped.
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
        self.reading = ForQueries(producers)
        self.left: Callable[[KeptStream], None] = lambda _: None
        self._peer = peer
        self._events = events
        self._nursery = nursery
        self._users: dict[str, set[str]] = {}
        self._running: dict[str, _Run] = {}
        self._changing = trio.Lock()

    def followed(self) -> tuple[KeptStream, ...]:
        """The mirrors that our own queries read."""
        return tuple(
            kept
            for kept in self._store.all()
            if kept.role is Role.MIRROR and not kept.variant and kept.key in self._running
        )

    def read_anew(self, stream: str) -> None:
        """Ask again where our queries are to read that stream."""
        if stream in self._running:
            self._running[stream].mirror.subscribe_anew()

    async def follow(self, entry: StreamEntry, user: str) -> KeptStream:
        """The log of a stream, on behalf of a query: our own, or a mirror that is kept going."""
        async with self._changing:
            kept = self._store.get(entry.stream.name)
            if kept is None:
                kept = await self._store.keep(entry, Role.MIRROR)
            if kept.role is Role.MIRROR:
                self._use(kept, user, self.reading, BEGINNING)
            return kept

    async def follow_from(
        self, entry: StreamEntry, user: str, source: MirrorSource, after: int, owner: str
    ) -> KeptStream:
        """The log of a stream that has what follows the boundary `after`, on behalf of a task that
        we run for another peer, `owner` (hex): one that is here and reaches back so far, or a
        mirror of that owner's tasks."""
        own = self._store.get(entry.stream.name)
        if own is not None and own.role is not Role.MIRROR and own.log.start <= after:
            return own
        async with self._changing:
            variant = f"{INPUT}-{owner}"
            kept = await self._store.keep(entry, Role.MIRROR, variant)
            if self._start_of(kept, after) > after:
                kept = await self._store.keep(entry, Role.MIRROR, f"{variant}-{short_digest(user)}")
            self._use(kept, user, source, after)
            return kept

    def _start_of(self, kept: KeptStream, after: int) -> int:
        """Where a mirror begins; one that is new, at `after`."""
        if kept.log.boundary > BEGINNING:
            return kept.log.start
        run = self._running.get(kept.key)
        return after if run is None else run.after

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
            self._running[kept.key] = run = _Run(mirror, after)
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
        kept = self._store.get(key)
        if kept is not None and not kept.variant:
            self.left(kept)
        await run.mirror.take_leave()
        await self._drop(key)

    async def drop_unused(self) -> None:
        """Drop the mirrors of earlier runs that nobody follows any more."""
        for kept in self._store.all():
            if kept.role is Role.MIRROR:
                await self._drop(kept.key)

    async def _drop(self, key: str) -> None:
        async with self._changing:
            if key not in self._running:  # nobody has begun to follow it again meanwhile
                await self._store.drop(key)


class _Run:
    """A mirror's task, and what ends it. after: where a new log begins."""

    def __init__(self, mirror: Mirror, after: int) -> None:
        self.mirror = mirror
        self.after = after
        self.scope = trio.CancelScope()
        self.ended = trio.Event()

    async def drive(self) -> None:
        try:
            with self.scope:
                await self.mirror.run()
        finally:
            self.ended.set()

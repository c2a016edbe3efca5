"""A local copy of a remote stream: what a task reads when the stream's home is elsewhere.

The copy is committed epoch by epoch, so after any failure it goes on from its own boundary: nothing
is lost, and what comes twice is dropped by the assembler.
"""

from __future__ import annotations

from contextlib import suppress
from random import SystemRandom  # noqa: TID251 - jitter in a driver

import trio

from engine.definitions import StreamEntry
from engine.kept import KeptStream, Role
from engine.messages import Acknowledge, Subscribe, Tuples
from engine.producers import Producers
from engine.schema import BEGINNING, END
from engine.stream_store import StreamStore
from engine.streams.feed import Assembler
from overlay.errors import BrokenError, MedusaError
from overlay.events import Events
from overlay.rpc import Duplex, EndOfCall

RETRY_S = (0.1, 5.0)
"""Shortest and longest wait before subscribing again, seconds; doubled in between, with jitter."""

LAST_WORD_S = 5.0
"""How long the end of a stream may take to be acknowledged, seconds: else a lease runs out."""


class Mirror:
    """Keeps one mirror log going.

    Args:
        kept: the mirror's log.
        subscriber: this peer's name at the producer, whose retention waits for it.
    """

    def __init__(
        self,
        kept: KeptStream,
        store: StreamStore,
        producers: Producers,
        subscriber: str,
        events: Events,
    ) -> None:
        self._kept = kept
        self._store = store
        self._producers = producers
        self._subscriber = subscriber
        self._events = events
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

    async def _follow(self) -> None:
        name = self._kept.name
        connection = await self._producers.connect(name)
        request = Subscribe(name, self._kept.log.boundary, self._subscriber)
        async with connection.open("subscribe", request) as duplex:
            try:
                await self._receive(duplex)
            except EndOfCall:
                raise BrokenError(f"the producer of {name} ended the call") from None

    async def take_leave(self) -> None:
        """Tell the producer that it need not keep anything for us; if that fails, a lease ends."""
        name = self._kept.name
        with suppress(MedusaError, EndOfCall), trio.move_on_after(LAST_WORD_S):
            connection = await self._producers.connect(name)
            async with connection.open("subscribe", Subscribe(name, END, self._subscriber)) as call:
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
            await duplex.send(Acknowledge(log.boundary))
        with suppress(EndOfCall), trio.move_on_after(LAST_WORD_S):
            await duplex.receive(Tuples)  # the producer ends the call once it has the last of them

    def _note(self, error: MedusaError, wait_s: float) -> None:
        if wait_s >= RETRY_S[1]:  # a short absence is nobody's news
            self._events.note("warning", f"{self._kept.name} does not come: {error}")


class Mirrors:
    """The mirrors of one peer: one a remote stream, however many queries read it.

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
        self._producers = producers
        self._peer = peer
        self._events = events
        self._nursery = nursery
        self._users: dict[str, set[str]] = {}
        self._running: dict[str, _Run] = {}

    async def follow(self, entry: StreamEntry, user: str) -> KeptStream:
        """The log of a stream, on behalf of `user`: our own, or a mirror that is kept going."""
        name = entry.stream.name
        kept = self._store.get(name)
        if kept is None:
            kept = await self._store.keep(entry, Role.MIRROR)
        if kept.role is Role.MIRROR:
            self._users.setdefault(name, set()).add(user)
            if name not in self._running:
                mirror = Mirror(kept, self._store, self._producers, self._peer, self._events)
                self._running[name] = run = _Run(mirror)
                self._nursery.start_soon(run.drive)
        return kept

    async def leave(self, name: str, user: str) -> None:
        """`user` needs the stream no more; the last one to leave takes the mirror down."""
        users = self._users.get(name, set())
        users.discard(user)
        if not users and name in self._running:
            self._users.pop(name, None)
            run = self._running.pop(name)
            run.scope.cancel()
            await run.ended.wait()
            await run.mirror.take_leave()
            await self._store.drop(name)

    async def drop_unused(self) -> None:
        """Drop the mirrors of earlier runs that nobody follows any more."""
        for kept in self._store.all():
            if kept.role is Role.MIRROR and kept.name not in self._running:
                await self._store.drop(kept.name)


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

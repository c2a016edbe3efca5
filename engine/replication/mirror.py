"""A local copy of a remote stream: what a task reads when the stream's home is elsewhere.

The copy is committed epoch by epoch, so after any failure it goes on from its own boundary: nothing
is lost, and what comes twice is dropped by the assembler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from random import SystemRandom  # noqa: TID251 - jitter in a driver

import trio

from engine.objects.definitions import StreamEntry
from engine.objects.schema import BEGINNING, END
from engine.replication.mirror_sources import Feed, MirrorSource
from engine.streams.kept import KeptStream
from engine.streams.messages import Acknowledge, Subscribe, Tuples
from engine.streams.store import StreamStore
from engine.tasks.tentative.serving import Incoming
from overlay.concurrency import until_one_ends
from overlay.errors import (
    BrokenError,
    BusyError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    NotRetainedError,
    UntrustedError,
)
from overlay.events import Events
from overlay.log import bound
from overlay.rpc import EndOfCall

RETRY_S = (0.1, 5.0)
"""Shortest and longest wait before subscribing again, seconds; doubled in between, with jitter."""

LOOK_AGAIN_S = 15.0
"""Between two looks into the catalog for what a stream is that is read, seconds."""

LAST_WORD_S = 5.0
"""How long the end of a stream may take to be acknowledged, seconds: else a lease runs out."""


async def _not_known(_: str) -> StreamEntry | None:
    return None


class Mirror:
    """Keeps one log going.

    Args:
        kept: the log that follows the stream.
        source: where the stream comes from.
        subscriber: this peer's name at the producer, whose retention waits for it.
        after: the boundary that a new log begins with.
        committed: told whenever the log's boundary has moved.
        due: returns once the stream may have that boundary; a sender that is ahead waits.
        fence: the highest under which the stream is known to be produced.
        tentative: follow its tentative suffix as well.
        published: what the catalog says of a stream, if it says anything.
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
        fence: Callable[[], int] = lambda: 0,
        tentative: bool = False,
        published: Callable[[str], Awaitable[StreamEntry | None]] = _not_known,
    ) -> None:
        self._kept = kept
        self._source = source
        self._store = store
        self._subscriber = subscriber
        self._events = events
        self._after = after
        self._committed = committed
        self._due = due
        self._fence = fence
        self._tentative = tentative
        self._published = published
        self._safe = END
        self._safer = trio.Event()
        self._jitter = SystemRandom()
        self._elsewhere = trio.Event()

    async def run(self) -> None:
        """Follow the stream to its end; cancel to stop."""
        with bound(stream=self._kept.name):
            await self._run()

    async def _run(self) -> None:
        wait_s = RETRY_S[0]
        while self._kept.log.boundary < END or self._safe < END:
            before = self._kept.log.boundary
            self._elsewhere = elsewhere = trio.Event()
            try:
                await until_one_ends(self._follow, elsewhere.wait, self._look_up)
            except MedusaError as error:
                self._note(error, wait_s)
                self._take_refusal(error)
            if self._kept.log.boundary > before:
                wait_s = RETRY_S[0]
            with trio.move_on_after(wait_s * self._jitter.uniform(0.5, 1.0)):
                await elsewhere.wait()
            wait_s = RETRY_S[0] if elsewhere.is_set() else min(2 * wait_s, RETRY_S[1])

    def read_from(self, source: MirrorSource) -> None:
        """Take it from there from now on."""
        self._source = source
        self.subscribe_anew()

    def subscribe_anew(self) -> None:
        """The stream is to be read from another place now."""
        self._elsewhere.set()

    def need(self, boundary: int) -> None:
        """Let the producer keep what follows that boundary, whatever is here already; END: it need
        keep nothing that is here."""
        if boundary != self._safe:
            self._safe = boundary
            self._safer.set()
            self._safer = trio.Event()

    @property
    def _request(self) -> Subscribe:
        boundary = self._kept.log.boundary  # a log that has begun goes on from where it is
        after = boundary if boundary > BEGINNING else self._after
        keep = min(after, self._safe)
        seen = max(after, self._kept.suffix.boundary) if self._tentative else None
        return Subscribe(self._kept.name, after, self._subscriber, self._fence(), keep, seen)

    async def _follow(self) -> None:
        request = self._request
        try:
            await self._take(self._source.subscribe(request))
        except (NotRetainedError, NotFoundError):
            # who produces the stream now may have begun later than we need: others have the rest
            await self._take(self._source.catch_up(request))

    async def _look_up(self) -> None:
        """Find out what the stream is now, while it is read: it may have been altered. Who gives it
        to us ends the call then; but another peer may be the one that tells the catalog."""
        while True:
            entry, known = await self._published(self._kept.name), self._kept.entry
            newer = entry is not None and entry.stream.edition >= known.stream.edition
            if entry is not None and newer and entry != known:
                await self._store.define(self._kept, entry)
            await trio.sleep(LOOK_AGAIN_S)

    async def _take(self, opening: AbstractAsyncContextManager[Feed]) -> None:
        async with opening as feed:
            try:
                await until_one_ends(partial(self._receive, feed), partial(self._acknowledge, feed))
            except EndOfCall:
                raise BrokenError(f"the call that brought {self._kept.name} was ended") from None

    async def take_leave(self) -> None:
        """Tell the producer that it need not keep anything for us; if that fails, a lease ends."""
        request = Subscribe(self._kept.name, END, self._subscriber)
        with suppress(MedusaError, EndOfCall), trio.move_on_after(LAST_WORD_S):
            async with self._source.subscribe(request) as feed:
                await feed.receive(Tuples)

    async def _receive(self, feed: Feed) -> None:
        log = self._kept.log
        if log.boundary == BEGINNING < self._after:
            log.begin(self._after)  # what follows may be long in coming, where nothing is posted
        suffix = self._kept.suffix
        incoming = Incoming(log.schema, log.boundary, suffix.boundary)
        try:
            while log.boundary < END:
                await self._take_part(feed, incoming)
        finally:
            incoming.reconnected()  # an error's traceback would keep what it holds
            self._kept.memory.set(0)
        while self._safe < END:
            await self._safer.wait()
        with suppress(EndOfCall), trio.move_on_after(LAST_WORD_S):
            await feed.receive(Tuples)  # the producer ends the call once it has the last of them

    async def _take_part(self, feed: Feed, incoming: Incoming) -> None:
        log, suffix = self._kept.log, self._kept.suffix
        message, body = await feed.receive(Tuples)
        self._kept.refusal = ""
        epoch = incoming.add(message, body)
        self._kept.memory.set(incoming.held)
        if epoch is None:
            self._check_memory()
            return
        if message.tentative:
            await suffix.add(epoch.after, epoch.upto, epoch.table, failing=False)
            return
        await self._store.room.wait()
        if self._due is not None:
            await self._due(epoch.upto)
        if log.boundary == BEGINNING and epoch.after > BEGINNING:
            log.begin(epoch.after)  # the stream is no longer kept from its beginning
        await log.commit(epoch.upto, epoch.table)
        self._committed()

    def _check_memory(self) -> None:
        """
        Raises:
            BusyError: the tuples of one stime are more than this peer may hold.
        """
        if self._kept.memory.full:
            raise BusyError(
                f"{self._kept.memory.held} bytes of tuples of one stime, and more to come: "
                "allow more (overlay.memory_bytes), or let the stream have finer times"
            )

    async def _acknowledge(self, feed: Feed) -> None:
        """Tell the producer what it need not keep for us, whenever that is more."""
        log = self._kept.log
        told = min(log.boundary, self._safe)
        while told < END:
            safe = min(log.boundary, self._safe)
            if safe > told:
                await feed.send(Acknowledge(safe))
                told = safe
            elif log.boundary <= told:
                await log.wait_beyond(told)
            else:
                await self._safer.wait()
        await trio.sleep_forever()

    def _take_refusal(self, error: MedusaError) -> None:
        if not isinstance(error, NotAuthorisedError) or isinstance(error, UntrustedError):
            return
        if not self._kept.refusal:
            self._events.note("warning", f"cannot read {self._kept.name}: {error}")
        self._kept.refusal = str(error)

    def _note(self, error: MedusaError, wait_s: float) -> None:
        if wait_s >= RETRY_S[1]:  # a short absence is nobody's news
            self._events.note("warning", f"waits for {self._kept.name}: {error}")

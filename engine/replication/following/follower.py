"""A follower: a local copy of a log, for tasks that read a stream which is made elsewhere.

The copy is committed epoch by epoch, so after any failure it continues from its own boundary: no
tuple is lost, and the assembler drops repeated ones.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from functools import partial
from random import SystemRandom  # noqa: TID251 - jitter in a driver

import pyarrow as pa
import trio

from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.replication.following.origin import Origin, Place, Reach, Reading
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Acknowledge, Subscribe, Tuples
from medusa.engine.streams.ordering import between
from medusa.engine.streams.reading.assembling import Assembler
from medusa.engine.streams.reading.subscriber import Subscriber
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.backoff import Backoff
from medusa.overlay.concurrency import Bell, Watched, until_one_ends
from medusa.overlay.errors import (
    BrokenError,
    BusyError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    NotRetainedError,
    StorageError,
    UntrustedError,
)
from medusa.overlay.log import bound
from medusa.overlay.names import PeerId
from medusa.overlay.rpc import EndOfCall

NO_ROWS = END - 1
"""The boundary after which a dormant follower subscribes: no row has a later stime."""

LOOK_AGAIN_S = 15.0
"""Between two looks into the catalog for the definition of a followed stream, seconds."""


async def _at_once(_: int) -> None: ...


@dataclass(frozen=True)
class Course:
    """How a follower extends its copy.

    Attributes:
        after: the boundary that a new log begins with, microseconds.
        until: the boundary at which the copy ends; END: it ends with its stream. due: returns once
            the copy may have that boundary; it makes a sender that is ahead wait.
        committed: called whenever the copy's boundary has moved.
        tentative: whether to follow the stream's tentative suffix, too. listed: whether to take the
            stream's definition, and the term of its producer, from the catalog.
    """

    after: int = BEGINNING
    until: int = END
    due: Callable[[int], Awaitable[None]] = _at_once
    committed: Callable[[], None] = lambda: None
    tentative: bool = False
    listed: bool = False


class Follower:
    """Keeps one log going.

    Args:
        state: the log that follows the stream.
        origin: where the stream comes from.
        subscriber: this peer's name at the producer, whose retention waits for it.

    Attributes:
        gone: the last place of its origin, if even this place has dropped the next tuples. held:
            the boundary after which the peer of `keep_at` keeps all tuples for us; END: it has not
            confirmed this yet.
    """

    def __init__(
        self, state: StreamState, origin: Origin, reach: Reach, subscriber: str, course: Course
    ) -> None:
        self._state = state
        self._origin = origin
        self._reach = reach
        self._subscriber = subscriber
        self._course = course
        self._after = course.after
        self._timing = reach.store.timing
        self.gone: Place | None = None
        self._safe = Watched(END)
        self._dormant: Watched[int | None] = Watched(None)
        self._keeps = False
        self.held = END
        self._jitter = SystemRandom()
        self._elsewhere = Bell()

    async def run(self) -> None:
        """Follow the stream to its end; cancel to stop."""
        with bound(stream=self._state.name):
            await self._run()

    async def _run(self) -> None:
        again = Backoff(*self._timing.follow_again_s)
        listed = (self._look_up,) if self._course.listed else ()
        while self._state.log.boundary < END or self._safe.value < END:
            before = self._state.log.boundary
            self._elsewhere.clear()
            try:
                await until_one_ends(self.follow, self._elsewhere.wait, *listed)
            except MedusaError as error:
                self._note(error, again)
                self._take_refusal(error)
            if self._state.log.boundary > before:
                again.succeeded()
            with trio.move_on_after(again.failed(self._jitter)):
                await self._elsewhere.wait()
            if self._elsewhere.is_rung:
                again.succeeded()

    def read_from(self, origin: Origin) -> None:
        """Read from another origin from now on."""
        self._origin = origin
        self.subscribe_anew()

    def subscribe_anew(self) -> None:
        """Subscribe again: the stream may have another producer."""
        self._elsewhere.ring()

    def need(self, boundary: int) -> None:
        """Have the producer keep the tuples after that boundary, although they are here; END: it
        need keep none that are here."""
        if boundary != self._safe.value:
            self._safe.set(boundary)

    def keep_at(self, source: PeerId) -> None:
        """Read from that peer, and have it keep all rows from now on; see `held`."""
        self._keeps, self.held = True, END
        self.read_from((Place(source),))

    def sleep(self, needed: int) -> None:
        """Drop the copy, read nothing, and have that peer keep the rows after `needed`, until
        `wake`. `needed` grows with each call."""
        was_awake = self._dormant.value is None
        self._dormant.set(needed)
        if was_awake:
            self.subscribe_anew()

    def wake(self, after: int, origin: Origin) -> None:
        """Continue to read, from these places; the source need not keep rows that are here. A copy
        that was dropped begins again at `after`."""
        self._keeps, self.held = False, END
        if self._dormant.value is not None:
            self._dormant.set(None)
            self._after = after
            with suppress(StorageError):  # otherwise it begins with the first rows
                self._begin()
        self.need(END)
        self.read_from(origin)

    @property
    def _position(self) -> int:
        """The boundary to read from: that of the copy, if it has begun."""
        boundary = self._state.log.boundary
        return boundary if boundary > BEGINNING else self._after

    def _reader(self) -> Subscriber:
        after = self._position
        seen = max(after, self._state.suffix.boundary) if self._course.tentative else None
        return Subscriber(
            self._state.name,
            self._state.log.schema,
            after,
            seen=seen,
            acknowledged=min(after, self._safe.value),
            name=self._subscriber,
        )

    async def follow(self) -> None:
        """Follow the stream until the call ends.

        Raises:
            MedusaError: the subscription has failed; `run` tries again.
        """
        if self._dormant.value is not None:
            await self._hold(self._dormant.value)
            return
        if self._keeps:
            self.held = END
            self.need(self._position)
        reader = self._reader()
        *others, last = self._origin
        for place in others:
            with suppress(NotRetainedError, NotFoundError):
                # the present producer may have begun later than we need
                await self._take(place, reader)
                return
        try:
            await self._take(last, reader)
        except NotRetainedError:
            self.gone = last
            raise

    async def _hold(self, needed: int) -> None:
        """Hold the stream at its source, without reading any of it."""
        self._state.log.forget(needed)
        request = Subscribe(self._state.name, NO_ROWS, self._subscriber, keep=needed)

        async def listen(feed: Reading) -> None:
            while True:  # at most the end of the stream arrives
                await feed.receive(Tuples)

        async def acknowledge(feed: Reading) -> None:
            told = needed
            while True:
                if (known := self._dormant.value) is not None and known > told:
                    await feed.send(Acknowledge(known))
                    told = known
                else:
                    await self._dormant.changed()

        await self._converse(self._reach.open(self._origin[0], request), listen, acknowledge)

    async def _look_up(self) -> None:
        """Look up the stream's definition again and again: it may have been altered. Its producer
        ends the call then, but another peer may be the one that updates the catalog."""
        while True:
            entry = await self._reach.directory.published(self._state.name)
            known = self._state.entry
            newer = entry is not None and entry.stream.edition >= known.stream.edition
            if entry is not None and newer and entry != known:
                await self._reach.store.define(self._state, entry)
            await trio.sleep(LOOK_AGAIN_S)

    async def _take(self, place: Place, reader: Subscriber) -> None:
        listed = self._course.listed
        request = reader.ask(self._reach.directory.number(self._state.name) if listed else 0)
        sides = partial(self._receive, reader), partial(self._acknowledge, reader)
        await self._converse(self._reach.open(place, request), *sides)

    async def _converse(
        self,
        opening: AbstractAsyncContextManager[Reading],
        *sides: Callable[[Reading], Awaitable[None]],
    ) -> None:
        async with opening as feed:
            try:
                await until_one_ends(*(partial(side, feed) for side in sides))
            except EndOfCall:
                raise BrokenError(f"the call that brought {self._state.name} was ended") from None

    async def take_leave(self) -> None:
        """Tell the producer to keep nothing for us any more; if the call fails, the lease
        expires."""
        request = Subscribe(self._state.name, END, self._subscriber)
        with suppress(MedusaError, EndOfCall), trio.move_on_after(self._timing.last_word_s):
            async with self._reach.open(self._origin[0], request) as feed:
                await feed.receive(Tuples)

    async def _receive(self, reader: Subscriber, feed: Reading) -> None:
        self._begin()  # the next tuples may come late
        log = self._state.log
        try:
            while log.boundary < END:
                await self._take_part(feed, reader)
        finally:
            reader.drop()  # an error's traceback would keep its parts
            self._state.memory.set(0)
        await self._safe.until(lambda boundary: boundary == END)
        if self._course.until < END:
            return  # the producer does not wait for the end of a part
        with suppress(EndOfCall), trio.move_on_after(self._timing.last_word_s):
            await feed.receive(Tuples)  # the producer ends the call after the last acknowledgement

    def _begin(self) -> None:
        """Begin a new log. Raises: StorageError: the disk does not take it."""
        if self._state.log.boundary == BEGINNING < self._after:
            self._state.log.begin(self._after)

    async def _take_part(self, feed: Reading, reader: Subscriber) -> None:
        log, suffix = self._state.log, self._state.suffix
        message, body = await feed.receive(Tuples)
        self._state.refusal = ""
        if self._keeps:  # a source that lacks older tuples would have refused the call
            self.held = self._safe.value
        epoch = reader.take(message, body)
        self._state.memory.set(reader.held)
        if epoch is None:
            self._check_memory()
            return
        if message.tentative:
            await suffix.add(epoch.after, epoch.upto, epoch.table, failing=False)
            return
        await self._reach.store.quota.wait()
        await self._course.due(epoch.upto)
        await take(log, epoch, self._course.until)
        self._course.committed()

    def _check_memory(self) -> None:
        """Refuse more tuples of one stime than this peer may hold. Raises: BusyError."""
        if self._state.memory.full:
            raise BusyError(
                f"{self._state.memory.held} bytes of tuples of one stime, and more to come: "
                "allow more (overlay.memory_bytes), or let the stream have finer times"
            )

    async def _acknowledge(self, reader: Subscriber, feed: Reading) -> None:
        """Acknowledge tuples that the producer need not keep for us, whenever there are more of
        them."""
        log = self._state.log
        while reader.acknowledged < END:
            said = reader.acknowledge(min(log.boundary, self._safe.value))
            if said is not None:
                await feed.send(said)
            elif log.boundary <= reader.acknowledged:
                await log.wait_beyond(reader.acknowledged)
            else:
                await self._safe.changed()
        await trio.sleep_forever()

    def _take_refusal(self, error: MedusaError) -> None:
        if not isinstance(error, NotAuthorisedError) or isinstance(error, UntrustedError):
            return
        if not self._state.refusal:
            self._reach.events.note("warning", f"cannot read {self._state.name}: {error}")
        self._state.refusal = str(error)

    def _note(self, error: MedusaError, again: Backoff) -> None:
        if again.is_longest:  # a short absence is not reported
            self._reach.events.note("warning", f"waits for {self._state.name}: {error}")


async def take(log: StreamLog, epoch: Epoch, until: int = END) -> None:
    """Commit an epoch of a stream to a copy that ends at `until`.

    Raises:
        StorageError: the disk does not take it; nothing has changed.
    """
    if log.boundary == BEGINNING < epoch.after:
        log.begin(epoch.after)  # the stream is no longer kept from its beginning
    if epoch.upto < until:
        await log.commit(epoch.upto, epoch.table)
    else:
        await log.commit(END, between(epoch.table, log.boundary, until))


async def epochs(
    feed: Reading,
    schema: pa.Schema,
    after: int,
    upto: int,
    *,
    silence_s: float = math.inf,
    heard: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Epoch, None]:
    """The epochs of an open feed, from one boundary up to another; closed by the caller.

    Args:
        silence_s: how long the next message may take.
        heard: called for every received message.

    Raises:
        DecodeError: the message does not fit the stream. MedusaError: the call failed.
        trio.TooSlowError: no message came in time.
    """
    assembler = Assembler(schema, after)
    while assembler.boundary < upto:
        with trio.fail_after(silence_s):
            message, body = await feed.receive(Tuples)
        heard()
        if (epoch := assembler.add(message, body)) is not None:
            yield epoch

"""The origin of a log: places in order, and the function that opens one of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
import pyarrow as pa
import trio
from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.directory.directory import Directory
from medusa.engine.replication.following.messages import ReadInput, ReadReplica
from medusa.engine.streams.log.parts import Part
from medusa.engine.streams.log.retention import Hold, too_old
from medusa.engine.streams.messages import Acknowledge, Subscribe, Tuples
from medusa.engine.streams.reading.feed import cursor_for, parts_of
from medusa.engine.streams.store.store import StreamStore
from medusa.engine.streams.store.stream_state import LogKey, Role, StreamState
from medusa.overlay.concurrency import until_one_ends
from medusa.overlay.errors import BrokenError, MedusaError, NotFoundError
from medusa.overlay.events import Events
from medusa.overlay.listeners import Decision, Listeners
from medusa.overlay.names import PeerId
from medusa.overlay.rpc import EndOfCall
from medusa.overlay.streams import Buffer

T = TypeVar("T", bound=Struct)

LEASE_S: Final = 60.0
"""How long tuples stay for a local reader that does not read, seconds."""

SUBSCRIBE: Final = "subscribe"
READ_REPLICA: Final = "replica.read"
READ_INPUT: Final = "task.input"


class Right(NamedTuple):
    """The right to read a stream that is not open to all readers: as the secondary of a query, or
    as the worker of a task (`subject`), under that term."""

    subject: str
    term_number: int


class Local(NamedTuple):
    """A log of this peer. Its follower holds it as `hold`, even while it does not read, and reads
    no further than the log's gate."""

    key: LogKey
    hold: Hold


class Place(NamedTuple):
    """One place where a stream can be read.

    Attributes:
        local: the place is a log of this peer; then no other attribute is set.
        peer: the id of the peer; empty: the stream's producer, this peer included.
        stream: the stream's name at that peer; empty: the same as here.
        method: the method to call. right: the right that the call shows. oldest: whether to prefer
            the
            producer with most of the history. guided: whether the reader is one of our queries: see
            `Reach.choose`.
    """

    peer: PeerId = PeerId(b"")
    stream: str = ""
    method: str = SUBSCRIBE
    right: Right | None = None
    oldest: bool = False
    guided: bool = False
    local: Local | None = None


Origin = tuple[Place, ...]
"""Places in the order in which they are asked. If one has dropped the wanted tuples, or never had
them, the next one is asked."""

PRODUCER: Final = Place()
KEEPER: Final = Place(oldest=True)

FROM_PRODUCERS: Final[Origin] = (PRODUCER, KEEPER)
"""The origin of a stream: the producers that the catalog names."""

FOR_QUERIES: Final[Origin] = (PRODUCER._replace(guided=True), KEEPER._replace(guided=True))
"""The same origin, for our own queries and views."""


class Reading(Protocol):
    """An open place, as a follower uses it: a call's `Duplex`, or one within this peer."""

    async def receive(self, kind: type[T]) -> tuple[T, bytes | pa.Table]: ...

    async def send(self, message: Struct, body: Buffer = b"") -> None: ...


class Reach:
    """Opens places.

    Attributes:
        directory, store, events: the parts of this peer.
        choose: the place where our own queries are to read a stream; None: from its producer.
            opening: returns once they may read a stream anew; it takes the stream's name, the name
            under which it is read, and the boundary. failed: called when reading a stream from a
            chosen place has failed.
    """

    def __init__(self, directory: Directory, store: StreamStore, events: Events) -> None:
        self.directory = directory
        self.store = store
        self.events = events
        self.choose: Decision[[str], Awaitable[Place | None]] = Decision(_nowhere_else)
        self.opening: Decision[[str, str, int], Awaitable[None]] = Decision(_unheard)
        self.failed: Listeners[[str, Place, MedusaError]] = Listeners()
        self._elsewhere: Counter[str] = Counter()

    def is_elsewhere(self, stream: str) -> bool:
        """Whether a stream is read from a chosen place now, whichever of its producers is best."""
        return self._elsewhere[stream] > 0

    def open(self, place: Place, request: Subscribe) -> AbstractAsyncContextManager[Reading]:
        """Open a subscription to a stream after a boundary.

        Raises:
            NotRetainedError: the tuples after the boundary are gone there.
            NotFoundError: the stream is not there. MedusaError: it cannot be opened.
        """
        return self._open_guided(place, request) if place.guided else self._open(place, request)

    @asynccontextmanager
    async def _open_guided(self, place: Place, request: Subscribe) -> AsyncIterator[Reading]:
        stream, after = request.stream, request.after
        chosen = None if place.oldest else await self.choose(stream)
        if chosen is None:
            await self.opening(stream, stream, after)
            async with self._open(place._replace(guided=False), request) as reading:
                yield reading
            return
        await self.opening(stream, chosen.stream, after)
        self._elsewhere[stream] += 1
        try:
            async with self._open(chosen, request) as reading:
                yield reading
        except MedusaError as error:
            self.failed.notify(stream, chosen, error)
            raise
        finally:
            self._elsewhere[stream] -= 1

    @asynccontextmanager
    async def _open(self, place: Place, request: Subscribe) -> AsyncIterator[Reading]:
        if place.local is not None:
            if (state := self.store.get(*place.local.key)) is None:
                raise NotFoundError(f"{place.local.key} is not kept here any more")
            async with aclosing(_Here(state, request, place.local.hold)) as here:
                yield here
            return
        request = _renamed(place, request)
        oldest = place.oldest or (place == PRODUCER and request.after == BEGINNING)
        if place == PRODUCER and (state := self._here(request)) is not None:
            async with aclosing(_Here(state, request)) as here:
                yield here
            return
        connection = await self.directory.connect(request.stream, oldest=oldest, at=place.peer)
        async with connection.open(place.method, _asked(place, request)) as duplex:
            if not place.peer:
                self.directory.reads_from(request.stream, connection.remote.peer_id)
            yield duplex

    def _here(self, request: Subscribe) -> StreamState | None:
        """The stream, if this peer produces it and has the requested tuples.

        Raises:
            NotRetainedError: this peer is the stream's leader and has no such old tuples, so no
                other producer has them.
        """
        state = self.store.serving(request.stream)
        if state is None or state.log.start <= request.after:
            return state
        if state.is_at_leader and request.after > BEGINNING:
            raise too_old(state.name, state.log.start, request.after)
        begins = request.after == BEGINNING and state.role is not Role.ASSIGNED
        return state if begins else None


def _renamed(place: Place, request: Subscribe) -> Subscribe:
    """The request with the stream's name at the place; the name of the subscriber differs, too."""
    if place.stream in {"", request.stream}:
        return request
    label = f"{request.subscriber} {short_digest(request.stream)}"
    return msgspec.structs.replace(request, stream=place.stream, subscriber=label)


def _asked(place: Place, request: Subscribe) -> Struct:
    """The message that opens the call."""
    if place.right is None:
        return request
    kind = {READ_REPLICA: ReadReplica, READ_INPUT: ReadInput}[place.method]
    return kind(place.right.subject, place.right.term_number, request.stream, request.after)


class _Here:
    """A log of this peer, as a place for one of its own followers: this peer produces the stream
    itself by now, or the follower holds the log (`hold`)."""

    def __init__(self, state: StreamState, request: Subscribe, hold: Hold | None = None) -> None:
        # `medusa.engine.api.flow` serves it so, too: the beginning is the oldest tuple that is kept
        after = state.log.oldest if request.after == BEGINNING else request.after
        self._state = state
        self._moved_away = state.moved_away.value
        self._local = hold is not None
        self._consumer = hold or Hold("here", request.subscriber)
        self._parts = parts_of(cursor_for(state, after, request.tentative, encoded=False))
        self._held = after if request.keep is None else min(after, request.keep)
        self._hold(None)

    async def receive(self, kind: type[T]) -> tuple[T, pa.Table]:
        found: list[tuple[Tuples, Part]] = []

        async def read() -> None:
            with suppress(StopAsyncIteration):
                found.append(await anext(self._parts))

        if self._local:
            await read()
        else:
            moved = partial(self._state.moved_away.changed_from, self._moved_away)
            await until_one_ends(read, moved)
        if not found:
            if self._state.moved_away.value != self._moved_away and not self._local:
                raise BrokenError(f"{self._state.name} is produced by another peer from now on")
            raise EndOfCall
        message, part = found[0]
        if self._local and message.upto is not None:
            await self._state.released(message.upto)
        assert isinstance(message, kind)
        return message, part.table

    async def send(self, message: Struct, body: Buffer = b"") -> None:
        await trio.lowlevel.checkpoint()
        if isinstance(message, Acknowledge):
            self._held = message.upto
            self._hold(None)

    def _hold(self, expires: float | None) -> None:
        self._state.log.retention.hold(
            self._consumer, max(self._held, self._state.log.start), expires
        )

    async def aclose(self) -> None:
        """Keep unacknowledged tuples for a while: the follower may come back."""
        if not self._local:
            self._hold(trio.current_time() + LEASE_S)
        await self._parts.aclose()


async def _nowhere_else(_: str) -> Place | None:
    return None


async def _unheard(*_: object) -> None:
    return None


def short_digest(text: str) -> str:
    """A short text that stands for a name that would be too long."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]

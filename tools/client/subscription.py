"""A client's subscription: epochs in order, once each, over any number of connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

import pyarrow as pa
import trio

from engine.objects.definitions import StreamEntry
from engine.objects.schema import BEGINNING, END
from engine.streams.assembling import Incoming
from engine.streams.messages import Acknowledge, Subscribe, Tuples
from engine.streams.recent import Epoch
from overlay.connection import BULK_WEIGHT
from overlay.errors import BrokenError, ClosedError, DecodeError, MedusaError
from overlay.rpc import Duplex, EndOfCall
from tools.client.link import Link, Patience
from tools.client.portal import Portal, in_trio

__all__ = ["Epoch", "Following", "Source", "Subscription"]

Item = TypeVar("Item")

LEAVE_S: Final = 2.0
"""Wait so long for the peer to take the last acknowledgement; without it the stream waits for us as
for any subscriber that went away, so nothing is lost."""

STOOD_S: Final = 5.0
"""A subscription that stood for so long was served, seconds, though nothing may have come: what
breaks it is a first failure, not one more in a row."""


@dataclass(frozen=True)
class Source:
    """Where a client subscribes: its connection, and what it asks about streams.

    Attributes:
        link: the connection to its peer.
        schema_of: the Arrow schema of a stream's tables. entry_of: the stream as published.
        patience_s: how long failures in a row are borne.
        portal: to trio's event loop, where the program has another one.
    """

    link: Link
    schema_of: Callable[[str], Awaitable[pa.Schema]]
    entry_of: Callable[[str], Awaitable[StreamEntry]]
    patience_s: float
    portal: Portal[Any] | None = None


class Following(ABC, Generic[Item]):
    """An asynchronous iterator of what comes of a stream; one task takes from it.

    What was given out is acknowledged when the next item is asked for: what was in hand when a
    named subscriber crashed comes again. After what ends the stream the iteration stops.

    Attributes:
        stream: its name.
        boundary: everything up to it was given out for good, microseconds.
    """

    tentative = False

    def __init__(
        self, source: Source, stream: str, *, after: int = BEGINNING, subscriber: str = ""
    ) -> None:
        self.stream = stream
        self.boundary = after
        self.portal = source.portal
        self._source = source
        self._after = after
        self._subscriber = subscriber
        self._patience = Patience(source.patience_s)
        self._schema: pa.Schema | None = None
        self._begun = trio.Event()
        self._failure: MedusaError | None = None
        self._duplex: Duplex | None = None
        self._scope = trio.CancelScope()
        self._acknowledged_end = trio.Event()
        # No buffer: at most one epoch waits here, and credit holds the sender back.
        self._give, self._take = trio.open_memory_channel[tuple[Item, int]](0)
        self._acknowledged = after
        self._fetching = trio.Lock()
        self._fetched: tuple[Item, int] | None = None
        self._taken = 0

    @abstractmethod
    def _items(self, epoch: Epoch, *, tentative: bool) -> list[tuple[Item, int]]:
        """The items that an epoch gives out, each with the boundary that is then reached."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unsubscribe; closing twice does nothing."""
        if self._failure is None:
            self._failure = ClosedError(f"the subscription to {self.stream} was closed")
        if self.portal is None or self.portal.is_here:
            self._scope.cancel()
        else:
            with suppress(ClosedError):
                self.portal.soon(self._scope.cancel)

    @in_trio
    async def schema(self) -> pa.Schema:
        """The Arrow schema of the tables, once it has been looked up.

        Raises:
            NotFoundError: there is no such stream.
            MedusaError: the subscription has failed.
        """
        await self._begun.wait()
        if self._schema is None:
            assert self._failure is not None
            raise self._failure
        return self._schema

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        """
        Raises:
            MedusaError: the subscription has failed for good.
        """
        if not await self.fetch():
            raise StopAsyncIteration
        return self.take()

    @in_trio
    async def fetch(self) -> bool:
        """Wait until there is an item for `take`, or say that none follows. To cancel it, at any
        moment and from any loop, loses none.

        Raises:
            MedusaError: the subscription has failed for good.
        """
        async with self._fetching:
            if self._fetched is None:
                await self._acknowledge()
                try:
                    self._fetched = await self._take.receive()
                except trio.EndOfChannel:
                    if self._failure is not None and self.boundary < END:
                        raise self._failure from None
            return self._fetched is not None

    def take(self) -> Item:
        """The item that was fetched."""
        assert self._fetched is not None
        (item, self.boundary), self._fetched = self._fetched, None
        self._taken += 1
        return item

    async def run(self) -> None:
        """Subscribe, subscribe again; a failure is kept for whoever takes. Cancel to stop."""
        with self._scope, self._give:
            try:
                await self._follow()
            except MedusaError as error:
                self._failure = error
            finally:
                self._begun.set()

    async def run_on(self) -> None:
        """`run`, and wait to be cancelled: who takes sees how it ended."""
        await self.run()
        await trio.sleep_forever()

    async def _follow(self) -> None:
        self._schema = await self._source.schema_of(self.stream)
        self._begun.set()
        incoming = Incoming(self._schema, self._after, self._after)
        while incoming.boundary < END:
            try:
                await self._connect(incoming)
            except MedusaError as error:
                await self._patience.bear(error)

    async def _connect(self, incoming: Incoming) -> None:
        connection = await self._source.link.connection()
        incoming.reconnected()
        seen = incoming.seen if self.tentative else None
        request = Subscribe(self.stream, incoming.boundary, self._subscriber, tentative=seen)
        async with connection.open("subscribe", request, weight=BULK_WEIGHT) as duplex:
            self._duplex = duplex
            began = trio.current_time()
            try:
                await self._receive(duplex, incoming)
            except BrokenError:
                if trio.current_time() >= began + STOOD_S:
                    self._patience.progress()
                raise
            finally:
                self._duplex = None

    async def _receive(self, duplex: Duplex, incoming: Incoming) -> None:
        while incoming.boundary < END:
            try:
                message, body = await duplex.receive(Tuples)
            except EndOfCall:
                raise BrokenError(
                    f"the peer ended the subscription to {self.stream} before the stream's end"
                ) from None
            self._patience.progress()
            try:
                epoch = incoming.add(message, body)
            except DecodeError as error:
                raise DecodeError(
                    f"{self.stream} after boundary {incoming.boundary}: who produces it sends what "
                    f"makes no sense: {error}"
                ) from None
            if epoch is not None:
                await self._give_out(epoch, tentative=message.tentative)
        await self._acknowledged_end.wait()
        await _take_leave(duplex)

    async def _give_out(self, epoch: Epoch, *, tentative: bool) -> None:
        for item in self._items(epoch, tentative=tentative):
            await self._give.send(item)

    async def _acknowledge(self) -> None:
        """Tell the peer what was dealt with; if it cannot be told, the next connection says it."""
        if self._duplex is not None and self._acknowledged < self.boundary:
            try:
                await self._duplex.send(Acknowledge(self.boundary))
                self._acknowledged = self.boundary
            except (MedusaError, EndOfCall):
                self._duplex = None
        if self.boundary == END:
            self._acknowledged_end.set()


class Subscription(Following[Epoch]):
    """The stable epochs of a stream: an epoch is acknowledged when the next one is asked for."""

    _left: pa.Table | None = None

    def _items(self, epoch: Epoch, *, tentative: bool) -> list[tuple[Epoch, int]]:
        return [] if tentative else [(epoch, epoch.upto)]

    @property
    def ended(self) -> bool:
        """Whether every tuple there will ever be was given out."""
        return self.boundary == END and not self._left

    async def receive_events(self, rows: int, timeout_s: float) -> pa.Table:
        """The tuples that have arrived.

        Args:
            rows: how many at most.
            timeout_s: seconds to wait for the first of them; an empty table if none comes.

        Raises:
            MedusaError: the subscription has failed for good.
        """
        await self.arrive(timeout_s)
        left = self._left if self._left is not None else (await self.schema()).empty_table()
        self._left = left.slice(rows)
        return left.slice(0, rows)

    @in_trio
    async def arrive(self, timeout_s: float) -> None:
        """Wait until there are tuples for `receive_events`, for so many seconds at most."""
        with trio.move_on_after(timeout_s):
            while not self._left and self.boundary < END and await self.fetch():
                if not self._left:  # by a wait that was given up, meanwhile
                    self._left = self.take().table


async def _take_leave(duplex: Duplex) -> None:
    """Say that we say no more, and leave when the peer has heard it."""
    with trio.move_on_after(LEAVE_S):
        try:
            await duplex.finish()
            await duplex.receive(Tuples)
        except (EndOfCall, MedusaError):
            return

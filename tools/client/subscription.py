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

from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.messages import Tuples
from medusa.engine.streams.reading.subscriber import Subscriber
from medusa.overlay.connection import BULK_WEIGHT
from medusa.overlay.errors import BrokenError, ClosedError, DecodeError, MedusaError
from medusa.overlay.rpc import Duplex, EndOfCall
from medusa.tools.client.link import Link, Patience
from medusa.tools.client.portal import Portal, in_trio

__all__ = ["Epoch", "Following", "Source", "Subscription"]

Item = TypeVar("Item")

LEAVE_S: Final = 2.0
"""Seconds to wait until the peer has taken the last acknowledgement. Without it the stream waits
for us as for any subscriber that went away, so nothing is lost."""

STOOD_S: Final = 5.0
"""Seconds after which a subscription counts as served, even if nothing arrived: its next failure
counts as a first one."""


@dataclass(frozen=True)
class Source:
    """The client's side that a subscription needs: connection, schemas, patience.

    Attributes:
        link: the connection to its peer.
        schema_of: the Arrow schema of a stream's tables. entry_of: the stream as published.
        patience_s: how long failures in a row are tolerated.
        portal: leads to trio's event loop, if the program runs on another one.
    """

    link: Link
    schema_of: Callable[[str], Awaitable[pa.Schema]]
    entry_of: Callable[[str], Awaitable[StreamEntry]]
    patience_s: float
    portal: Portal[Any] | None = None


class Following(ABC, Generic[Item]):
    """An asynchronous iterator over a stream's items; one task takes from it.

    An item is acknowledged when the next one is asked for: a named subscriber that crashes gets its
    last item again. The iteration stops at the end of the stream.

    Attributes:
        stream: its name.
        boundary: all tuples up to it were emitted, and are final; microseconds.
        stored: the boundary that may be acknowledged, for a caller that keeps items for a while
            before it has stored them; None: all that was taken.
    """

    tentative = False
    stored: int | None = None

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
        # no buffer: at most one epoch waits here, and credit slows the sender
        self._give, self._take = trio.open_memory_channel[tuple[Item, int]](0)
        self._reader: Subscriber | None = None
        self._fetching = trio.Lock()
        self._fetched: tuple[Item, int] | None = None
        self._taken = 0

    @abstractmethod
    def _items(self, epoch: Epoch, *, tentative: bool) -> list[tuple[Item, int]]:
        """The items of an epoch, each with the boundary that it reaches."""

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
        """Wait for an item for `take`; False if none follows. Cancelling it, at any moment and from
        any loop, loses no item.

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
        """The fetched item."""
        assert self._fetched is not None
        (item, self.boundary), self._fetched = self._fetched, None
        self._taken += 1
        return item

    async def run(self) -> None:
        """Subscribe, again after failures; the caller gets a final failure. Cancel to stop."""
        with self._scope, self._give:
            try:
                await self._follow()
            except MedusaError as error:
                self._failure = error
            finally:
                self._begun.set()

    async def run_on(self) -> None:
        """`run`, then wait to be cancelled: the taking task sees the outcome."""
        await self.run()
        await trio.sleep_forever()

    async def _follow(self) -> None:
        self._schema = await self._source.schema_of(self.stream)
        self._begun.set()
        seen = self._after if self.tentative else None
        reader = Subscriber(
            self.stream, self._schema, self._after, seen=seen, name=self._subscriber
        )
        self._reader = reader
        while not reader.is_over:
            try:
                await self._connect(reader)
            except MedusaError as error:
                await self._patience.bear(error)

    async def _connect(self, reader: Subscriber) -> None:
        connection = await self._source.link.connection()
        async with connection.open("subscribe", reader.ask(), weight=BULK_WEIGHT) as duplex:
            self._duplex = duplex
            began = trio.current_time()
            try:
                await self._receive(duplex, reader)
            except BrokenError:
                if trio.current_time() >= began + STOOD_S:
                    self._patience.progress()
                raise
            finally:
                self._duplex = None

    async def _receive(self, duplex: Duplex, reader: Subscriber) -> None:
        while not reader.is_over:
            try:
                message, body = await duplex.receive(Tuples)
            except EndOfCall:
                raise BrokenError(
                    f"the peer ended the subscription to {self.stream} before the stream's end"
                ) from None
            self._patience.progress()
            try:
                epoch = reader.take(message, body)
            except DecodeError as error:
                raise DecodeError(
                    f"{self.stream} after boundary {reader.boundary}: who produces it sends what "
                    f"makes no sense: {error}"
                ) from None
            if epoch is not None:
                await self._emit(epoch, tentative=message.tentative)
        await self._acknowledged_end.wait()
        await _take_leave(duplex)

    async def _emit(self, epoch: Epoch, *, tentative: bool) -> None:
        for item in self._items(epoch, tentative=tentative):
            await self._give.send(item)

    async def _acknowledge(self) -> None:
        """Acknowledge all taken items; if the peer cannot be reached, the next connection sends the
        acknowledgement."""
        reached = self.boundary if self.stored is None else self.stored
        said = None
        if self._duplex is not None and self._reader is not None:
            said = self._reader.acknowledge(reached)
        if self._duplex is not None and said is not None:
            try:
                await self._duplex.send(said)
            except (MedusaError, EndOfCall):
                self._duplex = None
        if reached == END:
            self._acknowledged_end.set()


class Subscription(Following[Epoch]):
    """The stable epochs of a stream: an epoch is acknowledged when the next one is asked for."""

    _left: pa.Table | None = None

    def _items(self, epoch: Epoch, *, tentative: bool) -> list[tuple[Epoch, int]]:
        return [] if tentative else [(epoch, epoch.upto)]

    @property
    def ended(self) -> bool:
        """Whether the stream has ended and all its tuples were received."""
        return self.boundary == END and not self._left

    async def receive_events(self, rows: int, timeout_s: float) -> pa.Table:
        """The tuples that have arrived.

        Args:
            rows: how many at most.
            timeout_s: seconds to wait for the first of them; then an empty table is returned.

        Raises:
            MedusaError: the subscription has failed for good.
        """
        await self.arrive(timeout_s)
        left = self._left
        if left is None:  # not `empty_table`: it imports pandas, and the loop waits
            left = pa.Table.from_batches([], schema=await self.schema())
        self._left = left.slice(rows)
        return left.slice(0, rows)

    @in_trio
    async def arrive(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds until there are tuples for `receive_events`."""
        with trio.move_on_after(timeout_s):
            while not self._left and self.boundary < END and await self.fetch():
                if not self._left:  # an earlier, cancelled wait may have fetched them
                    self._left = self.take().table


async def _take_leave(duplex: Duplex) -> None:
    """Finish our side, and wait until the peer has taken that in."""
    with trio.move_on_after(LEAVE_S):
        try:
            await duplex.finish()
            await duplex.receive(Tuples)
        except (EndOfCall, MedusaError):
            return

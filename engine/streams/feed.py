"""Serves a log to one reader, over whichever call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import trio
from msgspec import Struct

from engine.objects.schema import BEGINNING, END
from engine.streams.cursors import Cursor
from engine.streams.messages import Acknowledge, Tuples
from engine.streams.parts import Part
from overlay.concurrency import until_one_ends
from overlay.rpc import EndOfCall
from overlay.streams import Buffer

T = TypeVar("T", bound=Struct)


class Outlet(Protocol):
    """The other end of a feed, with its acknowledgements: a call's `Duplex`."""

    async def wait_writable(self) -> None: ...

    async def send(self, message: Struct, body: Buffer = b"") -> None: ...

    async def receive(self, kind: type[T]) -> tuple[T, bytes]: ...


class Shares(Protocol):
    """A reader's share of this peer's sending and memory; see `engine.streams.delivery`."""

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Within the block the reader's next part is made."""

    def holding(self, size: int) -> AbstractContextManager[None]:
        """Within the block a part of so many bytes is held for the reader."""


async def at_once(_after: int, _upto: int) -> None:
    """A gate that never holds the reader back."""
    await trio.lowlevel.checkpoint()


def unheard(_boundary: int) -> None:
    """Ignore the acknowledgement: nothing is kept for the reader."""


@dataclass(slots=True, eq=False)
class Feed:
    """The feed of one reader of a log.

    Attributes:
        cursor: the reader's place.
        until: the feed ends with the part that reaches this boundary, microseconds. A feed without
            an end of its own stays open until the reader has acknowledged the end of the stream.
        released: the gate; returns once the reader may have the stable part with these boundaries
            (after, upto), microseconds.
        acknowledged: told the boundary before which nothing is kept for the reader any more.
        has: the boundary up to which the reader has acknowledged, microseconds.
        shares: of this peer's memory and time; None: no limit, for peers of our own participant,
            which copy tuples that this one must not lose.
    """

    cursor: Cursor
    until: int = END
    released: Callable[[int, int], Awaitable[None]] = at_once
    acknowledged: Callable[[int], None] = unheard
    has: int = BEGINNING
    shares: Shares | None = None

    async def send(self, outlet: Outlet) -> None:
        """Send parts up to `until`. A part is made when the reader takes more, and not before.

        Raises:
            NotRetainedError: the rows that follow are gone. ClosedError: the log was closed.
            MedusaError: the call failed.
        """
        cursor, shares = self.cursor, self.shares
        while cursor.after < self.until:
            await cursor.wait()
            await outlet.wait_writable()
            async with shares.turn() if shares else nullcontext():
                if (found := await cursor.read()) is None:
                    continue
                message, body = found[0], found[1].body()
            del found
            with shares.holding(len(body)) if shares else nullcontext():
                if message.upto is not None and not message.tentative:
                    await self.released(message.after, message.upto)
                await outlet.send(message, body)
            del body  # free it while we wait for the next
            cursor.advance(message)

    async def serve(self, outlet: Outlet, *ends: Callable[[], Awaitable[None]]) -> None:
        """`send` over a call whose other direction has the acknowledgements. Returns when the feed
        has ended, or the reader has left, or one of `ends` has returned or failed.

        Raises: the errors of `send` and of `ends`.
        """
        has_all = trio.Event()

        async def take_acknowledgements() -> None:
            with suppress(EndOfCall):
                while self.has < END:
                    said, _ = await outlet.receive(Acknowledge)
                    self.has = max(self.has, said.upto)
                    self.acknowledged(said.upto)
                has_all.set()
                await trio.sleep_forever()

        async def send_all() -> None:
            await self.send(outlet)
            if self.until == END:
                await has_all.wait()

        await until_one_ends(take_acknowledgements, send_all, *ends)


async def parts_of(cursor: Cursor) -> AsyncGenerator[tuple[Tuples, Part], None]:
    """The parts after a cursor's place, within this process. Ends when the stream does.

    Every epoch is one part or more; `upto` is on its last. A caller that stops early closes the
    generator (`contextlib.aclosing`).

    Raises:
        NotRetainedError: the next rows are gone. ClosedError: the log was closed.
    """
    while not cursor.is_over:
        await cursor.wait()
        found = await cursor.read()
        if found is not None:
            yield found
            cursor.advance(found[0])

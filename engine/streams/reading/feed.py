"""Serves a log to one reader, over any kind of call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
import trio
from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING, END, STIME
from medusa.engine.streams.log.parts import Part
from medusa.engine.streams.log.stream_log import StreamLog
from medusa.engine.streams.messages import Acknowledge, Tuples
from medusa.engine.streams.reading.delivery import Shares
from medusa.engine.streams.store.stream_state import StreamState
from medusa.overlay.concurrency import until_one_ends
from medusa.overlay.rpc import EndOfCall
from medusa.overlay.streams import Buffer


class Cursor:
    """A reader's place in a log: finds the next part, and moves past it.

    It keeps nothing of the log between two parts, so a stopped reader costs no memory.

    Attributes:
        after: the boundary that the reader has, microseconds.
    """

    def __init__(
        self, log: StreamLog, after: int, *, whole: bool = True, encoded: bool = True
    ) -> None:
        """
        Args:
            after: BEGINNING: the oldest that is kept; an empty log does not know it yet.
            whole: begin where nothing later is lost, not only where something is kept.
            encoded: parts are to be sent.
        """
        self._log = log
        self._whole = whole
        self._encoded = encoded
        self._taken = 0
        self.after = after

    @property
    def is_over(self) -> bool:
        """Whether the reader has the stream to its end."""
        return self.after >= END

    async def wait(self) -> None:
        """Return once there is a part to read. Raises: ClosedError: the log was closed."""
        await self._log.wait_beyond(self.after)
        if self.after == BEGINNING:
            self.after = self._log.oldest if self._whole else self._log.oldest_kept
            await self._log.wait_beyond(self.after)

    async def read(self) -> tuple[Tuples, Part] | None:
        """The next part; `advance` notes that the reader has it. Raises: NotRetainedError: its rows
        were dropped. ClosedError: the log was closed.
        """
        part = await self._log.reader.part(self.after, self._taken, encoded=self._encoded)
        return message_of(part), part

    def advance(self, message: Tuples) -> None:
        if message.upto is None:
            self._taken += message.rows
        else:
            self.after, self._taken = message.upto, 0


def message_of(part: Part) -> Tuples:
    return Tuples(part.after, part.upto, part.rows)


def cursor_for(state: StreamState, after: int, seen: int | None, **how: bool) -> Cursor:
    """The cursor of a subscriber in a stream; `how`: see `Cursor`. seen: see `BothCursor`; None:
    the subscriber takes no tentative tuples."""
    if seen is None:
        return Cursor(state.log, after, **how)
    return BothCursor(state, after, seen, **how)


class BothCursor(Cursor):
    """A reader's place in both parts of a stream. It reads them in turns, so that new results do
    not wait for corrections.

    Args:
        seen: the boundary of the reader's tentative tuples, microseconds.
    """

    def __init__(self, state: StreamState, after: int, seen: int, **how: bool) -> None:
        super().__init__(state.log, after, **how)
        self._suffix = state.suffix
        self._seen = seen
        self._seen_taken = 0
        self._last = seen
        self._run = 0
        self._stable_next = False

    async def wait(self) -> None:
        if self.after == BEGINNING:
            await super().wait()

        async def stable() -> None:
            await self._log.wait_beyond(self.after)

        async def tentative() -> None:
            await self._suffix.wait_beyond(max(self._seen, self.after))

        if not self._seen_taken:
            await until_one_ends(stable, tentative)

    async def read(self) -> tuple[Tuples, Part] | None:
        stable = self._log.boundary > self.after
        if not (stable and self._stable_next) and (part := await self._tentative()) is not None:
            return msgspec.structs.replace(message_of(part), tentative=True), part
        return await super().read() if stable else None

    def advance(self, message: Tuples) -> None:
        self._stable_next = message.tentative
        if not message.tentative:
            super().advance(message)
        elif message.upto is None:
            self._seen = message.after
            self._seen_taken += message.rows
        else:
            self._seen, self._seen_taken = message.upto, 0

    async def _tentative(self) -> Part | None:
        if self._seen_taken:
            return await self._rest()
        self._seen = max(self._seen, self.after)
        # a reader before the suffix's beginning still reads history
        if self.after < self._suffix.began_at:
            return None
        self._run = self._suffix.runs
        part = await self._suffix.part(self._seen, 0)
        if part is not None and part.upto is None:
            self._last = part.table.column(STIME)[-1].as_py()
        return part

    async def _rest(self) -> Part:
        """The remaining tuples of a stime, after a part that ended within it; none if that suffix
        was dropped."""
        if self._run == self._suffix.runs and self._seen >= self.after:
            part = await self._suffix.part(self._seen, self._seen_taken)
            if part is not None and part.after == self._seen:
                return part
        return Part(self._seen, self._last, self._log.schema.empty_table())


T = TypeVar("T", bound=Struct)


class Outlet(Protocol):
    """The other end of a feed, with its acknowledgements: a call's `Duplex`."""

    async def wait_writable(self) -> None: ...

    async def send(self, message: Struct, body: Buffer = b"") -> None: ...

    async def receive(self, kind: type[T]) -> tuple[T, bytes]: ...


async def at_once(_after: int, _upto: int) -> None:
    """A gate that never holds the reader back."""
    await trio.lowlevel.checkpoint()


def unheard(_boundary: int) -> None:
    """Ignore the acknowledgement, because no tuples are kept for the reader."""


@dataclass(slots=True, eq=False)
class Feed:
    """The feed of one reader of a log.

    Attributes:
        cursor: the reader's place.
        until: the feed ends with the part that reaches this boundary, microseconds. A feed without
            an end of its own stays open until the reader has acknowledged the end of the stream.
        released: the gate; returns once the reader may have the stable part with these boundaries
            (after, upto), microseconds.
        acknowledged: called with the boundary before which no tuples are kept for the reader any
            more.
        has: the boundary up to which the reader has acknowledged, microseconds.
        shares: the reader's shares of this peer's memory and time; None: no limit, for peers of our
            own participant, which copy tuples that this one must not lose.
    """

    cursor: Cursor
    until: int = END
    released: Callable[[int, int], Awaitable[None]] = at_once
    acknowledged: Callable[[int], None] = unheard
    has: int = BEGINNING
    shares: Shares | None = None

    async def send(self, outlet: Outlet) -> None:
        """Send parts up to `until`. A part is made only when the reader has room for it. Raises:
        NotRetainedError: the rows that follow were dropped. ClosedError: the log was closed.
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
            del body  # free it while we wait for the next part
            cursor.advance(message)

    async def serve(self, outlet: Outlet, *ends: Callable[[], Awaitable[None]]) -> None:
        """`send` over a call in whose other direction acknowledgements arrive. Returns when the
        feed has ended, or the reader has left, or one of `ends` has returned or failed.

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
    """The parts after a cursor's place, within this process. The generator ends with the stream.
    Every epoch is one part or more; its last part has `upto`. A caller that stops early closes the
    generator (`contextlib.aclosing`).

    Raises: NotRetainedError: the next rows were dropped. ClosedError: the log was closed.
    """
    while not cursor.is_over:
        await cursor.wait()
        found = await cursor.read()
        if found is not None:
            yield found
            cursor.advance(found[0])

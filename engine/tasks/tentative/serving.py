"""Both parts of a stream to a subscriber, and from a producer: the stable prefix and the tentative
suffix, each in its own order, side by side."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from engine.objects.schema import BEGINNING, STIME
from engine.streams.feed import Assembler, Cursor, message_of
from engine.streams.kept import KeptStream
from engine.streams.messages import Tuples
from engine.streams.parts import Part
from engine.streams.recent import Epoch
from overlay.concurrency import until_one_ends


def cursor_for(kept: KeptStream, after: int, seen: int | None, *, whole: bool = True) -> Cursor:
    """A subscriber's place in a stream; see `Cursor`. seen: see `BothCursor`; None: no tentative
    tuples."""
    if seen is None:
        return Cursor(kept.log, after, whole=whole)
    return BothCursor(kept, after, seen, whole=whole)


class BothCursor(Cursor):
    """A reader's place in both parts of a stream. They take threads: new results must not wait
    behind corrections.

    Args:
        seen: so far the reader has tentative tuples, microseconds.
    """

    def __init__(self, kept: KeptStream, after: int, seen: int, *, whole: bool = True) -> None:
        super().__init__(kept.log, after, whole=whole)
        self._suffix = kept.suffix
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

    async def read(self) -> tuple[Tuples, memoryview] | None:
        stable = self._log.boundary > self.after
        if not (stable and self._stable_next) and (part := await self._tentative()) is not None:
            return msgspec.structs.replace(message_of(part), tentative=True), part.body()
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
        # who has not come as far as where it began still reads history
        if self.after < self._suffix.began_at:
            return None
        self._run = self._suffix.runs
        part = await self._suffix.part(self._seen, 0)
        if part is not None and part.upto is None:
            self._last = part.table.column(STIME)[-1].as_py()
        return part

    async def _rest(self) -> Part:
        """What follows a part that ended within one stime; if that suffix is gone by now, the stime
        ends with what was given of it."""
        if self._run == self._suffix.runs and self._seen >= self.after:
            part = await self._suffix.part(self._seen, self._seen_taken)
            if part is not None and part.after == self._seen:
                return part
        return Part(self._seen, self._last, self._log.schema.empty_table())


class Incoming:
    """Puts both parts of a stream together again: messages in, whole epochs out; sans IO.

    Attributes:
        boundary: every stable tuple up to it was given out. seen: and so the tentative ones.
    """

    def __init__(self, schema: pa.Schema, after: int, seen: int) -> None:
        self._stable = Assembler(schema, after)
        self._tentative = Assembler(schema, max(after, seen), gaps=True)

    @property
    def boundary(self) -> int:
        return self._stable.boundary

    @property
    def seen(self) -> int:
        return max(self._stable.boundary, self._tentative.boundary)

    @property
    def held(self) -> int:
        """Bytes of the parts of epochs that are not whole yet."""
        return self._stable.held + self._tentative.held

    def reconnected(self) -> None:
        """What is incomplete comes again."""
        self._stable.reconnected()
        self._tentative.reconnected()

    def add(self, message: Tuples, body: bytes | bytearray | memoryview) -> Epoch | None:
        """One part; gives the epoch when it is the last part of one that was not given out.

        Raises:
            DecodeError: not what a sender of this stream can have sent; close the connection.
        """
        return (self._tentative if message.tentative else self._stable).add(message, body)

"""A subscription's two ends: epochs into messages, and messages into epochs again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import pyarrow as pa

from engine.objects.schema import BEGINNING, END, STIME
from engine.streams.ipc import decode
from engine.streams.log import StreamLog
from engine.streams.messages import Tuples
from engine.streams.ordering import between, bounds, is_ordered
from engine.streams.parts import Part
from engine.streams.recent import Epoch
from overlay.errors import DecodeError

MAX_EPOCH_BYTES: Final = 512 * 2**20
"""What a receiver gathers of one epoch before it takes the sender for hostile. Ours end an epoch
with every part of some megabytes, unless more tuples than that share one stime; one in memory is no
larger than a home lets wait."""

COLUMN_BYTES: Final = 2**10
"""What a column of a part takes beside its body while the part waits for the rest of its epoch
(measured: 820 bytes): a sender may make a part of every row."""


class Cursor:
    """A reader's place in a log: the part that comes next, and what it makes of the place.

    It keeps nothing of the log between two parts, so a reader that has stopped costs no memory.

    Attributes:
        after: the boundary that the reader has, microseconds.
    """

    def __init__(self, log: StreamLog, after: int, *, whole: bool = True) -> None:
        """
        Args:
            after: BEGINNING: the oldest that is kept, which an empty log does not know yet.
            whole: from where on nothing is lost, not only kept.
        """
        self._log = log
        self._whole = whole
        self._taken = 0
        self.after = after

    @property
    def is_over(self) -> bool:
        """Whether the reader has the stream to its end."""
        return self.after >= END

    async def wait(self) -> None:
        """Returns once there is something to read. Raises: ClosedError: the log was closed."""
        await self._log.wait_beyond(self.after)
        if self.after == BEGINNING:
            self.after = self._log.oldest if self._whole else self._log.oldest_kept
            await self._log.wait_beyond(self.after)

    async def read(self) -> tuple[Tuples, memoryview] | None:
        """What comes next, if it is there still; `advance` says that the reader was given it.

        Raises:
            NotRetainedError: it is gone. ClosedError: the log was closed.
        """
        part = await self._log.part(self.after, self._taken)
        return message_of(part), part.body()

    def advance(self, message: Tuples) -> None:
        if message.upto is None:
            self._taken += message.rows
        else:
            self.after, self._taken = message.upto, 0


def message_of(part: Part) -> Tuples:
    return Tuples(part.after, part.upto, part.rows)


async def serve(cursor: Cursor) -> AsyncGenerator[tuple[Tuples, memoryview], None]:
    """What follows, as messages and Arrow IPC bodies; ends when the stream does.

    Every epoch is one part or more; `upto` is on its last. An epoch without rows is one message
    with an empty body.

    A caller that stops early closes it (`contextlib.aclosing`).

    Raises:
        NotRetainedError: what follows is gone. ClosedError: the log was closed.
    """
    while not cursor.is_over:
        await cursor.wait()
        found = await cursor.read()
        if found is not None:
            yield found
            cursor.advance(found[0])


class Assembler:
    """Parts in, whole epochs out; sans IO.

    After a broken connection call `reconnected` and subscribe from `boundary`: what was incomplete
    is forgotten, and what comes again is dropped, however the new sender cuts its epochs.

    Args:
        gaps: an epoch may begin later than the one before it has ended.

    Attributes:
        boundary: everything up to it was given out; microseconds.
        held: bytes of the parts of an epoch that is not whole yet.
    """

    def __init__(self, schema: pa.Schema, after: int, *, gaps: bool = False) -> None:
        self._schema = schema
        self._gaps = gaps
        self._parts: list[pa.Table] = []
        self._after = after
        self.held = 0
        self._last: int | None = None
        self.boundary = after

    def reconnected(self) -> None:
        self._parts.clear()
        self.held = 0
        self._last = None

    def add(self, message: Tuples, body: bytes | bytearray | memoryview) -> Epoch | None:
        """One part; gives the epoch (boundary, upto] when it is the last part of it.

        None also for an epoch that was given out before.

        Raises:
            DecodeError: not what a sender of this stream can have sent; close the connection.
        """
        if (self._gaps or self.boundary == BEGINNING) and not self._parts:
            # asked for all there is, and told where that begins
            self.boundary = max(self.boundary, message.after)
        if message.after > self.boundary:
            raise DecodeError(f"an epoch from {message.after}, but {self.boundary} was reached")
        if self._parts and message.after != self._after:
            raise DecodeError(f"an epoch from {message.after} before that from {self._after} ended")
        if message.upto is not None and not message.after < message.upto <= END:
            raise DecodeError(f"an epoch from {message.after} up to {message.upto}")
        self._after = message.after
        rows = self._decode(message, body)
        if rows.num_rows or not self._parts:
            self._parts.append(rows)
        if message.upto is None:
            return None
        table = pa.concat_tables(self._parts)
        self.reconnected()
        if message.upto <= self.boundary:
            return None
        epoch = Epoch(self.boundary, message.upto, between(table, self.boundary, message.upto))
        self.boundary = message.upto
        return epoch

    def _decode(self, message: Tuples, body: bytes | bytearray | memoryview) -> pa.Table:
        rows = decode(body, self._schema) if len(body) else self._schema.empty_table()
        if rows.num_rows != message.rows:
            raise DecodeError(f"a part of {rows.num_rows} rows that says {message.rows}")
        if not rows.num_rows:
            if message.upto is None:
                raise DecodeError("a part without rows that is not the last of its epoch")
            return rows
        self.held += len(body) + COLUMN_BYTES * rows.num_columns
        if self.held > MAX_EPOCH_BYTES:
            raise DecodeError(f"an epoch of more than {MAX_EPOCH_BYTES} bytes")
        stime = rows.column(STIME).combine_chunks()
        if not is_ordered(stime):
            raise DecodeError("a part whose rows are not ordered by stime")
        low, high = bounds(stime, ordered=True)
        least = message.after + 1 if self._last is None else self._last
        if low < least or high > (END if message.upto is None else message.upto):
            raise DecodeError(f"rows of {low}..{high} outside of their epoch")
        self._last = high
        return rows

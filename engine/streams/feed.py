"""A subscription's two ends: epochs into messages, and messages into epochs again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

import pyarrow as pa
import trio

from engine.messages import Tuples
from engine.schema import BEGINNING, END, STIME
from engine.streams.ipc import decode, encode
from engine.streams.log import READ_ROWS, StreamLog
from engine.streams.ordering import between, bounds, is_ordered, rows_upto
from engine.streams.recent import Epoch, Parts
from overlay.errors import DecodeError, InvalidInputError

MAX_EPOCH_BYTES: Final = 512 * 2**20
"""What a receiver gathers of one epoch before it takes the sender for hostile. Ours cut an epoch
from disk after `READ_ROWS` rows, and one in memory is no larger than a home lets wait."""

COLUMN_BYTES: Final = 2**10
"""What a column of a part takes beside its body while the part waits for the rest of its epoch
(measured: 820 bytes): a sender may make a part of every row."""

_ENCODE_INLINE_BYTES: Final = 2**20
"""An epoch below this is encoded at once (under a millisecond); above, in a worker thread."""


async def serve(
    log: StreamLog, after: int, limit_rows: int = READ_ROWS
) -> AsyncGenerator[tuple[Tuples, memoryview], None]:
    """The rows with stime > after, as messages and Arrow IPC bodies; ends when the stream does.

    Every epoch is one part or more; `upto` is on its last. An empty epoch is one message with an
    empty body.

    A caller that stops early closes it (`contextlib.aclosing`).

    Args:
        after: microseconds; BEGINNING: the oldest that is kept, which an empty log does not know
            before it begins.

    Raises:
        NotRetainedError: `after` is older than what is kept. ClosedError: the log was closed.
    """
    if after == BEGINNING:
        await log.wait_beyond(BEGINNING)
        after = log.oldest
    while after < END:
        epoch = await log.next(after, limit_rows)
        for message, body in await messages_of(epoch):
            yield message, body
        after = epoch.upto


async def messages_of(epoch: Epoch) -> list[tuple[Tuples, memoryview]]:
    """An epoch as messages and bodies."""
    parts = await _parts(epoch)
    if not parts:
        return [(Tuples(epoch.after, epoch.upto, 0), memoryview(b""))]
    return [
        (Tuples(epoch.after, epoch.upto if position == len(parts) else None, rows), body)
        for position, (rows, body) in enumerate(parts, 1)
    ]


async def first_part(epoch: Epoch) -> tuple[Tuples, memoryview]:
    """As much of an epoch as one message holds, up to a boundary of its own.

    Raises:
        InvalidInputError: more tuples of one stime than that.
    """
    parts = await _parts(epoch)
    if len(parts) < 2:
        rows, body = parts[0] if parts else (0, memoryview(b""))
        return Tuples(epoch.after, epoch.upto, rows), body
    table = epoch.table.slice(0, parts[0][0])
    upto = table.column(STIME)[-1].as_py() - 1  # its last stime may go on in the next part
    if not (rows := rows_upto(table, upto)):
        raise InvalidInputError("more tuples of one stime than one answer holds: subscribe instead")
    return Tuples(epoch.after, upto, rows), encode(table.slice(0, rows))


async def _parts(epoch: Epoch) -> Parts:
    if epoch.bytes < _ENCODE_INLINE_BYTES:
        return epoch.parts()
    return await trio.to_thread.run_sync(epoch.parts)


class Assembler:
    """Parts in, whole epochs out; sans IO.

    After a broken connection call `reconnected` and subscribe from `boundary`: what was incomplete
    is forgotten, and what comes again is dropped, however the new sender cuts its epochs.

    Args:
        gaps: an epoch may begin later than the one before it has ended.

    Attributes:
        boundary: everything up to it was given out; microseconds.
    """

    def __init__(self, schema: pa.Schema, after: int, *, gaps: bool = False) -> None:
        self._schema = schema
        self._gaps = gaps
        self._parts: list[pa.Table] = []
        self._after = after
        self._bytes = 0
        self._last: int | None = None
        self.boundary = after

    def reconnected(self) -> None:
        self._parts.clear()
        self._bytes = 0
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
        self._bytes += len(body) + COLUMN_BYTES * rows.num_columns
        if self._bytes > MAX_EPOCH_BYTES:
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

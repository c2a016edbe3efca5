from __future__ import annotations

from typing import Final, TypeAlias

import pyarrow as pa

from medusa.engine.objects.schema import BEGINNING, END, STIME
from medusa.engine.streams.ipc import decode
from medusa.engine.streams.log.recent import Epoch
from medusa.engine.streams.messages import Tuples
from medusa.engine.streams.ordering import between, bounds, is_ordered
from medusa.overlay.errors import DecodeError

MAX_EPOCH_BYTES: Final = 512 * 2**20
"""The most bytes of one epoch that a receiver collects before it treats the sender as hostile. Our
leaders end an epoch every few megabytes, unless more tuples share one stime; an epoch in memory is
no larger than the waiting tuples of a leader may be."""

COLUMN_BYTES: Final = 2**10
"""Overhead of each column of a part that waits for the rest of its epoch (measured: 820 bytes): a
sender may make a part of every row."""


Rows: TypeAlias = bytes | bytearray | memoryview | pa.Table
"""The rows of a part: an Arrow IPC stream (empty without rows), or, within this peer, a table."""


class Assembler:
    """Assembles parts of a feed into whole epochs, even if the sender is hostile; sans IO.

    After a broken connection call `reconnected` and subscribe from `boundary`: the incomplete epoch
    is dropped, and so are repeated tuples, however the new sender cuts its epochs.

    Args: gaps: whether there may be gaps between epochs.

    Attributes:
        boundary: all epochs up to it were emitted; microseconds.
        held: bytes of the parts of the incomplete epoch.
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

    def add(self, message: Tuples, body: Rows) -> Epoch | None:
        """Add one part; returns the epoch (boundary, upto] if this was its last part, and it was
        not emitted before. Raises: DecodeError: the part does not fit the stream; close the
        connection.
        """
        if (self._gaps or self.boundary == BEGINNING) and not self._parts:
            # the receiver asked for all tuples, and the part says where they begin
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

    def _decode(self, message: Tuples, body: Rows) -> pa.Table:
        if isinstance(body, pa.Table):
            rows, size = body, body.nbytes
        else:
            size = len(body)
            rows = decode(body, self._schema) if size else self._schema.empty_table()
        if rows.num_rows != message.rows:
            raise DecodeError(f"a part of {rows.num_rows} rows that says {message.rows}")
        if not rows.num_rows:
            if message.upto is None:
                raise DecodeError("a part without rows that is not the last of its epoch")
            return rows
        self.held += size + COLUMN_BYTES * rows.num_columns
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


class Incoming:
    """Assembles both parts of a stream: messages in, whole epochs out; sans IO.

    Attributes:
        boundary: every stable tuple up to it was emitted. seen: every stable or tentative tuple up
            to it was emitted.
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
        """Bytes of the parts of incomplete epochs."""
        return self._stable.held + self._tentative.held

    def reconnected(self) -> None:
        """Drop incomplete epochs, because they are sent again."""
        self._stable.reconnected()
        self._tentative.reconnected()

    def add(self, message: Tuples, body: Rows) -> Epoch | None:
        """Add one part; returns the epoch if this was its last part, and it was not emitted before.
        Raises: DecodeError: the part does not fit the stream; close the connection.
        """
        return (self._tentative if message.tentative else self._stable).add(message, body)

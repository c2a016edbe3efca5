"""Epochs as subscribers get them, and the most recent ones of a log in memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from engine.streams.ipc import encode_parts, reopen
from engine.streams.ordering import between, tidy

RECENT_BYTES: Final = 24 * 2**20
"""Of one log: what a subscriber may be behind before it is served from disk."""
SHARED_BYTES: Final = 128 * 2**20
"""Of all logs of a peer: keeps its Python process small whatever the number of streams."""
_MOST_EPOCHS: Final = 1024
"""Epochs kept per log, however small: bounds the search in them."""

Parts = tuple[tuple[int, memoryview], ...]


@dataclass(slots=True, eq=False)
class Epoch:
    """The rows with after < stime <= upto, in canonical order. bytes: of Arrow data."""

    after: int
    upto: int
    table: pa.Table
    bytes: int = field(init=False)
    _parts: Parts | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.bytes = int(self.table.nbytes)

    def parts(self) -> Parts:
        """The rows as IPC bodies, (rows, body); encoded once for all who subscribe.

        The table then becomes a view of the bodies, so that there is one copy in memory, not two.
        """
        if self._parts is None:
            parts = tuple(encode_parts(self.table))
            self.table = reopen([body for _, body in parts], self.table.schema)
            self._parts = parts
        return self._parts


class SharedMemory:
    """A bound on the recent epochs of several logs together; the largest log gives first."""

    def __init__(self, limit: int = SHARED_BYTES) -> None:
        self._limit = limit
        self._members: list[Recent] = []

    def join(self, recent: Recent) -> None:
        self._members.append(recent)

    def leave(self, recent: Recent) -> None:
        self._members.remove(recent)

    def trim(self) -> None:
        while sum(member.bytes for member in self._members) > self._limit:
            max(self._members, key=lambda member: member.bytes).drop_oldest()


class Recent:
    """The last epochs of a log, contiguous up to its boundary.

    Attributes:
        start: the boundary from which it can serve. bytes: of Arrow data held.
    """

    def __init__(self, schema: pa.Schema, boundary: int, limit: int, shared: SharedMemory) -> None:
        self._schema = schema
        self._limit = limit
        self._shared = shared
        self._epochs: deque[Epoch] = deque()
        self.start = boundary
        self.bytes = 0
        shared.join(self)

    def add(self, epoch: Epoch) -> None:
        """The epoch that follows."""
        last = self._epochs[-1] if self._epochs else None
        if last is not None and not last.table.num_rows and not epoch.table.num_rows:
            self._epochs[-1] = Epoch(last.after, epoch.upto, last.table)
        else:
            self._epochs.append(epoch)
            self.bytes += epoch.bytes
        while self._epochs and (self.bytes > self._limit or len(self._epochs) > _MOST_EPOCHS):
            self.drop_oldest()
        self._shared.trim()

    def drop_oldest(self) -> None:
        oldest = self._epochs.popleft()
        self.start = oldest.upto
        self.bytes -= oldest.bytes

    def read(self, after: int, limit_rows: int) -> Epoch | None:
        """What follows `after` >= start: an epoch as it was added, or several small ones as one.

        Of an epoch with more rows than the limit the whole is given: it is in memory already.
        """
        found: list[Epoch] = []
        count = 0
        for epoch in self._epochs:
            if epoch.upto <= after:
                continue
            if found and count + epoch.table.num_rows > limit_rows:
                break
            found.append(epoch)
            count += epoch.table.num_rows
        if not found:
            return None
        if len(found) == 1 and found[0].after == after:
            return found[0]
        rows = [between(epoch.table, after, epoch.upto) for epoch in found]
        return Epoch(after, found[-1].upto, tidy(pa.concat_tables(rows)))

    def clear(self) -> None:
        self._epochs.clear()
        self.bytes = 0
        self._shared.leave(self)

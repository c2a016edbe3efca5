"""Epochs, and the most recent ones of a log in memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from medusa.engine.streams.log import parts
from medusa.engine.streams.log.parts import Part, first_part
from medusa.engine.streams.ordering import between, tidy

RECENT_BYTES: Final = 24 * 2**20
"""Bytes of recent epochs of one log; a subscriber that is further behind reads from disk."""
SHARED_BYTES: Final = 128 * 2**20
"""Bytes of recent epochs of all logs of a peer, so that its Python process stays small however many
streams it has."""
_MOST_EPOCHS: Final = 1024
"""Epochs kept per log, however small: bounds the search in them."""


@dataclass(slots=True, eq=False)
class Epoch:
    """The rows with after < stime <= upto, in canonical order. bytes: of Arrow data."""

    after: int
    upto: int
    table: pa.Table
    bytes: int = field(init=False)
    _parts: tuple[Part, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.bytes = int(self.table.nbytes)

    @property
    def is_encoded(self) -> bool:
        return bool(self._parts)

    def encode(self) -> None:
        """Encode the rows part by part, once for all readers.

        The table then becomes a view of the bodies, so that there is one copy in memory, not two.
        """
        found: list[Part] = []
        after, rows = self.after, 0
        while after < self.upto:
            part = first_part(after, self.upto, self.table.slice(rows)).encoded()
            found.append(part)
            rows += part.rows
            after = after if part.upto is None else part.upto
        self.table = pa.concat_tables([part.table for part in found])
        self._parts = tuple(found)

    def part(self, after: int, taken: int, limit_rows: int | None = None) -> Part:
        """The part that follows a boundary within the epoch, without the rows that the reader has
        already."""
        passed = 0
        for part in self._parts:
            if part.after == after:
                if passed == taken:
                    return part
                passed += part.rows
        rows = between(self.table, after, self.upto).slice(taken)
        return first_part(after, self.upto, rows, limit_rows=limit_rows)


_LAST_PARTS: Final = 64
"""The most parts kept beside the recent epochs, of all logs; together they have no more bytes than
one part may have, or there is only the latest part."""


class LastParts:
    """The last parts that were assembled, or read from files, for a reader. The next reader may be
    at the same boundary, as when a thousand subscribe at once, or come back."""

    def __init__(self) -> None:
        self._parts: dict[tuple[Recent, int, int], Part] = {}

    def get(self, log: Recent, after: int, taken: int) -> Part | None:
        """The kept part of a log that follows a boundary, without the rows that the reader has
        already."""
        return self._parts.get((log, after, taken))

    def add(self, log: Recent, after: int, taken: int, part: Part) -> None:
        self._parts[log, after, taken] = part
        while len(self._parts) > 1 and self._is_full:
            del self._parts[next(iter(self._parts))]

    @property
    def _is_full(self) -> bool:
        size = sum(part.table.nbytes for part in self._parts.values())
        return len(self._parts) > _LAST_PARTS or size > parts.PART_BYTES

    def forget(self, log: Recent) -> None:
        """Drop the parts of a log that was closed, or that was reopened at its end."""
        self._parts = {key: part for key, part in self._parts.items() if key[0] is not log}


class SharedMemory:
    """A bound on the recent epochs of several logs together; the largest log drops epochs first.

    Attributes:
        last: the parts made beside them.
    """

    def __init__(self, limit: int = SHARED_BYTES) -> None:
        self._limit = limit
        self._members: list[Recent] = []
        self.last = LastParts()

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
        start: the boundary from which on it can serve. bytes: the bytes of the Arrow data that it
            holds.
        shared: bounds it together with others.
    """

    def __init__(self, schema: pa.Schema, boundary: int, limit: int, shared: SharedMemory) -> None:
        self._schema = schema
        self._limit = limit
        self.shared = shared
        self._epochs: deque[Epoch] = deque()
        self.start = boundary
        self.bytes = 0
        shared.join(self)

    def add(self, epoch: Epoch) -> None:
        """Add the next epoch."""
        last = self._epochs[-1] if self._epochs else None
        if last is not None and not last.table.num_rows and not epoch.table.num_rows:
            self._epochs[-1] = Epoch(last.after, epoch.upto, last.table)
        else:
            self._epochs.append(epoch)
            self.bytes += epoch.bytes
        while self._epochs and (self.bytes > self._limit or len(self._epochs) > _MOST_EPOCHS):
            self.drop_oldest()
        self.shared.trim()

    def drop_oldest(self) -> None:
        oldest = self._epochs.popleft()
        self.start = oldest.upto
        self.bytes -= oldest.bytes

    def read(self, after: int, limit_rows: int | None = None) -> Epoch | None:
        """The epoch around or after a boundary, or several small ones as one that begins there;
        None: it is not in memory, or does not exist yet."""
        if after < self.start:
            return None
        limit_rows = limit_rows or parts.PART_ROWS
        found: list[Epoch] = []
        rows = size = 0
        for epoch in self._epochs:
            if epoch.upto <= after:
                continue
            rows += epoch.table.num_rows
            size += epoch.bytes
            if found and (rows > limit_rows or size > parts.PART_BYTES):
                break
            found.append(epoch)
        if not found:
            return None
        if len(found) == 1:
            return found[0]
        tables = [between(epoch.table, after, epoch.upto) for epoch in found]
        return Epoch(after, found[-1].upto, tidy(pa.concat_tables(tables)))

    def last_part(self, after: int, taken: int) -> Part | None:
        """A part that was assembled for another reader lately; see `LastParts`."""
        return self.shared.last.get(self, after, taken)

    def keep_part(self, after: int, taken: int, part: Part) -> None:
        """Keep a part for the next reader."""
        self.shared.last.add(self, after, taken, part)

    def begin(self, boundary: int) -> None:
        """Drop all epochs; the next one begins at `boundary`."""
        self.shared.last.forget(self)
        self._epochs.clear()
        self.bytes = 0
        self.start = boundary

    def holds(self, epoch: Epoch) -> bool:
        """Whether the epoch is one of these, which other readers get as well."""
        return epoch in self._epochs

    def clear(self) -> None:
        self.shared.last.forget(self)
        self._epochs.clear()
        self.bytes = 0
        self.shared.leave(self)

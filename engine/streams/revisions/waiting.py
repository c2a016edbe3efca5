from __future__ import annotations

from typing import Final

import pyarrow as pa

from engine.objects.schema import Schema
from engine.streams.acceptance import Entry
from engine.streams.entries import Bytes
from engine.streams.ipc import decode
from engine.streams.pending import Pending
from engine.streams.revisions.columns import revisions_schema
from engine.streams.validate import Batch

PENDING_SHARE: Final = 0.25
"""Share of the memory for waiting tuples that revisions may take beside them."""


class WaitingRevisions:
    """The revisions of one source stream, from their entries in the journal to their log.

    Attributes:
        committed: the boundary of their log, microseconds.
        pending: those that wait for the stream's boundary to pass them.
    """

    def __init__(self, schema: Schema, committed: int) -> None:
        revision = revisions_schema(schema, source=True)
        self._payload = revision.payload
        self.pending = Pending(revision.source)
        self.committed = committed

    def decoded(self, entry: Entry, body: Bytes) -> Batch | None:
        """The rows of an entry of the journal; None: the log has them, or there are none."""
        assert entry.position is not None, "an entry of tuples"
        if not entry.count or entry.position <= self.committed:
            return None
        return Batch(decode(body, self._payload))

    def take(self, entry: Entry, batch: Batch | None) -> None:
        """Let the rows of an accepted entry wait, unless the log has them."""
        if batch is None or entry.position is None or entry.position <= self.committed:
            return
        place = pa.repeat(pa.scalar(entry.position, pa.int64()), entry.count)
        numbers = pa.arange(entry.first, entry.first + entry.count)
        columns = [place, numbers, *batch.payload.columns]
        rows = pa.Table.from_arrays(columns, schema=self.pending.schema)
        self.pending.add(rows, entry.position, entry.position, ordered=True)

    def cut(self, ready: int) -> tuple[int, pa.Table] | None:
        """As `Source.cut`: all revisions up to the boundary `ready`."""
        if self.pending.cut is None and ready > self.committed:
            self.pending.take(ready)
        return self.pending.cut

    def commit(self, upto: int) -> None:
        """The log has the epoch that `cut` gave."""
        assert self.pending.cut is not None, "nothing was cut"
        assert self.pending.cut[0] == upto, "not what was cut"
        self.pending.let_go()
        self.committed = upto

    def shorten(self, upto: int, committed: int) -> None:
        """As `Source.shortened`."""
        self.pending.shorten(upto, committed)
        self.committed = committed

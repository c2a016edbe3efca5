from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.objects.schema import STIME, Schema
from engine.streams.acceptance import Acceptance, Entry
from engine.streams.entries import Bytes
from engine.streams.journal import Position
from engine.streams.late_queue import LateQueue, LateRows, Taker
from engine.streams.pending import Pending, taken_by
from engine.streams.source_config import SourceConfig
from engine.streams.validate import Batch, read_post
from overlay.errors import BusyError, InvalidInputError

_NUMBERED_BYTES: Final = 16
"""Bytes that a leader adds to each row: stime and seq."""


class WaitingTuples:
    """The tuples of one source stream, from their entries in the journal to their log.

    Attributes:
        committed: the boundary of their log, microseconds.
        pending: those that wait for the stream's boundary to pass them.
        late_queue: those that were late, and that the stream of late tuples does not have yet.
        late_rows: rows that came late since the start of this process.
    """

    def __init__(self, name: str, schema: Schema, committed: int, late: Taker | None) -> None:
        self._name = name
        self._schema = schema
        self._columns = schema.source
        self.committed = committed
        self.pending = Pending(self._columns)
        self.late_queue = LateQueue(name, late)
        self.late_rows = 0

    @property
    def tables(self) -> pa.Table:
        """All waiting rows that are not late."""
        return pa.concat_tables([self._columns.empty_table(), *self.pending.tables()])

    def decoded(self, entry: Entry, body: Bytes) -> Batch | None:
        """The rows of an entry of the journal; None: nothing needs them any more.

        Raises:
            InvalidInputError: the body is not of this stream.
        """
        if entry.greatest <= self.committed and not entry.late:
            return None
        batch = read_post(body, self._schema)
        return batch if entry.arrival is None else batch.arrived(entry.arrival)

    def check_room(
        self, batch: Batch, entry: Entry, accepted: Acceptance, ready: int, config: SourceConfig
    ) -> None:
        """Refuse a post for which there is no room.

        Args:
            ready: the boundary up to which `cut` gives rows.

        Raises:
            BusyError: too much waits for the log. InvalidInputError: too much waits for the slack.
        """
        if not entry.count:
            return
        limit, late_queue = config.pending_bytes, self.late_queue.bytes
        waiting = self.pending.bytes + late_queue
        more = taken_by(batch.payload) + _NUMBERED_BYTES * entry.count
        if waiting == 0 or waiting + more <= limit:
            return
        if late_queue or self.pending.ready(ready):
            raise BusyError(f"stream {self._name}: {waiting} bytes wait for its log; try again")
        if not self.pending.ready(accepted.boundary_after(entry)):
            raise InvalidInputError(
                f"stream {self._name}: its slack of {config.slack_us / 1e6:g} s holds more "
                f"than {limit} bytes of tuples: send a boundary, or declare less slack"
            )

    def take(self, entry: Entry, batch: Batch, at: Position, late_posts: int) -> None:
        """Let an accepted entry's rows wait: the late ones for the stream of late tuples.

        Args:
            at: where the entry ends in the journal.
            late_posts: posts before it that had late rows.
        """
        if entry.late:
            late = batch.payload.filter(pc.less_equal(batch.stime, entry.boundary))
            self.late_queue.add(LateRows(late_posts + 1, at, late, entry.taken / 1e6))
            self.late_rows += entry.late
        if entry.count > entry.late:
            self._pend(entry, batch)

    def _pend(self, entry: Entry, batch: Batch) -> None:
        numbers = pa.arange(entry.first, entry.first + entry.count)
        rows = pa.Table.from_arrays(
            [batch.stime, numbers, *batch.payload.columns], schema=self._columns
        )
        least = max(entry.boundary, self.committed)
        if batch.low > least:
            self.pending.add(rows, batch.low, batch.high, ordered=batch.ordered)
            return
        rows = rows.filter(pc.greater(rows.column(STIME), least))
        if rows.num_rows:
            low = pc.min(rows.column(STIME)).as_py()
            self.pending.add(rows, low, batch.high, ordered=batch.ordered)

    def cut(self, ready: int) -> tuple[int, pa.Table] | None:
        """As `Source.cut`: the tuples up to the boundary `ready`."""
        if self.pending.cut is None and ready > self.committed:
            self.pending.take(ready)
        return self.pending.cut

    def commit(self, upto: int) -> None:
        """Note that the log has the epoch of `cut`."""
        assert self.pending.cut is not None, "nothing was cut"
        assert self.pending.cut[0] == upto, "not what was cut"
        self.pending.let_go()
        self.committed = upto

    def shorten(self, upto: int, committed: int) -> None:
        """As `Source.shortened`."""
        self.pending.shorten(upto, committed)
        self.committed = committed

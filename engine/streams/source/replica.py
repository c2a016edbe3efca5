"""A replica of a source stream: its journal has the same bytes as the leader's.

The leader's own replica `lead`s, and takes posts; the others `follow` the leader's journal.
`medusa.engine.replication.leaders` decides which peer leads, and when.

A reopened stream continues with a segment that begins before its end. A replica shortens its logs
before it stores that segment. A log that is at the end after that has reached a new end.
"""

from __future__ import annotations

from medusa.engine.objects.schema import END
from medusa.engine.streams.journal.entries import Bytes, split
from medusa.engine.streams.journal.journal import Position
from medusa.engine.streams.source.acceptance import decode_snapshot
from medusa.engine.streams.source.settling import Settling
from medusa.engine.streams.source.source import Source
from medusa.overlay.errors import DecodeError
from medusa.overlay.failpoints import Failpoint, failpoint


class Replica:
    """Changes the source of a stream with replicas, besides posts.

    Attributes:
        settling: the state that all replicas have; the source accepts and cuts accordingly.
    """

    def __init__(self, source: Source) -> None:
        assert source.settling is not None, "it has no replicas"
        self._source = source
        self.settling: Settling = source.settling

    @failpoint(Failpoint.SOURCE_LEAD)
    def lead(self, term_number: int, *, reopened: int | None = None) -> None:
        """Begin a segment of the journal as the leader of that term. Posts are accepted once
        `settling.leading` is set. Args: reopened: the boundary from which an ended stream
        continues; see `Source.reopen`.

        Raises:
            StorageFullError: there is no room.
        """
        self._source.lead(term_number, reopened)

    def reopened_by(self, at: Position, data: Bytes) -> int | None:
        """If this replica's stream has ended, and the leader's next part of the journal begins a
        segment that reopens it: the boundary at which it is reopened; else None.

        Raises:
            DecodeError: the data does not fit this place.
        """
        if at[1] or self._source.boundary < END:
            return None
        boundary = next((decode_snapshot(meta).boundary for meta, _ in split(data)), END)
        return boundary if boundary < END else None

    def follow(self, at: Position, data: Bytes) -> None:
        """Store a part of the leader's journal at that place, the end of ours.

        Raises:
            DecodeError: the part does not fit this place. StorageFullError: the disk is full;
                earlier entries of the part are stored, so that the rest belongs at
                `Source.position`.
        """
        reached = self._source.journal.position
        if self._source.journal.has_begun and at != reached and at != (reached[0] + 1, 0):
            raise DecodeError(f"part of a journal at {at}, but {reached} was reached")
        number, offset = at
        for meta, body in split(data):
            if offset == 0:
                self._source.journal.copy_segment(number, meta)
            else:
                self._source.journal.copy_entry(meta, body)
            offset = self._source.journal.position[1]

    def settle(self, upto: Position, now: float) -> None:
        """Note that all replicas have everything before `upto`. now: seconds."""
        self.settling.settle(min(upto, self._source.journal.position))
        self._source.hand_on_late(now)

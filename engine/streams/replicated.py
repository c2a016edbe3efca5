"""A source stream with replicas: one source at each, over journals of the same bytes.

One of them is the home's: it `lead`s, and takes posts; the others `follow` what it wrote. Nothing
is cut, nor handed on as late, before `settle` says that all have it; so what a subscriber saw is in
every later home's journal. Who leads, and when, is `engine.replication.homes`' to say.

A stream that goes on although it had ended does so with a segment that begins before its end. A
replica shortens its logs before it stores that segment: where its journal has it, a log that is at
the end has come there once more.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from engine.objects.definitions import StreamDefinition
from engine.objects.schema import BEGINNING, END
from engine.streams.acceptance import Acceptance, Entry, Offsets, Writer, decode_snapshot
from engine.streams.entries import Bytes, split
from engine.streams.journal import START, Position
from engine.streams.messages import Posted
from engine.streams.source import Source
from overlay.errors import DecodeError, UnavailableError


class ReplicatedSource(Source):
    """
    Attributes:
        leading: whether this is the home's.
        settled: everything before it is on all replicas.
    """

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - as Source
        super().__init__(*args, **more)
        self.leading = False
        self.settled: Position = START
        self._boundaries: deque[tuple[Position, int]] = deque()
        self._fences: dict[int, int] = {}
        self._gate = self._committed

    @property
    def ready(self) -> int:
        return self._gate

    @property
    def segments(self) -> tuple[tuple[int, int, int], ...]:
        plain = super().segments
        return tuple((number, self._fences.get(number, 0), length) for number, _, length in plain)

    def known(self, writer: Writer, sequence: int, offsets: Offsets | None) -> Posted | None:
        """As `Source.known`; any post is acknowledged only once it is settled, one that was
        accepted before as well.

        Raises:
            UnavailableError: another peer is home. Else as `Source.known`.
        """
        self._check_leading()
        return super().known(writer, sequence, offsets)

    def _check_leading(self) -> None:
        if not self.leading:
            raise UnavailableError(f"stream {self._name}: this peer is not its home now")

    def alter(self, definition: StreamDefinition) -> None:
        """As `Source.alter`; it counts once it is settled.

        Raises:
            UnavailableError: another peer is home. Else as `Source.alter`.
        """
        self._check_leading()
        super().alter(definition)

    def lead(self, fence: int, *, reopened: int | None = None) -> None:
        """Begin a segment of the journal as the home of that fence. Posts go through once
        `leading` is set.

        Args:
            reopened: see `reopen`.

        Raises:
            StorageFullError: there is no room.
        """
        self._acceptance.fence = fence
        if reopened is not None:
            self.reopen(reopened)
            return
        # after a loss of power a log may have more than the journal: no row goes behind it
        self._acceptance.advance(self._reached)
        self._begin_segment()

    def reopen(self, boundary: int) -> None:
        """As `Source.reopen`; it counts once the fence is installed."""
        super().reopen(boundary)
        self._forget_end()

    def _forget_end(self) -> None:
        """The boundary is before the end that the journal told of, and nobody is to see that."""
        self._boundaries = deque((at, min(each, self.boundary)) for at, each in self._boundaries)
        self._gate = max(self._committed, min(self._gate, self.boundary))

    def reopened_by(self, at: Position, data: Bytes) -> int | None:
        """Where the stream goes on that has ended, if that is what the home sends next.

        Raises:
            DecodeError: it is not what a home sends there.
        """
        if at[1] or self.boundary < END:
            return None
        boundary = next((decode_snapshot(meta).boundary for meta, _ in split(data)), END)
        return boundary if boundary < END else None

    def follow(self, at: Position, data: Bytes) -> None:
        """What the home's journal has at that place, the end of ours.

        Raises:
            DecodeError: it is not what a home sends there. StorageFullError: the disk is full; the
                entries before are stored, so that the rest goes to `position`.
        """
        if at != self.position and at != (self.position[0] + 1, 0) and self._journal.segment:
            raise DecodeError(f"part of a journal at {at}, but {self.position} was reached")
        number, offset = at
        for meta, body in split(data):
            if offset == 0:
                self._restore_snapshot(number, meta)
                self._journal.begin(meta, 0 if self._journal.segment else number)
            else:
                entry, batch = self._decoded(meta, body)
                self._journal.append(meta, body)
                self._take(entry, batch, self.position)
            offset = self._journal.size
            self._note_entry(self.position)

    def settle(self, upto: Position, now: float) -> None:
        """All replicas have everything before `upto`. now: seconds."""
        self.settled = max(self.settled, min(upto, self.position))
        while self._boundaries and self._boundaries[0][0] <= self.settled:
            self._gate = max(self._gate, self._boundaries.popleft()[1])
        self._owed.hand_on(now, self._may_hand_on)

    # -----------------------------------------------------------------------------------------

    def _restore_snapshot(self, segment: int, meta: bytes) -> None:
        had_ended = self.boundary == END
        super()._restore_snapshot(segment, meta)
        if had_ended and self.boundary < END:
            self._forget_end()

    def _opened(self) -> None:
        """Its journal begins when it leads, or follows."""

    def _move_by_clock(self, now_us: int) -> None:
        """By an entry: replicas do not look at their own clocks."""
        at = self._acceptance.clock(now_us)
        if self.leading and at > self.boundary:
            self._append(_clock_entry(self._acceptance, at), b"", None)

    def _taken_at(self, now: float) -> int:
        return int(now * 1e6)

    def _may_hand_on(self, at: Position) -> bool:
        return at <= self.settled

    def _note_entry(self, at: Position) -> None:
        self._boundaries.append((at, self.boundary))

    def _note_segment(self, number: int) -> None:
        self._fences[number] = self._acceptance.fence

    def _needed_from(self) -> int:
        return min(self._journal.segment, self.settled[0])


def _clock_entry(acceptance: Acceptance, at: int) -> Entry:
    return Entry("", 0, acceptance.boundary, 0, acceptance.rows, BEGINNING, None, at, 0)

"""The journal of one source stream: entries go in, segments that nothing needs go.

With replicas it also keeps the settled part: see `settling.py`. The replicas' journals have the
same bytes as the leader's.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from medusa.engine.objects.moments import boundary_in_words
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.journal.entries import Bytes
from medusa.engine.streams.journal.journal import Journal, Position, Record
from medusa.engine.streams.source.acceptance import Entry, Writer, decode_snapshot
from medusa.engine.streams.source.settling import Settling
from medusa.engine.streams.source.source_state import SourceState
from medusa.engine.streams.validate import Batch
from medusa.overlay.errors import InternalError, InvalidInputError, StorageError

_IDLE_SEGMENT_BYTES: Final = 2**20
"""A segment of this many bytes is replaced once the log has all of it, so that a full disk gets
room."""

_ENCODER: Final = msgspec.msgpack.Encoder()


class SourceJournal:
    """Journals the entries of a state, and restores the state from them.

    Attributes:
        settling: the state that all replicas have; None: the stream has no replicas.
        lost: the known losses of acknowledged entries, in words for people. cut_off: unacknowledged
            entries during which the process died, in words for people.
    """

    _journal: Journal

    def __init__(self, state: SourceState) -> None:
        self._state = state
        self._needed: dict[int, int] = {}
        self.settling = Settling(state.waiting.committed) if state.config.replicated else None
        self.lost: tuple[str, ...] = ()
        self.cut_off: tuple[str, ...] = ()

    @classmethod
    def open(cls, folder: Path, state: SourceState) -> SourceJournal:
        """Open the journal in `folder`, and restore the state from it.

        Raises:
            StorageError: it cannot be read, or there is no room to begin one.
        """
        journal = cls(state)
        journal._journal = Journal.open(folder, journal, durable=state.config.durable)
        return journal

    @property
    def position(self) -> Position:
        """The position of the journal's end."""
        return self._journal.position

    @property
    def has_begun(self) -> bool:
        return bool(self._journal.segment)

    @property
    def has_lost_end(self) -> bool:
        """Whether its newest entries are missing."""
        return self._journal.lost_end

    @property
    def segments(self) -> tuple[tuple[int, int, int], ...]:
        """(number, term, bytes) of each segment; see `Snapshot.term_number`."""
        term_number_of = (lambda _: 0) if self.settling is None else self.settling.term_number_of
        numbers = self._journal.segments
        return tuple(
            (number, term_number_of(number), self._journal.length(number)) for number in numbers
        )

    def read(self, at: Position, limit: int) -> tuple[Position, bytes]:
        """A part of the journal for a replica; see `Journal.read`."""
        return self._journal.read(at, limit)

    def append(self, entry: Entry, body: Bytes, batch: Batch | None) -> None:
        """Journal an accepted entry, and let it wait for the boundary.

        Raises:
            StorageFullError: the disk is full; nothing has changed.
        """
        if self._journal.size >= self._state.config.segment_bytes:
            self.begin_segment()
        self._journal.append(_ENCODER.encode(entry), body)
        self._take(entry, batch)

    def begin_segment(self) -> None:
        """Begin a segment with the present state. Raises: StorageError: there is no room."""
        before = self._journal.segment
        try:
            self._journal.begin(self.state())
        finally:
            if self._journal.segment != before:
                self._note_segment(self._journal.segment)
                self._note_entry(self.position)

    def copy_segment(self, number: int, snapshot: bytes) -> None:
        """Begin a segment with the leader's snapshot.

        Raises:
            DecodeError: the snapshot is invalid. StorageFullError: the disk is full.
        """
        self._restore_snapshot(number, snapshot)
        self._journal.begin(snapshot, 0 if self._journal.segment else number)
        self._note_entry(self.position)

    def copy_entry(self, meta: bytes, body: Bytes) -> None:
        """Append an entry of the leader's journal.

        Raises:
            DecodeError: the entry is invalid. StorageFullError: the disk is full.
        """
        entry, batch = self._state.decoded(meta, body)
        self._journal.append(meta, body)
        self._take(entry, batch)

    def trim(self) -> None:
        """Delete the segments that are no longer needed."""
        waiting = self._state.waiting
        idle = not waiting.pending.bytes and not waiting.late_queue
        leading = self.settling is None or self.settling.leading
        if leading and idle and self._journal.size >= _IDLE_SEGMENT_BYTES:
            # A full disk refuses this; then the segment is replaced another time.
            with suppress(StorageError):
                self.begin_segment()
        first = waiting.late_queue.segment if waiting.late_queue else self._journal.segment
        if self.settling is not None:
            first = min(first, self.settling.settled[0])
        for segment in self._journal.segments[:-1]:
            if segment >= first or self._needed.get(segment, BEGINNING) > waiting.committed:
                break
            self._needed.pop(segment, None)
            self._journal.drop(segment + 1)

    def note_leapt(self, writer: Writer, missing: range) -> None:
        """Note that a producer continues after posts that this journal lacks."""
        if missing:
            of = f" of {writer.participant}" if writer.participant else ""
            text = (
                f"posts {missing[0]} to {missing[-1]} of {writer.producer}{of} are missing from "
                "the journal, which is damaged or of a backup: their tuples after boundary "
                f"{self._state.waiting.committed} are lost"
            )
            self.lost = (*self.lost, text)

    def close(self) -> None:
        self._journal.close()

    # -- reading it -----------------------------------------------------------------------------

    def restore(self, record: Record) -> None:
        state = self._state
        try:
            if record.first:
                self._restore_snapshot(record.segment, record.meta)
                self._note_entry((record.segment, record.end))
                return
            entry, batch = state.decoded(record.meta, record.body)
            # A gap that was accepted earlier was reported then.
            leapt = range(0)
            if self.lost:
                leapt = state.acceptance.leapt(entry.writer, entry.sequence)
            self._take(entry, batch, (record.segment, record.end))
            self.note_leapt(entry.writer, leapt)
        except InvalidInputError as error:
            raise InternalError(f"journal of {state.name}, an entry: {error}") from error

    def missing(self, what: str) -> None:
        self._state.acceptance.doubt()
        committed = boundary_in_words(self._state.waiting.committed)
        self.lost = (*self.lost, f"{what}, as far as it is after boundary {committed}")

    def torn(self, what: str) -> None:
        self._state.acceptance.doubt()
        self.cut_off = (*self.cut_off, what)

    def state(self) -> bytes:
        return _ENCODER.encode(self._state.snapshot())

    def _restore_snapshot(self, segment: int, meta: bytes) -> None:
        snapshot, had_ended = decode_snapshot(meta), self._state.boundary == END
        for writer, last in snapshot.progress:
            self.note_leapt(writer, self._state.acceptance.leapt(writer, last.sequence + 1))
        self._state.restore(snapshot)
        self._note_segment(segment)
        if self.settling is not None and had_ended and self._state.boundary < END:
            self.settling.forget_end(self._state.boundary, self._state.waiting.committed)

    def _take(self, entry: Entry, batch: Batch | None, at: Position | None = None) -> None:
        at = at or self.position
        needed = self._state.take(entry, batch, at)
        # the segment stays until the log has rows up to this stime
        self._needed[at[0]] = max(self._needed.get(at[0], BEGINNING), needed)
        self._note_entry(at)

    def _note_entry(self, at: Position) -> None:
        """Note the boundary after the entry that ends at that position."""
        if self.settling is not None:
            self.settling.note_entry(at, self._state.boundary)

    def _note_segment(self, number: int) -> None:
        """Note the term of a segment that begins with the present state."""
        if self.settling is not None:
            self.settling.note_segment(number, self._state.acceptance.term_number)

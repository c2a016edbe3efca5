"""A source stream at its leader: posts become one ordered stream.

    post -> validated -> journaled -> acknowledged -> pending -> cut -> (the log) -> committed

A tuple is journaled before it is acknowledged. Its journal segment is kept until `committed` says
that the log has its epoch. So a crash anywhere loses nothing. Rows with stime <= the log's boundary
are in the log already, so recovery repeats nothing.

Posts go through in the order of the calls. All calls block, one at a time, for the write of one
post at most: `medusa.engine.streams.source.leader` adds the lock and the thread.

Late rows go to another source, that of `<stream>/late`, under our own count of posts with late
rows. So a replay posts them again, and that source recognises them as duplicates.

A source has two parts that not every stream needs: `settling` where it has replicas, each of which
has a source over a journal of the same bytes (`replica.py`), and `revisions` where its schema has a
key (`revisions/revising.py`).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from msgspec import structs

from medusa.engine.objects.definitions import Idle, StreamDefinition, is_revised
from medusa.engine.objects.moments import boundary_in_words
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.journal.entries import Bytes
from medusa.engine.streams.journal.journal import Journal, Position, Record
from medusa.engine.streams.messages import Post, Posted
from medusa.engine.streams.source.acceptance import (
    Acceptance,
    Entry,
    Writer,
    decode_entry,
    decode_snapshot,
)
from medusa.engine.streams.source.deciding import by_clock, by_slack, decide
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.settling import Settling
from medusa.engine.streams.source.waiting import WaitingRevisions, WaitingTuples, taken_by
from medusa.engine.streams.validate import Batch, check_ahead, read_post
from medusa.overlay.errors import (
    InternalError,
    InvalidInputError,
    StorageError,
    UnavailableError,
)
from medusa.overlay.killpoints import KillPoint, kill_point

_NUMBERED_BYTES: Final = 16
"""Bytes that a leader adds to each row: stime and seq."""

_IDLE_SEGMENT_BYTES: Final = 2**20
"""A segment this long is replaced once the log has all of it, so that a full disk empties."""

_ENCODER: Final = msgspec.msgpack.Encoder()


class Source:
    """A source stream at its leader: takes posts, and answers them.

    Attributes:
        name, schema: of the stream.
        acceptance: its accepted state.
        waiting: the accepted tuples that are not in the log yet.
        settling: the state that all replicas have; None: the stream has no replicas.
        revisions: the revisions that wait for their log; None: the stream takes none.
        was_away: whether it has not seen the clock since it began to lead.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        config: SourceConfig,
        *,
        logged: int,
        revised: int,
        late: Source | None,
    ) -> None:
        self.name = name
        self.schema = schema
        self._config = config
        self.acceptance = Acceptance(
            slack_us=config.slack_us,
            arrival=schema.time is None,
            idle_us=config.idle_timeout_us,
        )
        self.was_away = True
        self._leads_since = 0
        self.waiting = WaitingTuples(name, schema, logged, late)
        self.settling = Settling(logged) if config.replicated else None
        revises = is_revised(schema, config.lateness_us)
        self.revisions = WaitingRevisions(schema, revised) if revises else None
        self._late = late
        self._greatest: dict[int, int] = {}
        self._lost: list[str] = []
        self._torn: list[str] = []
        self._journal: Journal

    @classmethod
    def open(
        cls,
        folder: Path,
        name: str,
        schema: Schema,
        *,
        committed: int,
        config: SourceConfig,
        late: Source | None,
        now: float,
        revised: int = BEGINNING,
    ) -> Source:
        """Open the journal in `folder`, and hold every acknowledged row that is not committed.

        Args:
            committed: the log's boundary, microseconds. revised: that of the log of its revisions.
            late: the source of `<stream>/late`; None if no row can be late.
            now: seconds since the epoch.

        Raises:
            StorageError: the journal cannot be read, or there is no room to begin one.
        """
        source = cls(name, schema, config, logged=committed, revised=revised, late=late)
        source._journal = Journal.open(folder, source, durable=config.durable)
        source._define(config.definition)
        if source.settling is None:  # else its journal begins when it leads, or follows
            source._begin()
        source.hand_on_late(now)
        source._let_go()
        return source

    @property
    def boundary(self) -> int:
        return self.acceptance.boundary

    @property
    def ready(self) -> int:
        """The boundary up to which `cut` gives rows."""
        return self.boundary if self.settling is None else self.settling.gate

    @property
    def position(self) -> Position:
        """The end of its journal."""
        return self._journal.position

    @property
    def segments(self) -> tuple[tuple[int, int, int], ...]:
        """(number, term, bytes) of its journal's segments; see `Snapshot.term_number`."""
        term_number_of = (lambda _: 0) if self.settling is None else self.settling.term_number_of
        numbers = self._journal.segments
        return tuple(
            (number, term_number_of(number), self._journal.length(number)) for number in numbers
        )

    def read(self, at: Position, limit: int) -> tuple[Position, bytes]:
        """A part of the journal for a replica; see `Journal.read`."""
        return self._journal.read(at, limit)

    @property
    def lost(self) -> tuple[str, ...]:
        """Acknowledged entries that are known to be missing, for people."""
        return tuple(self._lost)

    @property
    def cut_off(self) -> tuple[str, ...]:
        """Entries that the process died in, and that were not acknowledged, for people."""
        return tuple(self._torn)

    @property
    def has_cut(self) -> bool:
        """Whether a cut waits to be committed."""
        return self.waiting.pending.cut is not None

    @property
    def crowded(self) -> bool:
        """Whether the log should catch up before more is posted."""
        pending = self.waiting.pending
        return pending.bytes > self._config.pending_bytes // 4 and pending.ready(self.ready)

    def post(self, request: PostRequest, *, now: float) -> Posted:
        """Accept a post: when this returns, it survives the death of the process.

        Args:
            now: seconds since the epoch.

        Raises:
            InvalidInputError: the body is not as the schema says (names field and row), or the
                slack alone holds more than may wait. SequenceGapError: a post is missing before it.
                ConflictError: it does not go on where the last one ended.
            BusyError: too much waits for the log; StorageFullError: the disk is full.
            After any of these nothing was stored, and the same sequence may be sent again.
        """
        request.check()
        if (posted := self.known(request)) is None:
            return self._accept(request, now)
        if request.post.done and not request.post.sequence:
            self._leave(request.writer, posted.last, now)
            return self._progress(request.writer)
        return posted

    def known(self, request: PostRequest) -> Posted | None:
        """The answer to number 0, or to a post that was accepted before; None: the post is new. A
        stream with replicas acknowledges a post, also one accepted before, only once it is settled.

        Raises:
            UnavailableError: another peer is the leader.
            SequenceGapError: a post is missing before it.
            ConflictError: it does not go on where the last one ended.
        """
        self._check_leading()
        writer, sequence = request.writer, request.post.sequence
        if sequence == 0:
            return self._progress(writer)
        duplicate = self.acceptance.is_duplicate(writer, sequence)
        if request.post.offsets is not None:
            self.acceptance.check_offsets(writer, sequence, request.post.offsets)
        if not duplicate:
            return None
        missed = self.acceptance.missed(writer, sequence)
        return Posted(sequence, 0, 0, self.boundary, duplicate=True, missed=missed)

    def take_late(self, stream: str, number: int, payload: pa.Table, now: float) -> None:
        """Accept the late rows of another stream, once. number: counts its posts with late rows; it
        only grows, and leaps where a loss of power took entries of this journal.

        Raises:
            BusyError: try again later.
        """
        writer = Writer(stream)
        if number > self.acceptance.last_of(writer):
            self._accept(PostRequest(writer, Post(number), encode(payload)), now)

    @property
    def definition(self) -> StreamDefinition | None:
        """The stream's definition in its journal; some replicas may not have it yet."""
        return self._config.definition

    @kill_point(KillPoint.SOURCE_ALTER)
    def alter(self, definition: StreamDefinition) -> None:
        """Change the stream's definition from here on, behind all posts so far. With replicas it
        counts once it is settled.

        Raises:
            UnavailableError: another peer is the leader.
            StorageFullError: the disk is full; nothing has changed.
        """
        self._check_leading()
        now = self.acceptance
        becomes = by_slack(now, definition.slack_us)
        altered = structs.replace(_by_itself(now), definition=definition, becomes=becomes)
        self.append(altered, b"", None)

    def goes_on_from(self, logged: int) -> int:
        """The boundary at which an ended stream can be reopened; no promised boundary is beyond it.
        logged: the log's boundary before its end, as far as the log knows."""
        now = self.acceptance
        before = logged if now.ended_at is None else now.ended_at
        promised = now.presence.reached(now.slack_us, limit=BEGINNING)
        return max(before, now.greatest, now.revised_at, promised)

    @kill_point(KillPoint.SOURCE_REOPEN)
    def reopen(self, boundary: int) -> None:
        """Let an ended stream continue from that boundary; no reader has seen its end, and its logs
        are shortened. With replicas it counts once the leader's term is installed.

        Raises:
            StorageFullError: the disk is full; the stream has still ended.
        """
        now = self.acceptance
        assert now.boundary == END, "it has not ended"
        ended_at = now.ended_at
        now.reopen(boundary)
        try:
            self._begin_segment()
        except StorageError:
            now.boundary, now.ended_at = END, ended_at
            raise
        if self.settling is not None:
            self.settling.forget_end(boundary, self.waiting.committed)

    def shortened(self, upto: int, logged: int, revised: int) -> None:
        """Note that its logs go no further than `upto` for now. logged, revised: the boundaries of
        the logs of its tuples and of its revisions."""
        self.waiting.shorten(upto, logged)
        if self.revisions is not None:
            self.revisions.shorten(upto, revised)

    def tick(self, now: float, *, may_leap: bool = True) -> None:
        """Let the clock move the boundary, if the stream's definition says so.

        Args:
            now: seconds since the epoch.
            may_leap: whether by more than `LEAP_US`: no while the clock may be wrong.
        """
        self.hand_on_late(now)
        self._wait_anew(now)
        leads = self.settling is None or self.settling.leading
        if not leads:
            return
        now_us = int(now * 1e6)
        present = self._config.idle is Idle.CLOCK and not self._awaits_first(now_us)
        at = by_clock(self.acceptance, now_us, present=present, may_leap=may_leap)
        if self.settling is None:
            self.acceptance.advance(at)
        elif at > self.boundary:  # by an entry: replicas do not look at their own clocks
            entry = _by_itself(self.acceptance)
            self.append(structs.replace(entry, becomes=at, taken=now_us), b"", None)

    def cut(self) -> tuple[int, pa.Table] | None:
        """The next epoch for the log: (boundary, rows with stime <= it in canonical order).

        None: the boundary has not moved. It is the same until `committed`, so that a failed append
        is simply tried once more. A large epoch comes in several cuts.
        """
        reached = self.ready
        if self.revisions is not None:  # the log of revisions is never behind
            reached = min(reached, self.revisions.committed)
        return self.waiting.cut(reached)

    def committed(self, upto: int) -> None:
        """Note that the log has the epoch of `cut`; its rows need their journal no longer."""
        self.waiting.commit(upto)
        self._let_go()

    def begin_again(self, boundary: int) -> None:
        """Go on after another copy of this journal has accepted posts that are not in this one. Its
        row numbers are not given again, and producers may leap over the posts that it answered.

        Args:
            boundary: rows up to it are late from now on.

        Raises:
            StorageError: the disk does not take it.
        """
        self.acceptance.begin_again(boundary)
        self._begin_segment()

    @property
    def pending_limit(self) -> int:
        """Bytes that may wait in memory for the boundary."""
        return self._config.pending_bytes

    def close(self) -> None:
        self._journal.close()

    # -- as one of several replicas: see `replica.py` -----------------------------------------

    def lead(self, term_number: int, reopened: int | None) -> None:
        """See `Replica.lead`."""
        self.acceptance.term_number = term_number
        self.was_away = True
        if reopened is not None:
            self.reopen(reopened)
            return
        # after a loss of power a log may be ahead of the journal: no row goes behind the log
        self.acceptance.advance(self._reached)
        self._begin_segment()

    @property
    def has_journal(self) -> bool:
        """Whether its journal has begun."""
        return bool(self._journal.segment)

    def copy_segment(self, number: int, snapshot: bytes) -> None:
        """Begin a segment with the leader's snapshot.

        Raises:
            DecodeError: no leader sends this. StorageFullError: the disk is full.
        """
        self._restore_snapshot(number, snapshot)
        self._journal.begin(snapshot, 0 if self._journal.segment else number)
        self._note_entry(self.position)

    def copy_entry(self, meta: bytes, body: Bytes) -> None:
        """Append an entry of the leader's journal.

        Raises:
            DecodeError: no leader sends this. StorageFullError: the disk is full.
        """
        entry, batch = self._decoded(meta, body)
        self._journal.append(meta, body)
        self._take(entry, batch, self.position)
        self._note_entry(self.position)

    def hand_on_late(self, now: float) -> None:
        """Give late rows that all replicas have to the stream of late tuples. now: seconds."""
        settling = self.settling
        self.waiting.late_queue.hand_on(now, lambda at: settling is None or at <= settling.settled)

    def _check_leading(self) -> None:
        if self.settling is not None and not self.settling.leading:
            raise UnavailableError(f"stream {self.name}: this peer is not its leader now")

    # -- accepting ----------------------------------------------------------------------------

    def _accept(self, request: PostRequest, now: float) -> Posted:
        writer, sequence, promise = request.writer, request.post.sequence, request.promise
        self._wait_anew(now)
        batch, arrival = read_post(request.body, self.schema), None
        check_ahead(batch.stime, promise, self.schema, self.definition, int(now * 1e6))
        if batch.stime is None and batch.payload.num_rows:
            arrival = self.acceptance.arrival_at(int(now * 1e6))
            batch = batch.arrived(arrival)
        entry = Entry(
            writer.producer,
            sequence,
            boundary=self.boundary,
            count=batch.payload.num_rows,
            first=self.acceptance.rows,
            greatest=batch.high,
            arrival=arrival,
            promise=promise,
            late=0,
            taken=int(now * 1e6),
            participant=writer.participant,
            offset=request.offset,
            done=request.is_done,
        )
        entry = decide(self.acceptance, entry, batch, self._config.lateness_us)
        inserted = entry.inserted
        if self.revisions is not None and inserted is not None:
            size, limit = taken_by(batch.payload), self.pending_limit
            self.revisions.check_room(self.name, size, limit, self.ready, entry.becomes)
        self.waiting.check_room(batch, entry, self.ready, self._config)
        leapt = self.acceptance.leapt(writer, sequence)
        self.append(entry, request.body, batch)
        self._note_leapt(writer, leapt)
        self.hand_on_late(now)
        return Posted(
            sequence,
            entry.in_order,
            entry.late,
            self.boundary,
            inserted=0 if inserted is None else inserted.count,
            waiting=0 if entry.count else self.waiting.pending.beyond(self.boundary),
        )

    def append(self, entry: Entry, body: Bytes, batch: Batch | None) -> None:
        """Journal an accepted entry, and let it wait for the boundary.

        Raises:
            StorageFullError: the disk is full; nothing has changed.
        """
        if self._journal.size >= self._config.segment_bytes:
            self._begin_segment()
        self._journal.append(_ENCODER.encode(entry), body)
        self._take(entry, batch, self.position)
        self._note_entry(self.position)

    def _take(self, entry: Entry, batch: Batch | None, at: Position) -> None:
        """Put a journaled entry where it belongs; the same for a post and for its replay.

        Args:
            batch: None: the log has all of it. at: where the entry ends in the journal.
        """
        late_posts = self.acceptance.late_posts
        self.acceptance.apply(entry)
        if entry.definition is not None:
            self._config = self._config.of(entry.definition)
        if entry.position is not None:
            self._need(at, entry.position if entry.count else BEGINNING)
            if self.revisions is not None:
                self.revisions.take(entry, batch)
        elif batch is not None:
            self._need(at, entry.greatest if entry.in_order else BEGINNING)
            self.waiting.take(entry, batch, at, late_posts)
            if entry.inserted is not None and self.revisions is not None:
                self._need(at, entry.inserted.position)
                self.revisions.insert(entry, batch)

    def _need(self, at: Position, greatest: int) -> None:
        """Keep the segment of that position until the log has rows with stime <= greatest."""
        self._greatest[at[0]] = max(self._greatest.get(at[0], BEGINNING), greatest)

    def _define(self, known: StreamDefinition | None) -> None:
        """Use that definition if it is newer than the journal's, which may be incomplete."""
        journaled = self.acceptance.definition
        if known is not None and (journaled is None or journaled.edition < known.edition):
            self.acceptance.define(known)
            self._config = self._config.of(known)

    # -- reading the journal ------------------------------------------------------------------

    def restore(self, record: Record) -> None:
        at = (record.segment, record.end)
        try:
            if record.first:
                self._restore_snapshot(record.segment, record.meta)
            else:
                entry, batch = self._decoded(record.meta, record.body)
                # A leap that was accepted before was reported then.
                leapt = range(0)
                if self._lost:
                    leapt = self.acceptance.leapt(entry.writer, entry.sequence)
                self._take(entry, batch, at)
                self._note_leapt(entry.writer, leapt)
        except InvalidInputError as error:
            raise InternalError(f"journal of {self.name}, an entry: {error}") from error
        self._note_entry(at)

    def missing(self, what: str) -> None:
        self.acceptance.doubt()
        committed = boundary_in_words(self.waiting.committed)
        self._lost.append(f"{what}, as far as it is after boundary {committed}")

    def torn(self, what: str) -> None:
        self.acceptance.doubt()
        self._torn.append(what)

    def state(self) -> bytes:
        # What is before the oldest segment is in the log alone, which is then no shorter than this.
        # A stream that has ended may be reopened, and its log be shortened.
        logged = min(self.waiting.committed, self.boundary)
        snapshot = self.acceptance.snapshot()
        if logged < END:
            snapshot = msgspec.structs.replace(snapshot, logged=logged)
        return _ENCODER.encode(snapshot)

    def _note_leapt(self, writer: Writer, missing: range) -> None:
        if missing:
            of = f" of {writer.participant}" if writer.participant else ""
            self._lost.append(
                f"posts {missing[0]} to {missing[-1]} of {writer.producer}{of} are missing from "
                "the journal, which is damaged or of a backup: their tuples after boundary "
                f"{self.waiting.committed} are lost"
            )

    def _restore_snapshot(self, segment: int, meta: bytes) -> None:
        snapshot, had_ended = decode_snapshot(meta), self.boundary == END
        for writer, last in snapshot.progress:
            self._note_leapt(writer, self.acceptance.leapt(writer, last.sequence + 1))
        self.acceptance.restore(snapshot)
        if snapshot.definition is not None:
            self._config = self._config.of(snapshot.definition)
        self._note_segment(segment)
        if self.settling is not None and had_ended and self.boundary < END:
            self.settling.forget_end(self.boundary, self.waiting.committed)

    def _decoded(self, meta: bytes, body: Bytes) -> tuple[Entry, Batch | None]:
        """An entry, and its rows if they are still needed."""
        entry = decode_entry(meta)
        if entry.position is not None and self.revisions is not None:
            return entry, self.revisions.decoded(entry, body)
        revised = END if self.revisions is None else self.revisions.committed
        return entry, self.waiting.decoded(entry, body, revised)

    def _begin_segment(self) -> None:
        before = self._journal.segment
        try:
            self._journal.begin(self.state())
        finally:
            if self._journal.segment != before:
                self._note_segment(self._journal.segment)
                self._note_entry(self.position)

    def _let_go(self) -> None:
        """Delete the segments that nothing needs any more."""
        idle = not self.waiting.pending.bytes and not self.waiting.late_queue
        leading = self.settling is None or self.settling.leading
        if leading and idle and self._journal.size >= _IDLE_SEGMENT_BYTES:
            # A full disk refuses this; then the segment is replaced another time.
            with suppress(StorageError):
                self._begin_segment()
        first = (
            self.waiting.late_queue.segment if self.waiting.late_queue else self._journal.segment
        )
        first = min(first, self._needed_from())
        for segment in self._journal.segments[:-1]:
            if segment >= first or self._greatest.get(segment, BEGINNING) > self.waiting.committed:
                break
            self._greatest.pop(segment, None)
            self._journal.drop(segment + 1)

    @property
    def _reached(self) -> int:
        """The greatest boundary of its logs, microseconds: the clock may have moved both, and a
        crash come before the log of tuples followed."""
        return (
            self.waiting.committed
            if self.revisions is None
            else max(self.waiting.committed, self.revisions.committed)
        )

    def _begin(self) -> None:
        """Take posts from now on: the journal of a stream without replicas was read."""
        by_times = by_slack(self.acceptance, self.acceptance.slack_us)
        self.acceptance.advance(max(self._reached, by_times))
        if self._journal.lost_end:  # rows of it may be in the log, under numbers that go on
            self.acceptance.begin_again(self._reached)
        if self._lost and self._late is not None:
            # Late rows are handed on as they are accepted: missing posts had numbers there.
            handed_on = self._late.acceptance.last_of(Writer(self.name))
            self.acceptance.late_posts = max(self.acceptance.late_posts, handed_on)
        if self._lost or self._torn or not self._journal.segment:
            self._begin_segment()  # its snapshot remembers the doubted producers

    def _wait_anew(self, now: float) -> None:
        """Once it leads again: producers are waited for from now on."""
        if self.was_away:
            self.was_away = False
            self._leads_since = int(now * 1e6)
            self.acceptance.presence.wait_anew(int(now * 1e6))

    def _awaits_first(self, now_us: int) -> bool:
        """Whether nothing was posted yet, and somebody may be about to: it has just begun."""
        waited = now_us - self._leads_since
        return self.boundary == BEGINNING and 0 <= waited < self.acceptance.presence.idle_us

    def _progress(self, writer: Writer) -> Posted:
        """The answer to number 0."""
        last, offset = self.acceptance.progress(writer)
        waiting = self.waiting.pending.beyond(self.boundary)
        return Posted(0, 0, 0, self.boundary, last=last, offset=offset, waiting=waiting)

    def _leave(self, writer: Writer, last: int, now: float) -> None:
        """Wait no longer for a producer; last: the number of its last post."""
        self._wait_anew(now)
        presence = self.acceptance.presence
        if presence.claim(writer.participant, writer.producer) is None:
            return
        entry = _by_itself(self.acceptance)
        entry = structs.replace(
            entry,
            producer=writer.producer,
            participant=writer.participant,
            sequence=last,
            done=True,
            taken=int(now * 1e6),
        )
        none = Batch(self.schema.payload.empty_table())
        self.append(decide(self.acceptance, entry, none, 0), b"", None)

    def _note_entry(self, at: Position) -> None:
        """Note the boundary after the entry that ends there."""
        if self.settling is not None:
            self.settling.note_entry(at, self.boundary)

    def _note_segment(self, number: int) -> None:
        """Note the term of a segment that begins with the present state."""
        if self.settling is not None:
            self.settling.note_segment(number, self.acceptance.term_number)

    def _needed_from(self) -> int:
        """The oldest segment that must stay, whatever is in it."""
        newest = self._journal.segment
        return newest if self.settling is None else min(newest, self.settling.settled[0])


def _by_itself(acceptance: Acceptance) -> Entry:
    """An entry that is no post."""
    return Entry("", 0, acceptance.boundary, 0, acceptance.rows, BEGINNING, None, None, 0)

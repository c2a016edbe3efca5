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
key (`revising.py`).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from msgspec import structs

from medusa.engine.objects.definitions import Idle, StreamDefinition
from medusa.engine.objects.schema import BEGINNING, END, Schema
from medusa.engine.streams.config import SourceConfig
from medusa.engine.streams.ipc import encode
from medusa.engine.streams.messages import Post, Posted
from medusa.engine.streams.source.acceptance import (
    Acceptance,
    Entry,
    Writer,
)
from medusa.engine.streams.source.deciding import by_clock, by_slack, decide
from medusa.engine.streams.source.post_request import PostRequest
from medusa.engine.streams.source.presence import Presence
from medusa.engine.streams.source.source_journal import SourceJournal
from medusa.engine.streams.source.source_state import SourceState
from medusa.engine.streams.source.waiting import taken_by
from medusa.engine.streams.validate import Batch, check_ahead, read_post
from medusa.overlay.errors import (
    StorageError,
    UnavailableError,
)
from medusa.overlay.failpoints import Failpoint, failpoint


class Attendance:
    """Since when a leader waits for producers: the waits for producers that were present under
    another leader, or in an earlier run, begin anew. Attributes: was_away: whether the leader has
    not read the clock since it began to lead. since: when the waits began, microseconds.
    """

    def __init__(self) -> None:
        self.was_away = True
        self.since = 0

    def wait(self, presence: Presence, now: float) -> None:
        """Wait for the present producers from now on, once it leads again. now: seconds."""
        if self.was_away:
            self.was_away = False
            self.since = int(now * 1e6)
            presence.wait_anew(self.since)


class Source:
    """A source stream at its leader: accepts posts, and answers them. Attributes: name, schema: the
    stream's name and schema. state: the state after its accepted entries. journal: stores the
    entries. acceptance, waiting, revisions: these parts of `state`. settling: this part of
    `journal`. attendance: since when producers are waited for.
    """

    def __init__(self, state: SourceState, journal: SourceJournal, late: Source | None) -> None:
        self.name = state.name
        self.schema = state.schema
        self.state = state
        self.journal = journal
        self.acceptance = state.acceptance
        self.waiting = state.waiting
        self.revisions = state.revisions
        self.settling = journal.settling
        self.attendance = Attendance()
        self._late = late

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
            committed: the log's boundary, microseconds. revised: the boundary of the log of its
                revisions. late: the source of `<stream>/late`; None if no row can be late.
            now: seconds since the epoch.

        Raises:
            StorageError: the journal cannot be read, or there is no room to begin one.
        """
        state = SourceState(name, schema, config, logged=committed, revised=revised, late=late)
        source = cls(state, SourceJournal.open(folder, state), late)
        state.define(config.definition)
        if source.settling is None:  # otherwise its journal begins when it leads or follows
            source._begin()
        source.hand_on_late(now)
        source.journal.trim()
        return source

    @property
    def boundary(self) -> int:
        return self.acceptance.boundary

    @property
    def ready(self) -> int:
        """The boundary up to which `cut` returns rows."""
        return self.boundary if self.settling is None else self.settling.gate

    @property
    def crowded(self) -> bool:
        """Whether the log should catch up before more is posted."""
        pending = self.waiting.pending
        return pending.bytes > self.state.config.pending_bytes // 4 and pending.ready(self.ready)

    def post(self, request: PostRequest, *, now: float) -> Posted:
        """Accept a post: when this returns, it survives the death of the process.

        Args:
            now: seconds since the epoch.

        Raises:
            InvalidInputError: the body does not fit the schema (the message names field and row),
                or more rows would wait for the slack alone than may wait. SequenceGapError: a post
                is missing before it. ConflictError: it does not begin where the last one ended.
                BusyError: too many rows wait for the log; StorageFullError: the disk is full.
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
        stream with replicas acknowledges a post, even a repeated one, only once it is settled.

        Raises:
            UnavailableError: another peer is the leader.
            SequenceGapError: a post is missing before it.
            ConflictError: it does not begin where the last one ended.
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
        only grows, with gaps where a loss of power lost entries of this journal.

        Raises:
            BusyError: try again later.
        """
        writer = Writer(stream)
        if number > self.acceptance.last_of(writer):
            self._accept(PostRequest(writer, Post(number), encode(payload)), now)

    @failpoint(Failpoint.SOURCE_ALTER)
    def alter(self, definition: StreamDefinition) -> None:
        """Change the stream's definition from here on, after all posts so far. With replicas it
        takes effect once it is settled.

        Raises:
            UnavailableError: another peer is the leader.
            StorageFullError: the disk is full; nothing has changed.
        """
        self._check_leading()
        now = self.acceptance
        becomes = by_slack(now, definition.slack_us)
        altered = structs.replace(_by_itself(now), definition=definition, becomes=becomes)
        self.journal.append(altered, b"", None)

    @failpoint(Failpoint.SOURCE_REOPEN)
    def reopen(self, boundary: int) -> None:
        """Let an ended stream continue from that boundary; no reader has seen its end, and its logs
        are shortened. With replicas this takes effect once the leader's term is installed. Raises:
        StorageFullError: the disk is full; the stream stays ended.
        """
        now = self.acceptance
        assert now.boundary == END, "it has not ended"
        ended_at = now.ended_at
        now.reopen(boundary)
        try:
            self.journal.begin_segment()
        except StorageError:
            now.boundary, now.ended_at = END, ended_at
            raise
        if self.settling is not None:
            self.settling.forget_end(boundary, self.waiting.committed)

    def shortened(self, upto: int, logged: int, revised: int) -> None:
        """Note that its logs reach no further than `upto` for now. logged, revised: the boundaries
        of the logs of its tuples and of its revisions."""
        self.waiting.shorten(upto, logged)
        if self.revisions is not None:
            self.revisions.shorten(upto, revised)

    def tick(self, now: float, *, may_leap: bool = True) -> None:
        """Let the clock move the boundary, if the stream's definition says so.

        Args:
            now: seconds since the epoch.
            may_leap: whether it may move by more than `LEAP_US`: not while the clock may be wrong.
        """
        self.hand_on_late(now)
        self.attendance.wait(self.acceptance.presence, now)
        leads = self.settling is None or self.settling.leading
        if not leads:
            return
        now_us = int(now * 1e6)
        present = self.state.config.idle is Idle.CLOCK and not self._awaits_first(now_us)
        at = by_clock(self.acceptance, now_us, present=present, may_leap=may_leap)
        if self.settling is None:
            self.acceptance.advance(at)
        # an entry moves the boundary, because replicas do not use their own clocks
        elif at > self.boundary:
            entry = _by_itself(self.acceptance)
            self.journal.append(structs.replace(entry, becomes=at, taken=now_us), b"", None)

    def cut(self) -> tuple[int, pa.Table] | None:
        """The next epoch for the log: (boundary, rows with stime <= it in canonical order).

        None: the boundary has not moved. It is the same until `committed`, so that a failed append
        is simply tried again. A large epoch takes several cuts.
        """
        reached = self.ready
        if self.revisions is not None:  # the log of revisions is never behind
            reached = min(reached, self.revisions.committed)
        return self.waiting.cut(reached)

    def committed(self, upto: int) -> None:
        """Note that the log has the epoch of `cut`; the journal need not keep its rows any
        longer."""
        self.waiting.commit(upto)
        self.journal.trim()

    def begin_again(self, boundary: int) -> None:
        """Continue after another copy of this journal has accepted posts that this one lacks. Its
        row numbers are not used again, and producers may leave gaps for the posts that it answered.

        Args:
            boundary: rows up to it are late from now on.

        Raises:
            StorageError: the disk does not take it.
        """
        self.acceptance.begin_again(boundary)
        self.journal.begin_segment()

    def close(self) -> None:
        self.journal.close()

    def lead(self, term_number: int, reopened: int | None) -> None:
        """See `Replica.lead`."""
        self.acceptance.term_number = term_number
        self.attendance.was_away = True
        if reopened is not None:
            self.reopen(reopened)
            return
        # after a loss of power a log may be ahead of the journal: no row may come behind the log
        self.acceptance.advance(self.state.reached)
        self.journal.begin_segment()

    def hand_on_late(self, now: float) -> None:
        """Pass late rows that all replicas have to the stream of late tuples. now: seconds."""
        settling = self.settling
        self.waiting.late_queue.hand_on(now, lambda at: settling is None or at <= settling.settled)

    def _check_leading(self) -> None:
        if self.settling is not None and not self.settling.leading:
            raise UnavailableError(f"stream {self.name}: this peer is not its leader now")

    def _accept(self, request: PostRequest, now: float) -> Posted:
        writer, sequence, promise = request.writer, request.post.sequence, request.promise
        self.attendance.wait(self.acceptance.presence, now)
        batch, arrival = read_post(request.body, self.schema), None
        check_ahead(batch.stime, promise, self.schema, self.state.config.definition, int(now * 1e6))
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
        entry = decide(self.acceptance, entry, batch, self.state.config.lateness_us)
        inserted = entry.inserted
        if self.revisions is not None and inserted is not None:
            size, limit = taken_by(batch.payload), self.state.config.pending_bytes
            self.revisions.check_room(self.name, size, limit, self.ready, entry.becomes)
        self.waiting.check_room(batch, entry, self.ready, self.state.config)
        leapt = self.acceptance.leapt(writer, sequence)
        self.journal.append(entry, request.body, batch)
        self.journal.note_leapt(writer, leapt)
        self.hand_on_late(now)
        return Posted(
            sequence,
            entry.in_order,
            entry.late,
            self.boundary,
            inserted=0 if inserted is None else inserted.count,
            waiting=0 if entry.count else self.waiting.pending.beyond(self.boundary),
        )

    def _begin(self) -> None:
        """Begin to accept posts, because the journal of a stream without replicas was read."""
        journal, reached = self.journal, self.state.reached
        by_times = by_slack(self.acceptance, self.acceptance.slack_us)
        self.acceptance.advance(max(reached, by_times))
        # the log may have rows of the lost end, under numbers that continue
        if journal.has_lost_end:
            self.acceptance.begin_again(reached)
        if journal.lost and self._late is not None:
            # Late rows are passed on when they are accepted: missing posts had numbers there, too.
            handed_on = self._late.acceptance.last_of(Writer(self.name))
            self.acceptance.late_posts = max(self.acceptance.late_posts, handed_on)
        if journal.lost or journal.cut_off or not journal.has_begun:
            journal.begin_segment()  # the segment's snapshot remembers the doubted producers

    def _awaits_first(self, now_us: int) -> bool:
        """Whether the stream has just begun, and its first post may follow soon."""
        waited = now_us - self.attendance.since
        return self.boundary == BEGINNING and 0 <= waited < self.acceptance.presence.idle_us

    def _progress(self, writer: Writer) -> Posted:
        """The answer to number 0."""
        last, offset = self.acceptance.progress(writer)
        waiting = self.waiting.pending.beyond(self.boundary)
        return Posted(0, 0, 0, self.boundary, last=last, offset=offset, waiting=waiting)

    def _leave(self, writer: Writer, last: int, now: float) -> None:
        """Wait no longer for a producer; last: the number of its last post."""
        self.attendance.wait(self.acceptance.presence, now)
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
        self.journal.append(decide(self.acceptance, entry, none, 0), b"", None)


def _by_itself(acceptance: Acceptance) -> Entry:
    """An entry that is no post."""
    return Entry("", 0, acceptance.boundary, 0, acceptance.rows, BEGINNING, None, None, 0)

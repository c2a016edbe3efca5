"""The accepted state of a source stream: its producers, the numbers of rows, the boundary. Sans IO.

Every accepted post becomes an `Entry`. Only `apply` changes the state, for a new post as for one
that is read from the journal, so both lead to the same state. An entry records the boundary at
which it was accepted, so a replay finds the same rows late.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Final, NamedTuple

from msgspec import Struct

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.objects.schema import BEGINNING, END
from medusa.engine.streams.journal.entries import MAX_META_BYTES
from medusa.engine.streams.source.lateness import Judged, judge
from medusa.engine.streams.source.presence import Claim, Presence, PresenceState
from medusa.engine.streams.source.remembered import Remembered
from medusa.engine.streams.validate import Batch
from medusa.overlay.encoding import decode
from medusa.overlay.errors import ConflictError, InvalidInputError, SequenceGapError

MAX_PRODUCERS: Final = 10_000
"""Producers remembered per stream. Beyond it the participant with the most of them loses the
producer that has been silent longest: this producer can then only begin again at 1."""

MAX_PRODUCER_BYTES: Final = 512
"""UTF-8 bytes in a producer's name: bounds the snapshot of 10,000 of them."""

MAX_OFFSET_BYTES: Final = 128
"""Bytes of an offset, a producer's place in its source: every snapshot has one per producer."""

MAX_MISSES: Final = 2**18
"""Remembered revisions that found no tuple: a client whose answer was lost gets the same one when
it posts again. The number bounds the snapshot, and is far above the number of posts that posters
have unanswered. Participants share it as they share producers."""

MISSES_OF_A_POST: Final = 256
"""Weight of a post beside its revisions: its number and its producer's name are kept as well."""


class Writer(NamedTuple):
    """A producer, which numbers its posts; its participant chooses the name.

    Attributes:
        participant: "" is the stream's owner.
    """

    producer: str
    participant: str = ""


UNKNOWN: Final = Writer("")
"""Stands for all producers that are not remembered, in the set of producers whose last posts may be
missing after a restore."""


Offsets = tuple[bytes, bytes]
"""A producer's place in its source before and after a post; see `streams.messages.Post`."""


class Progress(NamedTuple):
    """The last post of a producer.

    Attributes:
        sequence: the post's number. offset: the producer's place in its source after the post; b"":
            not reported.
    """

    sequence: int = 0
    offset: bytes = b""


UNKNOWN_ROWS: Final = 2**48
"""The gap left in the numbers of rows after a restore: more rows than a stream takes between a
backup and the loss of its leader, ten million a second for a year. 64 bits have room for 30,000
such losses."""


class Inserted(Struct, frozen=True, array_like=True):
    """The late tuples of a post that are within the stream's lateness: they are revisions.

    Attributes:
        lateness_us: the lateness that the stream allows; later tuples go to the stream of late
            tuples.
        count: the number of these late tuples. first: the number of the first one among the
            revisions. revised_at: the place in the stream's time of the revision before them.
            position: the place of the last one; each place is beyond the boundary at which the
            tuple arrived.
    """

    lateness_us: int
    count: int
    first: int
    revised_at: int
    position: int


class Entry(Struct, frozen=True, array_like=True):
    """One accepted post.

    Attributes:
        producer, sequence: the name of the post's producer, and the post's number.
        boundary: the stream's boundary at the acceptance; rows with stime up to it are late, and so
            are rows that follow a row of the same post with an stime later by more than `slack_us`:
            see `lateness`.
        count: the number of posted rows. first: the number (seq) of the first of them.
        greatest: the greatest stime posted; BEGINNING without rows.
        arrival: the stime of all rows, if the stream takes the time of arrival.
        promise: the boundary that the producer promised, END if it ended the stream.
        late: late rows, without inserted ones.
        taken: when it was accepted, microseconds; late rows have it as their time of arrival. None:
            the clock plays no part. position: for a post of revisions: their place in the stream's
            time; `first`, `count` and `greatest` then describe the revisions. None: it is a post of
            tuples. missed: the numbers of the revisions that found no tuple.
        participant: see `Writer`.
        offset: the producer's place in its source after the post; None: not reported.
        definition: the stream's altered definition from here on, in an entry that is no post. As an
            entry it reaches replicas and survives, in order with the posts. inserted: the late rows
            that are revisions; None: there are none. slack_us: the stream's slack at the
            acceptance. ceiling: how far its rows can move the boundary, because other producers are
            present and less far. becomes: the stream's boundary after the post. done: whether the
            stream stops waiting for the producer.
    """

    producer: str
    sequence: int
    boundary: int
    count: int
    first: int
    greatest: int
    arrival: int | None
    promise: int | None
    late: int
    taken: int | None = None
    position: int | None = None
    missed: tuple[int, ...] = ()
    participant: str = ""
    offset: bytes | None = None
    definition: StreamDefinition | None = None
    inserted: Inserted | None = None
    slack_us: int = 0
    ceiling: int = END
    becomes: int = BEGINNING
    done: bool = False

    @property
    def writer(self) -> Writer:
        return Writer(self.producer, self.participant)

    def judged(self, batch: Batch) -> Judged | None:
        """The late rows of a post of tuples."""
        lateness_us = 0 if self.inserted is None else self.inserted.lateness_us
        return judge(batch, self.boundary, self.slack_us, self.ceiling, lateness_us)

    def claim(self, known: Claim | None) -> Claim | None:
        """The producer's claim after this post; None: the producer is not present.

        Args: known: the producer's claim before the post; None: the producer was not present.
        """
        promise = BEGINNING if self.promise is None else self.promise
        moves = self.position is None and self.in_order > 0
        if known is None and not moves and promise <= self.boundary:
            return None  # a producer whose rows are all late does not become present
        greatest = self.greatest if moves else BEGINNING
        return (known or Claim()).and_also(Claim(greatest, promise))

    @property
    def in_order(self) -> int:
        """How many of the post's rows are in time."""
        return self.count - self.late - (self.inserted.count if self.inserted else 0)


def decode_entry(meta: bytes) -> Entry:
    """The entry in the `meta` of a journal's entry. Raises: DecodeError."""
    return decode(meta, Entry, limit=MAX_META_BYTES, what="entry of a journal")


class Missed(Struct, frozen=True, array_like=True):
    """The revisions of a post that found no tuple; see `Entry.missed`."""

    producer: str
    sequence: int
    numbers: tuple[int, ...]
    participant: str = ""


class Snapshot(Struct, frozen=True, array_like=True):
    """The state between two entries.

    Attributes:
        term_number: the number of the leader's term that began the segment, if the stream has
            replicas.
        revisions, revised_at: see `Acceptance`.
        missed: the misses of the latest posts of revisions, the oldest first. producers: the
            producers, by participant and name, the longest silent first; see `Writer`.
        doubted: producers whose posts may be missing; see `Acceptance.doubt`.
        offsets: for each participant, the offsets of its producers in the order of `producers`.
        definition: the latest in the journal; None: it was never altered. ended_at: the boundary at
            which the stream ended; None: it has not ended, or the boundary is not known.
        presence: the producers that are present.
        late_rows, inserted_rows: see `Acceptance`.
    """

    producers: dict[str, dict[str, int]]
    rows: int
    boundary: int
    greatest: int
    late_posts: int
    term_number: int = 0
    revisions: int = 0
    revised_at: int = BEGINNING
    missed: tuple[Missed, ...] = ()
    doubted: tuple[Writer, ...] = ()
    offsets: dict[str, tuple[bytes, ...]] = {}
    definition: StreamDefinition | None = None
    ended_at: int | None = None
    presence: PresenceState = PresenceState()
    late_rows: int = 0
    inserted_rows: int = 0
    logged: int = BEGINNING

    @property
    def progress(self) -> Iterator[tuple[Writer, Progress]]:
        """The last post of every producer."""
        for participant, producers in self.producers.items():
            offsets = chain(self.offsets.get(participant, ()), repeat(b""))
            for (producer, sequence), offset in zip(producers.items(), offsets, strict=False):
                yield Writer(producer, participant), Progress(sequence, offset)


def decode_snapshot(meta: bytes) -> Snapshot:
    """The snapshot in the `meta` of a journal's entry. Raises: DecodeError."""
    return decode(meta, Snapshot, limit=MAX_META_BYTES, what="snapshot in a journal")


class Acceptance:
    """The accepted state of a source stream, which its journal's snapshot holds.

    Attributes:
        term_number: see `Snapshot`.
        boundary: rows with stime up to it are no longer accepted in order; only grows. greatest:
            the greatest accepted stime. rows: the number of rows so far, late ones included; also
            the next row's number. late_posts: the number of posts with late rows. late_rows: the
            number of these rows. inserted_rows: the number of late rows that became revisions.
            revisions: the number of rows of revisions so far; also the next one's number.
            revised_at: the place of the last revision; only grows.
        definition, ended_at: see `Snapshot`.
        slack_us: how far behind the greatest stime a row may arrive. arrival: whether stime is the
            time of arrival. presence: the producers for which the boundary waits; none if stime is
            the time of arrival.
    """

    def __init__(self, *, slack_us: int, arrival: bool, idle_us: int = 0) -> None:
        self.slack_us = slack_us
        self.presence = Presence(idle_us)
        self.arrival = arrival
        self._doubted: set[Writer] = set()
        self._forget_posts()
        self.definition: StreamDefinition | None = None
        self.ended_at: int | None = None
        self.boundary = BEGINNING
        self.greatest = BEGINNING
        self.rows = 0
        self.late_posts = 0
        self.late_rows = 0
        self.inserted_rows = 0
        self.term_number = 0
        self.revisions = 0
        self.revised_at = BEGINNING

    def _forget_posts(self) -> None:
        self._producers: Remembered[str, Progress] = Remembered(MAX_PRODUCERS, lambda _: 1)
        self._missed: Remembered[tuple[str, int], tuple[int, ...]] = Remembered(
            MAX_MISSES, lambda numbers: MISSES_OF_A_POST + len(numbers)
        )

    def snapshot(self) -> Snapshot:
        known = self._producers.by_participant
        return Snapshot(
            {who: {name: at.sequence for name, at in of.items()} for who, of in known.items()},
            self.rows,
            self.boundary,
            self.greatest,
            self.late_posts,
            self.term_number,
            self.revisions,
            self.revised_at,
            tuple(Missed(*post, missed, who) for who, post, missed in self._missed),
            tuple(sorted(self._doubted)),
            {who: tuple(at.offset for at in of.values()) for who, of in known.items()},
            self.definition,
            self.ended_at,
            self.presence.state,
            self.late_rows,
            self.inserted_rows,
        )

    def restore(self, snapshot: Snapshot) -> None:
        self._forget_posts()
        self._doubted = set(snapshot.doubted)
        for writer, progress in snapshot.progress:
            self._producers.note(writer.participant, writer.producer, progress)
        self.define(snapshot.definition)
        self.ended_at = snapshot.ended_at
        self.presence.restore(snapshot.presence)
        self.boundary = snapshot.boundary
        self.greatest = snapshot.greatest
        self.rows = snapshot.rows
        self.late_posts = snapshot.late_posts
        self.late_rows = snapshot.late_rows
        self.inserted_rows = snapshot.inserted_rows
        self.term_number = snapshot.term_number
        self.revisions = snapshot.revisions
        self.revised_at = snapshot.revised_at
        for missed in snapshot.missed:
            post = missed.producer, missed.sequence
            self._missed.note(missed.participant, post, missed.numbers)

    def define(self, definition: StreamDefinition | None) -> None:
        """Use that definition from now on; None: keep the present one."""
        if definition is not None:
            self.definition = definition
            self.slack_us = definition.slack_us
            self.presence.idle_us = definition.idle_timeout_us

    def last_of(self, writer: Writer) -> int:
        """The number of the producer's latest post; 0: it has none, or is forgotten."""
        return self.progress(writer).sequence

    def progress(self, writer: Writer) -> Progress:
        """The producer's latest post; empty if there is none, or if it is forgotten."""
        return self._producers.get(writer.participant, writer.producer) or Progress()

    def check_offsets(self, writer: Writer, sequence: int, offsets: Offsets) -> None:
        """Check that a post begins where the producer's last one ended, and that the last post, if
        it is repeated, ends at the same place. Earlier ones are not remembered.

        Raises:
            ConflictError: two clients post as this producer.
            InvalidInputError: an offset is too long.
        """
        before, after = offsets
        if max(len(before), len(after)) > MAX_OFFSET_BYTES:
            raise InvalidInputError(f"an offset has at most {MAX_OFFSET_BYTES} bytes")
        last = self.progress(writer)
        if sequence < last.sequence:
            return
        if last.offset != (after if sequence == last.sequence else before):
            raise ConflictError(
                f"post {sequence} of {writer.producer} does not go on where its last one ended: "
                "somebody else posts the same, or did a moment ago: once that is done, run it again"
            )

    def is_duplicate(self, writer: Writer, sequence: int) -> bool:
        """Whether this post was accepted before.

        Raises:
            SequenceGapError: posts before it are missing.
            InvalidInputError: an invalid producer or number.
        """
        name = writer.producer
        if not 0 < len(name.encode()) <= MAX_PRODUCER_BYTES:
            raise InvalidInputError(f"a producer's name has 1 to {MAX_PRODUCER_BYTES} bytes")
        if not 1 <= sequence <= END:
            raise InvalidInputError(f"sequence {sequence} of {name} is not a post's number")
        last = self.last_of(writer)
        if sequence <= last + 1:
            return sequence <= last
        if self._is_doubted(writer):
            return False
        if last:
            raise SequenceGapError(
                f"{name} sent post {sequence}; expected {last + 1}: send again from there"
            )
        raise SequenceGapError(
            f"{name} sent post {sequence}, and no earlier one of it is remembered: a new producer "
            f"begins at 1; an old one is forgotten when {MAX_PRODUCERS} others have posted since, "
            "or with a lost journal: look what the stream has, and post the rest as another one"
        )

    def doubt(self) -> None:
        """Note that entries are missing, of unknown producers: the next post of every producer may
        leave a gap in the numbers, because the missing posts were acknowledged and will not be sent
        again."""
        known = self._producers.by_participant.items()
        self._doubted = {Writer(name, who) for who, names in known for name in names} | {UNKNOWN}

    def begin_again(self, boundary: int) -> None:
        """See `Source.begin_again`."""
        self.doubt()
        self.advance(boundary)
        self.rows += UNKNOWN_ROWS
        self.revisions += UNKNOWN_ROWS

    def leapt(self, writer: Writer, sequence: int) -> range:
        """The posts of a doubted producer that are missing before this one, or some of them."""
        return range(self.last_of(writer) + 1, sequence) if self._is_doubted(writer) else range(0)

    def _is_doubted(self, writer: Writer) -> bool:
        return writer in self._doubted or (UNKNOWN in self._doubted and not self.last_of(writer))

    def missed(self, writer: Writer, sequence: int) -> tuple[int, ...]:
        """The numbers of the revisions of an accepted post that found no tuple."""
        return self._missed.get(writer.participant, (writer.producer, sequence)) or ()

    def arrival_at(self, now_us: int) -> int:
        """The stime of rows that arrive now: the time of the clock, made strictly monotone; on a
        stream that has ended it is END, so that the rows are late."""
        return min(max(now_us, self.greatest + 1, self.boundary + 1), END)

    def revised_at_after(self, now_us: int, latest: int) -> int:
        """The place of revisions that arrive now: beyond the boundary, so that they are emitted
        with the next tuples; not before the latest tuple that they revise, nor before earlier
        revisions. If stime is the time of arrival, so is the place."""
        if self.arrival:
            return max(self.arrival_at(now_us), self.revised_at)
        return max(self.boundary + 1, latest, self.revised_at)

    def apply(self, entry: Entry) -> None:
        before, self.boundary = self.boundary, max(self.boundary, entry.becomes)
        if before < self.boundary == END:
            self.ended_at = max(before, entry.boundary)
        self.define(entry.definition)
        if entry.taken is not None and not self.arrival and before < END:
            self._note_presence(entry, entry.taken)
        # rows after the end do not count, because the stream may be reopened
        if before < END and entry.count and (self.arrival or entry.position is None):
            self.greatest = max(self.greatest, entry.greatest)
        if entry.position is None:
            self.rows = entry.first + entry.count
        else:
            self.revisions = entry.first + entry.count
            self.revised_at = max(self.revised_at, entry.greatest)
        if entry.inserted is not None:
            self.inserted_rows += entry.inserted.count
            self.revisions = entry.inserted.first + entry.inserted.count
            self.revised_at = max(self.revised_at, entry.inserted.position)
        self.late_posts += entry.late > 0
        self.late_rows += entry.late
        if entry.missed:
            post = entry.producer, entry.sequence
            self._missed.note(entry.participant, post, entry.missed)
        if entry.producer:  # otherwise it is an entry of the clock
            self._doubted.discard(entry.writer)
            offset = self.progress(entry.writer).offset if entry.offset is None else entry.offset
            progress = Progress(entry.sequence, offset)
            self._producers.note(entry.participant, entry.producer, progress)

    def _note_presence(self, entry: Entry, now: int) -> None:
        presence, slack_us = self.presence, entry.slack_us
        presence.expire(slack_us, now)
        if self.boundary == END:
            presence.leave_all()
        elif entry.producer:
            known = presence.claim(entry.participant, entry.producer)
            claim = entry.claim(known)
            in_time = entry.position is None and entry.in_order > 0
            if claim is not None and (in_time or claim != known):
                presence.move(entry.participant, entry.producer, claim, slack_us, now)
            if entry.done:
                presence.leave(entry.participant, entry.producer, slack_us, now)

    def advance(self, boundary: int) -> None:
        """Move the boundary forward, never back."""
        if boundary == END > self.boundary:
            self.ended_at = self.boundary
        self.boundary = max(self.boundary, boundary)

    def goes_on_from(self, logged: int) -> int:
        """The boundary from which an ended stream can continue; no promised boundary is beyond it.
        logged: the log's boundary before its end, as far as the log knows."""
        before = logged if self.ended_at is None else self.ended_at
        promised = self.presence.reached(self.slack_us, limit=BEGINNING)
        return max(before, self.greatest, self.revised_at, promised)

    def reopen(self, boundary: int) -> None:
        """Undo the end of the stream, which no reader has seen."""
        self.boundary = boundary
        self.ended_at = None

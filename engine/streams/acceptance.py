"""What a source stream has accepted, sans IO: who posted what, the numbers of rows, the boundary.

Every accepted post becomes an `Entry`; `apply` is the only thing that changes the state, both when
the post is accepted and when the journal is read again, so both lead to the same state. An entry
records the boundary in force when it was accepted: a replay finds the same rows late.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import msgspec
from msgspec import Struct

from engine.schema import BEGINNING, END
from overlay.errors import DecodeError, InvalidInputError, SequenceGapError

MAX_PRODUCERS: Final = 10_000
"""Producers remembered per stream; past it the one that has been quiet longest is forgotten, and
may then start at any number again."""

MAX_PRODUCER_LENGTH: Final = 256
"""Characters in a producer's name: bounds the snapshot of 10,000 of them."""


MISSES_KEPT: Final = 1024
"""Posts of which is remembered what was missed, so that a client whose answer was lost gets the
same one when it posts again: more than a poster has unanswered, for many of them."""

MISSES_NUMBERED: Final = 2**18
"""Revisions that those missed, together: bounds the snapshot."""


LEAP_US: Final = 86_400 * 1_000_000
"""A day: a stream that was idle, or a peer that was off, for less goes on at once."""


class Entry(Struct, frozen=True, array_like=True):
    """One accepted post.

    Attributes:
        producer, sequence: whose post it is.
        boundary: the stream's when it was accepted; rows with stime <= it are late.
        count: rows posted. first: the number (seq) of the first of them.
        greatest: the greatest stime posted; BEGINNING without rows.
        arrival: the stime of all rows, where the stream takes the time of arrival.
        promise: the boundary that the producer promised, END if it ended the stream.
        late: rows that were late.
        taken: when it was accepted, microseconds, where replicas must give late rows the same
            stime; 0 elsewhere.
        position: of a post of revisions: their place in the stream's time; None: of tuples. What
            it has `first`, `count` and `greatest` is of the revisions then.
        missed: the numbers of the revisions that found nothing.
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
    taken: int = 0
    position: int | None = None
    missed: tuple[int, ...] = ()


def check_promise(boundary: int | None) -> None:
    """
    Raises:
        InvalidInputError: it can be none that a producer promises.
    """
    if boundary is not None and not BEGINNING <= boundary <= END:
        raise InvalidInputError(f"boundary {boundary} is not an int64 of microseconds")


def decode_entry(meta: bytes) -> Entry:
    """
    Raises:
        DecodeError: it is none.
    """
    try:
        return _ENTRIES.decode(meta)
    except msgspec.MsgspecError as error:
        raise DecodeError(str(error)) from None


_ENTRIES: Final = msgspec.msgpack.Decoder(Entry)


class Missed(Struct, frozen=True, array_like=True):
    """What a post of revisions did not find; see `Entry.missed`."""

    producer: str
    sequence: int
    numbers: tuple[int, ...]


class Snapshot(Struct, frozen=True, array_like=True):
    """The state between two entries.

    Attributes:
        producers: the longest quiet first.
        fence: of the home that began the segment, where the stream has replicas; see
            `engine.homes`.
        revisions, revised_at: see `Acceptance`.
        missed: of the latest posts of revisions, the oldest first.
    """

    producers: dict[str, int]
    rows: int
    boundary: int
    greatest: int
    late_posts: int
    fence: int = 0
    revisions: int = 0
    revised_at: int = BEGINNING
    missed: tuple[Missed, ...] = ()


class Acceptance:
    """
    Attributes:
        fence: see `Snapshot`.
        boundary: no row with stime <= it is accepted in order any more; only grows.
        greatest: the greatest stime accepted.
        rows: posted so far, late ones as well; the next row's number.
        late_posts: posts that had late rows.
        revisions: rows of revisions so far; the next one's number.
        revised_at: the place of the last of them; only grows.
    """

    def __init__(self, *, slack_us: int, arrival: bool) -> None:
        self._slack_us = slack_us
        self._arrival = arrival
        self._producers: dict[str, int] = {}
        self.boundary = BEGINNING
        self.greatest = BEGINNING
        self.rows = 0
        self.late_posts = 0
        self.fence = 0
        self.revisions = 0
        self.revised_at = BEGINNING
        self._missed: OrderedDict[tuple[str, int], tuple[int, ...]] = OrderedDict()
        self._numbered = 0

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self._producers,
            self.rows,
            self.boundary,
            self.greatest,
            self.late_posts,
            self.fence,
            self.revisions,
            self.revised_at,
            tuple(Missed(*post, numbers) for post, numbers in self._missed.items()),
        )

    def restore(self, snapshot: Snapshot) -> None:
        self._producers = dict(snapshot.producers)
        self.boundary = snapshot.boundary
        self.greatest = snapshot.greatest
        self.rows = snapshot.rows
        self.late_posts = snapshot.late_posts
        self.fence = snapshot.fence
        self.revisions = snapshot.revisions
        self.revised_at = snapshot.revised_at
        self._missed.clear()
        self._numbered = 0
        for missed in snapshot.missed:
            self._note_missed(missed.producer, missed.sequence, missed.numbers)

    def is_duplicate(self, producer: str, sequence: int) -> bool:
        """Whether this post was accepted before.

        Raises:
            SequenceGapError: the posts before it were not.
            InvalidInputError: no such producer or number can be.
        """
        if not 0 < len(producer) <= MAX_PRODUCER_LENGTH:
            raise InvalidInputError(f"a producer's name has 1 to {MAX_PRODUCER_LENGTH} characters")
        if not 0 <= sequence <= END:
            raise InvalidInputError(f"sequence {sequence} of {producer} is not a post's number")
        last = self._producers.get(producer)
        if last is None or sequence == last + 1:
            return False
        if sequence <= last:
            return True
        raise SequenceGapError(
            f"{producer} sent post {sequence}; expected {last + 1}: send again from there"
        )

    def missed(self, producer: str, sequence: int) -> tuple[int, ...]:
        """The numbers of the revisions of that post, accepted before, that found nothing."""
        return self._missed.get((producer, sequence), ())

    def arrival_at(self, now_us: int) -> int:
        """The stime of what arrives now: the clock's, made strictly monotone.

        END on a stream that has ended, so that it is late.
        """
        return min(max(now_us, self.greatest + 1, self.boundary + 1), END)

    def revised_at_after(self, now_us: int, latest: int) -> int:
        """The place of revisions that arrive now: beyond the boundary, so that they come out with
        what comes next; not before the latest tuple that they are about, nor before earlier ones.
        Where stime is the time of arrival, theirs is."""
        if self._arrival:
            return max(self.arrival_at(now_us), self.revised_at)
        return max(self.boundary + 1, latest, self.revised_at)

    def boundary_after(self, entry: Entry) -> int:
        """What the boundary becomes by this entry."""
        boundary = max(self.boundary, entry.boundary)
        if entry.count and self._arrival:
            # The next arrival is later than this one whatever the clock does.
            boundary = max(boundary, self.greatest, entry.greatest)
        elif entry.count and entry.position is None:
            boundary = max(boundary, max(self.greatest, entry.greatest) - self._slack_us - 1)
        if entry.promise is not None:
            boundary = max(boundary, entry.promise)
        return min(boundary, END)

    def apply(self, entry: Entry) -> None:
        self.boundary = self.boundary_after(entry)
        if entry.count and (self._arrival or entry.position is None):
            self.greatest = max(self.greatest, entry.greatest)
        if entry.position is None:
            self.rows = entry.first + entry.count
        else:
            self.revisions = entry.first + entry.count
            self.revised_at = max(self.revised_at, entry.greatest)
        self.late_posts += entry.late > 0
        if entry.missed:
            self._note_missed(entry.producer, entry.sequence, entry.missed)
        if not entry.producer:
            return  # the clock's
        self._producers.pop(entry.producer, None)
        self._producers[entry.producer] = entry.sequence
        if len(self._producers) > MAX_PRODUCERS:
            del self._producers[next(iter(self._producers))]

    def _note_missed(self, producer: str, sequence: int, numbers: tuple[int, ...]) -> None:
        self._missed[producer, sequence] = numbers
        self._numbered += len(numbers)
        while len(self._missed) > MISSES_KEPT or self._numbered > MISSES_NUMBERED:
            self._numbered -= len(self._missed.popitem(last=False)[1])

    def advance(self, boundary: int) -> None:
        """Moves the boundary forward; never back."""
        self.boundary = max(self.boundary, boundary)

    def tick(self, now_us: int) -> None:
        """The clock of an idle stream whose stime is the present."""
        self.advance(self.clock(now_us))

    def leaps(self, now_us: int) -> bool:
        """Whether `tick` takes the boundary so far that a wrong clock would make all tuples late
        for long. A new stream has none that could be."""
        return self.boundary > BEGINNING and self.clock(now_us) - self.boundary > LEAP_US

    def clock(self, now_us: int) -> int:
        """What `tick` makes of the boundary."""
        at = min(now_us - (0 if self._arrival else self._slack_us) - 1, END)
        return max(self.boundary, at)

"""Messages that carry tuples, and the answers to posts and subscriptions."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING

MAX_BATCH_BYTES: Final = 8 * 2**20
"""Most bytes of Arrow IPC in one message: bounds the memory that a receiver needs per peer."""


class Done(Struct, frozen=True):
    """The call succeeded. remarks: warnings for the user, one sentence each."""

    remarks: tuple[str, ...] = ()


class PostEvent(Struct, frozen=True):
    """Opens a post call: then `Post` messages, each answered by `Posted`, in order."""

    stream: str
    producer: str
    """Numbers the posts: unique among its participant's clients, and kept over restarts."""


class Post(Struct, frozen=True):
    """Tuples (in the body, the schema's payload columns), and promises about later ones.

    Attributes:
        sequence: 1, 2, 3... per producer; a repeated number is answered and not stored again, and a
            number that leaves a gap is refused. 0: nothing is posted; the answer has the producer's
            last number. boundary: the producer promises no later tuple of its own with stime <=
            boundary (microseconds).
        end: no tuple follows at all. From a participant that is not the owner: no tuple of this
            producer follows. revisions: the body has revisions of earlier tuples
            (`medusa.engine.streams.revisions.columns`).
        offsets: the producer's place in its source before and after this post, in a form that the
            producer chooses (Kafka Connect's source offsets). The second is stored with the tuples;
            a post is refused unless it begins where the last one ended. done: no tuple of this
            producer follows for now, so the boundary does not wait for it.
    """

    sequence: int
    boundary: int | None = None
    end: bool = False
    revisions: bool = False
    offsets: tuple[bytes, bytes] | None = None
    done: bool = False


class Posted(Struct, frozen=True):
    """The post is stored and survives a crash.

    Attributes:
        rows: tuples accepted in order.
        late: tuples that came after their boundary and went to `<stream>/late`.
        boundary: the stream's boundary now, microseconds.
        duplicate: whether it had been stored before. missed: in the answer to revisions: the
            numbers in their post, from 0, of revisions whose key no present tuple has. They changed
            nothing.
        last: the number of the producer's last post, in the answer to number 0.
        offset: the producer's place in its source after that post; b"": not reported.
        inserted: late tuples within the stream's lateness: they are inserted as revisions.
        waiting: in the answer to number 0 and to a post without tuples: tuples that wait for a
            later boundary.
    """

    sequence: int
    rows: int
    late: int
    boundary: int
    duplicate: bool = False
    missed: tuple[int, ...] = ()
    last: int = 0
    offset: bytes = b""
    inserted: int = 0
    waiting: int = 0


class Subscribe(Struct, frozen=True):
    """Opens a subscription: the peer sends `Tuples`, the subscriber `Acknowledge`.

    Attributes:
        after: the boundary the subscriber has, microseconds; tuples with stime > after follow.
        subscriber: a name: while this subscriber is away, retention keeps tuples for it for a
            while; "": it does not. With END as `after` the subscriber leaves. term_number: the
            highest term of a producer that the subscriber knows: a producer of a lower one is
            obsolete. keep: the boundary after which tuples are kept for the subscriber, although it
            has some of them already; None: `after`.
        tentative: the boundary of the subscriber's tentative tuples; None: it wants none.
    """

    stream: str
    after: int = BEGINNING
    subscriber: str = ""
    term_number: int = 0
    keep: int | None = None
    tentative: int | None = None


class ReceiveEvents(Struct, frozen=True):
    """Pull the tuples after a boundary; answered by one `Tuples`.

    Attributes:
        after: the boundary the caller has, microseconds.
        timeout_s: how long to wait for the first tuples, seconds; after that `upto` is null.
    """

    stream: str
    after: int = BEGINNING
    timeout_s: float = 0.0


class Tuples(Struct, frozen=True):
    """A part of an epoch: its rows are the body (may be empty).

    Attributes:
        after: the boundary the epoch starts from.
        upto: the epoch's boundary, set on its last part only: until then the rows are provisional.
            tentative: whether some input was missing; then the rows are valid until stable tuples
            reach `upto`.
    """

    after: int
    upto: int | None
    rows: int
    tentative: bool = False


class Acknowledge(Struct, frozen=True):
    """The subscriber has everything up to this boundary and will not ask for it again."""

    upto: int


REFUSES_POSTS: Final = "refuses_posts"
STANDS_STILL: Final = "stands_still"
"""Two states of a stream; the peer's list of troubles gives the reason of each."""


class StreamStatus(Struct, frozen=True):
    """The state of a stream at one peer.

    Attributes:
        role: source, derived or follower.
        rate: rows per second, smoothed. lag_s: seconds since the boundary last moved.
        late: the number of late rows. state: stable; up_failure: tentative tuples follow;
            stabilization: they are corrected; refuses_posts: a source that takes no posts now;
            stands_still: the stream does not grow, though there is input for it. version: changes
            with the versions of the stream's inputs.
        producer: id (hex) of the peer that it is read from, if another one produces it.
        waiting: stored rows of a source that wait for its boundary to pass them.
        inserted: the number of late rows within its lateness. present: producers that its boundary
            waits for.
    """

    name: str
    role: str
    rate: float
    boundary: int
    lag_s: float
    rows: int
    late: int
    bytes: int
    subscribers: int
    state: str = "stable"
    version: int = 0
    producer: str = ""
    waiting: int = 0
    inserted: int = 0
    present: int = 0

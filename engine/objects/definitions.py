"""What the catalog holds about streams and queries, and what the API sends about them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from engine.objects.query import Query, QueryStatus
from engine.objects.schema import BEGINNING, Schema
from engine.objects.view import View, check_view
from overlay.errors import InvalidInputError
from overlay.names import ObjectName, check_participant

LATE = "late"
"""The last segment of the name under which a source's late tuples are a stream."""

REVISIONS = "revisions"
"""The last segment of the name under which the revisions of a stream are one."""

ANY = "*"
"""In `readers` and `writers`: every member of the federation."""

CONTRACT = "contract"
"""In `readers`: who has a content contract in force with the owner, for that stream. No participant
is meant by that word."""

MAX_SPAN_US = 10 * 366 * 86_400 * 1_000_000
"""Ten years: a longer slack or history is a slip of the unit."""

MAX_MEMBERS = 64
"""Names in one list of readers or writers: the entry must stay small."""

MAX_POLICIES = 256
"""Streams that have restricted readers, of which one stream is made: as many as a union has inputs;
with the longest lists they are half of what an entry may have."""

MAX_K_SAFETY = 3
"""Seven voters: beyond it a post waits for more peers than it gains safety by."""

DEFAULT_HISTORY_US = 3_600_000_000
"""An hour of stime behind the boundary stays readable unless the stream says otherwise."""

DEFAULT_MAX_AHEAD_US = 3_600_000_000
"""An hour: clocks and time zones are off by less, slips of a unit by years."""


class Idle(StrEnum):
    """How a source stream's boundary moves while nothing is posted."""

    EXPLICIT = "explicit"
    """Only by posts and the boundaries that clients send."""
    CLOCK = "clock"
    """With the leader's clock, less the slack: for streams whose stime is the present."""


class Policy(Struct, frozen=True, omit_defaults=True, order=True):
    """Who may read what is made from a stream, by the word of that stream's owner (Myers and
    Liskov, SOSP 1997: a label is a set of policies, and a reader must satisfy all of them).

    Attributes:
        stream: whose owner says so.
        readers: as of its definition; that owner always may.
        declassify: participants on whose queries' declared outputs it does not bear.
    """

    stream: str
    readers: tuple[str, ...]
    declassify: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        return ObjectName.parse(self.stream).participant


class StreamDefinition(Struct, frozen=True, omit_defaults=True, rename={"leader": "home"}):
    """One stream.

    Attributes:
        name, schema: object names;.
        slack_us: how far behind the greatest stime seen a tuple may arrive, microseconds.
        history_us: how much stime behind the boundary stays readable, microseconds.
        readers, writers: participants that may subscribe / post; the owner always may.
        declassify: participants that may make this stream's tuples readable by others: by queries
            whose outputs have declared readers.
        label: the policies of what it is made from, which its readers must satisfy as well.
        leader: peer id (hex) of the peer that orders a source stream; "": the peer asked decides.
        query: the query that produces it, or "" for a source stream.
        k_safety: how many peers may die without an acknowledged tuple of a source stream being lost
            or its leader gone; 0: its leader alone keeps it.
        view: what part of another stream it shows, where it is a view of one; its tuples have the
            form, and `query` is the producer, of that one.
        revised: of what a query produces: something that it is made from may be revised.
        max_ahead_us: how far beyond the leader's clock a source stream's time may go, microseconds:
            one row of a wrong unit would make all that follow it late. None: any time, for what was
            generated or recorded.
        edition: grows with every alteration: of two definitions the one with the higher counts.
    """

    name: str
    schema: str
    slack_us: int = 0
    history_us: int = DEFAULT_HISTORY_US
    idle: Idle = Idle.EXPLICIT
    readers: tuple[str, ...] = (ANY,)
    writers: tuple[str, ...] = ()
    leader: str = ""
    query: str = ""
    k_safety: int = 0
    view: View | None = None
    revised: bool = False
    declassify: tuple[str, ...] = ()
    label: tuple[Policy, ...] = ()
    max_ahead_us: int | None = DEFAULT_MAX_AHEAD_US
    edition: int = 0

    @property
    def owner(self) -> str:
        return ObjectName.parse(self.name).participant

    @property
    def policies(self) -> tuple[Policy, ...]:
        """All that its readers must satisfy; the label of what is made from it. Sorted."""
        if ANY in self.readers:
            return self.label
        own = Policy(base_of(self.name), self.readers, self.declassify)
        return tuple(sorted({*self.label, own}))


def check_stream(stream: StreamDefinition) -> None:
    """
    Raises:
        InvalidInputError: a name is malformed, or a number or a list beyond its limits.
    """
    ObjectName.parse(stream.name)
    ObjectName.parse(stream.schema)
    spans = (
        ("slack", stream.slack_us),
        ("history", stream.history_us),
        ("max_ahead", stream.max_ahead_us or 0),
    )
    for label, span in spans:
        if not 0 <= span <= MAX_SPAN_US:
            raise InvalidInputError(f"{stream.name}: {label} of {span / 1e6:g} s is out of range")
    if not 0 <= stream.k_safety <= MAX_K_SAFETY:
        raise InvalidInputError(f"{stream.name}: k_safety is 0 to {MAX_K_SAFETY}")
    if stream.k_safety and stream.query:
        raise InvalidInputError(f"{stream.name}: only a source stream has k_safety")
    if stream.view is not None:
        check_view(stream.view)
    if stream.declassify and stream.query:
        raise InvalidInputError(f"{stream.name}: what is made from it is for its inputs to say")
    if CONTRACT in stream.writers:
        raise InvalidInputError(f"{stream.name}: a contract is for readers, not for writers")
    for members in (stream.readers, stream.writers, stream.declassify):
        check_members(stream.name, members)
    check_label(stream.name, stream.label)


def check_label(name: str, label: tuple[Policy, ...]) -> None:
    """
    Raises:
        InvalidInputError: too many policies, or one of a stream or of participants that are none.
    """
    if len(label) > MAX_POLICIES:
        raise InvalidInputError(
            f"{name}: made of more than {MAX_POLICIES} streams that have restricted readers"
        )
    for policy in label:
        ObjectName.parse(policy.stream)
        check_members(name, policy.readers)
        check_members(name, policy.declassify)


def check_members(name: str, members: tuple[str, ...]) -> None:
    """
    Raises:
        InvalidInputError: too many participants for one list, or one of them is none.
    """
    if len(members) > MAX_MEMBERS:
        raise InvalidInputError(f"{name}: more than {MAX_MEMBERS} readers or writers")
    for member in members:
        if member != ANY:
            check_participant(member)


def base_of(name: str) -> str:
    """The stream whose late tuples, or revisions, have that name; else itself."""
    base, _, kept_for = name.rpartition("/")
    return base if kept_for in {LATE, REVISIONS} else name


def check_not_late(name: str) -> None:
    """
    Raises:
        InvalidInputError: `name` belongs to the late tuples, or to the revisions, of another
            stream, or is too long to have such streams itself.
    """
    for kept_for, what in ((LATE, "tuples that come late"), (REVISIONS, "revisions")):
        ObjectName.parse(name).child(kept_for)
        if name.endswith(f"/{kept_for}"):
            raise InvalidInputError(f"{name}: names in /{kept_for} are kept for {what}")


def may_write(stream: StreamDefinition, participant: str) -> bool:
    return participant == stream.owner or ANY in stream.writers or participant in stream.writers


class StreamEntry(Struct, frozen=True):
    """A stream as published: its definition and the schema itself, so one lookup tells all."""

    stream: StreamDefinition
    schema: Schema

    @property
    def is_revised(self) -> bool:
        """Whether there is a stream of its revisions. A view shows tuples as they came."""
        if self.stream.query or self.stream.view is not None:
            return self.stream.revised
        return bool(self.schema.key)


class AlteredOutput(Struct, frozen=True, omit_defaults=True):
    """What was altered of a stream that a query produces; None: it is as the query makes it.

    Attributes:
        edition: see `StreamDefinition`.
    """

    edition: int = 0
    readers: tuple[str, ...] | None = None
    history_us: int | None = None


class QueryEntry(Struct, frozen=True, omit_defaults=True):
    """A query as published.

    Attributes:
        peer: peer id (hex) of the peer that runs it.
        outputs: the streams it produces that others may subscribe to.
        edition: how often it was modified. since: the boundary from which on it is as it says,
            microseconds; before, it was as modified last.
        readers: those of its streams that were declared before it.
        label: the policies of all that it reads: who satisfies them may know what it does.
        altered: how its outputs were altered since.
    """

    query: Query
    status: QueryStatus
    peer: str
    outputs: tuple[str, ...]
    edition: int = 0
    since: int = BEGINNING
    readers: dict[str, tuple[str, ...]] = {}
    label: tuple[Policy, ...] = ()
    altered: dict[str, AlteredOutput] = {}


class Producer(Struct, frozen=True, rename={"term_number": "fence"}):
    """Who produces a version of a stream: the peer that published this, or one it names.

    Attributes:
        worker: peer id (hex) of the peer that computes it for the publisher; "" for itself.
        secondary: peer id (hex) of the peer that takes over when the publisher dies; "": none.
        term_number: numbers who took over; who has a lower one is not to be believed any more.
        edition: of the query that makes it.
    """

    stream: str
    worker: str = ""
    secondary: str = ""
    term_number: int = 0
    edition: int = 0

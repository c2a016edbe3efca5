"""Definitions of streams and queries, as the catalog holds them and the API sends them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType, structs

from medusa.engine.objects.query import Query, QueryStatus
from medusa.engine.objects.schema import BEGINNING, Schema
from medusa.engine.objects.view import View, check_view
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import ObjectName, check_participant

LATE = "late"
"""The last segment of the name of the stream of a source's late tuples."""

REVISIONS = "revisions"
"""The last segment of the name of the stream of a stream's revisions."""

PANES = "panes"
"""The last segment of the name of the stream of panes that a query's stream is folded from."""

ANY = "*"
"""The entry of `readers` and `writers` that means every member of the federation."""

CONTRACT = "contract"
"""The entry of `readers` that means every participant that has a content contract in force with the
owner for that stream. No participant has this name."""

MAX_SPAN_US = 10 * 366 * 86_400 * 1_000_000
"""The greatest slack or history, ten years: a longer one is a mistake in the unit."""

MAX_MEMBERS = 64
"""Names in one list of readers or writers: the entry must stay small."""

MAX_POLICIES = 256
"""Streams with restricted readers that one stream is made of: as many as a union has inputs. With
the longest lists they take half of an entry."""

MAX_K_SAFETY = 3
"""The greatest k-safety; it has seven voters: with more, posts wait longer for little more
safety."""

DEFAULT_HISTORY_US = 3_600_000_000
"""The default history: an hour of stime behind the boundary stays readable unless the stream says
otherwise."""

DEFAULT_MAX_AHEAD_US = 3_600_000_000
"""The default of `max_ahead_us`, an hour: clocks and time zones are wrong by less, mistakes in a
unit by years."""


DEFAULT_IDLE_TIMEOUT_US = 30_000_000
"""The default idle timeout, half a minute: a killed client is back in some seconds, and the results
of the others do not wait too long for a client that is gone."""


class Idle(StrEnum):
    """The way in which a source stream's boundary moves without posts."""

    EXPLICIT = "explicit"
    """The boundary moves only by posts, and by boundaries that clients send."""
    CLOCK = "clock"
    """The boundary follows the leader's clock, less the slack: for streams of present stimes."""


class Policy(Struct, frozen=True, omit_defaults=True, order=True):
    """The readers that a stream's owner allows for tuples made from it (Myers and Liskov, SOSP
    1997: a label is a set of policies, and a reader must satisfy all of them).

    Attributes:
        stream: its owner sets the policy.
        readers: the readers in the stream's definition; the owner may always read.
        declassify: participants that the policy does not bind, in their queries' declared outputs.
    """

    stream: str
    readers: tuple[str, ...]
    declassify: tuple[str, ...] = ()

    @property
    def owner(self) -> str:
        return ObjectName.parse(self.stream).participant


class StreamDefinition(Struct, frozen=True, omit_defaults=True):
    """One stream.

    Attributes:
        name, schema: object names.
        slack_us: how far behind the greatest stime seen a tuple may arrive, microseconds.
        lateness_us: how far behind the boundary a late tuple of a source stream may be and still
            be inserted, as a revision, microseconds; 0: none is.
        history_us: how much stime behind the boundary stays readable, microseconds.
        readers, writers: participants that may subscribe / post; the owner always may. A new stream
            whose `readers` are UNSET is its owner's alone: `create_stream` stores that.
        declassify: participants that may make this stream's tuples readable by others: by queries
            whose outputs have declared readers.
        label: policies of the streams that it is made from; its readers must satisfy them too.
        leader: peer id (hex) of the peer that orders a source stream; "": the peer asked decides.
        query: the query that produces it, or "" for a source stream.
        k_safety: how many peers may die while a source stream keeps its acknowledged tuples and can
            have a leader; 0: only its leader has it.
        view: if the stream is a view, the part of another stream that it shows; then `query` is the
            query of the other stream.
        revised: for a query's stream: whether a stream that it is made from may be revised.
        max_ahead_us: how far a source stream's time may be ahead of the leader's clock,
            microseconds: one row of a wrong unit would make all later ones late. None: no limit,
            for generated or recorded tuples.
        edition: grows with each alteration: of two definitions the one with the higher counts.
        idle_timeout_us: how long the boundary of a source stream waits for a producer that stands
            still, microseconds; 0: it waits for none, so the producer with the latest stime
            decides.
        table: whether it is a table: the newest tuple of each key of its schema counts. The part
            that is older than its history, and that no reader needs, is folded: only the newest
            tuple of each key stays.
    """

    name: str
    schema: str
    slack_us: int = 0
    history_us: int = DEFAULT_HISTORY_US
    idle: Idle = Idle.EXPLICIT
    readers: tuple[str, ...] | UnsetType = UNSET
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
    table: bool = False
    lateness_us: int = 0
    idle_timeout_us: int = DEFAULT_IDLE_TIMEOUT_US

    @property
    def owner(self) -> str:
        return ObjectName.parse(self.name).participant

    @property
    def admitted(self) -> tuple[str, ...]:
        """The readers of the stream, without the owner."""
        return () if self.readers is UNSET else self.readers

    @property
    def policies(self) -> tuple[Policy, ...]:
        """Return all policies that its readers must satisfy, sorted: they are also the label of
        streams made from it."""
        if ANY in self.admitted:
            return self.label
        own = Policy(base_of(self.name), self.admitted, self.declassify)
        return tuple(sorted({*self.label, own}))


def check_stream(stream: StreamDefinition) -> None:
    """Check names, numbers and lists of a definition. Raises: InvalidInputError."""
    ObjectName.parse(stream.name)
    ObjectName.parse(stream.schema)
    spans = (
        ("slack", stream.slack_us),
        ("history", stream.history_us),
        ("max_ahead", stream.max_ahead_us or 0),
        ("lateness", stream.lateness_us),
        ("idle_timeout", stream.idle_timeout_us),
    )
    for label, span in spans:
        if not 0 <= span <= MAX_SPAN_US:
            raise InvalidInputError(f"{stream.name}: {label} of {span / 1e6:g} s is out of range")
    _check_lateness(stream)
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
    for members in (stream.admitted, stream.writers, stream.declassify):
        check_members(stream.name, members)
    check_label(stream.name, stream.label)


def _check_lateness(stream: StreamDefinition) -> None:
    if not stream.lateness_us:
        return
    if stream.query or stream.view is not None:
        raise InvalidInputError(f"{stream.name}: only a source stream has a lateness")
    if stream.table:
        raise InvalidInputError(
            f"{stream.name}: a table has no lateness: a newer tuple takes the place of an older one"
        )
    if stream.lateness_us > stream.history_us:
        raise InvalidInputError(
            f"{stream.name}: a lateness of {stream.lateness_us / 1e6:g} s is more than its history "
            f"of {stream.history_us / 1e6:g} s: tuples that late have nothing to be inserted into"
        )


def check_lateness(stream: StreamDefinition, schema: Schema) -> None:
    """Check that tuples of the schema can be late. Raises: InvalidInputError."""
    if stream.lateness_us and schema.time is None:
        raise InvalidInputError(
            f"{stream.name}: no tuple is late where stime is the time of arrival: name the time of "
            f"schema {schema.name}, or leave out the lateness"
        )


def check_label(name: str, label: tuple[Policy, ...]) -> None:
    """Check the number of policies and the names in them. Raises: InvalidInputError."""
    if len(label) > MAX_POLICIES:
        raise InvalidInputError(
            f"{name}: made of more than {MAX_POLICIES} streams that have restricted readers"
        )
    for policy in label:
        ObjectName.parse(policy.stream)
        check_members(name, policy.readers)
        check_members(name, policy.declassify)


def check_members(name: str, members: tuple[str, ...]) -> None:
    """Check the number of participants in a list and their names. Raises: InvalidInputError."""
    if len(members) > MAX_MEMBERS:
        raise InvalidInputError(f"{name}: more than {MAX_MEMBERS} readers or writers")
    for member in members:
        if member != ANY:
            check_participant(member)


def base_of(name: str) -> str:
    """The stream whose late tuples or revisions the stream `name` has; else `name`."""
    base, _, kept_for = name.rpartition("/")
    return base if kept_for in {LATE, REVISIONS} else name


def is_panes(name: str) -> bool:
    """Whether the stream is one of panes, or of their revisions."""
    return base_of(name).endswith(f"/{PANES}")


def check_not_late(name: str) -> None:
    """Check that a stream may have this name.

    Raises:
        InvalidInputError: `name` is for the late tuples or the revisions of another stream, or too
            long for the stream to have such streams itself.
    """
    kept = ((LATE, "tuples that come late"), (REVISIONS, "revisions"), (PANES, "partial results"))
    for kept_for, what in kept:
        ObjectName.parse(name).child(kept_for)
        if name.endswith(f"/{kept_for}"):
            raise InvalidInputError(f"{name}: names in /{kept_for} are kept for {what}")


def may_write(stream: StreamDefinition, participant: str) -> bool:
    return participant == stream.owner or ANY in stream.writers or participant in stream.writers


def is_revised(schema: Schema, lateness_us: int) -> bool:
    """Whether a source stream can have revisions: posted ones (it has a key), or late tuples."""
    return bool(schema.key) or lateness_us > 0


class StreamEntry(Struct, frozen=True):
    """A stream as published: its definition and its schema, so that one lookup gives both."""

    stream: StreamDefinition
    schema: Schema

    @property
    def revised_schema(self) -> Schema:
        """The schema; that of a table is without the key, because a table's tuples are never
        revised."""
        return structs.replace(self.schema, key=()) if self.stream.table else self.schema

    @property
    def is_revised(self) -> bool:
        """Whether the stream has a stream of revisions. A view shows tuples as they came; a table
        has newer tuples instead."""
        if self.stream.table:
            return False
        if self.stream.query or self.stream.view is not None:
            return self.stream.revised
        return is_revised(self.schema, self.stream.lateness_us)

    @property
    def revised_us(self) -> int:
        """Return how far behind its boundary a tuple may be revised, microseconds."""
        by_key = self.stream.query or self.schema.key
        return self.stream.history_us if by_key else self.stream.lateness_us


class AlteredOutput(Struct, frozen=True, omit_defaults=True):
    """The alterations of a stream that a query produces; None: the query's own value.

    Attributes:
        edition: see `StreamDefinition`.
    """

    edition: int = 0
    readers: tuple[str, ...] | None = None
    history_us: int | None = None


class QueryEntry(Struct, frozen=True, omit_defaults=True):
    """A query as published.

    Attributes:
        peer: id (hex) of the peer that runs it.
        outputs: the streams it produces that others may subscribe to.
        edition: how often it was modified. since: the boundary from which on this edition counts,
            microseconds; up to it, the edition before.
        readers: declared readers of its streams, from before the query.
        label: policies of all its inputs: a participant that satisfies them may know the query.
        altered: the alterations of its outputs.
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

    @property
    def results(self) -> tuple[str, ...]:
        """Return its outputs, without panes, which only its own windows read."""
        return tuple(name for name in self.outputs if not is_panes(name))


class Producer(Struct, frozen=True):
    """A producer of a version of a stream: the peer that published this, or one that it names.

    Attributes:
        worker: peer id (hex) of the peer that computes it for the publisher; "" for itself.
        secondary: peer id (hex) of the peer that takes over when the publisher dies; "": none.
        term_number: the number of the publisher's term; a producer with a lower number than another
            is obsolete.
        edition: the edition of the query that makes it.
    """

    stream: str
    worker: str = ""
    secondary: str = ""
    term_number: int = 0
    edition: int = 0

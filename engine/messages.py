"""The messages of the API: Table 1 of the first paper, method by method.

A method's name is its function's; bodies are Arrow IPC streams (one batch or more), never pickles.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from engine.alteration import Alteration
from engine.availability import Availability, Mode, Recovery
from engine.availability_request import AvailabilityRequest
from engine.definitions import StreamDefinition
from engine.query import Query, QueryStatus
from engine.schema import BEGINNING, Schema

MAX_BATCH_BYTES: Final = 8 * 2**20
"""Most bytes of Arrow IPC in one message: bounds what a receiver must hold for one peer."""


class Done(Struct, frozen=True):
    """The call succeeded. remarks: warnings for the user, one sentence each."""

    remarks: tuple[str, ...] = ()


class CreateSchema(Struct, frozen=True):
    schema: Schema


class CreateStream(Struct, frozen=True):
    stream: StreamDefinition


class AlterStream(Struct, frozen=True):
    """Define a stream otherwise, while it runs."""

    stream: str
    alteration: Alteration


class DeleteStream(Struct, frozen=True):
    """Leave nothing of a source stream, its late tuples and its revisions; refused while read."""

    stream: str


class ReopenStream(Struct, frozen=True):
    """Let a source stream that has ended go on; refused where an answer depends on its end."""

    stream: str


class DeleteSchema(Struct, frozen=True):
    """Leave nothing of a schema; refused while a stream has it."""

    schema: str


class CreateQuery(Struct, frozen=True):
    query: Query


class CreateXml(Struct, frozen=True):
    """create_query_xml (and schemas and streams): any document of either dialect.

    Attributes:
        availability: what is asked of all its queries, whatever their own attributes say.
    """

    text: str
    availability: AvailabilityRequest | None = None


class Created(Struct, frozen=True):
    """The object names that a call defined. remarks: see `Done`."""

    names: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class SetQueryStatus(Struct, frozen=True):
    query: str
    status: QueryStatus


class PostEvent(Struct, frozen=True):
    """Opens a post call: then `Post` messages, each answered by `Posted`, in order."""

    stream: str
    producer: str
    """Who numbers the posts: unique to the posting client among those of its participant, and kept
    over its restarts."""


class Post(Struct, frozen=True):
    """Tuples (in the body, the schema's payload columns), and promises about later ones.

    Attributes:
        sequence: 1, 2, 3... per producer; a repeated number is answered and not stored again, and
            one that leaps is refused. 0: nothing is posted; the answer says where the producer is.
        boundary: the producer promises no later tuple with stime <= boundary (microseconds).
        end: no tuple follows at all.
        revisions: the body is revisions of earlier tuples (`engine.streams.revisions.columns`).
        offsets: where in its source the producer was before this post, and where it is after it, in
            words of its own (Kafka Connect's source offsets). The latter is stored with the tuples;
            a post that does not begin there where the last one ended is refused.
    """

    sequence: int
    boundary: int | None = None
    end: bool = False
    revisions: bool = False
    offsets: tuple[bytes, bytes] | None = None


class Posted(Struct, frozen=True):
    """The post is stored and survives a crash.

    Attributes:
        rows: tuples accepted in order.
        late: tuples that came after their boundary and went to `<stream>/late`.
        boundary: the stream's boundary now, microseconds.
        duplicate: it had been stored before.
        missed: of revisions: the numbers in their post, from 0, of those whose key no tuple has
            that is there still. They changed nothing.
        last: the number of the producer's last post, in the answer to number 0.
        offset: where that one left the producer in its source; b"": it said nothing of that.
    """

    sequence: int
    rows: int
    late: int
    boundary: int
    duplicate: bool = False
    missed: tuple[int, ...] = ()
    last: int = 0
    offset: bytes = b""


class Subscribe(Struct, frozen=True):
    """Opens a subscription: the peer sends `Tuples`, the subscriber `Acknowledge`.

    Attributes:
        after: the boundary the subscriber has, microseconds; tuples with stime > after follow.
        subscriber: a name that keeps the stream's retention waiting for this subscriber while it is
            away for a while; "" for one that does not mind. With the end as `after` it takes its
            leave: the stream waits for it no longer.
        fence: the highest under which the subscriber has known the stream to be produced: a
            producer of a lower one has been succeeded.
        keep: the boundary after which the stream is to be kept for the subscriber, although it has
            some of that already; None: `after`.
        tentative: so far the subscriber has tentative tuples, and wants more; None: it wants none.
    """

    stream: str
    after: int = BEGINNING
    subscriber: str = ""
    fence: int = 0
    keep: int | None = None
    tentative: int | None = None


class ReceiveEvents(Struct, frozen=True):
    """Pull the tuples that follow a boundary; answered by one `Tuples`.

    Attributes:
        after: the boundary the caller has, microseconds.
        timeout_s: how long to wait where there is nothing yet, seconds; then `upto` is null.
    """

    stream: str
    after: int = BEGINNING
    timeout_s: float = 0.0


class Tuples(Struct, frozen=True):
    """A part of an epoch: its rows are the body (may be empty).

    Attributes:
        after: the boundary the epoch starts from.
        upto: its own boundary, set on its last part only: until then the rows are provisional.
        tentative: they were made without some of the input, and stand until stable tuples have
            come as far.
    """

    after: int
    upto: int | None
    rows: int
    tentative: bool = False


class Acknowledge(Struct, frozen=True):
    """The subscriber has everything up to this boundary and will not ask for it again."""

    upto: int


class LookupObject(Struct, frozen=True):
    name: str


class ObjectDescription(Struct, frozen=True):
    """What lookup_object answers.

    Attributes:
        entries: the kinds under that name, each as its entry's JSON.
        tasks: of a query of the participant that is asked, as they are now; none where its peer
            does not answer.
        private: kinds under that name whose entries are not for who asks.
    """

    name: str
    entries: dict[str, str]
    tasks: tuple[TaskStatus, ...] = ()
    private: tuple[str, ...] = ()


class ListObjects(Struct, frozen=True):
    pass


class Objects(Struct, frozen=True):
    """Names by kind, of the objects of every participant that answered.

    Attributes:
        availability: by query, of those that have a standby and whose definition was found in time.
        failing: by query, why it does not go on, of the participant that is asked.
    """

    names: dict[str, tuple[str, ...]]
    unreachable: tuple[str, ...] = ()
    availability: dict[str, Availability] = {}
    failing: dict[str, str] = {}


class Reopened(Struct, frozen=True):
    """had_ended: whether there was anything to do."""

    had_ended: bool = True


class StreamStatus(Struct, frozen=True):
    """
    Attributes:
        role: source, derived or mirror.
        rate: rows per second, smoothed. lag_s: seconds since the boundary last moved.
        late: rows that came late.
        state: stable; up_failure: tentative tuples follow; stabilization: they are corrected.
        version: changes with what the stream is made from.
        producer: peer id (hex) of whom it is read from, where another peer produces it.
        waiting: rows of a source that are stored, and wait for its boundary to pass them.
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


class QueryStatusSet(Struct, frozen=True):
    """trouble: why a query that is to run computes nothing yet, and the mend."""

    trouble: str = ""


class TaskStatus(Struct, frozen=True):
    """
    Attributes:
        epoch_ms: the last epoch job's duration. load: CPU seconds per second, smoothed.
        rate: output rows per second, smoothed.
        state: running, waiting, starting (what computes it does), stopped, failing or away; reason
            says why where it fails.
        input_rate: rows per second that it reads, smoothed.
        cost_ns: CPU nanoseconds per input row at that rate; 0: not known yet.
        worker: peer id (hex) of the peer that runs it for us. owner: of the one we run it for.
        waits_for: of one that waits, the input that is furthest behind. waits_s: how long, seconds.
    """

    name: str
    query: str
    inputs: tuple[str, ...]
    boundary: int
    epochs: int
    epoch_ms: float
    load: float
    rate: float
    state: str
    reason: str = ""
    input_rate: float = 0.0
    cost_ns: int = 0
    worker: str = ""
    owner: str = ""
    waits_for: str = ""
    waits_s: float = 0.0


class ReplicaStatus(Struct, frozen=True):
    """What a peer has to do with a query that has a standby, in its own words.

    Attributes:
        role: primary or secondary.
        fence: of the tenure that it believes in; primary, secondary: peer ids (hex), "" for none.
        behind_us: by how much the secondary lags behind the outputs, microseconds; -1: not known.
        state: of a primary caught up, catching up or alone (there is no secondary now); of a
            secondary standing by.
    """

    query: str
    role: str
    mode: Mode
    recovery: Recovery
    fence: int
    primary: str
    secondary: str
    behind_us: int
    state: str


class EventRecord(Struct, frozen=True):
    """Something worth a person's notice.

    Attributes:
        at: seconds since the epoch, of the latest time. times: how often.
        cause: the id under which the log of its peer has the latest, or empty.
    """

    at: float
    level: str
    text: str
    times: int = 1
    cause: str = ""


class ClientStatus(Struct, frozen=True):
    """A client that is connected.

    Attributes:
        token: the name of the token that it showed. scopes: what that allows, with commas.
        address: where it came from. since: seconds since the epoch.
    """

    token: str
    scopes: str
    address: str
    since: float


class PeerStatus(Struct, frozen=True):
    """One peer, seen by itself; of an unreachable peer only the first four fields are known.

    Another participant's is not told `events`, `links`, `clients`, why tasks fail, nor of
    streams that it may not read. Who asks takes participant, peer and address from its connection
    and its own table.

    Attributes:
        state: running, starting, unreachable, or nonsense where its answer makes no sense.
        spark: off, starting, running or lost.
        load: CPU seconds per second of all its tasks. capacity: cores.
        health: alive, suspect, dead or left, as the peer that was asked believes; "": not known.
        sent_bytes, received_bytes: to and from other peers since it started, TLS included.
        left_out: how many streams, tasks, events, links, replicas and
            clients did not fit the answer.
        warnings: what its people must see for as long as it lasts; told to its own participant's.
    """

    participant: str
    peer: str
    address: str
    state: str
    spark: str = "off"
    uptime_s: float = 0.0
    load: float = 0.0
    capacity: float = 0.0
    memory_bytes: int = 0
    streams: tuple[StreamStatus, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()
    events: tuple[EventRecord, ...] = ()
    links: tuple[str, ...] = ()
    """Peer ids (hex) it has a connection to now."""
    health: str = ""
    replicas: tuple[ReplicaStatus, ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0
    left_out: int = 0
    clients: tuple[ClientStatus, ...] = ()
    warnings: tuple[str, ...] = ()


class Status(Struct, frozen=True):
    """Ask for the status. federation: of every peer known, not of the one asked alone."""

    federation: bool = True


class Snapshot(Struct, frozen=True):
    """What the monitor draws.

    Attributes:
        at: seconds since the epoch. by: the peer asked (hex).
        federation: what its founder called it. federation_id: its id, which no other one has.
    """

    at: float
    by: str
    federation: str
    peers: tuple[PeerStatus, ...]
    federation_id: str = ""

"""The status of a peer: its streams, tasks, replicas, clients and events."""

from __future__ import annotations

from msgspec import Struct

from medusa.engine.objects.availability import Mode, Recovery
from medusa.engine.streams.messages import StreamStatus
from medusa.engine.tasks.status import TaskStatus
from medusa.overlay.troubles import Trouble


class ReplicaStatus(Struct, frozen=True):
    """One peer's part in a query that has a standby, as it reports it.

    Attributes:
        role: primary or secondary.
        term_number: number of the term that it believes in.
        primary, secondary: peer ids (hex), "": none.
        behind_us: the secondary's lag behind the outputs, microseconds; -1: not known.
        state: a primary is caught up, catching up or alone (there is no secondary now); a secondary
            is standing by.
    """

    query: str
    role: str
    mode: Mode
    recovery: Recovery
    term_number: int
    primary: str
    secondary: str
    behind_us: int
    state: str


class EventRecord(Struct, frozen=True):
    """An event for people.

    Attributes:
        at: when the event last occurred, seconds since the epoch. times: how often it occurred.
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
        token: the name of the token that it showed. scopes: the scopes of that token, with commas.
        address: where it came from. since: seconds since the epoch.
    """

    token: str
    scopes: str
    address: str
    since: float


class PeerStatus(Struct, frozen=True):
    """The status of one peer, as it reports itself; of an unreachable peer only the first four
    fields are known. The report for another participant has no `events`, `links`, `clients` or
    `troubles`, no reasons of failing tasks, and no streams that it may not read. The receiver takes
    participant, peer and address from its connection and its own table.

    Attributes:
        state: running, starting, unreachable, or nonsense if its answer makes no sense.
        spark: off, starting, running or lost.
        load: CPU seconds per second of all its tasks. capacity: cores.
        health: alive, suspect, dead or left, as the asked peer believes; "": not known.
        sent_bytes, received_bytes: bytes sent to and received from other peers since it started,
            TLS included.
        left_out: how many streams, tasks, events, links, replicas and clients did not fit.
        troubles: faults that its people must mend; only for its own participant.
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
    """The ids (hex) of the peers to which this peer has a connection now."""
    health: str = ""
    replicas: tuple[ReplicaStatus, ...] = ()
    sent_bytes: int = 0
    received_bytes: int = 0
    left_out: int = 0
    clients: tuple[ClientStatus, ...] = ()
    troubles: tuple[Trouble, ...] = ()


class Status(Struct, frozen=True):
    """Asks for the status. federation: of every known peer, not only of the one asked."""

    federation: bool = True


class Snapshot(Struct, frozen=True):
    """The answer to `Status`.

    Attributes:
        at: seconds since the epoch. by: the peer asked (hex).
        federation: its founder's name for it. federation_id: its id, which no other one has.
    """

    at: float
    by: str
    federation: str
    peers: tuple[PeerStatus, ...]
    federation_id: str = ""

"""Messages between the owner and the worker of a task.

The owner is the peer that keeps the query; the worker is the one that computes the task now. The
owner alone chooses the worker, and numbers its choices: the term. A worker with an older term is
not the task's worker any more.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from medusa.engine.objects.definitions import AlteredOutput, StreamEntry
from medusa.engine.objects.query import Query
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.records.placements import Deal
from medusa.engine.tasks.query_editions import Edition


class Assignment(Struct, frozen=True):
    """Assigns a task: its definition, and a boundary.

    Attributes:
        task: the name of its output stream.
        query, inputs, kept: the query that it is part of, the streams of others that the query
            reads, and the streams that it was asked to keep: from these the worker plans the task
            itself.
        editions: former editions of the query that may still have to be computed.
        after: the boundary from which the output continues, microseconds.
        readers: the readers that were declared for the query's streams before it was created.
        altered: the alterations of its outputs.
        load, rate: cores that it used and rows per second that it read at its former peer.
    """

    task: str
    term_number: int
    query: Query
    inputs: dict[str, StreamEntry]
    kept: tuple[str, ...]
    after: int
    deal: Deal = Deal()
    load: float = 0.0
    rate: float = 0.0
    editions: tuple[Edition, ...] = ()
    readers: dict[str, tuple[str, ...]] = {}
    altered: dict[str, AlteredOutput] = {}


class Progress(Struct, frozen=True):
    """The progress of a worker.

    Attributes:
        boundary: the boundary of its output, microseconds. ready: whether it has the inputs up to
            that boundary, has computed from them, and continues. carry_bytes: Arrow and Parquet
            bytes of the input that it had to fetch for this.
        reason: why it fails.
    """

    boundary: int
    carry_bytes: int
    ready: bool = False
    reason: str = ""


class Activate(Struct, frozen=True):
    """Makes a peer the task's worker: it decides about the output after `since`. Sent again when
    the output is altered.

    Attributes:
        altered: the alterations of the query's outputs so far.
    """

    task: str
    term_number: int
    since: int
    altered: dict[str, AlteredOutput] = {}


class Release(Struct, frozen=True):
    """Releases a worker, or a peer that prepared. Its output from `since` up to `until` was used;
    None: none of it was."""

    task: str
    term_number: int
    until: int | None = None
    since: int | None = None


class Released(Struct, frozen=True):
    """The worker no longer runs the task.

    Attributes:
        reached: the output's boundary, microseconds, which consumers may know; BEGINNING: unknown.
    """

    reached: int = BEGINNING


class Confirm(Struct, frozen=True):
    """Asks the owner whether this peer is the task's worker.

    Attributes:
        consumed: the boundary of the output that all consumers at this peer have reached,
            microseconds; None: unknown.
        reached: the boundary that all inputs have at this peer, microseconds; None: unknown.
        rate: input rows per second that this peer reads.
    """

    task: str
    term_number: int
    consumed: int | None = None
    reached: int | None = None
    rate: float = 0.0


class PlacementStatus(StrEnum):
    """The owner's answer to `Confirm`."""

    ASSIGNED = "assigned"
    """The peer shall prepare; another worker still computes the task."""
    ACTIVE = "active"
    RELEASED = "released"


class Confirmed(Struct, frozen=True):
    """The answer to `Confirm`. `since` comes with ACTIVE; `until` with RELEASED, if some output was
    used."""

    status: PlacementStatus
    since: int | None = None
    until: int | None = None


class PassOn(Struct, frozen=True):
    """Asks the owner to let another peer continue the worker's task. Attributes: term_number: the
    number of the worker's term. to: id (hex) of the other peer. deal: the deal between these two
    peers.
    """

    task: str
    term_number: int
    to: str
    deal: Deal


class GiveBackTask(Struct, frozen=True):
    """Asks the owner to take the worker's task back."""

    task: str
    term_number: int


class MoveTask(Struct, frozen=True):
    """A client of the owner moves a task by hand. to: a peer's id (hex), "": back to the owner."""

    task: str
    to: str = ""


class MoveRecord(Struct, frozen=True):
    """One move of a task, as its owner saw it.

    Attributes:
        at: seconds since the epoch. source, target: peer ids (hex).
        since: the boundary from which the target's output counts, microseconds.
        stall_ms: the time from the output's last epoch before the switch to its first one after it.
            carry_bytes: bytes of inputs that the new worker had to fetch.
    """

    at: float
    task: str
    term_number: int
    since: int
    source: str
    target: str
    contract: str
    price: int
    stall_ms: float
    carry_bytes: int

"""What owner and worker of a task say to each other.

The owner is the peer that keeps the query; the worker is the one that computes the task now. The
owner alone decides who that is, and numbers its decisions: the term. A worker with an older term
is not the task's worker any more, whatever it believes.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from engine.objects.definitions import AlteredOutput, StreamEntry
from engine.objects.query import Query
from engine.objects.schema import BEGINNING
from engine.tasks.former import Former


class Deal(Struct, frozen=True):
    """On what terms a worker runs a task; the engine carries it, and contracts give it a meaning.

    Attributes:
        contract: the contract's id; "" between peers of one participant, where nobody pays.
        giver: id (hex) of the peer that the worker bills: the owner, or who passed the task on.
        price: micros per unit of load and second. cost_ns: CPU nanoseconds an input tuple.
        availability_s: standstill after which the owner takes the task home; 0: its own patience.
    """

    contract: str = ""
    giver: str = ""
    price: int = 0
    cost_ns: int = 0
    availability_s: int = 0


class Assignment(Struct, frozen=True, rename={"term_number": "fence"}):
    """Run this task: its definition and a boundary, which is all that a task is.

    Attributes:
        task: the name of its output stream.
        query, inputs, kept: the query it is part of, the streams from elsewhere that the query
            reads, and those it was asked to keep: from them the worker plans the task itself.
        former: editions of the query before, of which something is still to be computed.
        after: the boundary that the output goes on from, microseconds.
        readers: those of the query's streams that were declared before it.
        altered: how its outputs were altered since.
        load, rate: cores that it took and rows per second that it read where it ran before.
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
    former: tuple[Former, ...] = ()
    readers: dict[str, tuple[str, ...]] = {}
    altered: dict[str, AlteredOutput] = {}


class Progress(Struct, frozen=True):
    """How far a worker is.

    Attributes:
        boundary: of its output, microseconds. ready: it has the inputs up to there, has computed
            from them, and goes on.
        carry_bytes: Arrow and Parquet bytes of the input that it had to take over to go on.
        reason: why it does not go on, where it fails.
    """

    boundary: int
    carry_bytes: int
    ready: bool = False
    reason: str = ""


class Activate(Struct, frozen=True, rename={"term_number": "fence"}):
    """You are the task's worker from now on: its output after `since` is yours. Said again when the
    output is defined otherwise.

    Attributes:
        altered: how the outputs of its query were altered until now.
    """

    task: str
    term_number: int
    since: int
    altered: dict[str, AlteredOutput] = {}


class Release(Struct, frozen=True, rename={"term_number": "fence"}):
    """You are not, or no longer; what you did from `since` up to `until` was used, nothing if that
    is None."""

    task: str
    term_number: int
    until: int | None = None
    since: int | None = None


class Released(Struct, frozen=True):
    """The worker runs the task no longer.

    Attributes:
        reached: as far as its output had come, which its consumers may know; BEGINNING: it
            is not known any more. Microseconds.
    """

    reached: int = BEGINNING


class Confirm(Struct, frozen=True, rename={"term_number": "fence"}):
    """Am I the task's worker?"""

    task: str
    term_number: int


class PlacementStatus(StrEnum):
    """What an owner says to that."""

    ASSIGNED = "assigned"
    """Asked to prepare; another one still works."""
    ACTIVE = "active"
    RELEASED = "released"


class Confirmed(Struct, frozen=True, rename={"status": "standing"}):
    """`since` goes with ACTIVE; `until` with RELEASED, if anything was used."""

    status: PlacementStatus
    since: int | None = None
    until: int | None = None


class PassOn(Struct, frozen=True, rename={"term_number": "fence"}):
    """The worker asks the owner to let another peer go on with the task.

    Attributes:
        term_number: the worker's own. to: id (hex) of the other. deal: between those two.
    """

    task: str
    term_number: int
    to: str
    deal: Deal


class GiveBackTask(Struct, frozen=True, rename={"term_number": "fence"}):
    """The worker asks the owner to take the task home."""

    task: str
    term_number: int


class ReadInput(Struct, frozen=True, rename={"term_number": "fence"}):
    """The worker reads an input's suffix from the owner, where the input's producer has let it go.

    Answered by `Tuples`, up to the boundary that the owner has.
    """

    task: str
    term_number: int
    stream: str
    after: int


class MoveTask(Struct, frozen=True):
    """A client of the owner moves a task by hand. to: a peer's id (hex), "" for home."""

    task: str
    to: str = ""


class MoveRecord(Struct, frozen=True, rename={"term_number": "fence"}):
    """One move, as the owner saw it.

    Attributes:
        at: seconds since the epoch. source, target: peer ids (hex).
        since: the boundary from which the target's output counts, microseconds.
        stall_ms: from the last epoch before the switch to the first one after it, in the output.
        carry_bytes: of input that the new worker had to take over.
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

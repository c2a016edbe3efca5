"""The events that a voter of a stream handles, and their effects; see `Election`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from medusa.engine.replication.leaders.ballot import Ballot, SourceTerm
from medusa.engine.replication.leaders.messages import Message
from medusa.engine.streams.journal.journal import Position


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; about `BEATS` of these within the time of silence."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request of another voter, answered by one `Send`; or the answer to one of ours."""

    sender: str
    message: Message


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """The failure detector now believes another health of a voter."""

    peer: str
    dead: bool


@dataclass(frozen=True, slots=True)
class Called:
    """A leader wants to ship its journal to us."""

    leader: str
    number: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Our journal is now a copy of the leader's. journal: see `Ballot.journal`."""

    number: int
    journal: int


@dataclass(frozen=True, slots=True)
class InStep:
    """A replica has joined our term, with everything before `upto`."""

    peer: str
    number: int
    upto: Position


@dataclass(frozen=True, slots=True)
class StoredAt:
    """A replica of ours has stored everything before `upto`."""

    peer: str
    number: int
    upto: Position


@dataclass(frozen=True, slots=True)
class Lost:
    """Shipping to that peer has ended."""

    peer: str
    number: int


Event: TypeAlias = Tick | Received | HealthChanged | Called | CaughtUp | InStep | StoredAt | Lost


@dataclass(frozen=True, slots=True)
class Keep:
    """Write the ballot; later effects of the list wait for that."""

    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Send:
    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Won:
    """A majority promised this term: begin a segment of the journal with it.

    Attributes:
        reopened: whether all voters promised it, and none has sent a reader the stream's end: the
            segment begins as if the stream had not ended.
    """

    number: int
    reopened: bool = False


@dataclass(frozen=True, slots=True)
class Ship:
    """Bring that peer's journal up to date, and keep it so."""

    peer: str
    number: int


@dataclass(frozen=True, slots=True)
class StopShipping:
    """Ship to no peer any more."""


@dataclass(frozen=True, slots=True)
class Activated:
    """We are leader: everything in our journal is committed, posts may be acknowledged."""

    term: SourceTerm


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything before `upto` is on all members of the term."""

    upto: Position


@dataclass(frozen=True, slots=True)
class Suspended:
    """Acknowledge nothing until we are leader again. succeeded: whether another peer may be leader
    by now."""

    succeeded: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """The stream is deleted: remove everything except the ballot."""


Effect: TypeAlias = (
    Drop | Keep | Send | Won | Ship | StopShipping | Activated | Committed | Suspended
)

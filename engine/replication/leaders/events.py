"""What a voter of a stream hears, and what it has done: events and effects of `Election`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from engine.replication.leaders.ballot import Ballot, SourceTerm
from engine.replication.leaders.messages import Message
from engine.streams.journal import Position


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes; about `BEATS` times as often as silence is long."""


@dataclass(frozen=True, slots=True)
class Received:
    """A request, answered by one `Send` to the sender; or the answer to one of ours."""

    sender: str
    message: Message


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """What the failure detector believes of another voter now."""

    peer: str
    dead: bool


@dataclass(frozen=True, slots=True)
class Called:
    """A leader wants to ship to us."""

    leader: str
    number: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Our journal is the leader's. journal: see `Ballot.journal`."""

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
    """What ships to that peer has ended."""

    peer: str
    number: int


Event: TypeAlias = Tick | Received | HealthChanged | Called | CaughtUp | InStep | StoredAt | Lost


@dataclass(frozen=True, slots=True)
class Keep:
    """Write the ballot; what follows in the list may be done only then."""

    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Send:
    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Won:
    """A majority promised this term: begin a segment of the journal with it.

    Attributes:
        reopened: all voters did, and none has told anybody of the stream's end: the segment
            begins as if it had not ended.
    """

    number: int
    reopened: bool = False


@dataclass(frozen=True, slots=True)
class Ship:
    """Bring that peer into step, and keep it there."""

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
    """Nothing is acknowledged until we are leader again. succeeded: another may be by now."""

    succeeded: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """The stream is deleted: leave nothing of it but the ballot."""


Effect: TypeAlias = (
    Drop | Keep | Send | Won | Ship | StopShipping | Activated | Committed | Suspended
)

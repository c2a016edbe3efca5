"""Messages between the voters of a stream, and from a leader to its replicas."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from medusa.engine.objects.definitions import StreamEntry
from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.leaders.ballot import SourceTerm
from medusa.engine.streams.journal.journal import Position

REQUEST: Final = "leader.request"
FOUND: Final = "leader.found"
FOLLOW: Final = "leader.follow"


class Inquire(Struct, frozen=True, tag="inquire"):
    """Asks whether a voter still receives messages of a leader; promises nothing (pre-vote: Ongaro,
    9.6)."""


class View(Struct, frozen=True, tag="view"):
    """The answer to `Inquire`: the latest term and promise of a voter.

    Attributes:
        silent: whether this voter has received nothing from a leader for too long.
    """

    promised: int
    term: SourceTerm | None
    silent: bool


class AskVote(Struct, frozen=True, tag="ask_vote"):
    """A candidate asks for a vote (Raft's RequestVote)."""

    number: int


class Vote(Struct, frozen=True, tag="vote"):
    """The answer to `AskVote`.

    Attributes:
        promised: the highest term the voter knows. term: the latest term that it knows.
        end_readers: see `Ballot.end_readers`.
    """

    number: int
    granted: bool
    promised: int
    term: SourceTerm | None
    end_readers: tuple[str, ...]


class Install(Struct, frozen=True, tag="install"):
    """A leader installs its term at a voter; sent again and again as a sign of life."""

    term: SourceTerm


class Installed(Struct, frozen=True, tag="installed"):
    """The answer to `Install`."""

    number: int
    accepted: bool
    promised: int
    term: SourceTerm | None


class Delete(Struct, frozen=True, tag="delete"):
    """A majority has agreed that the stream is deleted: keep nothing but the ballot."""


class Deleted(Struct, frozen=True, tag="deleted"):
    """A voter of a deleted stream answers every request with this."""


Request: TypeAlias = Inquire | AskVote | Install | Delete
"""The requests of voters; a voter answers each at once by one of the other messages."""

Message: TypeAlias = Request | View | Vote | Installed | Deleted


def highest_number(message: Message) -> int:
    """The highest term number in a message."""
    match message:
        case Inquire() | Delete() | Deleted():
            return 0
        case AskVote(number):
            return number
        case Install(term):
            return term.number
        case View(promised, term):
            return max(promised, _number(term))
        case Vote(number, _, promised, term) | Installed(number, _, promised, term):
            return max(number, promised, _number(term))


def _number(term: SourceTerm | None) -> int:
    return 0 if term is None else term.number


class VoterRequest(Struct, frozen=True):
    """A message about a stream, to another of its voters; answered by `VoterAnswer`."""

    stream: str
    message: Message


class VoterAnswer(Struct, frozen=True):
    """The answer to `VoterRequest`."""

    message: Message


class Found(Struct, frozen=True):
    """Makes a peer a voter of this stream. voters: peer ids (hex), the founder first."""

    entry: StreamEntry
    voters: tuple[str, ...]


class Follow(Struct, frozen=True):
    """Opens the call over which a leader ships to a replica. The replica sends `ReplicaState`; the
    leader sends a `Plan`, epochs (`Tuples`), `Part`s, a `Join`, and further `Part`s. The leader
    sends parts until the call ends. The replica answers each `Part` with `Stored`."""

    stream: str
    term_number: int


class Segment(Struct, frozen=True, array_like=True):
    """A segment of a journal: two of one number and term begin with the same bytes."""

    number: int
    term_number: int
    length: int


class ReplicaState(Struct, frozen=True):
    """The journal and the logs of a replica.

    Attributes:
        joined: the term whose journal it has.
        segments: the segments of its journal, the oldest first.
        boundary, late_boundary, revisions_boundary: the boundaries of its logs.
    """

    joined: int
    segments: tuple[Segment, ...]
    boundary: int
    late_boundary: int
    revisions_boundary: int = BEGINNING


class Plan(Struct, frozen=True):
    """The leader's plan: whether it sends the whole journals anew, or only the part that the
    replica lacks. Attributes: boundary, late_boundary, revisions_boundary: with `anew`, the leader
    first sends epochs up to these boundaries: of the revisions, of the stream, of the late tuples.
    start, late_start, revisions_start: the boundaries from which the leader keeps its logs.
    """

    anew: bool
    boundary: int
    late_boundary: int
    start: int
    late_start: int
    revisions_start: int = BEGINNING
    revisions_boundary: int = BEGINNING


class Part(Struct, frozen=True, tag="part"):
    """Whole entries of a journal; the body has their bytes in its file.

    Attributes:
        at: their place in the journal; offset 0: the segment begins. committed: all members of the
            term have everything before this place. late: whether they belong to the journal of the
            late tuples.
        start, late_start, revisions_start: the boundaries from which the leader keeps its logs.
    """

    at: Position
    committed: Position
    late: bool = False
    start: int = BEGINNING
    late_start: int = BEGINNING
    revisions_start: int = BEGINNING


class Join(Struct, frozen=True, tag="join"):
    """The leader has sent the replica everything: once that is on its disk, the replica belongs to
    the term."""


class Shipped(Struct, frozen=True):
    """The messages of the leader after its `Plan`."""

    message: Part | Join


class Stored(Struct, frozen=True):
    """The replica's journal has everything before `upto`.

    Attributes:
        joined: whether it answers `Join`. trouble: why it stores nothing more.
    """

    upto: Position
    joined: bool = False
    trouble: str = ""

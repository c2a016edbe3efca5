"""What the primary and the secondary of a query say to each other.

Both are peers of the participant whose query it is.
"""

from __future__ import annotations

from msgspec import Struct, field

from engine.objects.schema import BEGINNING
from engine.replication.stored_query import StoredQuery, WrittenTerm
from engine.streams.leases import Lease


class StandBy(Struct, frozen=True):
    """Primary to secondary: be ready to take over. The same again, or with changes, at any time."""

    stored: StoredQuery


class KeepUp(Struct, frozen=True, rename={"term_number": "fence"}):
    """Primary to secondary, every `KEEP_UP_S`: it lives, and where the query is.

    Attributes:
        positions: by stream, the boundary after which a secondary needs it.
        boundaries: by output, how far the primary is.
        leases: of named subscribers of the outputs: those that have changed, or some of them.
    """

    query: str
    term_number: int
    positions: dict[str, int]
    boundaries: dict[str, int]
    leases: tuple[Lease, ...] = ()


class KeptUp(Struct, frozen=True):
    """The secondary's answer to `StandBy` and `KeepUp`: how far it is.

    Attributes:
        written_term: the latest that the secondary knows of.
        boundaries: by stream, how far it has what it keeps.
        positions: by stream, from where it would go on if it were restarted now.
        earliest: it cannot go on with the last modification at its boundary, and stands still
            until it hears of it again: the earliest boundary at which it could; BEGINNING: it can.
    """

    written_term: WrittenTerm = field(name="tenure")
    boundaries: dict[str, int]
    positions: dict[str, int] = {}
    earliest: int = BEGINNING


class Dismiss(Struct, frozen=True, rename={"term_number": "fence"}):
    """Primary to secondary: stand by no longer."""

    query: str
    term_number: int


class Dismissed(Struct, frozen=True):
    """The secondary stands by no longer.

    Attributes:
        given: by stream, how far this peer has given out those of the query, microseconds.
    """

    given: dict[str, int] = {}


class Incumbent(Struct, frozen=True, rename={"term_number": "fence"}):
    """A secondary that hears nothing asks the primary: is this still so?"""

    query: str
    term_number: int


class ReadReplica(Struct, frozen=True, rename={"term_number": "fence"}):
    """The secondary reads a stream of the query as the primary has it, whatever consumers may have.

    Attributes:
        stream: an output, or an input. after: the boundary that the secondary has.
    """

    query: str
    term_number: int
    stream: str
    after: int

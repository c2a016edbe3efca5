"""Messages between the primary and the secondary of a query.

Both are peers of the participant whose query it is.
"""

from __future__ import annotations

from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.records.stored_query import StoredQuery, WrittenTerm
from medusa.engine.streams.store.subscriptions import Lease


class StandBy(Struct, frozen=True):
    """Asks a peer to be the secondary of a query. Sent again, or with changes, at any time."""

    stored: StoredQuery


class KeepUp(Struct, frozen=True):
    """Tells the secondary, every `Timing.keep_up_s`, that the primary lives, and its boundaries.

    Attributes:
        positions: by stream, the boundary after which a secondary needs it.
        boundaries: by output, the primary's.
        leases: of named subscribers of the outputs: those that have changed, or some of them.
    """

    query: str
    term_number: int
    positions: dict[str, int]
    boundaries: dict[str, int]
    leases: tuple[Lease, ...] = ()


class KeptUp(Struct, frozen=True):
    """The secondary's answer to `StandBy` and `KeepUp`: its boundaries.

    Attributes:
        written_term: the latest that the secondary knows of.
        boundaries: by stream that it keeps, its own.
        positions: by stream, the boundary from which it would go on if it were restarted now.
        earliest: BEGINNING: it can go on with the last modification at its boundary. Else the
            earliest boundary at which it could; it stands still until it learns of it again.
    """

    written_term: WrittenTerm
    boundaries: dict[str, int]
    positions: dict[str, int] = {}
    earliest: int = BEGINNING


class Dismiss(Struct, frozen=True):
    """Tells the secondary to stop standing by."""

    query: str
    term_number: int


class Dismissed(Struct, frozen=True):
    """The answer to `Dismiss`: the peer stands by no longer.

    Attributes:
        given: by stream, the boundary up to which this peer has given it out, microseconds.
    """

    given: dict[str, int] = {}


class Incumbent(Struct, frozen=True):
    """Asks the primary, which has been silent, whether this peer is still its secondary."""

    query: str
    term_number: int

"""Messages between the primary and the secondary of a query.

Both are peers of the participant whose query it is.
"""

from __future__ import annotations

from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING
from medusa.engine.replication.records.stored_query import StoredQuery, WrittenTerm
from medusa.engine.streams.store.subscriptions import Lease


class StandBy(Struct, frozen=True):
    """Asks a peer to be the secondary of a query. The primary may send it again at any time, with
    changes or without."""

    stored: StoredQuery


class KeepUp(Struct, frozen=True):
    """Sent to the secondary every `Timing.keep_up_s`: a sign of life with the primary's boundaries.
    Attributes: positions: for each stream, the boundary after which a secondary needs the stream.
    boundaries: for each output, the primary's boundary. leases: changed leases of named subscribers
    of the outputs, or some of them.
    """

    query: str
    term_number: int
    positions: dict[str, int]
    boundaries: dict[str, int]
    leases: tuple[Lease, ...] = ()


class KeptUp(Struct, frozen=True):
    """The secondary's answer to `StandBy` and `KeepUp`: its boundaries.

    Attributes:
        written_term: the latest term that the secondary knows. boundaries: by stream that it keeps,
            its boundary. positions: for each stream, the boundary from which it would continue
            after a restart now. earliest: BEGINNING: it can apply the last modification at that
            one's boundary. Else the earliest boundary at which it could; it stands still until it
            receives the modification again.
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
    """The answer to `Dismiss`: the peer no longer stands by. Attributes: given: for each stream,
    the boundary up to which this peer has emitted the stream, microseconds.
    """

    given: dict[str, int] = {}


class Incumbent(Struct, frozen=True):
    """Asks the primary, which has been silent, whether this peer is still its secondary."""

    query: str
    term_number: int

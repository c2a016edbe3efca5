from __future__ import annotations

from msgspec import Struct

from engine.objects.schema import BEGINNING
from overlay.names import NO_PEER, PeerId


class Term(Struct, frozen=True):
    """A numbered reign of one peer over one subject, from a boundary on: a term of Raft, a leader
    epoch of Kafka. `deciders` makes the next one.

    Attributes:
        subject: the name of a query, of a task's output or of a source stream.
        number: grows with every term of the subject; a lower one does not count any more.
        holder: the peer whose word counts; NO_PEER: not written down yet or, of a task, the peer
            that keeps its query.
        members: the other peers that have a part: a secondary, replicas.
        since: the boundary after which the holder's output counts, microseconds.
    """

    subject: str = ""
    number: int = 0
    holder: PeerId = NO_PEER
    members: tuple[PeerId, ...] = ()
    since: int = BEGINNING

    @property
    def secondary(self) -> PeerId:
        """The member that takes over when the holder dies; NO_PEER: none."""
        return self.members[0] if self.members else NO_PEER

    @property
    def rank(self) -> tuple[int, PeerId]:
        """A total order, so that all peers choose the same of two terms with one number."""
        return self.number, self.holder

    def succeeds(self, other: Term) -> bool:
        """Whether this term counts and not the other, of the same subject."""
        return self.rank > other.rank

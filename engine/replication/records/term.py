"""Terms, and the three deciders of a subject's next term, one for each kind of subject.

- `OWNERS_WORD`, of a task: a term counts when the owner of its query has stored it. So there is one
  worker.
- `HIGHEST_NUMBER`, of a query: a term counts when its holder has stored it. So both sides of a
  split continue (ADR 8).
- `MAJORITY`, of a source stream: a term counts when a majority of the voters has installed it. So
  at most one side continues (ADR 9).

A decider makes the next term and checks the numbers that others claim. These store a term:
`QueryHost.place` and `QueryHost.appoint`, `Standbys` at a takeover, and a voter's ballot. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from medusa.engine.objects.schema import BEGINNING
from medusa.overlay.clock import MILLIS, latest_number
from medusa.overlay.errors import InvalidInputError
from medusa.overlay.names import NO_PEER, PeerId


class Term(Struct, frozen=True):
    """A numbered reign of one peer over one subject, from a boundary on: a term of Raft, a leader
    epoch of Kafka. A `Decider` makes the next one.

    Attributes:
        subject: the name of a query, of a task's output or of a source stream.
        number: grows with every term of the subject; a lower one is obsolete. holder: the peer that
            decides; NO_PEER: it is not stored yet or, for a task, it is the peer that keeps the
            query.
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
        """The member that takes over when the holder dies; NO_PEER: there is none."""
        return self.members[0] if self.members else NO_PEER

    @property
    def rank(self) -> tuple[int, PeerId]:
        """The sort key of a total order, so that all peers choose the same one of two terms with
        one number."""
        return self.number, self.holder

    def succeeds(self, other: Term) -> bool:
        """Whether this term replaces another one of the same subject."""
        return self.rank > other.rank


@dataclass(frozen=True, slots=True)
class Decider:
    """Makes the next term of a subject.

    Attributes:
        takers: how many numbers the clocks make per millisecond, so that two peers that take a term
            in one millisecond hardly ever make the same number.
    """

    takers: int

    def latest(self, now: float) -> int:
        """The greatest number that any peer's clock can have made by now, seconds since the epoch.
        A greater number is refused. Otherwise its successor would be refused, and the subject could
        never have another holder (ADR 17)."""
        return (latest_number(now, MILLIS) + 1) * self.takers - 1

    def believes(self, number: int, now: float) -> bool:
        """Whether the number is not of the future."""
        return number <= self.latest(now)

    def check(self, subject: str, number: int, now: float) -> None:
        """Refuse a number of the future. Raises: InvalidInputError."""
        if not self.believes(number, now):
            raise InvalidInputError(
                f"{subject[:256]}: term {number} is of the future: check the clock of who says so"
            )

    def _next_number(self, known: Iterable[int], now: float, taker: PeerId = NO_PEER) -> int:
        """A number greater than all known ones that are not of the future, and than the numbers of
        a deleted subject of the same name."""
        highest = max((number for number in known if self.believes(number, now)), default=0)
        moment = max(highest // self.takers + 1, int(now * MILLIS))
        return moment * self.takers + int.from_bytes(taker) % self.takers


class OwnersWord(Decider):
    """Decides a task's next term: the peer that keeps its query decides alone."""

    def next(
        self, current: Term, worker: PeerId, now: float, *, since: int = BEGINNING, tried: int = 0
    ) -> Term:
        """The term in which another peer computes the task.

        Args:
            worker: NO_PEER: the owner. now: seconds since the epoch.
            since: the output's boundary after which the worker's output counts, microseconds.
            tried: number of the last move, which may have failed: no two workers get the same
                number.
        """
        number = self._next_number((current.number, tried), now)
        return Term(current.subject, number, worker, since=since)


class HighestNumber(Decider):
    """Decides a query's next term: any peer of its participant may take it, and the highest number
    counts."""

    def next(self, query: str, known: Iterable[int], taker: PeerId, now: float) -> Term:
        """The term in which a peer takes the query, without a secondary yet.

        Args:
            known: the numbers of earlier terms, as far as the taker knows them.
            now: seconds since the epoch.
        """
        return Term(query, self._next_number(known, now, taker), taker)

    def releases(self, term: Term, own: Term) -> bool:
        """Whether the holder of `term` may dismiss a secondary whose term is `own`: it holds that
        term, or a later one."""
        return term.rank == own.rank or term.number > own.number


class Majority(Decider):
    """Decides a source stream's next term: a majority of its voters must accept it; see
    `replication.leaders.ballot`."""

    def next_number(self, promised: Iterable[int]) -> int:
        """The number under which a candidate stands. It needs no clock: of two candidates with one
        number, one gets no majority. promised: the numbers that voters have promised."""
        return max(promised) + 1


OWNERS_WORD: Final = OwnersWord(1)
HIGHEST_NUMBER: Final = HighestNumber(1024)
MAJORITY: Final = Majority(1024)

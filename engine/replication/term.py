"""Terms: whose word about a subject counts, and the numbers that put terms in order. Sans-IO.

A term is Raft's term and Kafka's leader epoch. Three deciders make the next term of a subject:

- of a task: the peer that keeps its query, alone;
- of a query: any peer of its participant that takes the query over. The highest number counts, so
  queries stay available on both sides of a split (ADR 8);
- of a source stream: a majority of its voters, so sources stay consistent (ADR 9).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from engine.objects.schema import BEGINNING
from overlay.clock import MILLIS, latest_number
from overlay.errors import InvalidInputError


class Term(Struct, frozen=True):
    """From a boundary on, the word of one peer about one subject counts.

    Attributes:
        subject: the name of a query, of a task's output or of a source stream.
        number: grows with every term of the subject; the holder of a lower number is not to be
            believed any more.
        holder: peer id (hex) of the peer whose word counts; "": not written down yet or, of a task,
            the peer that keeps its query.
        members: peer ids (hex) of the others that have a part: a secondary, replicas.
        since: the boundary after which the holder's output counts, microseconds.
    """

    subject: str = ""
    number: int = 0
    holder: str = ""
    members: tuple[str, ...] = ()
    since: int = BEGINNING

    @property
    def secondary(self) -> str:
        """The member that takes over when the holder dies; "": none."""
        return self.members[0] if self.members else ""

    @property
    def rank(self) -> tuple[int, str]:
        """A total order, so that all peers believe the same of two terms that have one number."""
        return self.number, self.holder

    def succeeds(self, other: Term) -> bool:
        """Whether this term counts and not the other, where both are terms of one subject."""
        return self.rank > other.rank


def next_number(known: int, moment: int = 0, taker: str = "0", *, takers: int = 1) -> int:
    """The number of the next term: greater than `known`, and of no earlier moment than `moment`.

    Args:
        taker: peer id (hex) of the peer that takes the term. takers: numbers of one moment, so that
            two peers that take a term in one moment hardly ever make the same number.
    """
    return max(known // takers + 1, moment) * takers + int(taker, 16) % takers


@dataclass(frozen=True, slots=True)
class Mint:
    """Makes and checks numbers whose moments are milliseconds of the takers' clocks. So a number is
    also greater than those of a subject of that name that was deleted long ago.

    Attributes:
        takers: see `next_number`.
    """

    takers: int

    def next(self, known: Iterable[int], now: float, taker: str = "0") -> int:
        """Greater than all known numbers that can be believed: any other is believed by nobody.

        Args:
            now: seconds since the epoch. taker: see `next_number`.
        """
        highest = max((number for number in known if self.believes(number, now)), default=0)
        return next_number(highest, int(now * MILLIS), taker, takers=self.takers)

    def latest(self, now: float) -> int:
        """The greatest that the clock of any peer can have made by now, seconds since the epoch. A
        greater number is not believed: the next after it would be believed by nobody either, and so
        the subject could never be another peer's again (ADR 17)."""
        return (latest_number(now, MILLIS) + 1) * self.takers - 1

    def believes(self, number: int, now: float) -> bool:
        """Whether the number is not of the future."""
        return number <= self.latest(now)

    def check(self, subject: str, number: int, now: float) -> None:
        """
        Raises:
            InvalidInputError: the number is of the future.
        """
        if not self.believes(number, now):
            raise InvalidInputError(
                f"{subject[:256]}: term {number} is of the future: check the clock of who says so"
            )


QUERIES: Final = Mint(1024)
"""For terms of queries, which any peer of their participant may take."""

TASKS: Final = Mint(1)
"""For terms of tasks, which the peer that keeps the query takes alone."""

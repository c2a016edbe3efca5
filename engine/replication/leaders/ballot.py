"""The ballot of a voter: its promise, the latest term it knows, and the term of its journal.

A stream with k-safety k has 2k+1 voters, fixed when it is created. They elect its leader as in
vertical Paxos (Lamport, Malkhi, Zhou, PODC 2009). A *term* has one configuration: a leader and k
replicas. A candidate asks a majority to promise its term, and learns the latest term that can have
acknowledged a post. Once its replicas have its whole journal, it installs its term at a majority.
Everything here is a pure function of a ballot; the caller writes the result before it answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from medusa.engine.replication.records.term import Term
from medusa.overlay.identity import parse_peer_id

MAX_END_READERS: Final = 16
"""The most readers in `Ballot.end_readers`: one is enough for a refusal; people want to know a
few."""

MAX_READER_CHARS: Final = 256
"""Characters of the name of one reader in `Ballot.end_readers`, so that all of them fit into every
vote."""


class SourceTerm(Struct, frozen=True):
    """A term of a source stream as ballots and votes hold it; see `Term`.

    Attributes:
        number: grows with every term of the stream; no two terms have the same.
        leader, replicas: peer ids (hex). A post is acknowledged once all of them have it.
        deleted: the stream is to be deleted. Once a majority has installed such a term, the
            deletion is decided: every later candidate learns of it from one of these voters, and
            can install nothing else.
    """

    number: int
    leader: str
    replicas: tuple[str, ...]
    deleted: bool = False

    @property
    def rank(self) -> tuple[int, bool]:
        """Orders terms: of two, the one with the higher rank counts. A leader that deletes the
        stream installs its own term once more, with `deleted` set. So that term ranks above the
        same term without it, and an older request that arrives later does not undo it."""
        return self.number, self.deleted

    @property
    def members(self) -> tuple[str, ...]:
        return (self.leader, *self.replicas)

    def of(self, stream: str) -> Term:
        """The term. stream: its name."""
        replicas = tuple(map(parse_peer_id, self.replicas))
        return Term(stream, self.number, parse_peer_id(self.leader), replicas)


class Ballot(Struct, frozen=True):
    """The durable state of one voter of a stream, as Raft's current term and vote.

    Attributes:
        voters: peer ids (hex), the founder first.
        promised: the highest term that this voter knows; it refuses requests of lower ones. voted:
            the candidate to which it promised that term.
        term: the latest that is installed, as far as this voter knows.
        joined: the term whose leader gave this peer its journal; 0: it has none.
        journal: the term in which that journal was begun, 0: the founder's; names its folder.
        deleted: a majority has agreed to the deletion: it never changes again.
        end_readers: readers, in words for people, to which this voter as the leader has sent the
            stream's end, or was about to; a stream is reopened only if no voter has sent a reader
            its end.
    """

    voters: tuple[str, ...]
    promised: int = 0
    voted: str = ""
    term: SourceTerm | None = None
    joined: int = 0
    journal: int = 0
    deleted: bool = False
    end_readers: tuple[str, ...] = ()

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def k_safety(self) -> int:
        return len(self.voters) // 2

    @property
    def number(self) -> int:
        """Number of the latest term known; 0: none yet."""
        return 0 if self.term is None else self.term.number


def promise(ballot: Ballot, number: int, candidate: str) -> Ballot | None:
    """The ballot after a vote for that candidate; None: another candidate has that term, or a
    higher term was promised; or the stream is deleted."""
    if ballot.deleted or candidate not in ballot.voters or number <= 0:
        return None
    if number < ballot.promised or (number == ballot.promised and candidate != ballot.voted):
        return None
    return msgspec.structs.replace(ballot, promised=number, voted=candidate)


def note_end_reader(ballot: Ballot, reader: str) -> Ballot:
    """The ballot with a note that this reader gets the stream's end."""
    reader = reader[:MAX_READER_CHARS]
    if reader in ballot.end_readers or len(ballot.end_readers) >= MAX_END_READERS:
        return ballot
    return msgspec.structs.replace(ballot, end_readers=(*ballot.end_readers, reader))


def without_future(ballot: Ballot, latest: int) -> Ballot:
    """The ballot without a promise to a term beyond `latest`: no other could ever be installed
    after it. If such a term was installed, the ballot stays as it is: a post may have been
    acknowledged."""
    if ballot.promised <= latest or max(ballot.number, ballot.joined) > latest:
        return ballot
    promised = max(ballot.number, ballot.joined)
    voted = ballot.term.leader if ballot.term and ballot.number == promised else ""
    return msgspec.structs.replace(ballot, promised=promised, voted=voted)


def concede(ballot: Ballot, number: int, winner: str) -> Ballot | None:
    """The ballot after a promise to the candidate with a majority for that term. Another candidate
    to which this voter promised the same term, perhaps this peer itself, has lost. None: a higher
    term was promised."""
    if number == ballot.promised:
        ballot = msgspec.structs.replace(ballot, voted=winner)
    return promise(ballot, number, winner)


def install(ballot: Ballot, term: SourceTerm) -> Ballot | None:
    """The ballot with that term; None: a higher term was promised, or its members are no voters."""
    if len(term.replicas) != ballot.k_safety or len(set(term.members)) != ballot.k_safety + 1:
        return None
    if not set(term.members) <= set(ballot.voters):
        return None
    promised = concede(ballot, term.number, term.leader)
    if promised is None:
        return None
    if ballot.term is not None and ballot.term.rank > term.rank:
        return promised  # the request was sent before that for the deletion, under the same term
    return msgspec.structs.replace(promised, term=term)


def learn(ballot: Ballot, term: SourceTerm | None) -> Ballot:
    """Return the ballot with a term that another voter sent, unless the term contradicts a
    promise."""
    if term is None or (ballot.term is not None and term.rank <= ballot.term.rank):
        return ballot
    return install(ballot, term) or ballot


def latest_of(terms: Iterable[SourceTerm | None]) -> SourceTerm | None:
    """The term that counts; None: there is none."""
    known = (term for term in terms if term is not None)
    return max(known, key=lambda term: term.rank, default=None)


def may_succeed(ballot: Ballot, own: str, terms: Iterable[SourceTerm | None]) -> bool:
    """Whether this peer's journal has every acknowledged post. A deletion to which a majority may
    have agreed needs no journal: any voter may complete it.

    The journals of all members of a term have every post acknowledged under it. A voter that joined
    a later term, which was not installed, has them from one of those members.

    Args: terms: the latest term that each voter of a majority knows; that majority promised our
    term.
    """
    latest = latest_of(terms)
    if latest is not None and latest.deleted:
        return True
    if latest is None or ballot.joined > latest.number:
        return ballot.joined > 0
    return ballot.joined == latest.number and own in latest.members

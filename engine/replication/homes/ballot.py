"""What an elector of a stream must not forget: whom it promised what, and whose journal it has.

A stream with k-safety k has 2k+1 electors, fixed when it is created. Who is its home is decided as
in vertical Paxos (Lamport, Malkhi, Zhou, PODC 2009): a *tenure* is the configuration of one fence,
its home and k replicas; a candidate has a majority promise its fence, learns of the latest tenure
that can have acknowledged anything, and installs its own at a majority, once its replicas have all
that it has. Everything here is a pure function of a ballot; the caller writes what comes out before
anybody hears of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

MAX_TOLD: Final = 16
"""Readers in `Ballot.told`: one is enough for a refusal, and people want to know which."""

MAX_READER_CHARS: Final = 256
"""Of one of them, so that all fit into every vote."""


class Tenure(Struct, frozen=True):
    """
    Attributes:
        fence: grows with every tenure of the stream; no two tenures have the same.
        home, replicas: peer ids (hex). A post is acknowledged once all of them have it.
        deleted: the stream is to be deleted. Once a majority has installed it so, it is: every
            later candidate hears of it from one of them, and can install nothing else.
    """

    fence: int
    home: str
    replicas: tuple[str, ...]
    deleted: bool = False

    @property
    def rank(self) -> tuple[int, bool]:
        """Of two that an elector hears of, the one with the higher counts: a home asks for the
        deletion under its own fence, after all else."""
        return self.fence, self.deleted

    @property
    def members(self) -> tuple[str, ...]:
        return (self.home, *self.replicas)


class Ballot(Struct, frozen=True):
    """
    Attributes:
        electors: peer ids (hex), the founder first.
        promised: the highest fence heard of; nothing of a lower one is agreed to.
        voted: for whom `promised` was promised.
        tenure: the latest that is known to be installed, as far as this elector knows.
        joined: the fence whose home gave this peer its journal; 0: it has none.
        journal: the fence in which that journal was begun, 0: the founder's; names its folder.
        deleted: a majority has agreed to the deletion: it never changes again.
        told: readers, for people, that this elector as the home has given the stream's end, or was
            about to; a stream is reopened only where no elector has told anybody.
    """

    electors: tuple[str, ...]
    promised: int = 0
    voted: str = ""
    tenure: Tenure | None = None
    joined: int = 0
    journal: int = 0
    deleted: bool = False
    told: tuple[str, ...] = ()

    @property
    def majority(self) -> int:
        return len(self.electors) // 2 + 1

    @property
    def k_safety(self) -> int:
        return len(self.electors) // 2

    @property
    def fence(self) -> int:
        """Of the latest tenure known; 0: none yet."""
        return 0 if self.tenure is None else self.tenure.fence


def promise(ballot: Ballot, fence: int, candidate: str) -> Ballot | None:
    """The ballot after a vote for that candidate; None: another has that fence, or a higher; or
    the stream is deleted."""
    if ballot.deleted or candidate not in ballot.electors or fence <= 0:
        return None
    if fence < ballot.promised or (fence == ballot.promised and candidate != ballot.voted):
        return None
    return msgspec.structs.replace(ballot, promised=fence, voted=candidate)


def tell(ballot: Ballot, reader: str) -> Ballot:
    """The ballot that remembers that this reader is given the end."""
    reader = reader[:MAX_READER_CHARS]
    if reader in ballot.told or len(ballot.told) >= MAX_TOLD:
        return ballot
    return msgspec.structs.replace(ballot, told=(*ballot.told, reader))


def without_future(ballot: Ballot, latest: int) -> Ballot:
    """The ballot without a promise that was asked for under a fence beyond `latest`: no other could
    ever be installed after it. Nothing was; else the ballot stays as it is, as something may have
    been acknowledged."""
    if ballot.promised <= latest or max(ballot.fence, ballot.joined) > latest:
        return ballot
    promised = max(ballot.fence, ballot.joined)
    voted = ballot.tenure.home if ballot.tenure and ballot.fence == promised else ""
    return msgspec.structs.replace(ballot, promised=promised, voted=voted)


def concede(ballot: Ballot, fence: int, winner: str) -> Ballot | None:
    """The ballot after a promise to who has a majority's for that fence: whoever else we may have
    promised the same one, ourselves perhaps, has lost. None: something higher was promised."""
    if fence == ballot.promised:
        ballot = msgspec.structs.replace(ballot, voted=winner)
    return promise(ballot, fence, winner)


def install(ballot: Ballot, tenure: Tenure) -> Ballot | None:
    """The ballot that knows of that tenure; None: something higher was promised."""
    if len(tenure.replicas) != ballot.k_safety or len(set(tenure.members)) != ballot.k_safety + 1:
        return None
    if not set(tenure.members) <= set(ballot.electors):
        return None
    promised = concede(ballot, tenure.fence, tenure.home)
    if promised is None:
        return None
    if ballot.tenure is not None and ballot.tenure.rank > tenure.rank:
        return promised  # asked for before the deletion, under the same fence
    return msgspec.structs.replace(promised, tenure=tenure)


def learn(ballot: Ballot, tenure: Tenure | None) -> Ballot:
    """As told by another elector: kept in mind, where it does not contradict a promise."""
    if tenure is None or (ballot.tenure is not None and tenure.rank <= ballot.tenure.rank):
        return ballot
    return install(ballot, tenure) or ballot


def latest_of(tenures: Iterable[Tenure | None]) -> Tenure | None:
    """The one that counts."""
    known = (tenure for tenure in tenures if tenure is not None)
    return max(known, key=lambda tenure: tenure.rank, default=None)


def may_succeed(ballot: Ballot, own: str, tenures: Iterable[Tenure | None]) -> bool:
    """Whether this peer's journal has everything that was ever acknowledged. A deletion that may
    have been agreed to needs no journal: anybody may bring it to its end.

    Everything acknowledged under a tenure is in the journals of all its members; and who joined a
    later fence, which was not installed, has it from one of them.

    Args:
        tenures: the latest that each elector of a majority knows, which promised our fence.
    """
    latest = latest_of(tenures)
    if latest is not None and latest.deleted:
        return True
    if latest is None or ballot.joined > latest.fence:
        return ballot.joined > 0
    return ballot.joined == latest.fence and own in latest.members

"""A voter of a stream: it promises, answers, follows, and keeps a deletion. Sans-IO.

`medusa.engine.replication.leaders.election` adds the candidate and the leader.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random  # noqa: TID251 -- the type only: the generator is passed in

import msgspec

from medusa.engine.replication.leaders.ballot import (
    Ballot,
    SourceTerm,
    concede,
    install,
    learn,
    note_end_reader,
    promise,
)
from medusa.engine.replication.leaders.events import (
    Drop,
    Effect,
    Keep,
    Send,
    StopShipping,
    Suspended,
)
from medusa.engine.replication.leaders.messages import (
    AskVote,
    Delete,
    Deleted,
    Inquire,
    Install,
    Installed,
    Request,
    View,
    Vote,
)


class Role(StrEnum):
    FOLLOWER = "follower"
    INQUIRING = "inquiring"
    CANDIDATE = "candidate"
    RECRUITING = "recruiting"
    INSTALLING = "installing"
    LEADER = "leader"


class Voter:
    """One voter of one stream, sans IO: events in, effects out.

    Args:
        own: this peer's id (hex).
        quiet_s: after so long without a message the leader counts as silent.

    Attributes:
        role: its present role. ballot: the ballot that was stored last. number: the number of the
            term that it stands for or holds. whole: whether no damage was found in its journal; a
            voter with a damaged journal does not stand.
    """

    def __init__(
        self, own: str, ballot: Ballot, *, quiet_s: float, rng: Random, now: float
    ) -> None:
        assert own in ballot.voters
        self.own = own
        self.ballot = ballot
        self.role = Role.FOLLOWER
        self.number = 0
        self.whole = True
        self._quiet_s = quiet_s
        self._rng = rng
        self._others = tuple(peer for peer in ballot.voters if peer != own)
        self._dead: set[str] = set()
        self._heard_at = now
        self._since = now
        self._patience_s = self._drawn_patience()

    @property
    def leader(self) -> str:
        """The leader, as far as this voter knows; "": none yet."""
        return "" if self.ballot.term is None else self.ballot.term.leader

    @property
    def deleted(self) -> bool:
        """Whether a majority has deleted the stream."""
        return self.ballot.deleted

    @property
    def down(self) -> tuple[str, ...]:
        """The other voters that the failure detector believes dead."""
        return tuple(sorted(self._dead))

    def note_leader(self, number: int, now: float) -> None:
        """Note a sign of life of the leader of that term."""
        if number >= self.ballot.number:
            self._heard_at = now

    def may_store(self, leader: str, number: int) -> bool:
        """Whether this voter may still store and acknowledge parts of the journal of that leader
        and term: it has promised itself to no other."""
        ballot = self.ballot
        return not ballot.deleted and (ballot.promised, ballot.voted) == (number, leader)

    def forget(self) -> list[Effect]:
        """Note that the journal is about to be replaced."""
        return self._keep(msgspec.structs.replace(self.ballot, joined=0))

    def found_damaged(self, now: float) -> list[Effect]:
        """Note that the journal is damaged: another member should become leader, and send it anew.
        Until then the damaged journal is kept: it may be the only one."""
        self.whole = False
        return self._follow(now, succeeded=False)

    def resign(self, now: float) -> list[Effect]:
        """Become a follower again, because this peer failed as leader: another voter may try."""
        return self._follow(now, succeeded=False)

    def note_end_reader(self, reader: str) -> list[Effect] | None:
        """As the leader: note that the end is about to be sent to a reader. None: it must not be
        sent."""
        if self.role is not Role.LEADER:
            return None
        return self._keep(note_end_reader(self.ballot, reader))

    # -- messages of other voters -------------------------------------------------------------

    def _asked(self, sender: str, request: Request, now: float) -> list[Effect]:
        if self.deleted:
            return [Send(sender, Deleted())]
        match request:
            case Inquire():
                ballot = self.ballot
                view = View(ballot.promised, ballot.term, self._is_silent(now))
                return [Send(sender, view)]
            case AskVote(number):
                return self._asked_to_vote(sender, number, now)
            case Install(term):
                return self._asked_to_install(sender, term, now)
            case Delete():
                return [*self._be_deleted(now), Send(sender, Deleted())]

    def _asked_to_vote(self, sender: str, number: int, now: float) -> list[Effect]:
        effects: list[Effect] = []
        state = promise(self.ballot, number, sender)
        if state is not None:
            effects += self._yield_to(number, sender, now) + self._keep(state)
            self._since = now
        ballot = self.ballot
        vote = Vote(number, state is not None, ballot.promised, ballot.term, ballot.end_readers)
        return [*effects, Send(sender, vote)]

    def _asked_to_install(self, sender: str, term: SourceTerm, now: float) -> list[Effect]:
        effects: list[Effect] = []
        state = install(self.ballot, term) if term.leader == sender else None
        if state is not None:
            effects += self._yield_to(term.number, sender, now) + self._keep(state)
            self.note_leader(term.number, now)
        ballot = self.ballot
        answer = Installed(term.number, state is not None, ballot.promised, ballot.term)
        return [*effects, Send(sender, answer)]

    def _called(self, leader: str, number: int, now: float) -> list[Effect]:
        state = concede(self.ballot, number, leader)
        if state is None:
            return []
        self.note_leader(number, now)
        return self._yield_to(number, leader, now) + self._keep(state)

    def _caught_up(self, number: int, journal: int, now: float) -> list[Effect]:
        if self.ballot.promised != number:
            return []
        self.note_leader(number, now)
        self.whole = True
        return self._keep(msgspec.structs.replace(self.ballot, joined=number, journal=journal))

    def _yield_to(self, number: int, peer: str, now: float) -> list[Effect]:
        """Follow a peer that has a higher term, or has won the same one."""
        if self.role is Role.FOLLOWER or number < self.number:
            return []
        assert number > self.number or peer != self.own, "nobody else has it from us"
        return self._follow(now, succeeded=True)

    def _follow(self, now: float, *, succeeded: bool) -> list[Effect]:
        effects: list[Effect] = []
        if self.role not in {Role.FOLLOWER, Role.INQUIRING}:
            effects = [StopShipping(), Suspended(succeeded)]
        self.role = Role.FOLLOWER
        self._since = now
        self._patience_s = self._drawn_patience()
        return effects

    def _be_deleted(self, now: float) -> list[Effect]:
        if self.deleted:
            return []
        state = msgspec.structs.replace(self.ballot, deleted=True, joined=0)
        return [*self._follow(now, succeeded=True), *self._keep(state), Drop()]

    def _is_silent(self, now: float) -> bool:
        if self.role in {Role.LEADER, Role.INSTALLING, Role.RECRUITING}:
            return False
        return self.leader in self._dead or now - self._heard_at >= self._quiet_s

    def _drawn_patience(self) -> float:
        """The wait before this voter stands, seconds: the first replica before the others, and no
        two at the same time repeatedly (Ongaro and Ousterhout, Raft, 5.2)."""
        members = () if self.ballot.term is None else self.ballot.term.replicas
        turn = members.index(self.own) if self.own in members else len(members)
        return self._quiet_s * (turn + self._rng.uniform(0.0, 0.5)) / 2

    def _learn(self, term: SourceTerm | None) -> list[Effect]:
        state = learn(self.ballot, term)
        if state == self.ballot or self.role not in {Role.FOLLOWER, Role.INQUIRING}:
            return []
        return self._keep(state)

    def _keep(self, ballot: Ballot) -> list[Effect]:
        if ballot == self.ballot:
            return []
        self.ballot = ballot
        return [Keep(ballot)]

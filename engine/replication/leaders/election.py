"""One voter of a stream: witness, replica, candidate or leader. Sans-IO.

    FOLLOWER --silence--> INQUIRING --no voter hears a leader--> CANDIDATE --majority--> RECRUITING
    RECRUITING --k replicas in step--> INSTALLING --majority--> LEADER
    LEADER --asked to delete--> INSTALLING --majority--> deleted, for good
    LEADER --asked to reopen--> CANDIDATE --all voters, no reader has the end--> RECRUITING

A leader that has lost a replica stands again, with a higher term, and recruits another. A voter
that learns of a higher term than its own is FOLLOWER again. Only a LEADER acknowledges posts, once
all replicas of its term have stored them; `medusa.engine.replication.leaders.ballot` says why that
is enough. A candidate that learns of a deletion from its majority completes it instead of
recruiting. A witness is a candidate for that, too, so that no deletion stays half done.

Only a LEADER sends a reader the end of the stream, and it writes the reader into its ballot first.
A voter that has voted for a term becomes LEADER again only under a higher term. So if every voter
has voted for a term, and no voter has sent the end to a reader by then, no reader receives the end
while that term lasts: the leader of that term may begin its segment of the journal before the end.
A later leader that may succeed it has that segment, unless the term was never installed: then no
post under it counts.
"""

from __future__ import annotations

from random import Random  # noqa: TID251 -- the type only: the generator is passed in
from typing import Final

import msgspec

from medusa.engine.replication.leaders.ballot import (
    Ballot,
    SourceTerm,
    install,
    latest_of,
    may_succeed,
    promise,
)
from medusa.engine.replication.leaders.events import (
    Activated,
    Called,
    CaughtUp,
    Effect,
    Event,
    HealthChanged,
    InStep,
    Lost,
    Received,
    Send,
    StopShipping,
    StoredAt,
    Suspended,
    Tick,
    Won,
)
from medusa.engine.replication.leaders.mandate import Mandate
from medusa.engine.replication.leaders.messages import (
    AskVote,
    Delete,
    Deleted,
    Inquire,
    Installed,
    Message,
    Request,
    View,
    Vote,
)
from medusa.engine.replication.leaders.reopening import Reopening
from medusa.engine.replication.leaders.replica_set import Commitment
from medusa.engine.replication.leaders.voter import Role, Voter
from medusa.engine.replication.records.term import MAJORITY
from medusa.engine.streams.journal.journal import Position
from medusa.overlay.failpoints import Failpoint, failpoint

BEATS: Final = 4
"""The number of messages that a leader sends within the time after which it counts as silent."""


class Election(Voter):
    """A voter that may stand for election, and lead.

    Attributes:
        mandate: the term that it proposes or holds. reopening: the request to reopen the stream
            after its end. commitment: as the leader: the progress of its replicas.
    """

    def __init__(
        self, own: str, ballot: Ballot, *, quiet_s: float, rng: Random, now: float
    ) -> None:
        super().__init__(own, ballot, quiet_s=quiet_s, rng=rng, now=now)
        self.mandate = Mandate(self._others, quiet_s)
        self.reopening = Reopening()
        self.commitment = Commitment(self.ballot.k_safety, quiet_s / BEATS)
        self._views: dict[str, View] = {}
        self._votes: dict[str, SourceTerm | None] = {}

    def found(self, now: float) -> list[Effect]:
        """Become the first leader of a new stream, whose journal exists and whose voters know of
        it. This happens only once: a stream that had a leader continues from that leader's state.
        """
        assert self.ballot.promised == 0, "founded already"
        state = msgspec.structs.replace(self.ballot, promised=1, voted=self.own, joined=1)
        effects = self._keep(state)
        return effects + self._stand(now)

    def is_confirmed(self, now: float) -> bool:
        """Whether a majority confirmed recently that this peer is leader."""
        lately = len(self.ballot.voters) - len(self.mandate.unconfirmed(now))
        return self.role is Role.LEADER and lately >= self.ballot.majority

    @failpoint(Failpoint.LEADER_DELETE)
    def delete(self, now: float) -> list[Effect]:
        """As the leader: ask all voters to agree to the deletion; see `deleted`. It cannot be
        undone: a voter that learns of it may complete it."""
        assert self.role is Role.LEADER
        assert self.mandate.term is not None
        term = msgspec.structs.replace(self.mandate.term, deleted=True)
        return [StopShipping(), Suspended(succeeded=False), *self._propose(term, now)]

    @failpoint(Failpoint.LEADER_REOPEN)
    def reopen(self, now: float) -> list[Effect]:
        """As the leader: stand again, to begin the next segment of the journal before the stream's
        end, if all voters say that they sent it to no reader; see `Won` and `Reopening.refused`."""
        assert self.role is Role.LEADER
        if not self.reopening.check(self.ballot.end_readers, self.mandate.unconfirmed(now)):
            return []
        effects = self._replace(now)
        self.reopening.ask(self.own)
        return effects

    def handle(self, event: Event, now: float) -> list[Effect]:
        """The effects of an event, in order. now: seconds, never going back."""
        if isinstance(event, Received):
            known = event.sender in self._others
            return self._received(event.sender, event.message, now) if known else []
        return [] if self.deleted else self._happened(event, now)

    def _happened(
        self, event: Tick | HealthChanged | Called | CaughtUp | InStep | StoredAt | Lost, now: float
    ) -> list[Effect]:
        match event:
            case Tick():
                return self._tick(now)
            case HealthChanged(peer, dead):
                return self._health(peer, dead, now)
            case Called(leader, number):
                return self._called(leader, number, now)
            case CaughtUp(number, journal):
                return self._caught_up(number, journal, now)
            case InStep(peer, number, upto):
                return self._in_step(peer, number, upto, now)
            case StoredAt(peer, number, upto):
                return self._stored_at(peer, number, upto)
            case Lost(peer, number):
                return self._lost(peer, number, now)

    def _received(self, sender: str, message: Message, now: float) -> list[Effect]:
        if isinstance(message, Request):
            return self._asked(sender, message, now)
        match message:
            case Deleted():
                return self._be_deleted(now)
            case View():
                return self._take_view(sender, message, now)
            case Vote():
                return self._take_vote(sender, message, now)
            case Installed():
                return self._take_installed(sender, message, now)

    # -- as a candidate -----------------------------------------------------------------------

    def _tick(self, now: float) -> list[Effect]:
        match self.role:
            case Role.FOLLOWER:
                return self._consider(now)
            case Role.INQUIRING | Role.CANDIDATE:
                if now - self._since < self._quiet_s:
                    return []
                if self.role is Role.CANDIDATE and len(self._votes) >= self.ballot.majority:
                    return self._count(now)  # the candidate has waited for all voters
                return self._follow(now, succeeded=False)
            case Role.RECRUITING:
                return self._recruit(now)
            case Role.INSTALLING:
                return self.mandate.requests()
            case Role.LEADER:
                return self.mandate.requests() + self._look_after(now)

    def _consider(self, now: float) -> list[Effect]:
        """Ask the others about a leader that has been silent for a while. A voter without a journal
        asks, too: the stream may have been deleted while that voter was away."""
        if not self._is_silent(now):
            self._since = now
            return []
        if now - self._since < self._patience_s:
            return []
        self.role, self._since = Role.INQUIRING, now
        self._views.clear()
        return [Send(peer, Inquire()) for peer in self._others]

    def _take_view(self, sender: str, view: View, now: float) -> list[Effect]:
        effects = self._learn(view.term)
        if self.role is not Role.INQUIRING:
            return effects
        self._views[sender] = view
        if not view.silent:
            return effects + self._follow(now, succeeded=False)
        if len(self._views) + 1 < self.ballot.majority:
            return effects
        terms = [self.ballot.term, *(view.term for view in self._views.values())]
        if not self.whole or not may_succeed(self.ballot, self.own, terms):
            return effects + self._follow(now, succeeded=False)
        return effects + self._stand(now)

    def _stand(self, now: float) -> list[Effect]:
        seen = [self.ballot.promised, *(view.promised for view in self._views.values())]
        self.number = MAJORITY.next_number(seen)
        self.role, self._since = Role.CANDIDATE, now
        state = promise(self.ballot, self.number, self.own)
        assert state is not None, "a higher term than any before"
        self._votes = {self.own: self.ballot.term}
        self.reopening.cancel()
        self.commitment.begin(self.number)
        asked = [Send(peer, AskVote(self.number)) for peer in self._others]
        return [*self._keep(state), StopShipping(), *asked]

    def _take_vote(self, sender: str, vote: Vote, now: float) -> list[Effect]:
        effects = self._learn(vote.term)
        if self.role is not Role.CANDIDATE or vote.number != self.number:
            return effects
        if not vote.granted:
            if vote.promised <= self.number:
                return effects
            return effects + self._follow(now, succeeded=True)
        self._votes[sender] = vote.term
        self.reopening.take_vote(sender, vote.end_readers)
        wanted = len(self.ballot.voters) if self.reopening.asked else self.ballot.majority
        return effects if len(self._votes) < wanted else effects + self._count(now)

    def _count(self, now: float) -> list[Effect]:
        """Count the votes of at least a majority."""
        if not may_succeed(self.ballot, self.own, self._votes.values()):
            return self._follow(now, succeeded=True)
        latest = latest_of(self._votes.values())
        if latest is not None and latest.deleted:
            replicas = self._others[: self.ballot.k_safety]
            return self._propose(SourceTerm(self.number, self.own, replicas, True), now)
        return self._begin(now)

    def _begin(self, now: float) -> list[Effect]:
        """Begin a term that a majority promised. Replicas that join from here on get every
        acknowledged post."""
        self.role, self._since = Role.RECRUITING, now
        won = Won(self.number, self.reopening.is_granted(self._others))
        state = msgspec.structs.replace(self.ballot, joined=self.number)
        return [won, *self._keep(state), *self._recruit(now)]

    def _recruit(self, now: float) -> list[Effect]:
        """Ship to more voters; voters that have the journal come first."""
        members = () if self.ballot.term is None else self.ballot.term.members
        return self.commitment.replicas.recruit(
            sorted(self._others, key=lambda peer: (peer in self._dead, peer not in members)), now
        )

    def _follow(self, now: float, *, succeeded: bool) -> list[Effect]:
        self.commitment.begin(self.number)
        return super()._follow(now, succeeded=succeeded)

    def _in_step(self, peer: str, number: int, upto: Position, now: float) -> list[Effect]:
        replicas = self.commitment.replicas
        if number != self.number or not replicas.in_step(peer, upto):
            return []
        if self.role is Role.LEADER:
            return self.commitment.advance()
        if self.role is not Role.RECRUITING or not replicas.complete:
            return []
        return self._propose(SourceTerm(self.number, self.own, replicas.members), now)

    def _propose(self, term: SourceTerm, now: float) -> list[Effect]:
        self.role, self._since = Role.INSTALLING, now
        state = install(self.ballot, term)
        if state is None:  # a higher term was promised, and this voter has not learnt it yet
            return self._follow(now, succeeded=True)
        self.mandate.propose(term)
        return [*self._keep(state), *self.mandate.requests()]

    def _take_installed(self, sender: str, answer: Installed, now: float) -> list[Effect]:
        if self.role not in {Role.INSTALLING, Role.LEADER}:
            return self._learn(answer.term)
        if answer.promised > self.number:
            return self._follow(now, succeeded=True) + self._learn(answer.term)
        # an answer that was sent before our request for the deletion, under the same number, does
        # not answer that request
        if not answer.accepted or answer.term != self.mandate.term:
            return []
        self.mandate.confirm(sender, now)
        if self.role is Role.LEADER:
            return []
        if self.mandate.accept(sender) < self.ballot.majority:
            return []
        assert self.mandate.term is not None
        if self.mandate.term.deleted:
            return self._be_deleted(now) + [Send(peer, Delete()) for peer in self._others]
        self.role = Role.LEADER
        return [Activated(self.mandate.term), *self.commitment.advance()]

    # -- as a leader ----------------------------------------------------------------------------

    def _stored_at(self, peer: str, number: int, upto: Position) -> list[Effect]:
        if number == self.number:
            self.commitment.replicas.stored(peer, upto)
        return self.commitment.advance() if self.role is Role.LEADER else []

    def _lost(self, peer: str, number: int, now: float) -> list[Effect]:
        if number != self.number:
            return []
        if self.role is Role.RECRUITING:
            return self._recruit(now) if self.commitment.replicas.dismiss(peer, now) else []
        self.commitment.replicas.miss(peer, now)
        return []

    def _look_after(self, now: float) -> list[Effect]:
        """Ship again to a lost replica; stand for a new term if it stays lost."""
        if self.commitment.replicas.missing_since(now - self._quiet_s):
            return self._replace(now)
        return self.commitment.replicas.ship_again(now)

    def _replace(self, now: float) -> list[Effect]:
        self._views.clear()
        return [Suspended(succeeded=False), *self._stand(now)]

    # -----------------------------------------------------------------------------------------

    def _health(self, peer: str, dead: bool, now: float) -> list[Effect]:
        (self._dead.add if dead else self._dead.discard)(peer)
        lost = dead and self.role is Role.LEADER and self.commitment.replicas.is_missing(peer)
        return self._replace(now) if lost else []

"""One elector of a stream: witness, replica, candidate or home. Sans-IO.

    FOLLOWER --silence--> INQUIRING --nobody hears a home--> STANDING --majority--> RECRUITING
    RECRUITING --k replicas in step--> INSTALLING --majority--> HOME
    HOME --asked to delete--> INSTALLING --majority--> deleted, for good

A home whose replica is lost stands again, with a higher fence, and recruits another. Whoever hears
of a higher fence than its own is a follower again. Nothing is acknowledged but by a HOME, and only
what all replicas of its tenure have stored; `engine.homes.ballot` says why that is enough. A
candidate that hears of a deletion from its majority brings that to its end instead of recruiting,
and a witness stands for that, too: a deletion that was begun does not stay half done.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random  # noqa: TID251 -- the type only: the generator is passed in
from typing import Final

import msgspec

from engine.homes.ballot import (
    Ballot,
    Tenure,
    concede,
    install,
    latest_of,
    learn,
    may_succeed,
    promise,
)
from engine.homes.crew import Crew
from engine.homes.events import (
    Activated,
    Called,
    CaughtUp,
    Committed,
    Drop,
    Effect,
    Event,
    HealthChanged,
    InStep,
    Keep,
    Lost,
    Received,
    Send,
    StopShipping,
    StoredAt,
    Suspended,
    Tick,
    Won,
)
from engine.homes.messages import (
    AskVote,
    Delete,
    Deleted,
    Inquire,
    Install,
    Installed,
    Message,
    View,
    Vote,
)
from engine.streams.journal import START, Position

BEATS: Final = 4
"""Signs of life of a home within the time after which it counts as silent."""


class Role(StrEnum):
    FOLLOWER = "follower"
    INQUIRING = "inquiring"
    STANDING = "standing"
    RECRUITING = "recruiting"
    INSTALLING = "installing"
    HOME = "home"


class HomeTenure:
    """
    Args:
        own: this peer's id (hex).
        quiet_s: a home of which nothing was heard for so long is silent.

    Attributes:
        role: what it is now. ballot: as last kept.
        fence: of the tenure that it stands for or holds.
        committed: everything before it is committed, where it is home.
        whole: nothing of its journal was found damaged; one that is not whole does not stand.
    """

    def __init__(
        self, own: str, ballot: Ballot, *, quiet_s: float, rng: Random, now: float
    ) -> None:
        assert own in ballot.electors
        self.own = own
        self.ballot = ballot
        self.role = Role.FOLLOWER
        self.fence = 0
        self.committed: Position = START
        self.whole = True
        self._quiet_s = quiet_s
        self._rng = rng
        self._others = tuple(peer for peer in ballot.electors if peer != own)
        self._dead: set[str] = set()
        self._views: dict[str, View] = {}
        self._votes: dict[str, Tenure | None] = {}
        self._installed: set[str] = set()
        self._confirmed: dict[str, float] = {}
        self._crew = self._new_crew()
        self._tenure: Tenure | None = None
        self._heard_at = now
        self._since = now
        self._patience_s = self._drawn_patience()

    @property
    def home(self) -> str:
        """Who is home, as far as this elector knows; "": nobody yet."""
        return "" if self.ballot.tenure is None else self.ballot.tenure.home

    def found(self, now: float) -> list[Effect]:
        """Be the first home of a new stream, whose journal has been begun. All electors know of it.

        Once only: a stream that has had a home goes on where that one stood.
        """
        assert self.ballot.promised == 0, "founded already"
        kept = msgspec.structs.replace(self.ballot, promised=1, voted=self.own, joined=1)
        effects = self._keep(kept)
        return effects + self._stand(now)

    def resign(self, now: float) -> list[Effect]:
        """What was to be done could not be: another may try."""
        return self._follow(now, succeeded=False)

    def found_damaged(self, now: float) -> list[Effect]:
        """The journal is not whole any more: another member is to be home, and send it anew. Until
        then it is kept: it may be all that there is."""
        self.whole = False
        return self._follow(now, succeeded=False)

    def forget(self) -> list[Effect]:
        """The journal is about to go, to be replaced."""
        return self._keep(msgspec.structs.replace(self.ballot, joined=0))

    @property
    def deleted(self) -> bool:
        """Whether the stream is, by the word of a majority."""
        return self.ballot.deleted

    def is_confirmed(self, now: float) -> bool:
        """Whether a majority agreed a moment ago that this peer is home."""
        lately = [at for at in self._confirmed.values() if now - at <= self._quiet_s]
        return self.role is Role.HOME and len(lately) + 1 >= self.ballot.majority

    def delete(self, now: float) -> list[Effect]:
        """As the home: ask all electors to agree that the stream is deleted; see `deleted`. There
        is no way back: whoever hears of it may bring it to its end."""
        assert self.role is Role.HOME
        assert self._tenure is not None
        tenure = msgspec.structs.replace(self._tenure, deleted=True)
        return [StopShipping(), Suspended(succeeded=False), *self._propose(tenure, now)]

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What is to be done, in this order. now: seconds, never going back."""
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
            case Called(home, fence):
                return self._called(home, fence, now)
            case CaughtUp(fence, journal):
                return self._caught_up(fence, journal, now)
            case InStep(peer, fence, upto):
                return self._in_step(peer, fence, upto, now)
            case StoredAt(peer, fence, upto):
                return self._stored_at(peer, fence, upto)
            case Lost(peer, fence):
                return self._lost(peer, fence, now)

    def hear(self, fence: int, now: float) -> None:
        """Something of a home of that fence has come: it lives."""
        if fence >= self.ballot.fence:
            self._heard_at = now

    def may_store(self, home: str, fence: int) -> bool:
        """Whether what that home ships under that fence may still be written and acknowledged."""
        ballot = self.ballot
        return not ballot.deleted and (ballot.promised, ballot.voted) == (fence, home)

    # -- as an elector ------------------------------------------------------------------------

    def _received(self, sender: str, message: Message, now: float) -> list[Effect]:
        match message:
            case Inquire() | AskVote() | Install() | Delete():
                return self._asked(sender, message, now)
            case Deleted():
                return self._be_deleted(now)
            case View():
                return self._take_view(sender, message, now)
            case Vote():
                return self._take_vote(sender, message, now)
            case Installed():
                return self._take_installed(sender, message, now)

    def _asked(
        self, sender: str, request: Inquire | AskVote | Install | Delete, now: float
    ) -> list[Effect]:
        if self.deleted:
            return [Send(sender, Deleted())]
        match request:
            case Inquire():
                ballot = self.ballot
                view = View(ballot.promised, ballot.tenure, self._is_silent(now))
                return [Send(sender, view)]
            case AskVote(fence):
                return self._asked_to_vote(sender, fence, now)
            case Install(tenure):
                return self._asked_to_install(sender, tenure, now)
            case Delete():
                return [*self._be_deleted(now), Send(sender, Deleted())]

    def _asked_to_vote(self, sender: str, fence: int, now: float) -> list[Effect]:
        effects: list[Effect] = []
        kept = promise(self.ballot, fence, sender)
        if kept is not None:
            effects += self._yield_to(fence, sender, now) + self._keep(kept)
            self._since = now
        ballot = self.ballot
        return [
            *effects,
            Send(sender, Vote(fence, kept is not None, ballot.promised, ballot.tenure)),
        ]

    def _asked_to_install(self, sender: str, tenure: Tenure, now: float) -> list[Effect]:
        effects: list[Effect] = []
        kept = install(self.ballot, tenure) if tenure.home == sender else None
        if kept is not None:
            effects += self._yield_to(tenure.fence, sender, now) + self._keep(kept)
            self.hear(tenure.fence, now)
        ballot = self.ballot
        answer = Installed(tenure.fence, kept is not None, ballot.promised, ballot.tenure)
        return [*effects, Send(sender, answer)]

    def _called(self, home: str, fence: int, now: float) -> list[Effect]:
        kept = concede(self.ballot, fence, home)
        if kept is None:
            return []
        self.hear(fence, now)
        return self._yield_to(fence, home, now) + self._keep(kept)

    def _caught_up(self, fence: int, journal: int, now: float) -> list[Effect]:
        if self.ballot.promised != fence:
            return []
        self.hear(fence, now)
        self.whole = True
        return self._keep(msgspec.structs.replace(self.ballot, joined=fence, journal=journal))

    def _yield_to(self, fence: int, peer: str, now: float) -> list[Effect]:
        """Whoever has a higher fence than ours, or won the same, has taken over or is about to."""
        if self.role is Role.FOLLOWER or fence < self.fence:
            return []
        assert fence > self.fence or peer != self.own, "nobody else has it from us"
        return self._follow(now, succeeded=True)

    def _follow(self, now: float, *, succeeded: bool) -> list[Effect]:
        effects: list[Effect] = []
        if self.role not in {Role.FOLLOWER, Role.INQUIRING}:
            effects = [StopShipping(), Suspended(succeeded)]
        self.role = Role.FOLLOWER
        self._crew = self._new_crew()
        self._since = now
        self._patience_s = self._drawn_patience()
        return effects

    def _is_silent(self, now: float) -> bool:
        if self.role in {Role.HOME, Role.INSTALLING, Role.RECRUITING}:
            return False
        return self.home in self._dead or now - self._heard_at >= self._quiet_s

    # -- as a candidate -----------------------------------------------------------------------

    def _tick(self, now: float) -> list[Effect]:
        match self.role:
            case Role.FOLLOWER:
                return self._consider(now)
            case Role.INQUIRING | Role.STANDING:
                if now - self._since >= self._quiet_s:
                    return self._follow(now, succeeded=False)
                return []
            case Role.RECRUITING:
                return self._recruit(now)
            case Role.INSTALLING:
                return self._announce()
            case Role.HOME:
                return self._announce() + self._look_after(now)

    def _consider(self, now: float) -> list[Effect]:
        """Stand, after a while in which nothing was heard of a home. Who has no journal asks as
        well: it may have been away when the stream was deleted."""
        if not self._is_silent(now):
            self._since = now
            return []
        if now - self._since < self._patience_s:
            return []
        self.role, self._since = Role.INQUIRING, now
        self._views.clear()
        return [Send(peer, Inquire()) for peer in self._others]

    def _drawn_patience(self) -> float:
        """Before we stand, seconds: the first replica before the others, and never at the same time
        again and again (Ongaro and Ousterhout, Raft, 5.2)."""
        members = () if self.ballot.tenure is None else self.ballot.tenure.replicas
        turn = members.index(self.own) if self.own in members else len(members)
        return self._quiet_s * (turn + self._rng.uniform(0.0, 0.5)) / 2

    def _take_view(self, sender: str, view: View, now: float) -> list[Effect]:
        effects = self._learn(view.tenure)
        if self.role is not Role.INQUIRING:
            return effects
        self._views[sender] = view
        if not view.silent:
            return effects + self._follow(now, succeeded=False)
        if len(self._views) + 1 < self.ballot.majority:
            return effects
        tenures = [self.ballot.tenure, *(view.tenure for view in self._views.values())]
        if not self.whole or not may_succeed(self.ballot, self.own, tenures):
            return effects + self._follow(now, succeeded=False)
        return effects + self._stand(now)

    def _stand(self, now: float) -> list[Effect]:
        seen = [self.ballot.promised, *(view.promised for view in self._views.values())]
        self.fence = max(seen) + 1
        self.role, self._since = Role.STANDING, now
        kept = promise(self.ballot, self.fence, self.own)
        assert kept is not None, "a higher fence than any before"
        self._votes = {self.own: self.ballot.tenure}
        self._crew = self._new_crew()
        asked = [Send(peer, AskVote(self.fence)) for peer in self._others]
        return [*self._keep(kept), StopShipping(), *asked]

    def _take_vote(self, sender: str, vote: Vote, now: float) -> list[Effect]:
        effects = self._learn(vote.tenure)
        if self.role is not Role.STANDING or vote.fence != self.fence:
            return effects
        if not vote.granted:
            if vote.promised <= self.fence:
                return effects
            return effects + self._follow(now, succeeded=True)
        self._votes[sender] = vote.tenure
        if len(self._votes) < self.ballot.majority:
            return effects
        if not may_succeed(self.ballot, self.own, self._votes.values()):
            return effects + self._follow(now, succeeded=True)
        latest = latest_of(self._votes.values())
        if latest is not None and latest.deleted:
            replicas = self._others[: self.ballot.k_safety]
            return effects + self._propose(Tenure(self.fence, self.own, replicas, True), now)
        return [*effects, *self._begin(now)]

    def _begin(self, now: float) -> list[Effect]:
        """The majority is ours. What joins our fence from here on has all that was acknowledged."""
        self.role, self._since = Role.RECRUITING, now
        kept = msgspec.structs.replace(self.ballot, joined=self.fence)
        return [Won(self.fence), *self._keep(kept), *self._recruit(now)]

    def _recruit(self, now: float) -> list[Effect]:
        """Those that have the journal, before those that do not."""
        members = () if self.ballot.tenure is None else self.ballot.tenure.members
        return self._crew.recruit(
            sorted(self._others, key=lambda peer: (peer in self._dead, peer not in members)), now
        )

    def _new_crew(self) -> Crew:
        return Crew(self.fence, self.ballot.k_safety, self._quiet_s / BEATS)

    def _in_step(self, peer: str, fence: int, upto: Position, now: float) -> list[Effect]:
        if fence != self.fence or not self._crew.in_step(peer, upto):
            return []
        if self.role is Role.HOME:
            return self._commit()
        if self.role is not Role.RECRUITING or not self._crew.complete:
            return []
        return self._propose(Tenure(self.fence, self.own, self._crew.members), now)

    def _propose(self, tenure: Tenure, now: float) -> list[Effect]:
        self.role, self._since = Role.INSTALLING, now
        self._tenure = tenure
        kept = install(self.ballot, tenure)
        if kept is None:  # a higher fence was promised, and we have not been told yet
            return self._follow(now, succeeded=True)
        self._installed = {self.own}
        return [*self._keep(kept), *self._announce()]

    def _announce(self) -> list[Effect]:
        assert self._tenure is not None
        return [Send(peer, Install(self._tenure)) for peer in self._others]

    def _take_installed(self, sender: str, answer: Installed, now: float) -> list[Effect]:
        if self.role not in {Role.INSTALLING, Role.HOME}:
            return self._learn(answer.tenure)
        if answer.promised > self.fence:
            return self._follow(now, succeeded=True) + self._learn(answer.tenure)
        # of another version, an elector knows of no deletion, and accepts the tenure without it
        if not answer.accepted or answer.tenure != self._tenure:
            return []
        self._confirmed[sender] = now
        if self.role is Role.HOME:
            return []
        self._installed.add(sender)
        if len(self._installed) < self.ballot.majority:
            return []
        assert self._tenure is not None
        if self._tenure.deleted:
            return self._be_deleted(now) + [Send(peer, Delete()) for peer in self._others]
        self.role = Role.HOME
        return [Activated(self._tenure), *self._commit()]

    def _be_deleted(self, now: float) -> list[Effect]:
        if self.deleted:
            return []
        kept = msgspec.structs.replace(self.ballot, deleted=True, joined=0)
        return [*self._follow(now, succeeded=True), *self._keep(kept), Drop()]

    # -- as a home ----------------------------------------------------------------------------

    def _stored_at(self, peer: str, fence: int, upto: Position) -> list[Effect]:
        if fence == self.fence:
            self._crew.stored(peer, upto)
        return self._commit()

    def _commit(self) -> list[Effect]:
        everywhere = self._crew.everywhere
        if self.role is not Role.HOME or everywhere <= self.committed:
            return []
        self.committed = everywhere
        return [Committed(everywhere)]

    def _lost(self, peer: str, fence: int, now: float) -> list[Effect]:
        if fence != self.fence:
            return []
        if self.role is Role.RECRUITING:
            return self._recruit(now) if self._crew.dismiss(peer, now) else []
        self._crew.miss(peer, now)
        return []

    def _look_after(self, now: float) -> list[Effect]:
        """Ship again to a replica that was lost; stand for a new tenure when it stays so."""
        if self._crew.missing_since(now - self._quiet_s):
            return self._replace(now)
        return self._crew.ship_again(now)

    def _replace(self, now: float) -> list[Effect]:
        self._views.clear()
        return [Suspended(succeeded=False), *self._stand(now)]

    # -----------------------------------------------------------------------------------------

    def _health(self, peer: str, dead: bool, now: float) -> list[Effect]:
        (self._dead.add if dead else self._dead.discard)(peer)
        lost = dead and self.role is Role.HOME and self._crew.is_missing(peer)
        return self._replace(now) if lost else []

    def _learn(self, tenure: Tenure | None) -> list[Effect]:
        kept = learn(self.ballot, tenure)
        if kept == self.ballot or self.role not in {Role.FOLLOWER, Role.INQUIRING}:
            return []
        return self._keep(kept)

    def _keep(self, ballot: Ballot) -> list[Effect]:
        if ballot == self.ballot:
            return []
        self.ballot = ballot
        return [Keep(ballot)]

"""The rules that turn signed claims into health: alive, suspected, dead.

Peers distrust each other, so SWIM's rules (Das et al., DSN 2002, 4.2) are narrower here:

* `alive` and `left` count only from their subject. An accusation counts for an incarnation that its
  subject has signed, so no peer can raise another's incarnation out of reach of a refutation.
* Any peer's accusation starts a suspicion. Its subject receives the accusation, and can refute it.
* We take no peer for dead while we reach it. A suspicion that runs out makes a peer dead only if
  our own probe failed; otherwise the peer is probed first (`may_kill`).
* Another peer's `dead` is an accusation like any other. When `QUORUM` distinct participants say
  `dead`, that is a sentence: we probe the peer at once, and it is dead if it does not answer. All
  peers' suspicions start from the same few claims, so the second `dead` follows the first within a
  round or two of gossip: the verdict spreads as in SWIM, one ping later.
* Participants in a sentence that was refuted take part in no other for a while (`MISTRUST`), so
  that false accusers cannot make all peers ping their victim again and again.

Claims are checked for news before their signature is verified, so that none is verified twice.
"""

from __future__ import annotations

from typing import Final

from medusa.overlay.errors import DecodeError
from medusa.overlay.gossip.claims import (
    Claim,
    Keys,
    Standing,
    Word,
    is_signed,
    make_claim,
    read_claim,
)
from medusa.overlay.gossip.config import GossipConfig, suspicion_timeout
from medusa.overlay.gossip.digests import Broadcasts
from medusa.overlay.gossip.events import Changed, Effect, Health
from medusa.overlay.gossip.members import Awareness, Counters, Member, Members
from medusa.overlay.gossip.voices import Voices
from medusa.overlay.names import PeerId

BURST: Final = 32.0
"""Accusations of one peer at once: all connections of a stopped machine break together."""

MAX_ACCUSERS: Final = 4096
"""Peers whose accusations are counted; beyond that the one counted longest is dropped."""


class Budgets:
    """A token bucket for each author of accusations that would start a suspicion."""

    def __init__(self, refill_s: float) -> None:
        """refill_s: seconds in which an author earns one more accusation."""
        self._refill_s = refill_s
        self._buckets: dict[PeerId, tuple[float, float]] = {}

    def spend(self, author: PeerId, now: float) -> bool:
        """Whether the author may accuse once more now; if so, count it."""
        tokens, since = self._buckets.pop(author, (BURST, now))
        tokens = min(BURST, tokens + (now - since) / self._refill_s)
        allowed = tokens >= 1
        self._buckets[author] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > MAX_ACCUSERS:
            del self._buckets[next(iter(self._buckets))]
        return allowed


class Verdicts:
    """The beliefs about all peers. The detector probes, keeps the time and sends."""

    def __init__(
        self,
        me: PeerId,
        members: Members,
        config: GossipConfig,
        keys: Keys,
        *,
        standing: Standing,
        awareness: Awareness,
        counters: Counters,
    ) -> None:
        self._me = me
        self._members = members
        self._roster = members.roster
        self._config = config
        self._keys = keys
        self._standing = standing
        self._awareness = awareness
        self._counters = counters
        self._budgets = Budgets(config.probe_interval_s)
        self._announced_at = float("-inf")
        self._moved: dict[PeerId, float | None] = {}
        self._voices = Voices(me, members, config)
        self.broadcasts: Broadcasts[tuple[PeerId, PeerId]] = Broadcasts(
            lambda: config.retransmits(members.living)
        )

    def moved(self) -> dict[PeerId, float | None]:
        """Suspects whose suspicion got another end since the last call (None: it is over)."""
        moved, self._moved = self._moved, {}
        return moved

    # -- others' claims

    def apply(self, data: bytes, now: float) -> list[Effect]:
        """Take in a claim; no content makes this raise."""
        try:
            claim = read_claim(data)
        except DecodeError:
            self._counters.malformed += 1
            return []
        if claim.author not in self._roster or claim.subject not in self._roster:
            self._counters.unknown += 1
            return []
        if claim.incarnation > self._members.latest():
            self._counters.future += 1
            return []
        if claim.subject == self._me:
            return self._on_me(claim, now)
        known = self._members.incarnation(claim.subject)
        if claim.author == claim.subject:
            return self._on_own(claim, known, now)
        if claim.author == self._me or claim.incarnation < known:
            self._counters.old += 1
            return []
        if claim.incarnation > known:
            self._counters.ahead += 1
            return []
        return self._on_accusation(claim, now)

    def _on_me(self, claim: Claim, now: float) -> list[Effect]:
        ours = self._standing.claim
        if self._standing.left or claim.data == ours.data:
            return []
        if claim.incarnation < ours.incarnation:
            # the sender has missed our claim: send it again, but not as often as other participants
            # can ask
            if now - self._announced_at >= self._config.probe_interval_s:
                self.announce(now)
            return []
        by_us = claim.author == self._me  # made before we lost the file of incarnations
        if claim.incarnation > ours.incarnation and not by_us:
            self._counters.ahead += 1
            return []
        if not self._is_signed(claim):
            return []
        self._counters.refuted += 1
        # answered probes lower the score again: false accusers cannot keep it high for long
        if now - self._announced_at >= 2 * self._config.probe_interval_s:
            self._awareness.change(+1)
        persist = self._standing.outdo(claim.incarnation)
        self.announce(now)
        return [*persist]

    def begin(self, incarnation: int, now: float) -> list[Effect]:
        """Note that our record has this incarnation now: continue with the one after it. This may
        be an earlier one than before, if the former came from a clock that was ahead."""
        ours = self._standing.incarnation
        if self._standing.left or incarnation <= ours <= self._members.latest():
            return []
        persist = self._standing.begin(incarnation + 1)
        self.announce(now)
        return [persist]

    def announce(self, now: float) -> None:
        """Have our latest claim passed on."""
        self._announced_at = now
        self.broadcasts.put((self._me, self._me), self._standing.claim.data)

    def _on_own(self, claim: Claim, known: int, now: float) -> list[Effect]:
        """A peer's claim about itself: alive in a higher incarnation, or left in this one or a
        higher."""
        subject, leaves = claim.subject, claim.word is Word.LEFT
        health = self._members.health(subject)
        news = claim.incarnation > known or (
            leaves and claim.incarnation == known and health is not Health.LEFT
        )
        if not news:
            self._counters.old += 1
            return []
        if not self._is_signed(claim):
            return []
        member = self._members.note(subject)
        if self.is_sentenced(subject, now):
            self._voices.mistrust(member, now)
        flapping = (
            health is Health.ALIVE
            and not leaves
            and now - member.heard_at < self._config.probe_interval_s
        )
        self._clear(subject, member)
        member.incarnation, member.own, member.heard_at = claim.incarnation, claim.data, now
        if not flapping:
            self.broadcasts.put((subject, subject), claim.data)
        return self._become(subject, member, Health.LEFT if leaves else Health.ALIVE, now)

    def _on_accusation(self, claim: Claim, now: float) -> list[Effect]:
        # the roster may have a newer incarnation before this class learns of it
        effects = self.joined(claim.subject, now)
        member, health = self._members.get(claim.subject), self._members.health(claim.subject)
        if health is Health.LEFT or (member and not self._voices.is_news(member, claim, now)):
            self._counters.old += 1
        elif health is Health.ALIVE and not self._budgets.spend(claim.author, now):
            self._counters.excessive += 1
        elif self._is_signed(claim):
            effects += self._accused(claim, now)
        return effects

    # -- our own findings

    def accuse(self, peer: PeerId, now: float, *, gone: bool = False) -> list[Effect]:
        """Our probe of the peer failed. gone: and its port refuses connections."""
        if self._members.is_gone(peer) or peer not in self._roster:
            return []
        member = self._members.get(peer)
        effects: list[Effect] = []
        if member is None or self._me not in member.accusations:
            incarnation = self._members.incarnation(peer)
            claim = make_claim(self._keys, self._me, Word.SUSPECT, peer, incarnation)
            effects = self._accused(claim, now)
        if gone and (member := self._members.get(peer)) and member.health is Health.SUSPECT:
            self._suspect_until(peer, member, min(member.until, now + self._config.gone_s))
        return effects

    def may_kill(self, peer: PeerId) -> bool:
        """Whether a suspicion that ran out is proof enough, without a last probe of our own."""
        member = self._members.get(peer)
        suspected = member is not None and member.health is Health.SUSPECT
        return suspected and member is not None and self._me in member.accusations

    def is_sentenced(self, peer: PeerId, now: float) -> bool:
        """Whether a quorum accuses the suspect of being dead, so that one ping decides."""
        member = self._members.get(peer)
        if member is None or member.health is not Health.SUSPECT:
            return False
        return self._voices.is_sentenced(member, now)

    def postpone(self, peer: PeerId, until: float) -> None:
        """Let the suspicion last until then, to wait for more evidence."""
        member = self._members.get(peer)
        if member is not None and member.health is Health.SUSPECT:
            self._suspect_until(peer, member, until)

    def kill(self, peer: PeerId, now: float) -> list[Effect]:
        """Declare a suspect dead."""
        member = self._members.get(peer)
        assert member is not None
        assert member.health is Health.SUSPECT
        dead = {
            author: accusation
            for author, accusation in member.accusations.items()
            if accusation[0] is Word.DEAD
        }
        if not self._voices.is_sentenced(member, now) and self._me not in dead:
            claim = make_claim(self._keys, self._me, Word.DEAD, peer, member.incarnation)
            dead[self._me] = (claim.word, claim.data)
        self._clear(peer, member)
        member.accusations = dead
        for author, (_, data) in dead.items():
            self.broadcasts.put((peer, author), data)
        return self._become(peer, member, Health.DEAD, now)

    # -- the roster

    def joined(self, peer: PeerId, now: float) -> list[Effect]:
        """Clear the accusations against a peer whose record has a newer incarnation."""
        member = self._members.get(peer)
        if member is None or self._roster.incarnation(peer) <= member.incarnation:
            return []
        self._clear(peer, member)
        effects = self._become(peer, member, Health.ALIVE, now)
        self._members.forget(peer)
        return effects

    def removed(self, peer: PeerId) -> list[Effect]:
        """The peer is no member any more: the packages above see it as left."""
        was = self._members.health(peer)
        if (member := self._members.get(peer)) is not None:
            self._clear(peer, member)
        self._members.forget(peer)
        return [] if was is Health.LEFT else [Changed(peer, Health.LEFT)]

    # -- what to pass on

    def held_against(self, peer: PeerId) -> bytes | None:
        """A claim that tells the peer what it should refute (Lifeguard's buddy system)."""
        member = self._members.get(peer)
        if member is None or member.health is Health.ALIVE:
            return None
        if member.health is Health.LEFT:
            return member.own
        return next((data for _, data in member.accusations.values()), None)

    def held_on(self, member: Member) -> list[bytes]:
        """All claims that justify the believed health of a peer."""
        claims = [data for _, data in member.accusations.values()]
        return [member.own, *claims] if member.own else claims

    # -- inside

    def _accused(self, claim: Claim, now: float) -> list[Effect]:
        """A verified accusation of a peer that has not left, in its present incarnation."""
        subject = claim.subject
        member = self._members.note(subject)
        begins = member.health is Health.ALIVE
        if begins:
            self._clear(subject, member)
            member.incarnation = claim.incarnation
        member.accusations[claim.author] = (claim.word, claim.data)
        self.broadcasts.put((subject, claim.author), claim.data)
        if member.health is Health.DEAD:
            return []
        effects = self._become(subject, member, Health.SUSPECT, now) if begins else []
        if begins:
            member.confirmations = self._voices.confirmations()
        self._time_suspicion(subject, member, begins=begins)
        if self.is_sentenced(subject, now):
            if self._me in member.accusations:
                return effects + self.kill(subject, now)
            self._suspect_until(subject, member, now)
        return effects

    def _time_suspicion(self, peer: PeerId, member: Member, *, begins: bool) -> None:
        shortest, longest = self._config.suspicion_s(self._members.living)
        confirmed = self._voices.confirmed(member)
        lasts = suspicion_timeout(shortest, longest, member.confirmations, confirmed)
        until = member.since + lasts
        self._suspect_until(peer, member, until if begins else min(until, member.until))

    def _suspect_until(self, peer: PeerId, member: Member, until: float) -> None:
        member.until = until
        self._moved[peer] = until

    def _clear(self, peer: PeerId, member: Member) -> None:
        """Drop all accusations of the peer, and stop passing them on."""
        for author in (peer, *member.accusations):
            self.broadcasts.drop((peer, author))
        member.accusations = {}
        self._moved[peer] = None

    def _become(self, peer: PeerId, member: Member, health: Health, now: float) -> list[Effect]:
        before = member.health
        if not self._members.become(peer, member, health, now):
            return []
        counters = self._counters
        counters.suspected += health is Health.SUSPECT
        counters.died += health is Health.DEAD
        counters.revived += health is Health.ALIVE and before is not Health.SUSPECT
        return [Changed(peer, health)]

    def _is_signed(self, claim: Claim) -> bool:
        if is_signed(claim, self._keys):
            self._counters.claims += 1
            return True
        self._counters.forged += 1
        return False

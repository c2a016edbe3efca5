"""Counts the accusations of a peer (sans-IO).

All peers of another participant have one vote together, so that a participant with many peers
cannot outvote others. Each peer of our own participant has a vote.
"""

from __future__ import annotations

from typing import Final

from medusa.overlay.gossip.claims import Claim, Word
from medusa.overlay.gossip.config import QUORUM, GossipConfig
from medusa.overlay.gossip.events import Health
from medusa.overlay.gossip.members import Member, Members
from medusa.overlay.names import PeerId

MISTRUST: Final = 30
"""Probe intervals for which a participant's accusations do not count, after it took part in
declaring a living peer dead. They are few, because an honest participant may have been cut off from
a part of the network."""


class Voices:
    """Counts the voices against a member, and remembers whose were wrong."""

    def __init__(self, me: PeerId, members: Members, config: GossipConfig) -> None:
        self._me = me
        self._members = members
        self._roster = members.roster
        self._config = config
        self._mistrusted: dict[str, float] = {}

    def is_sentenced(self, member: Member, now: float) -> bool:
        """Whether a quorum says that the member is dead."""
        return len(self._dead(member, now)) >= self._quorum

    def mistrust(self, member: Member, now: float) -> None:
        """Note that the member was wrongly declared dead: no participant that said so counts for
        `MISTRUST` probe intervals."""
        until = now + MISTRUST * self._config.probe_interval_s
        self._mistrusted |= dict.fromkeys(self._dead(member, now), until)

    def is_news(self, member: Member, claim: Claim, now: float) -> bool:
        """Whether this accusation adds a voice that still counts."""
        if claim.word is Word.DEAD and self._is_trusted(claim.author, now):
            dead = self._dead(member, now)
            return len(dead) < self._quorum and self._roster.participant(claim.author) not in dead
        if member.health is Health.DEAD:
            return False
        voices = self._against(member)
        if len(voices) >= max(self.confirmations() + 1, self._quorum):
            return False
        return self._voice(claim.author) not in voices

    def confirmations(self) -> int:
        """Return how many further voices shorten a suspicion to its least time."""
        own = self._roster.size_of(self._roster.participant(self._me))
        possible = min(self._members.living, own + self._roster.participants - 1)
        return self._config.confirmations(possible)

    def confirmed(self, member: Member) -> int:
        """Return how many voices have confirmed a suspicion since the first."""
        return min(len(self._against(member)) - 1, member.confirmations)

    @property
    def _quorum(self) -> int:
        return min(QUORUM, self._roster.participants)

    def _voice(self, author: PeerId) -> str | bytes:
        participant = self._roster.participant(author)
        return author if participant == self._roster.participant(self._me) else participant

    def _against(self, member: Member) -> set[str | bytes]:
        return {self._voice(author) for author in member.accusations}

    def _dead(self, member: Member, now: float) -> set[str]:
        """The trusted participants that say that it is dead."""
        return {
            self._roster.participant(author)
            for author, (word, _) in member.accusations.items()
            if word is Word.DEAD and self._is_trusted(author, now)
        }

    def _is_trusted(self, author: PeerId, now: float) -> bool:
        return self._mistrusted.get(self._roster.participant(author), now) <= now

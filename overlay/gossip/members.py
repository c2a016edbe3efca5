"""What one peer knows of the others beyond the roster: those that are not simply alive."""

from __future__ import annotations

import random  # noqa: TID251 - the type only
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from overlay.gossip.claims import MAX_INCARNATION, Word
from overlay.gossip.events import Health
from overlay.gossip.roster import Roster

MIN_TRIES: Final = 32
"""Rosters up to this are shuffled; in larger ones eight random picks per peer wanted miss rarely
while at least half of it lives."""


@dataclass(eq=False, slots=True)
class Member:
    """
    Attributes:
        incarnation: the latest that the peer itself signed, in a claim or in its record.
        own: its own claim of it (alive or left); empty if the record says it.
        accusations: by author, its claim and whether that says dead.
        since: when `health` began. until: when its suspicion ends. confirmations: how many shorten
            that to the shortest. heard_at: when its own claim came.
    """

    health: Health = Health.ALIVE
    incarnation: int = 0
    own: bytes = b""
    accusations: dict[bytes, tuple[Word, bytes]] = field(default_factory=dict)
    since: float = 0.0
    until: float = 0.0
    confirmations: int = 0
    heard_at: float = 0.0

    @property
    def gone(self) -> bool:
        return self.health is Health.DEAD or self.health is Health.LEFT


class Members:
    """All peers of the roster: state is kept only of those that differ from what it says, which is
    alive, at the incarnation of its record.

    Attributes:
        latest: the greatest incarnation that can be believed now. They come of clocks; one that
            lies further in the future could not be outdone by the peer that it is said to be of.
    """

    def __init__(
        self, me: bytes, roster: Roster, latest: Callable[[], int] = lambda: MAX_INCARNATION
    ) -> None:
        self.roster = roster
        self.latest = latest
        self._me = me
        self._members: dict[bytes, Member] = {}
        self._gone: dict[bytes, None] = {}
        self._suspects = 0
        self._living: list[bytes] | None = None
        self._seen = 0

    # -- looking

    def get(self, peer: bytes) -> Member | None:
        return self._members.get(peer)

    def health(self, peer: bytes) -> Health:
        member = self._members.get(peer)
        return member.health if member is not None else Health.ALIVE

    def incarnation(self, peer: bytes) -> int:
        """The latest known that the peer itself has signed; none of a time when our clock was
        ahead."""
        member, base = self._members.get(peer), self.roster.incarnation(peer)
        if member is None or member.incarnation > self.latest():
            return base
        return max(base, member.incarnation)

    def is_gone(self, peer: bytes) -> bool:
        return peer in self._gone

    @property
    def living(self) -> int:
        """Peers neither dead nor gone, oneself included."""
        return max(1, len(self.roster) - len(self._gone))

    def counts(self) -> dict[Health, int]:
        """Peers by health, oneself not counted."""
        dead = sum(1 for peer in self._gone if self.health(peer) is Health.DEAD)
        alive = self.living - 1 - self._suspects
        return {
            Health.ALIVE: max(0, alive),
            Health.SUSPECT: self._suspects,
            Health.DEAD: dead,
            Health.LEFT: len(self._gone) - dead,
        }

    def noted(self) -> Iterator[tuple[bytes, Member]]:
        """Those that differ from the roster."""
        return iter(tuple(self._members.items()))

    def gone_ones(self, rng: random.Random) -> list[bytes]:
        """A random peer of those that are dead, and one of those that have left."""
        dead = [peer for peer in self._gone if self.health(peer) is Health.DEAD]
        left = [peer for peer in self._gone if self.health(peer) is Health.LEFT]
        return [rng.choice(peers) for peers in (dead, left) if peers]

    def some(
        self,
        count: int,
        rng: random.Random,
        *,
        but: Collection[bytes] = (),
        gone_too: Callable[[bytes], bool] | None = None,
    ) -> list[bytes]:
        """Up to `count` random distinct peers that live (or may be taken all the same)."""
        if 2 * len(self._gone) > len(self.roster):
            pool = [peer for peer in self._all_living() if peer not in but]
            return rng.sample(pool, min(count, len(pool)))
        chosen: dict[bytes, None] = {}
        for index in self._places(8 * count, rng):
            peer = self.roster[index]
            if peer == self._me or peer in but:
                continue
            if peer not in self._gone or (gone_too is not None and gone_too(peer)):
                chosen[peer] = None
                if len(chosen) == count:
                    break
        return list(chosen)

    def _places(self, tries: int, rng: random.Random) -> Iterable[int]:
        """Places of the roster at random: all of a small one."""
        size = len(self.roster)
        if size <= MIN_TRIES:
            return rng.sample(range(size), size)
        return (int(rng.random() * size) for _ in range(tries))

    def _all_living(self) -> list[bytes]:
        if self._living is None or self._seen != len(self.roster):
            everyone = self.roster.peers()
            self._living = [p for p in everyone if p != self._me and p not in self._gone]
            self._seen = len(self.roster)
        return self._living

    # -- changing

    def note(self, peer: bytes) -> Member:
        """The peer's state, to be changed; `settle` afterwards."""
        member = self._members.get(peer)
        if member is None:
            member = self._members[peer] = Member(incarnation=self.roster.incarnation(peer))
        return member

    def become(self, peer: bytes, member: Member, health: Health, now: float) -> bool:
        """Whether that is a change."""
        if member.health is health:
            return False
        self._suspects += (health is Health.SUSPECT) - (member.health is Health.SUSPECT)
        member.health, member.since = health, now
        if member.gone:
            self._gone[peer] = None
        else:
            self._gone.pop(peer, None)
        self._living = None
        return True

    def forget(self, peer: bytes) -> None:
        """The roster says all there is (again)."""
        member = self._members.pop(peer, None)
        if member is not None and member.health is Health.SUSPECT:
            self._suspects -= 1
        if peer in self._gone:
            del self._gone[peer]
        self._living = None

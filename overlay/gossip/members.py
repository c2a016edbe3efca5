"""One peer's state of the federation: the roster of members, and their health."""

from __future__ import annotations

import random  # noqa: TID251 - the type only
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from medusa.overlay.gossip.claims import MAX_INCARNATION, Word
from medusa.overlay.gossip.config import AWARENESS_MAX
from medusa.overlay.gossip.events import Health
from medusa.overlay.names import PeerId


@dataclass(slots=True)
class _Entry:
    index: int
    participant: str
    incarnation: int


class Roster:
    """The admitted peers with a known record, this peer included. All methods but `peers` take
    O(1).

    Many detectors in one process may share one roster, so each keeps only the differences.
    """

    def __init__(self) -> None:
        self._peers: list[PeerId] = []
        self._entries: dict[PeerId, _Entry] = {}
        self._sizes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, peer: object) -> bool:
        return peer in self._entries

    def __getitem__(self, index: int) -> PeerId:
        """The peer at that place. Removing a peer moves the last one into its place."""
        return self._peers[index]

    @property
    def participants(self) -> int:
        """Number of distinct participants."""
        return len(self._sizes)

    def size_of(self, participant: str) -> int:
        """Peers of that participant."""
        return self._sizes.get(participant, 0)

    def participant(self, peer: PeerId) -> str:
        """The peer's participant; "" if the peer is unknown."""
        entry = self._entries.get(peer)
        return entry.participant if entry is not None else ""

    def incarnation(self, peer: PeerId) -> int:
        """The latest incarnation that the peer signed in its record; 0 if the peer is unknown."""
        entry = self._entries.get(peer)
        return entry.incarnation if entry is not None else 0

    def add(self, peer: PeerId, participant: str, incarnation: int = 0) -> bool:
        """Add a peer or a newer incarnation of it; whether that was news."""
        entry = self._entries.get(peer)
        if entry is not None:
            news = incarnation > entry.incarnation
            entry.incarnation = max(entry.incarnation, incarnation)
            return news
        self._entries[peer] = _Entry(len(self._peers), participant, incarnation)
        self._peers.append(peer)
        self._sizes[participant] = self._sizes.get(participant, 0) + 1
        return True

    def discard(self, peer: PeerId) -> bool:
        """Remove a peer; whether it was a member."""
        entry = self._entries.pop(peer, None)
        if entry is None:
            return False
        last = self._peers.pop()
        if last != peer:
            self._peers[entry.index] = last
            self._entries[last].index = entry.index
        self._sizes[entry.participant] -= 1
        if not self._sizes[entry.participant]:
            del self._sizes[entry.participant]
        return True

    def peers(self) -> tuple[PeerId, ...]:
        """All peers, in no order: O(N)."""
        return tuple(self._peers)


class Awareness:
    """The local health score (Lifeguard, Dadgar et al., arXiv 1707.00788, 4.1).

    From 0 (healthy) to `AWARENESS_MAX`. It rises with every sign that this process is slow, and
    falls with every answered probe.
    """

    def __init__(self) -> None:
        self.score = 0

    def change(self, delta: int) -> None:
        self.score = min(AWARENESS_MAX, max(0, self.score + delta))

    def scale(self, seconds: float) -> float:
        """Lengthen a wait in proportion to the score."""
        return seconds * (self.score + 1)


@dataclass(slots=True)
class Counters:
    """Counts the actions of the detector, and the packets that it dropped by policy.

    Attributes:
        probes, acked, failed: probes started, answered in time, and not answered.
        indirect: probes that asked other peers for help.
        suspected, died, revived: changes of the believed health of others.
        refuted: accusations of this peer that it answered.
        late: ticks so late that this process was the slow one.
        claims: claims believed.
        old: claims that are no news.
        ahead: claims of an incarnation that its subject has not signed, as far as known here.
        unknown: claims by or about a peer that is no member.
        excessive: claims by a peer that accuses more often than an honest one can.
        future: claims of an incarnation that no clock can have made yet.
        forged: not signed by their author.
        malformed: no claims, or no digests.
        digests: digests taken in.
    """

    probes: int = 0
    acked: int = 0
    failed: int = 0
    indirect: int = 0
    suspected: int = 0
    died: int = 0
    revived: int = 0
    refuted: int = 0
    late: int = 0
    claims: int = 0
    old: int = 0
    ahead: int = 0
    unknown: int = 0
    excessive: int = 0
    future: int = 0
    forged: int = 0
    malformed: int = 0
    digests: int = 0


MIN_TRIES: Final = 32
"""Rosters up to this size are shuffled. In larger ones eight random picks for each wanted peer
rarely miss while at least half of the peers live."""


@dataclass(eq=False, slots=True)
class Member:
    """
    Attributes:
        incarnation: the latest that the peer itself signed, in a claim or in its record.
        own: the peer's own claim of it (alive or left); empty if the record has it.
        accusations: the word and data of the claim of each author.
        since: when `health` began.
        until: when the suspicion ends.
        confirmations: number that shortens the suspicion to the shortest.
        heard_at: when the peer's own claim came.
    """

    health: Health = Health.ALIVE
    incarnation: int = 0
    own: bytes = b""
    accusations: dict[PeerId, tuple[Word, bytes]] = field(default_factory=dict)
    since: float = 0.0
    until: float = 0.0
    confirmations: int = 0
    heard_at: float = 0.0

    @property
    def gone(self) -> bool:
        return self.health is Health.DEAD or self.health is Health.LEFT


class Members:
    """All peers of the roster. State is kept only for peers that differ from their roster entry,
    which means alive in the incarnation of the record.

    Attributes:
        latest: the greatest incarnation that can be believed now. Incarnations come from clocks;
            the subject could not outdo one that is further in the future.
    """

    def __init__(
        self, me: PeerId, roster: Roster, latest: Callable[[], int] = lambda: MAX_INCARNATION
    ) -> None:
        self.roster = roster
        self.latest = latest
        self._me = me
        self._members: dict[PeerId, Member] = {}
        self._gone: dict[PeerId, None] = {}
        self._suspects = 0
        self._living: list[PeerId] | None = None
        self._seen = 0

    # -- queries

    def get(self, peer: PeerId) -> Member | None:
        return self._members.get(peer)

    def health(self, peer: PeerId) -> Health:
        member = self._members.get(peer)
        return member.health if member is not None else Health.ALIVE

    def incarnation(self, peer: PeerId) -> int:
        """The latest known incarnation that the peer itself signed, except those from a time when
        our clock was ahead."""
        member, base = self._members.get(peer), self.roster.incarnation(peer)
        if member is None or member.incarnation > self.latest():
            return base
        return max(base, member.incarnation)

    def is_gone(self, peer: PeerId) -> bool:
        return peer in self._gone

    @property
    def living(self) -> int:
        """Number of peers neither dead nor gone, this peer included."""
        return max(1, len(self.roster) - len(self._gone))

    def counts(self) -> dict[Health, int]:
        """Number of peers by health, this peer not counted."""
        dead = sum(1 for peer in self._gone if self.health(peer) is Health.DEAD)
        alive = self.living - 1 - self._suspects
        return {
            Health.ALIVE: max(0, alive),
            Health.SUSPECT: self._suspects,
            Health.DEAD: dead,
            Health.LEFT: len(self._gone) - dead,
        }

    def noted(self) -> Iterator[tuple[PeerId, Member]]:
        """The peers that differ from the roster, with their state."""
        return iter(tuple(self._members.items()))

    def gone_ones(self, rng: random.Random) -> list[PeerId]:
        """A random dead peer, and a random peer that left, if there are any."""
        dead = [peer for peer in self._gone if self.health(peer) is Health.DEAD]
        left = [peer for peer in self._gone if self.health(peer) is Health.LEFT]
        return [rng.choice(peers) for peers in (dead, left) if peers]

    def some(
        self,
        count: int,
        rng: random.Random,
        *,
        but: Collection[PeerId] = (),
        gone_too: Callable[[PeerId], bool] | None = None,
    ) -> list[PeerId]:
        """Up to `count` random distinct peers that live, or for which `gone_too` is true."""
        if 2 * len(self._gone) > len(self.roster):
            pool = [peer for peer in self._all_living() if peer not in but]
            return rng.sample(pool, min(count, len(pool)))
        chosen: dict[PeerId, None] = {}
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
        """Random places of the roster; all places of a small one."""
        size = len(self.roster)
        if size <= MIN_TRIES:
            return rng.sample(range(size), size)
        return (int(rng.random() * size) for _ in range(tries))

    def _all_living(self) -> list[PeerId]:
        if self._living is None or self._seen != len(self.roster):
            everyone = self.roster.peers()
            self._living = [p for p in everyone if p != self._me and p not in self._gone]
            self._seen = len(self.roster)
        return self._living

    # -- changes

    def note(self, peer: PeerId) -> Member:
        """The peer's state, to be changed; the caller calls `settle` afterwards."""
        member = self._members.get(peer)
        if member is None:
            member = self._members[peer] = Member(incarnation=self.roster.incarnation(peer))
        return member

    def become(self, peer: PeerId, member: Member, health: Health, now: float) -> bool:
        """Set the peer's health; whether that is a change."""
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

    def forget(self, peer: PeerId) -> None:
        """Drop the peer's state: the roster entry describes it again."""
        member = self._members.pop(peer, None)
        if member is not None and member.health is Health.SUSPECT:
            self._suspects -= 1
        if peer in self._gone:
            del self._gone[peer]
        self._living = None

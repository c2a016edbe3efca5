"""Detectors on a virtual clock and a network of lists, for the tests of gossip."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import blake2b

from medusa.overlay.gossip.claims import MAX_INCARNATION, Keys, Word, make_claim
from medusa.overlay.gossip.config import GossipConfig
from medusa.overlay.gossip.detector import Detector, Start
from medusa.overlay.gossip.events import (
    Changed,
    DigestChanged,
    Doubt,
    Effect,
    Event,
    Health,
    Persist,
    PushPull,
    Reach,
    Received,
    Send,
    Synced,
    Tick,
)
from medusa.overlay.gossip.members import Roster
from medusa.overlay.gossip.messages import Kind, Packet, decode_packet, encode_packet

QUICK = GossipConfig(
    probe_interval_s=1.0,
    probe_timeout_s=0.4,
    indirect_checks=3,
    suspicion_mult=4,
    suspicion_max_mult=6,
    gossip_interval_s=0.2,
    gossip_fanout=3,
    gossip_to_dead_s=30.0,
    retransmit_mult=4,
    push_pull_interval_s=10.0,
    gone_s=0.5,
)


class HashKeys:
    """A keyed hash in place of Ed25519; a peer's key is its name."""

    def __init__(self, me: bytes) -> None:
        self._me = me
        self.verified = 0

    def sign(self, domain: str, payload: bytes) -> bytes:
        return _hash(self._me, domain, payload)

    def verify(self, author: bytes, domain: str, payload: bytes, signature: bytes) -> bool:
        self.verified += 1
        return _hash(author, domain, payload) == signature


def _hash(author: bytes, domain: str, payload: bytes) -> bytes:
    return blake2b(domain.encode() + b"\0" + payload, digest_size=64, key=author).digest()


def peer(number: int) -> bytes:
    return bytes([number]) * 20


def word(author: int, kind: Word, subject: int, incarnation: int = 1) -> bytes:
    """Return a claim signed by this peer."""
    return make_claim(HashKeys(peer(author)), peer(author), kind, peer(subject), incarnation).data


def roster_of(owners: Iterable[str]) -> Roster:
    """Return peers 0, 1, 2... with these participants, of incarnation 1."""
    roster = Roster()
    for number, owner in enumerate(owners):
        roster.add(peer(number), owner, 1)
    return roster


class Lone:
    """One detector, number 0, without a network. sent: all packets so far; changes: its reports."""

    def __init__(
        self, owners: Iterable[str] = "abcde", config: GossipConfig = QUICK, seed: int = 1
    ) -> None:
        self.now = 0.0
        self.latest = MAX_INCARNATION
        self.roster = roster_of(owners)
        self.keys = HashKeys(peer(0))
        self.detector = Detector(
            peer(0),
            self.roster,
            config,
            self.keys,
            random.Random(seed),
            start=Start(0.0, 1, announce=False),
            latest=lambda: self.latest,
        )
        self.effects: list[Effect] = []

    @property
    def sent(self) -> list[Send]:
        return [effect for effect in self.effects if isinstance(effect, Send)]

    @property
    def changes(self) -> list[tuple[bytes, Health]]:
        return [(e.peer, e.health) for e in self.effects if isinstance(e, Changed)]

    def health(self, number: int) -> Health:
        return self.detector.health(peer(number))

    def do(self, event: Event) -> list[Effect]:
        effects = self.detector.handle(event, self.now)
        self.effects += effects
        return effects

    def hear(self, sender: int, *claims: bytes, kind: Kind = Kind.GOSSIP, number: int = 0) -> None:
        self.do(Received(peer(sender), Packet(kind, number, claims=claims)))

    def until(self, at: float, answer: Callable[[Send], None] = lambda send: None) -> None:
        """Tick until that time; `answer` receives each packet that is sent."""
        while (due := self.detector.next_due()) <= at:
            self.now = max(self.now, due)
            for effect in self.do(Tick()):
                if isinstance(effect, Send):
                    answer(effect)
        self.now = at

    def next_ping(self) -> Send:
        """Tick until the detector pings a peer."""
        while True:
            self.now = max(self.now, self.detector.next_due())
            for effect in self.do(Tick()):
                if isinstance(effect, Send) and effect.packet.kind is Kind.PING:
                    return effect


class Network:
    """Detectors that exchange datagrams. All random numbers come from one seed.

    Attributes:
        loss, duplication: shares of datagrams. delay: seconds, drawn for each datagram, so that
            datagrams overtake each other. cut: whether nothing passes between two peers.
        sent: packets, by kind and to whom.
    """

    def __init__(
        self, owners: Iterable[str], *, config: GossipConfig = QUICK, seed: int = 0
    ) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.config = config
        self.roster = roster_of(owners)
        self.size = len(self.roster)
        self.detectors: dict[bytes, Detector] = {}
        self.changes: list[tuple[float, bytes, bytes, Health]] = []
        self.persisted: dict[bytes, int] = {}
        self.incarnations: dict[bytes, int] = {}
        self.stopped: set[bytes] = set()
        self.sent = Counter[tuple[Kind, bytes]]()
        self.loss, self.duplication, self.delay = 0.0, 0.0, (0.001, 0.05)
        self.cut: Callable[[bytes, bytes], bool] = lambda one, other: False
        self._events: list[tuple[float, int, bytes, Event]] = []
        self._count = 0
        for number in range(self.size):
            self.start(number, announce=False)

    def start(self, number: int, *, announce: bool = True) -> None:
        """Start the peer, or start it again from its persisted state."""
        me = peer(number)
        incarnation = self.persisted.get(me, 0) + 1
        self.persisted[me] = incarnation
        assert incarnation > self.incarnations.get(me, 0)
        self.stopped.discard(me)
        self.detectors[me] = Detector(
            me,
            self.roster,
            self.config,
            HashKeys(me),
            random.Random(self.rng.random()),
            start=Start(self.now, incarnation, announce=announce),
        )
        self._wake(me)

    def kill(self, number: int) -> None:
        self.detectors.pop(peer(number), None)

    def stop(self, number: int) -> None:
        """Stop the peer; messages to it wait."""
        self.stopped.add(peer(number))

    def resume(self, number: int) -> None:
        self.stopped.discard(peer(number))
        self._wake(peer(number))

    def notify(self, number: int, event: Event) -> None:
        """Let the event happen to that peer now."""
        me = peer(number)
        if (detector := self.detectors.get(me)) is not None:
            self._carry_out(me, detector.handle(event, self.now))
            self._wake(me)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            at, _, me, event = heapq.heappop(self._events)
            self.now = max(self.now, at)
            detector = self.detectors.get(me)
            if detector is None:
                continue
            if me in self.stopped:
                if not isinstance(event, Tick):
                    self._put(self.now + 0.1, me, event)
                continue
            if isinstance(event, Tick) and detector.next_due() > self.now:
                continue
            self._carry_out(me, detector.handle(event, self.now))
            self._wake(me)
        self.now = end

    def health(self, of: int) -> list[Health]:
        """Return the health that the other running peers believe."""
        others = [me for me in self.detectors if me != peer(of)]
        return [self.detectors[me].health(peer(of)) for me in sorted(others)]

    def _wake(self, me: bytes) -> None:
        self._put(max(self.now, self.detectors[me].next_due()), me, Tick())

    def _put(self, at: float, me: bytes, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, me, event))

    def _carry_out(self, me: bytes, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, packet):
                    self._check_persisted(me)
                    if not self.cut(me, to):
                        self._transmit(me, to, packet)
                case Changed(about, health):
                    self.changes.append((self.now, me, about, health))
                case Persist(incarnation):
                    self.persisted[me] = incarnation
                case PushPull(to):
                    self._sync(me, to)
                case Reach() | DigestChanged():
                    pass

    def _check_persisted(self, me: bytes) -> None:
        used = self.detectors[me].incarnation
        assert used <= self.persisted[me], "sent before it was written down"
        self.incarnations[me] = max(used, self.incarnations.get(me, 0))

    def _transmit(self, me: bytes, to: bytes, packet: Packet) -> None:
        self.sent[packet.kind, to] += 1
        data = encode_packet(packet)
        assert len(data) <= packet.size
        copies = (self.rng.random() >= self.loss) + (self.rng.random() < self.duplication)
        for _ in range(copies):
            arrives = self.now + self.rng.uniform(*self.delay)
            self._put(arrives, to, Received(me, decode_packet(data)))

    def _sync(self, me: bytes, to: bytes) -> None:
        if to not in self.detectors or to in self.stopped or self.cut(me, to) or self.cut(to, me):
            return
        ours, theirs = self.detectors[me].state(), self.detectors[to].state()
        self._put(self.now, to, Synced(me, ours))
        self._put(self.now, me, Synced(to, theirs))


__all__ = ["QUICK", "Doubt", "HashKeys", "Keys", "Lone", "Network", "peer", "roster_of", "word"]

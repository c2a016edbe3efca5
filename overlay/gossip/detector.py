"""The failure detector of one peer: SWIM with Lifeguard over signed claims. Sans-IO.

SWIM: Das, Gupta, Motivala, DSN 2002. Lifeguard: Dadgar, Phillips, Currey, arXiv 1707.00788. The
parameters and formulas are memberlist's (`config`). `verdicts` has the differences, which are due
to peers that distrust each other.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type only
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from medusa.overlay.gossip.claims import MAX_INCARNATION, Keys, Standing
from medusa.overlay.gossip.config import GossipConfig
from medusa.overlay.gossip.digests import Digests
from medusa.overlay.gossip.events import (
    DigestChanged,
    Doubt,
    Effect,
    Event,
    Health,
    Joined,
    Leave,
    PublishDigest,
    PushPull,
    Reached,
    Received,
    Removed,
    Send,
    Synced,
    Tick,
)
from medusa.overlay.gossip.members import Awareness, Counters, Members, Roster
from medusa.overlay.gossip.messages import MAX_STATE, PER_ITEM, Kind, Packet, State
from medusa.overlay.gossip.probe_cycle import Packing, ProbeCycle
from medusa.overlay.gossip.probing import Prober
from medusa.overlay.gossip.timers import Timers
from medusa.overlay.gossip.verdicts import Verdicts
from medusa.overlay.names import PeerId

LATE: Final = 0.5
"""Part of the probe timeout: a tick later than this means that this process did not run, and missed
answers."""

FAREWELLS: Final = 16
"""Peers told directly that this peer leaves; they tell the others."""

MAX_REMOVED: Final = 1024
"""Removed peers remembered, some 20 bytes each."""


@dataclass(frozen=True, slots=True)
class Start:
    """The initial state of a detector.

    Attributes:
        now: monotonic seconds, the same clock as in `Detector.handle`.
        incarnation: higher than any before, and reserved on disk.
        reserved: the highest incarnation reserved on disk, for refutations.
        announce: gossip that this peer is alive. False: all peers start together (simulations).
    """

    now: float
    incarnation: int
    reserved: int = 0
    announce: bool = True


class Detector:
    """One peer's view of the health of all others: events in, effects out.

    Attributes:
        counters: what the detector did and dropped, in numbers.
        members: state of peers beyond the roster.
        awareness: the local health score.
    """

    def __init__(
        self,
        me: PeerId,
        roster: Roster,
        config: GossipConfig,
        keys: Keys,
        rng: random.Random,
        *,
        start: Start,
        latest: Callable[[], int] = lambda: MAX_INCARNATION,
    ) -> None:
        """
        Args:
            me: our peer id, in the roster.
            roster: the members; the caller keeps it (and may share it between detectors), and
                reports changes with Joined / Removed.
            latest: see `Members`.
        """
        self._me = me
        self._roster = roster
        self._config = config
        self._rng = rng
        self.counters = Counters()
        self.members = Members(me, roster, latest)
        self.awareness = Awareness()
        self._standing = Standing(
            me, keys, start.incarnation, max(start.incarnation, start.reserved)
        )
        self._verdicts = Verdicts(
            me,
            self.members,
            config,
            keys,
            standing=self._standing,
            awareness=self.awareness,
            counters=self.counters,
        )
        self._digests = Digests(
            me,
            roster,
            keys,
            self.counters,
            lambda: config.retransmits(self.members.living),
            gap_s=config.probe_interval_s,
            latest=latest,
        )
        self._packing = Packing(self._verdicts, self._digests)
        prober = Prober(
            self.members, me, config, rng, awareness=self.awareness, counters=self.counters
        )
        self._cycle = ProbeCycle(
            me,
            self.members,
            config,
            prober,
            self._verdicts,
            packing=self._packing,
            turn_at=start.now + rng.random() * config.probe_interval_s,
        )
        self._suspicions: Timers[PeerId] = Timers()
        self._handlers: dict[type, Callable[[Any, float], list[Effect]]] = {
            Received: self._on_packet,
            Tick: self._on_tick,
            Doubt: self._on_doubt,
            Reached: lambda event, _: self._cycle.ack(event.peer, event.number),
            Synced: self._on_synced,
            Joined: self._on_joined,
            Removed: self._on_removed,
            Leave: self._on_leave,
            PublishDigest: self._on_digest,
        }
        self._removed: dict[PeerId, None] = {}
        self._cursor = 0
        self._grace_until = float("-inf")
        self._gossip_at = float("inf")
        first = config.probe_interval_s if start.announce else config.push_pull_s(len(roster))
        self._sync_at = start.now + rng.random() * first
        if start.announce:
            self._verdicts.announce(start.now)
        self._plan_gossip(start.now)

    # -- queries

    def health(self, peer: PeerId) -> Health:
        """The believed health of a peer; unknown peers are ALIVE."""
        if peer in self._removed or (peer == self._me and self._standing.left):
            return Health.LEFT
        return self.members.health(peer)

    @property
    def incarnation(self) -> int:
        """Return this peer's own incarnation."""
        return self._standing.incarnation

    @property
    def digests(self) -> Mapping[PeerId, bytes]:
        """The newest digest of each peer, ours included."""
        return self._digests.contents

    @property
    def waiting(self) -> int:
        """Number of claims that still have to be passed on."""
        return len(self._verdicts.broadcasts)

    def state(self) -> State:
        """Our half of a push-pull: claims that differ from the roster, and digests."""
        claims, room = [self._standing.claim.data], MAX_STATE // 2
        noted = list(self.members.noted())
        for place in range(len(noted)):
            peer, member = noted[(self._cursor + place) % len(noted)]
            held = self._verdicts.held_on(member)
            room -= sum(PER_ITEM + len(data) for data in held)
            if room < 0:
                self._cursor += place  # the rest comes first next time
                break
            if peer != self._me:
                claims += held
        return State(tuple(claims), self._digests.latest(MAX_STATE // 2))

    def next_due(self) -> float:
        """When to send the next Tick (seconds, the clock of `now`); infinity: never."""
        if self._standing.left:
            return float("inf")
        return min(
            self._cycle.next_due(), self._suspicions.next_due(), self._gossip_at, self._sync_at
        )

    # -- events

    def handle(self, event: Event, now: float) -> list[Effect]:
        """The effects of an event, in order (a Persist comes before the Send that depends on it).

        Raises:
            InvalidInputError: a digest to publish is too long. No received bytes raise an error.
        """
        if self._standing.left:
            return []
        effects = self._handlers[type(event)](event, now)
        for peer, until in self._verdicts.moved().items():
            if until is None:
                self._suspicions.cancel(peer)
            else:
                self._suspicions.set(peer, until)
        self._plan_gossip(now)
        return effects

    def _plan_gossip(self, now: float) -> None:
        """Schedule gossip rounds only while claims wait to be passed on, and there are others."""
        if not self._verdicts.broadcasts or len(self._roster) < 2:
            self._gossip_at = float("inf")
        elif self._gossip_at == float("inf"):
            self._gossip_at = now + self._rng.random() * self._config.gossip_interval_s

    # -- packets

    def _on_packet(self, event: Received, now: float) -> list[Effect]:
        sender, packet = event.sender, event.packet
        if sender not in self._roster or sender == self._me:
            self.counters.unknown += 1
            return []
        effects = self._learn(packet.claims, packet.digests, now)
        match packet.kind:
            case Kind.GOSSIP:
                pass
            case Kind.PING:
                effects.append(self._packing.send(sender, Kind.ACK, packet.number))
            case Kind.ACK:
                effects += self._cycle.ack(sender, packet.number)
            case Kind.PING_REQUEST:
                effects += self._cycle.ping_for(sender, packet.number, packet.peer, now)
            case Kind.NACK:
                self._cycle.nack(sender, packet.number)
        return effects

    def _on_synced(self, event: Synced, now: float) -> list[Effect]:
        if event.peer not in self._roster:
            self.counters.unknown += 1
            return []
        return self._learn(event.state.claims, event.state.digests, now)

    def _learn(self, claims: Iterable[bytes], digests: Iterable[bytes], now: float) -> list[Effect]:
        """Take in claims and digests, up to the first that its author has not signed: an honest
        peer verifies before it passes on, so the rest of the message is dropped."""
        effects: list[Effect] = []
        forged = self.counters.forged
        for claim in claims:
            effects += self._verdicts.apply(claim, now)
            if self.counters.forged > forged:
                return effects
        for digest in digests:
            author = self._digests.receive(digest, now)
            if author is not None:
                effects.append(DigestChanged(author, self._digests.contents[author]))
            if self.counters.forged > forged:
                break
        return effects

    # -- time

    def _on_tick(self, _event: Tick, now: float) -> list[Effect]:
        self._notice_lateness(now)
        effects: list[Effect] = []
        while (peer := self._suspicions.pop(now)) is not None:
            if now < self._grace_until:
                self._suspicions.set(peer, self._grace_until)
            else:
                effects += self._on_suspicion_over(peer, now)
        effects += self._cycle.tick(now, self._grace_until)
        if now >= self._gossip_at:
            effects += self._gossip(now)
        if now >= self._sync_at:
            effects += self._sync(now)
        return effects

    def _notice_lateness(self, now: float) -> None:
        """Judge no peer for one probe timeout after a time in which this process did not run:
        answers may be waiting to be read.

        A second such time in a row gets no pause: a peer that is always late would detect nothing.
        """
        timeout = self._config.probe_timeout_s
        if now - self.next_due() <= LATE * timeout:
            return
        self.counters.late += 1
        self.awareness.change(+1)
        grace = self.awareness.scale(timeout)
        if now >= self._grace_until + grace:
            self._grace_until = now + grace

    def _on_suspicion_over(self, peer: PeerId, now: float) -> list[Effect]:
        if self._verdicts.may_kill(peer):
            return self._verdicts.kill(peer, now)
        # only others accuse it: probe the peer, and judge again after that
        config = self._config
        wait = self.awareness.scale(config.probe_interval_s) + config.probe_timeout_s
        self._verdicts.postpone(peer, now + wait)
        if self._verdicts.is_sentenced(peer, now):
            return self._cycle.doubt(peer, now, gone=True)
        return self._cycle.probe(peer, now)

    def _on_doubt(self, event: Doubt, now: float) -> list[Effect]:
        peer = event.peer
        if peer == self._me or peer not in self._roster or self.members.is_gone(peer):
            return []
        return self._cycle.doubt(peer, now, gone=event.gone)

    # -- passing on

    def _gossip(self, now: float) -> list[Effect]:
        self._gossip_at = now + self._config.gossip_interval_s

        def lately_dead(peer: PeerId) -> bool:
            member = self.members.get(peer)
            return (
                member is not None
                and member.health is Health.DEAD
                and now - member.since < self._config.gossip_to_dead_s
            )

        chosen = self.members.some(self._config.gossip_fanout, self._rng, gone_too=lately_dead)
        return [self._packing.send(peer, Kind.GOSSIP) for peer in chosen]

    def _sync(self, now: float) -> list[Effect]:
        """Push-pull with one living peer, and ping one dead peer and one that left: they may be
        back.

        Peers that left are pinged too: two peers that each believe that the other left would
        otherwise never talk again.
        """
        effects: list[Effect] = [
            self._cycle.knock(gone) for gone in self.members.gone_ones(self._rng)
        ]
        partner = self.members.some(1, self._rng)
        if not partner:
            self._sync_at = now + self._config.probe_interval_s
            return effects
        self._sync_at = now + self._config.push_pull_s(self.members.living)
        return [*effects, PushPull(partner[0])]

    # -- coming and going

    def _on_joined(self, event: Joined, now: float) -> list[Effect]:
        self._removed.pop(event.peer, None)
        if event.peer == self._me:
            return self._verdicts.begin(self._roster.incarnation(self._me), now)
        return self._verdicts.joined(event.peer, now)

    def _on_removed(self, event: Removed, _now: float) -> list[Effect]:
        self._digests.forget(event.peer)
        self._cycle.forget(event.peer)
        self._removed[event.peer] = None
        if len(self._removed) > MAX_REMOVED:
            del self._removed[next(iter(self._removed))]
        return self._verdicts.removed(event.peer)

    def _on_digest(self, event: PublishDigest, _now: float) -> list[Effect]:
        self._digests.publish(event.content, self.incarnation)
        return []

    def _on_leave(self, _event: Leave, _now: float) -> list[Effect]:
        self._standing.leave()
        packet = Packet(Kind.GOSSIP, claims=(self._standing.claim.data,))
        return [Send(peer, packet) for peer in self.members.some(FAREWELLS, self._rng)]

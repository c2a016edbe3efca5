"""Runs probes from ping to verdict, our own and those for others (SWIM, 3.1; Lifeguard, 4.1)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from medusa.overlay.gossip.config import GossipConfig
from medusa.overlay.gossip.digests import Digests
from medusa.overlay.gossip.events import Effect, Reach, Send
from medusa.overlay.gossip.members import Members
from medusa.overlay.gossip.messages import HEADER, MAX_PACKET, PER_ITEM, Kind, Packet
from medusa.overlay.gossip.probing import Probe, Prober, Relay, Relays
from medusa.overlay.gossip.timers import Timers
from medusa.overlay.gossip.verdicts import Verdicts
from medusa.overlay.names import NO_PEER, PeerId


class Packing:
    """Fills packets: first the claims that the receiver should refute, then news, our digest,
    others' digests."""

    def __init__(self, verdicts: Verdicts, digests: Digests) -> None:
        self._verdicts = verdicts
        self._digests = digests

    def send(self, peer: PeerId, kind: Kind, number: int = 0, about: PeerId = NO_PEER) -> Send:
        """A packet for that peer; its claims and digests count as passed on."""
        claims: list[bytes] = []
        room = MAX_PACKET - HEADER - self._digests.own_size
        if (against := self._verdicts.held_against(peer)) is not None:
            claims.append(against)
            room -= PER_ITEM + len(against)
        news, room = self._verdicts.broadcasts.take(room)
        claims += (claim for claim in news if claim != against)
        digests = self._digests.take(room + self._digests.own_size)
        return Send(peer, Packet(kind, number, about, tuple(claims), tuple(digests)))


NACK_AFTER: Final = 0.8
"""Part of the probe timeout: the helper's NACK must reach the asker in time (Lifeguard, 4.1)."""

TURN_GAP_S: Final = 0.001
"""Seconds before a turn is tried again while the turn before it still goes on; a shorter wait would
spin."""


class _Until(Enum):
    DIRECT = auto()
    PROBE = auto()
    NACK = auto()
    RELAY = auto()


class ProbeCycle:
    """Probes peers in turn, and out of turn when there is a doubt."""

    def __init__(
        self,
        me: PeerId,
        members: Members,
        config: GossipConfig,
        prober: Prober,
        verdicts: Verdicts,
        *,
        packing: Packing,
        turn_at: float,
    ) -> None:
        """turn_at: time of the first turn."""
        self._me = me
        self._members = members
        self._config = config
        self._verdicts = verdicts
        self._packing = packing
        self._prober = prober
        self._relays = Relays()
        self._timers: Timers[tuple[_Until, int]] = Timers()
        self._turn_at = turn_at

    def next_due(self) -> float:
        return min(self._turn_at, self._timers.next_due())

    # -- time

    def tick(self, now: float, grace_until: float) -> list[Effect]:
        """Do everything that is due. grace_until: no peer is judged before then."""
        effects: list[Effect] = []
        while (deadline := self._timers.pop(now)) is not None:
            until, number = deadline
            probe = self._prober.get(number)
            if probe is None:
                effects += self._on_relay_deadline(until, number, now)
            elif now < grace_until:
                self._timers.set(deadline, grace_until)
            elif until is _Until.DIRECT and not probe.gone and now < probe.until:
                effects += self._ask_for_help(probe)
            else:
                effects += self._on_failure(probe, now)
        if now >= self._turn_at:
            effects += self._on_turn(now, grace_until)
        return effects

    def _on_turn(self, now: float, grace_until: float) -> list[Effect]:
        turn = self._prober.turn
        if turn is not None:
            self._turn_at = max(turn.until, grace_until, now + TURN_GAP_S)
            return []
        interval = self._config.probe_interval_s
        self._turn_at += interval
        if self._turn_at <= now:
            self._turn_at = now + interval
        probe = self._prober.start_turn(now)
        return [self._ping(probe)] if probe is not None else []

    # -- our probes

    def probe(self, peer: PeerId, now: float) -> list[Effect]:
        """Probe the peer out of turn, unless a probe of it is under way."""
        probe = self._prober.start_extra(peer, now)
        return [self._ping(probe)] if probe is not None else []

    def doubt(self, peer: PeerId, now: float, *, gone: bool) -> list[Effect]:
        """Probe a doubted peer. gone: its port refuses connections, or a quorum says that it is
        dead; then one ping decides."""
        effects = self.probe(peer, now)
        probe = self._prober.of(peer)
        if probe is None:
            return []
        if gone and not probe.gone:
            # this evidence does not depend on our own slowness: the unscaled timeout is enough
            probe.gone = True
            soon = min(probe.until, now + self._config.probe_timeout_s)
            self._timers.set((_Until.DIRECT, probe.number), soon)
        elif effects:
            effects.append(Reach(peer, probe.number))
        return effects

    def ack(self, sender: PeerId, number: int) -> list[Effect]:
        """A peer answered our ping, or a helper passed an answer on."""
        probe = self._prober.get(number)
        if probe is not None and (sender == probe.peer or sender in probe.helpers):
            self._prober.acked(probe)
            self._cancel(probe)
        elif (relay := self._relays.answered(number, sender)) is not None:
            self._timers.cancel((_Until.NACK, number))
            self._timers.cancel((_Until.RELAY, number))
            return [self._packing.send(relay.asker, Kind.ACK, relay.number)]
        return []

    def nack(self, sender: PeerId, number: int) -> None:
        """A helper of ours has had no answer yet."""
        probe = self._prober.get(number)
        if probe is not None and sender in probe.helpers:
            probe.nacks.add(sender)

    def forget(self, peer: PeerId) -> None:
        """Drop the probe of a peer that is no member any more."""
        if (probe := self._prober.of(peer)) is not None:
            self._prober.forget(probe)
            self._cancel(probe)

    def knock(self, peer: PeerId) -> Send:
        """A ping without a probe: it carries the claims about a gone peer to that peer."""
        return self._packing.send(peer, Kind.PING, self._prober.number())

    def _ping(self, probe: Probe) -> Send:
        self._timers.set((_Until.DIRECT, probe.number), probe.direct_until)
        self._timers.set((_Until.PROBE, probe.number), probe.until)
        return self._packing.send(probe.peer, Kind.PING, probe.number)

    def _ask_for_help(self, probe: Probe) -> list[Effect]:
        send, number = self._packing.send, probe.number
        helpers = self._prober.ask_for_help(probe)
        asked = [send(peer, Kind.PING_REQUEST, number, probe.peer) for peer in helpers]
        return [*asked, Reach(probe.peer, number)]

    def _on_failure(self, probe: Probe, now: float) -> list[Effect]:
        self._prober.failed(probe)
        self._cancel(probe)
        return self._verdicts.accuse(probe.peer, now, gone=probe.gone)

    def _cancel(self, probe: Probe) -> None:
        self._timers.cancel((_Until.DIRECT, probe.number))
        self._timers.cancel((_Until.PROBE, probe.number))

    # -- others' probes

    def ping_for(self, asker: PeerId, number: int, peer: PeerId, now: float) -> list[Effect]:
        """Ping `peer` for another peer that had no answer."""
        if peer not in self._members.roster or peer in {self._me, asker}:
            return []
        ours = self._prober.number()
        if not self._relays.add(ours, Relay(asker, number, peer)):
            return []
        self._timers.set((_Until.NACK, ours), now + NACK_AFTER * self._config.probe_timeout_s)
        return [self._packing.send(peer, Kind.PING, ours)]

    def _on_relay_deadline(self, until: _Until, number: int, now: float) -> list[Effect]:
        relay = self._relays.get(number)
        assert relay is not None, "its deadlines go with it"
        if until is _Until.RELAY:
            self._relays.forget(number)
            return []
        self._timers.set((_Until.RELAY, number), now + self._config.probe_interval_s)
        return [self._packing.send(relay.asker, Kind.NACK, relay.number)]

"""Decides which peer to probe next, and when a probe has failed, our own or one for another peer
(SWIM, Das et al., DSN 2002, 3.1 and 4.3)."""

from __future__ import annotations

import math
import random  # noqa: TID251 - the type only
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from medusa.overlay.gossip.config import GossipConfig
from medusa.overlay.gossip.members import Awareness, Counters, Members
from medusa.overlay.gossip.messages import MAX_NUMBER
from medusa.overlay.names import PeerId

MAX_TRIES: Final = 1024
"""Places tried to find a peer that may be probed: a table full of dead peers must not cost O(N)."""

MAX_EXTRA: Final = 64
"""Probes out of turn at a time, for doubts: as many as connections break at once on a bad day."""


@dataclass(eq=False, slots=True)
class Probe:
    """
    Attributes:
        number: the number of its messages.
        helpers, nacks: peers asked to ping for us, and those that answered "not yet".
        direct_until, until: when the direct ping, and the whole probe, counts as lost.
        in_turn: part of the round, not out of turn.
        gone: the peer's port refuses connections.
    """

    number: int
    peer: PeerId
    direct_until: float
    until: float
    in_turn: bool
    gone: bool = False
    helpers: tuple[PeerId, ...] = ()
    nacks: set[PeerId] = field(default_factory=set)


class Round:
    """Round-robin in an order that is random in each round, without a list of N places: a step
    without a common divisor with N visits every place once.

    A peer that stays is probed at least once in two rounds, even while others join or leave.
    """

    def __init__(self, members: Members, me: PeerId, rng: random.Random) -> None:
        self._members = members
        self._me = me
        self._rng = rng
        self._size = self._step = self._place = self._left = 0

    def next(self) -> PeerId | None:
        """The next peer that is neither dead nor gone; None if none was found."""
        roster = self._members.roster
        for _ in range(min(MAX_TRIES, 2 * len(roster))):
            if not self._left:
                self._shuffle()
            self._left -= 1
            self._place = (self._place + self._step) % self._size
            if self._place >= len(roster):
                continue
            peer = roster[self._place]
            if peer != self._me and not self._members.is_gone(peer):
                return peer
        return None

    def _shuffle(self) -> None:
        self._size = self._left = len(self._members.roster)
        self._place = self._rng.randrange(self._size)
        self._step = 1
        if self._size > 2:
            while True:
                self._step = self._rng.randrange(1, self._size)
                if math.gcd(self._step, self._size) == 1:
                    break


class Prober:
    """The probes under way, by number and by peer."""

    def __init__(
        self,
        members: Members,
        me: PeerId,
        config: GossipConfig,
        rng: random.Random,
        *,
        awareness: Awareness,
        counters: Counters,
    ) -> None:
        self._members = members
        self._me = me
        self._config = config
        self._rng = rng
        self._awareness = awareness
        self._counters = counters
        self._round = Round(members, me, rng)
        self._number = rng.randrange(MAX_NUMBER)
        self._probes: dict[int, Probe] = {}
        self._of: dict[PeerId, Probe] = {}
        self._turn: Probe | None = None

    @property
    def turn(self) -> Probe | None:
        """The probe of the round that is under way."""
        return self._turn

    def get(self, number: int) -> Probe | None:
        return self._probes.get(number)

    def of(self, peer: PeerId) -> Probe | None:
        return self._of.get(peer)

    def number(self) -> int:
        """A number for our next message that needs an answer."""
        self._number = (self._number + 1) % (MAX_NUMBER + 1)
        return self._number

    def start_turn(self, now: float) -> Probe | None:
        """Start the next probe of the round; None if there is no peer, or it is being probed."""
        peer = self._round.next()
        if peer is None or peer in self._of:
            return None
        self._turn = self._start(peer, now, in_turn=True)
        return self._turn

    def start_extra(self, peer: PeerId, now: float) -> Probe | None:
        """Start a probe out of turn; None if that peer is being probed, or too many are."""
        if peer in self._of or len(self._probes) > MAX_EXTRA:
            return None
        return self._start(peer, now, in_turn=False)

    def _start(self, peer: PeerId, now: float, *, in_turn: bool) -> Probe:
        config, scale = self._config, self._awareness.scale
        direct = now + scale(config.probe_timeout_s)
        probe = Probe(
            self.number(), peer, direct, now + scale(config.probe_interval_s), in_turn=in_turn
        )
        self._probes[probe.number] = self._of[peer] = probe
        self._counters.probes += 1
        return probe

    def ask_for_help(self, probe: Probe) -> tuple[PeerId, ...]:
        """The direct ping is lost: choose the helpers that are to ping for us."""
        count = self._config.indirect_checks
        probe.helpers = tuple(self._members.some(count, self._rng, but=(probe.peer,)))
        self._counters.indirect += 1
        return probe.helpers

    def acked(self, probe: Probe) -> None:
        """The probe was answered in time."""
        self.forget(probe)
        self._awareness.change(-1)
        self._counters.acked += 1

    def failed(self, probe: Probe) -> None:
        """Count the probe as unanswered. Each helper without a NACK raises our own score: perhaps
        we cannot receive."""
        self.forget(probe)
        if probe.helpers:
            self._awareness.change(len(probe.helpers) - len(probe.nacks))
        elif not probe.gone:
            self._awareness.change(+1)
        self._counters.failed += 1

    def forget(self, probe: Probe) -> None:
        del self._probes[probe.number]
        del self._of[probe.peer]
        if self._turn is probe:
            self._turn = None


MAX_RELAYS: Final = 1024
"""Pings under way for others: a peer asks for few at a time, so more is a flood."""

MAX_RELAYS_PER_ASKER: Final = 32
"""Pings for one asker: its probe in turn, and those of many connections that broke at once."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A ping for another peer.

    Attributes:
        asker: the peer that asked, under its own `number`, to ping `peer`.
    """

    asker: PeerId
    number: int
    peer: PeerId


class Relays:
    """The relays under way, by the number of our own ping."""

    def __init__(self) -> None:
        self._relays: dict[int, Relay] = {}
        self._asked: Counter[PeerId] = Counter()

    def add(self, number: int, relay: Relay) -> bool:
        """Add a relay; whether there was room."""
        full = len(self._relays) >= MAX_RELAYS
        if full or self._asked[relay.asker] >= MAX_RELAYS_PER_ASKER:
            return False
        self._relays[number] = relay
        self._asked[relay.asker] += 1
        return True

    def get(self, number: int) -> Relay | None:
        return self._relays.get(number)

    def answered(self, number: int, by: PeerId) -> Relay | None:
        """Remove and return the relay whose peer answered; None if there is none."""
        relay = self._relays.get(number)
        if relay is None or relay.peer != by:
            return None
        self.forget(number)
        return relay

    def forget(self, number: int) -> None:
        relay = self._relays.pop(number, None)
        if relay is not None:
            self._asked[relay.asker] -= 1
            if not self._asked[relay.asker]:
                del self._asked[relay.asker]

"""Peers with real Detectors, a network between them, and nothing else.

The peers start as if they had known each other for long: the roster is one object that all share,
and each Detector keeps only what differs from it. A packet is passed as the object that it is; its
bytes are counted as the encoder makes them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from math import inf
from typing import Final, TypeVarTuple

from msgspec import Struct

from overlay.encoding import encode
from overlay.errors import InternalError
from overlay.exchange import Preset
from overlay.gossip.claims import SIGNATURE_BYTES
from overlay.gossip.config import GossipConfig
from overlay.gossip.detector import Detector
from overlay.gossip.events import (
    Changed,
    Doubt,
    Effect,
    Event,
    Health,
    Persist,
    PushPull,
    Reach,
    Reached,
    Received,
    Said,
    Send,
    Synced,
    Tick,
)
from overlay.gossip.messages import Here, Knock, Packet, State
from overlay.gossip.roster import Roster
from testnet.detection.tally import Tally
from testnet.virtual.clock import Clock

TURN_S: Final = 0.2
"""How long a starved machine runs at a time, seconds, in the mean."""
SLOWNESS: Final = 10.0
"""It runs a tenth of the time: pauses are nine times as long as turns, 1.8 s in the mean and of
exponential length, so that one in a hundred lasts over 8 s. The anomalies of the Lifeguard paper
(arXiv 1707.00788, section V) last from 0.1 to 33 s."""


@dataclass(frozen=True)
class Link:
    """One way of a datagram: never shorter than `least`, longer by `more` in the mean (both in
    seconds), exponentially distributed, as queues make it."""

    least: float
    more: float


LINKS: Final = {
    "local": Link(0.000_05, 0.000_05),
    "lan": Link(0.000_5, 0.000_5),
    "wan": Link(0.02, 0.02),
}
"""By preset: one machine, one building, one continent."""


class Network:
    """Datagrams come late, out of order, or not at all; each for itself.

    Attributes:
        lost, carried: datagrams so far.
    """

    __slots__ = ("_link", "_loss", "_rng", "carried", "lost")

    def __init__(self, link: Link, loss: float, rng: random.Random) -> None:
        """loss: share of the datagrams."""
        self._link = link
        self._loss = loss
        self._rng = rng
        self.lost = 0
        self.carried = 0

    def delay(self) -> float | None:
        """Seconds that the next datagram takes; None if it never arrives."""
        if self._loss and self._rng.random() < self._loss:
            self.lost += 1
            return None
        self.carried += 1
        return self._link.least + self._rng.expovariate(1.0) * self._link.more

    def stream_delay(self) -> float:
        """Seconds that a message takes over a connection, which repeats what is lost: a round trip
        for each time."""
        delay = self._link.least + self._rng.expovariate(1.0) * self._link.more
        while self._loss and self._rng.random() < self._loss:
            self.lost += 1
            delay += 2 * (self._link.least + self._link.more)
        self.carried += 1
        return delay


class Starved:
    """A machine that gets its processor in threads: what comes in a pause waits for the next one.

    Messages and timers alike wait, and are dealt with in the order in which they were due; so a
    peer may hold the answer in its queue and still run into the timeout. That is the anomaly of
    the Lifeguard paper.
    """

    __slots__ = ("_begin", "_end", "_rng")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._begin = 0.0
        # Somewhere in its cycle: not all of them start with a turn.
        self._end = 0.0

    def turn(self, time: float) -> float:
        """When something that is due then gets done. Times must not decrease."""
        while self._end <= time:
            self._begin = self._end + self._rng.expovariate(1.0) * TURN_S * (SLOWNESS - 1)
            self._end = self._begin + self._rng.expovariate(1.0) * TURN_S
        return max(time, self._begin)


Arguments = TypeVarTuple("Arguments")

ENVELOPE: Final = 110
"""Bytes of a signed datagram beside its payload."""
FRAME: Final = 60
"""Bytes of a message over a connection beside its content: frames, the call, TLS."""
PEERS_PER_PARTICIPANT: Final = 2
"""A participant's word alone does not make a peer dead for others, so it matters who owns whom."""
FIRST_INCARNATION: Final = 1
MOST_TICKS: Final = 64
"""At one moment: a tick may bring to light that something else was due already."""


class HashKeys:
    """Signatures as long as real ones, of a keyed hash: whose key is whose name, nobody forges."""

    __slots__ = ("_me",)

    def __init__(self, me: bytes) -> None:
        self._me = me

    def sign(self, domain: str, payload: bytes) -> bytes:
        return _hash(self._me, domain, payload)

    def verify(self, author: bytes, domain: str, payload: bytes, signature: bytes) -> bool:
        return _hash(author, domain, payload) == signature


def _hash(author: bytes, domain: str, payload: bytes) -> bytes:
    return blake2b(domain.encode() + payload, digest_size=SIGNATURE_BYTES, key=author).digest()


class Traffic:
    """What all peers have sent so far. sent: bytes, envelopes included; over connections too."""

    __slots__ = ("datagrams", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.datagrams = 0


class World:
    """
    Attributes:
        rng: of what happens to the world.
    """

    def __init__(
        self,
        nodes: int,
        *,
        preset: str,
        loss: float,
        slow: float,
        rng: random.Random,
        killed: bool = False,
        streams: bool = True,
    ) -> None:
        """
        Args:
            preset: of the detector and of the delays. loss: share of datagrams.
            slow: share of the peers that are starved.
            killed: a crash takes the process alone: its machine refuses connections.
            streams: whether a probe may try a connection where datagrams got no answer.
        """
        self.clock = Clock()
        self.tally = Tally(nodes)
        self.traffic = Traffic()
        self.rng = rng
        self._killed = killed
        self._streams = streams
        self._network = Network(LINKS[preset], loss, random.Random(rng.random()))
        self._ids = [node.to_bytes(20, "big") for node in range(nodes)]
        self._roster = Roster()
        for node, peer in enumerate(self._ids):
            participant = f"p{node // PEERS_PER_PARTICIPANT}.example"
            self._roster.add(peer, participant, FIRST_INCARNATION)
        starved = random.Random(rng.random())
        self._starved: list[Starved | None] = [None] * nodes
        for node in rng.sample(range(nodes), round(slow * nodes)):
            self._starved[node] = Starved(starved)
            self.tally.healthy[node] = 0
        self._config = GossipConfig.of(Preset(preset))
        self._detectors_rng = random.Random(rng.random())
        self._wakes = [inf] * nodes
        # They differ in the phase of their probes, which each draws for itself.
        self._detectors: list[Detector | None] = [self._detector(node) for node in range(nodes)]
        for node, detector in enumerate(self._detectors):
            assert detector is not None
            self._schedule(node, detector)

    # -- peers -------------------------------------------------------------------------------------

    def _detector(self, node: int) -> Detector:
        me = self._ids[node]
        return Detector(
            me,
            self._roster,
            self._config,
            HashKeys(me),
            self._detectors_rng,
            incarnation=FIRST_INCARNATION,
            now=self.clock.now,
            announce=False,
        )

    def crash(self, node: int) -> None:
        """A peer is gone without a word."""
        self._detectors[node] = None
        self._wakes[node] = inf
        self.tally.crash(node, self.clock.now)

    def crash_one(self) -> None:
        """So is a random one, of those whom nobody ever took for dead: their crash is news."""
        taken = {victim for victim, _ in self.tally.alarms.pairs}
        self.crash(
            self.rng.choice(
                [node for node, live in enumerate(self.tally.live) if live and node not in taken]
            )
        )

    def health(self, observer: int, subject: int) -> Health | None:
        """What one live peer believes of another; None: it is not live."""
        detector = self._detectors[observer]
        return None if detector is None else detector.health(self._ids[subject])

    def snapshot(self) -> tuple[int, int, float]:
        """(bytes, datagrams) sent so far, and the time."""
        return self.traffic.sent, self.traffic.datagrams, self.clock.now

    # -- time --------------------------------------------------------------------------------------

    def _in_turn(self, node: int, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Do that as soon as the node's machine gets to it: now, if it is not starved."""
        starved = self._starved[node]
        now = self.clock.now
        turn = now if starved is None else starved.turn(now)
        if turn > now:
            self.clock.at(turn, do, *arguments)
        else:
            do(*arguments)

    def _tell(self, node: int, event: Event) -> None:
        detector = self._detectors[node]
        if detector is None:
            return
        for effect in detector.handle(event, self.clock.now):
            self._do(node, detector, effect)
        self._schedule(node, detector)

    def _schedule(self, node: int, detector: Detector) -> None:
        # An earlier tick than this stays in the queue; it looks again when it comes.
        wake = detector.next_due()
        if wake < self._wakes[node]:
            self._wakes[node] = wake
            self.clock.at(wake, self._wake, node, wake)

    def _wake(self, node: int, due: float) -> None:
        self._in_turn(node, self._tick, node, due)

    def _tick(self, node: int, due: float) -> None:
        detector = self._detectors[node]
        if detector is None or due != self._wakes[node]:
            return
        self._wakes[node] = inf
        now = self.clock.now
        if detector.next_due() > now:
            self._schedule(node, detector)
            return
        for _ in range(MOST_TICKS):
            self._tell(node, Tick())
            if detector.next_due() > now:
                return
        raise InternalError(f"peer {node}: its detector wants the tick of {now} s again and again")

    # -- effects -----------------------------------------------------------------------------------

    def _do(self, node: int, detector: Detector, effect: Effect) -> None:
        match effect:
            case Send(peer, packet):
                self._send(node, peer, packet)
            case Changed(peer, health):
                self._changed(node, int.from_bytes(peer), health)
            case Reach(peer, number) if self._streams:
                self._later(int.from_bytes(peer), self._knock, node, int.from_bytes(peer), number)
            case PushPull(peer):
                state = detector.state()
                self._count_stream(state)
                self._later(int.from_bytes(peer), self._pull, int.from_bytes(peer), node, state)
            case Persist() | Reach() | Said():
                pass

    def _send(self, node: int, peer: bytes, packet: Packet) -> None:
        self.traffic.sent += len(encode(packet)) + ENVELOPE
        self.traffic.datagrams += 1
        delay = self._network.delay()
        if delay is not None:
            event = Received(self._ids[node], packet)
            self.clock.after(delay, self._arrive, int.from_bytes(peer), event)

    def _arrive(self, node: int, event: Event) -> None:
        self._in_turn(node, self._tell, node, event)

    def _changed(self, node: int, subject: int, health: Health) -> None:
        match health:
            case Health.SUSPECT:
                self.tally.suspect(node, subject, self.clock.now)
            case Health.DEAD:
                self.tally.dead(node, subject, self.clock.now)
            case Health.ALIVE | Health.LEFT:
                self.tally.alive(node, subject, self.clock.now)

    # -- connections -------------------------------------------------------------------------------

    def _later(self, node: int, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Do that in a node's turn, once a message has come to it over a connection."""
        self.clock.after(self._network.stream_delay(), self._in_turn, node, do, *arguments)

    def _knock(self, asker: int, node: int, number: int) -> None:
        self._count_stream(Knock())
        if self._detectors[node] is not None:
            self._count_stream(Here())
            self._later(asker, self._tell, asker, Reached(self._ids[node], number))
        elif self._killed:
            self._later(asker, self._tell, asker, Doubt(self._ids[node], gone=True))

    def _pull(self, node: int, asker: int, state: State) -> None:
        detector = self._detectors[node]
        if detector is None:
            return
        answer = detector.state()
        self._count_stream(answer)
        self._later(asker, self._tell, asker, Synced(self._ids[node], answer))
        self._tell(node, Synced(self._ids[asker], state))

    def _count_stream(self, message: Struct) -> None:
        self.traffic.sent += len(encode(message)) + FRAME

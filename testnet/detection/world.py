"""Peers with real Detectors, a network between them, and the count of what they find.

The peers start as if they had known each other for long: all share one roster object, and each
Detector keeps only the differences. Packets are passed as objects; their bytes are counted as
encoded.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from medusa.overlay.encoding import encode
from medusa.overlay.gossip import events
from medusa.overlay.gossip.claims import SIGNATURE_BYTES
from medusa.overlay.gossip.config import GossipConfig, Preset
from medusa.overlay.gossip.detector import Detector, Start
from medusa.overlay.gossip.members import Roster
from medusa.overlay.gossip.messages import Here, Knock, Packet, State
from medusa.overlay.names import PeerId
from medusa.testnet.virtual.clock import Arguments
from medusa.testnet.virtual.messages import LINKS, Network, Nodes, Starved


@dataclass
class Crash:
    """One peer's crash, and the spread of the news; times in virtual seconds.

    Attributes:
        suspected: when the first live peer suspected it; declared: when the first declared it dead;
            known: when the last one did.
    """

    node: int
    at: float
    knows: bytearray
    waiting: int
    waiting_healthy: int
    suspected: float | None = None
    declared: float | None = None
    known_healthy: float | None = None
    known: float | None = None

    def count(self, change: int, *, healthy: bool, now: float) -> None:
        """Change the number of live peers that do not know of the crash; when it becomes 0, note
        the time."""
        self.waiting += change
        self.waiting_healthy += change * healthy
        if self.waiting_healthy:
            self.known_healthy = None
        elif self.known_healthy is None:
            self.known_healthy = now
        if self.waiting:
            self.known = None
        elif self.known is None:
            self.known = now


@dataclass
class FalseAlarms:
    """Live peers declared dead.

    As in the Lifeguard paper (section V) they are counted over all observers, and over observers
    that were not slow themselves ("FP-"). That paper counts only victims that are not slow; here
    slow ones are counted too, separately.

    Attributes:
        pairs: (victim, observer).
    """

    pairs: set[tuple[int, int]] = field(default_factory=set)

    def among(self, victims: bytearray, observers: bytearray) -> tuple[int, int]:
        """Count the victims, and the pairs, of which both nodes are marked with 1 in these
        arrays."""
        chosen = [pair for pair in self.pairs if victims[pair[0]] and observers[pair[1]]]
        return len({victim for victim, _ in chosen}), len(chosen)


class Tally:
    """Crashes and false alarms of one world.

    Attributes:
        live, healthy: for each node 1 if it is; 0 if it crashed, or is slow. crashes: the crashes,
            by node.
        suspicions: number of times that a live peer suspected a live one.
    """

    def __init__(self, nodes: int) -> None:
        self.live = bytearray(b"\1" * nodes)
        self.healthy = bytearray(b"\1" * nodes)
        self.crashes: dict[int, Crash] = {}
        self.alarms = FalseAlarms()
        self.suspicions = 0
        self._unknown: set[int] = set()

    @property
    def unknown(self) -> int:
        """Crashes that some live peer does not know."""
        return len(self._unknown)

    def crash(self, node: int, now: float) -> None:
        """Note that a node is gone."""
        assert self.live[node], "nobody crashes twice"
        self.live[node] = False
        waiting = sum(self.live)
        healthy = sum(live & well for live, well in zip(self.live, self.healthy, strict=True))
        crash = Crash(node, now, bytearray(len(self.live)), waiting, healthy)
        self.crashes[node] = crash
        self._unknown.add(node)
        for other in sorted(self._unknown):
            crash = self.crashes[other]
            if other != node and not crash.knows[node]:
                self._count(crash, -1, node, now)

    def suspect(self, observer: int, subject: int, now: float) -> None:
        """Note that a live node suspects another."""
        if self.live[subject]:
            self.suspicions += 1
            return
        crash = self.crashes[subject]
        if crash.suspected is None:
            crash.suspected = now

    def dead(self, observer: int, subject: int, now: float) -> None:
        """Note that a live node believes another to be dead."""
        if self.live[subject]:
            self.alarms.pairs.add((subject, observer))
            return
        crash = self.crashes[subject]
        if crash.knows[observer]:
            return
        crash.knows[observer] = True
        if crash.declared is None:
            crash.declared = now
        self._count(crash, -1, observer, now)

    def alive(self, observer: int, subject: int, now: float) -> None:
        """Note that a live node believes another to be alive again."""
        if self.live[subject]:
            return
        crash = self.crashes[subject]
        if crash.knows[observer]:
            crash.knows[observer] = False
            self._count(crash, +1, observer, now)

    def _count(self, crash: Crash, change: int, observer: int, now: float) -> None:
        crash.count(change, healthy=bool(self.healthy[observer]), now=now)
        if crash.waiting:
            self._unknown.add(crash.node)
        else:
            self._unknown.discard(crash.node)


ENVELOPE: Final = 110
"""Bytes of a signed datagram beside its payload."""
FRAME: Final = 60
"""Bytes of a message over a connection beside its content: frames, the call, TLS."""
PEERS_PER_PARTICIPANT: Final = 2
"""Peers of each participant. One participant's claims alone do not make a peer dead for others, so
ownership matters."""
FIRST_INCARNATION: Final = 1


class HashKeys:
    """Signatures as long as real ones, from a keyed hash; no node here forges signatures."""

    __slots__ = ("_me",)

    def __init__(self, me: PeerId) -> None:
        self._me = me

    def sign(self, domain: str, payload: bytes) -> bytes:
        return _hash(self._me, domain, payload)

    def verify(self, author: PeerId, domain: str, payload: bytes, signature: bytes) -> bool:
        return _hash(author, domain, payload) == signature


def _hash(author: PeerId, domain: str, payload: bytes) -> bytes:
    return blake2b(domain.encode() + payload, digest_size=SIGNATURE_BYTES, key=author).digest()


@dataclass(slots=True)
class Traffic:
    """Traffic of all peers so far. sent: bytes, envelopes included; over connections too."""

    sent: int = 0
    datagrams: int = 0


class World(Nodes[Detector, events.Event]):
    """Peers with Detectors, and their network.

    Attributes:
        rng: the random generator for events of the world.
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
            preset: the settings of the detector and of the delays.
            loss: the share of lost datagrams.
            slow: the share of peers on overloaded machines.
            killed: whether a crash ends only the process, so that its machine refuses
                connections.
            streams: whether a probe may try a connection after unanswered datagrams.
        """
        super().__init__(nodes, events.Tick())
        self.tally = Tally(nodes)
        self.traffic = Traffic()
        self.rng = rng
        self._killed = killed
        self._streams = streams
        self._network = Network(LINKS[preset], loss, random.Random(rng.random()))
        self._ids = [PeerId(node.to_bytes(20, "big")) for node in range(nodes)]
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
        # nodes differ in the phase of their probes, which each draws itself
        detectors = [self._detector(node) for node in range(nodes)]
        self.cores = [*detectors]
        for node, detector in enumerate(detectors):
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
            start=Start(self.clock.now, FIRST_INCARNATION, announce=False),
        )

    def crash(self, node: int) -> None:
        """Remove a peer without notice."""
        self.stop(node)
        self.tally.crash(node, self.clock.now)

    def crash_one(self) -> None:
        """Remove a random peer that nobody ever declared dead: its crash is news."""
        taken = {victim for victim, _ in self.tally.alarms.pairs}
        self.crash(
            self.rng.choice(
                [node for node, live in enumerate(self.tally.live) if live and node not in taken]
            )
        )

    def health(self, observer: int, subject: int) -> events.Health | None:
        """One live peer's belief about another; None: it is not live."""
        detector = self.cores[observer]
        return None if detector is None else detector.health(self._ids[subject])

    def snapshot(self) -> tuple[int, int, float]:
        """(bytes, datagrams) sent so far, and the time."""
        return self.traffic.sent, self.traffic.datagrams, self.clock.now

    # -- time --------------------------------------------------------------------------------------

    def _in_turn(self, node: int, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Run something when the node's machine gets to it: now, unless it is starved."""
        starved = self._starved[node]
        now = self.clock.now
        turn = now if starved is None else starved.turn(now)
        if turn > now:
            self.clock.at(turn, do, *arguments)
        else:
            do(*arguments)

    def _due(self, core: Detector) -> float:
        return core.next_due()

    def _handle(self, node: int, core: Detector, event: events.Event) -> None:
        for effect in core.handle(event, self.clock.now):
            self._do(node, core, effect)

    def _wake(self, node: int, due: float) -> None:
        self._in_turn(node, self._tick, node, due)

    # -- effects -----------------------------------------------------------------------------------

    def _do(self, node: int, detector: Detector, effect: events.Effect) -> None:
        match effect:
            case events.Send(peer, packet):
                self._send(node, peer, packet)
            case events.Changed(peer, health):
                self._changed(node, int.from_bytes(peer), health)
            case events.Reach(peer, number) if self._streams:
                self._later(int.from_bytes(peer), self._knock, node, int.from_bytes(peer), number)
            case events.PushPull(peer):
                state = detector.state()
                self._count_stream(state)
                self._later(int.from_bytes(peer), self._pull, int.from_bytes(peer), node, state)
            case events.Persist() | events.Reach() | events.DigestChanged():
                pass

    def _send(self, node: int, peer: PeerId, packet: Packet) -> None:
        self.traffic.sent += len(encode(packet)) + ENVELOPE
        self.traffic.datagrams += 1
        delay = self._network.delay()
        if delay is not None:
            event = events.Received(self._ids[node], packet)
            self.clock.after(delay, self._arrive, int.from_bytes(peer), event)

    def _arrive(self, node: int, event: events.Event) -> None:
        self._in_turn(node, self.notify, node, event)

    def _changed(self, node: int, subject: int, health: events.Health) -> None:
        match health:
            case events.Health.SUSPECT:
                self.tally.suspect(node, subject, self.clock.now)
            case events.Health.DEAD:
                self.tally.dead(node, subject, self.clock.now)
            case events.Health.ALIVE | events.Health.LEFT:
                self.tally.alive(node, subject, self.clock.now)

    # -- connections -------------------------------------------------------------------------------

    def _later(self, node: int, do: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """Run something in a node's turn, after a message has arrived over a connection."""
        self.clock.after(self._network.stream_delay(), self._in_turn, node, do, *arguments)

    def _knock(self, asker: int, node: int, number: int) -> None:
        self._count_stream(Knock())
        if self.cores[node] is not None:
            self._count_stream(Here())
            self._later(asker, self.notify, asker, events.Reached(self._ids[node], number))
        elif self._killed:
            self._later(asker, self.notify, asker, events.Doubt(self._ids[node], gone=True))

    def _pull(self, node: int, asker: int, state: State) -> None:
        detector = self.cores[node]
        if detector is None:
            return
        answer = detector.state()
        self._count_stream(answer)
        self._later(asker, self.notify, asker, events.Synced(self._ids[node], answer))
        self.notify(node, events.Synced(self._ids[asker], state))

    def _count_stream(self, message: Struct) -> None:
        self.traffic.sent += len(encode(message)) + FRAME

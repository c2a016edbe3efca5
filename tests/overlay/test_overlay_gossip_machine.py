"""Networks of detectors under loss, duplication, reordering, restarts, partitions and liars."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from overlay_gossip_network import QUICK, Network, peer, word

from medusa.overlay.gossip.claims import Word
from medusa.overlay.gossip.events import Doubt, Health, Leave, Received
from medusa.overlay.gossip.messages import Kind, Packet

SIZE = 6
ANY = st.integers(0, SIZE - 1)


class Federation(RuleBasedStateMachine):
    """Six peers of four participants, one of which is hostile; the conditions that always hold, and
    those that hold once the network has been well for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network("aabbcd", seed=7)
        self.left: set[int] = set()
        self.highest: dict[tuple[bytes, bytes], int] = {}

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.network.run(seconds)

    @rule(loss=st.sampled_from([0.0, 0.1, 0.5]), duplication=st.sampled_from([0.0, 0.3]))
    def weather(self, loss: float, duplication: float) -> None:
        self.network.loss, self.network.duplication = loss, duplication
        self.network.delay = (0.001, 0.3 if loss else 0.05)

    @rule(number=ANY)
    def crash(self, number: int) -> None:
        # if a peer disappears before all others know that it is back, some still believe that it
        # left
        if self._all_know_it_is_back(number):
            self.left.discard(number)
        self.network.kill(number)

    @rule(number=ANY)
    def restart(self, number: int) -> None:
        self.crash(number)
        self.network.start(number)

    @rule(number=ANY)
    def leave(self, number: int) -> None:
        if peer(number) in self.network.detectors:
            self.network.notify(number, Leave())
            self.network.kill(number)
            self.left.add(number)

    @rule(number=ANY, seconds=st.sampled_from([0.5, 3.0]))
    def freeze(self, number: int, seconds: float) -> None:
        if peer(number) in self.network.detectors:
            self.network.stop(number)
            self.network.run(seconds)
            self.network.resume(number)

    @rule(side=st.integers(1, 2**SIZE - 2))
    def split(self, side: int) -> None:
        self.network.cut = lambda one, other: bool(side >> one[0] & 1) != bool(side >> other[0] & 1)

    @rule()
    def mend(self) -> None:
        self.network.cut = lambda one, other: False

    @rule(number=ANY, about=ANY)
    def doubt(self, number: int, about: int) -> None:
        self.network.notify(number, Doubt(peer(about)))

    @rule(number=ANY, about=ANY, kind=st.sampled_from(list(Word)), incarnation=st.integers(0, 9))
    def forge(self, number: int, about: int, kind: Word, incarnation: int) -> None:
        """Let the hostile peer send a claim that its author did not sign."""
        author = about if kind in {Word.ALIVE, Word.LEFT} else (about + 1) % SIZE
        claim = word(author, kind, about, incarnation)
        packet = Packet(Kind.GOSSIP, claims=(claim[:-1] + bytes([claim[-1] ^ 1]),))
        before = self._beliefs(number)
        self.network.notify(number, Received(peer(5), packet))
        assert self._beliefs(number) == before

    @rule(
        number=ANY, about=st.integers(0, SIZE - 2), kind=st.sampled_from([Word.SUSPECT, Word.DEAD])
    )
    def slander(self, number: int, about: int, kind: Word) -> None:
        """Let the hostile peer accuse another one, with that peer's known incarnation."""
        detector = self.network.detectors.get(peer(number))
        if detector is not None:
            incarnation = detector.members.incarnation(peer(about))
            packet = Packet(Kind.GOSSIP, claims=(word(5, kind, about, incarnation),))
            self.network.notify(number, Received(peer(5), packet))

    def _all_know_it_is_back(self, number: int) -> bool:
        detectors = self.network.detectors
        if peer(number) not in detectors:
            return False
        incarnation = detectors[peer(number)].incarnation
        return all(
            each.members.incarnation(peer(number)) == incarnation for each in detectors.values()
        )

    def _beliefs(self, number: int) -> list[tuple[Health, int]]:
        detector = self.network.detectors.get(peer(number))
        if detector is None:
            return []
        members = detector.members
        return [(members.health(peer(n)), members.incarnation(peer(n))) for n in range(SIZE)]

    @invariant()
    def incarnations_never_go_back(self) -> None:
        for me, detector in self.network.detectors.items():
            assert detector.incarnation <= self.network.persisted[me]
            for number in range(SIZE):
                known = detector.members.incarnation(peer(number))
                # a believed claim was signed by its subject itself
                assert known <= self.network.persisted.get(peer(number), 0)

    @invariant()
    def counts_are_right(self) -> None:
        for me, detector in self.network.detectors.items():
            others = [detector.health(peer(n)) for n in range(SIZE) if peer(n) != me]
            assert detector.members.counts() == {h: others.count(h) for h in Health}

    def teardown(self) -> None:
        network = self.network
        network.loss, network.duplication, network.delay = 0.0, 0.0, (0.001, 0.05)
        self.mend()
        network.run(200.0)
        for number in range(SIZE):
            beliefs = set(network.health(number))
            if peer(number) in network.detectors:
                assert beliefs <= {Health.ALIVE}, number
            else:
                gone = {Health.LEFT, Health.DEAD} if number in self.left else {Health.DEAD}
                assert beliefs <= gone, number


Federation.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
TestFederation = Federation.TestCase


def test_dead_peers_are_found_and_announced_within_the_papers_time() -> None:
    """SWIM: first detection after e/(e-1) probe intervals on average, here with timeouts and the
    shortest suspicion; all others within some rounds of gossip."""
    found, told = [], []
    for seed in range(10):
        network = Network([f"p{n}" for n in range(24)], seed=seed)
        network.run(3.0)
        network.kill(5)
        died = network.now
        network.run(40.0)
        at = [when - died for when, _, about, health in network.changes if health is Health.DEAD]
        assert len(at) == 23
        assert {about for _, _, about, health in network.changes if health is Health.DEAD} == {
            peer(5)
        }
        found.append(min(at))
        told.append(max(at) - min(at))
    shortest, _ = QUICK.suspicion_s(24)
    # one or two probe intervals until the peer is probed, one until the probe fails, and as long
    # for confirmations
    assert sum(found) / 10 < shortest + 5 * QUICK.probe_interval_s
    assert max(told) < 8 * QUICK.gossip_interval_s + 1.0


@pytest.mark.parametrize("loss", [0.05, 0.1])
def test_lost_datagrams_make_no_peer_dead(loss: float) -> None:
    network = Network([f"p{n}" for n in range(20)], seed=3)
    network.loss = loss
    network.run(300.0)
    assert [change for change in network.changes if change[3] is Health.DEAD] == []


def test_one_hostile_participant_kills_no_peer() -> None:
    """Three of ten peers belong to it, and accuse all others, again and again, with every
    incarnation that they learn."""
    network = Network("abcdefgzzz", seed=9)
    rng = random.Random(1)
    for _ in range(200):
        network.run(0.5)
        liar, victim = rng.randrange(7, 10), rng.randrange(7)
        incarnation = network.detectors[peer(victim)].incarnation
        kind = rng.choice([Word.SUSPECT, Word.DEAD])
        for number in rng.sample(range(7), 3):
            packet = Packet(Kind.GOSSIP, claims=(word(liar, kind, victim, incarnation),))
            network.notify(number, Received(peer(liar), packet))
    assert {change[3] for change in network.changes if change[1][0] < 7} <= {
        Health.ALIVE,
        Health.SUSPECT,
    }
    network.run(60.0)
    for number in range(7):
        assert set(network.health(number)) == {Health.ALIVE}


def test_two_participants_that_collude_kill_no_peer() -> None:
    """Two participants have five peers each, which claim the death of one peer, twenty times a
    second, for every incarnation that they learn, to everybody."""
    honest = [f"h{n // 2}" for n in range(16)]
    network = Network([*honest, "victim", *"yyyyyzzzzz"], seed=3)
    victim, liars = 16, range(17, 27)
    rng = random.Random(1)
    network.run(5.0)
    before = network.sent[Kind.PING, peer(victim)]
    for _ in range(600):
        network.run(0.05)
        heard = max(network.detectors[peer(n)].members.incarnation(peer(victim)) for n in liars)
        chosen = rng.choice(liars[:5]), rng.choice(liars[5:])
        claims = tuple(word(liar, Word.DEAD, victim, heard) for liar in chosen)
        for number in range(16):
            network.notify(number, Received(peer(chosen[0]), Packet(Kind.GOSSIP, claims=claims)))
    pinged = network.sent[Kind.PING, peer(victim)] - before
    believed = {change[3] for change in network.changes if change[1] < peer(victim)}
    assert believed <= {Health.ALIVE, Health.SUSPECT}
    # each of the 26 peers pings the victim in its rounds, and once more if it must check by itself
    assert pinged < 30 * (1 + 26 / 25) + 3 * 26
    network.run(60.0)
    assert set(network.health(victim)) == {Health.ALIVE}


def test_two_peers_that_each_believe_that_the_other_left_find_each_other() -> None:
    """Both peers left and came back. Each receives the claim that the other left only after its own
    return, and never the claim that the other is back."""
    network = Network("ab", seed=2)
    network.cut = lambda one, other: True
    for number in (0, 1):
        network.notify(number, Leave())
        network.kill(number)
        network.start(number)
    for number, other in ((0, 1), (1, 0)):
        packet = Packet(Kind.GOSSIP, claims=(word(other, Word.LEFT, other, 1),))
        network.notify(number, Received(peer(other), packet))
        assert network.health(other) == [Health.LEFT]
    network.cut = lambda one, other: False
    network.run(30.0)
    assert network.health(0) == network.health(1) == [Health.ALIVE]


def test_the_same_seed_is_the_same_history() -> None:
    histories = []
    for _ in range(2):
        network = Network("abcdefgh", seed=11)
        network.loss, network.duplication = 0.2, 0.1
        network.run(20.0)
        network.kill(3)
        network.run(40.0)
        histories.append(network.changes)
    assert histories[0] == histories[1]
    assert histories[0]

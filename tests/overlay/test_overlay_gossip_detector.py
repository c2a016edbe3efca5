"""The detector by example, after memberlist's state_test.go and foca's lib.rs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from overlay_gossip_network import QUICK, HashKeys, Lone, Network, peer, roster_of, word

from medusa.overlay.gossip.claims import Word, read_claim
from medusa.overlay.gossip.detector import Detector, Start
from medusa.overlay.gossip.events import (
    Changed,
    Doubt,
    Health,
    Joined,
    Leave,
    Persist,
    PushPull,
    Reach,
    Reached,
    Received,
    Removed,
    Send,
    Synced,
    Tick,
)
from medusa.overlay.gossip.messages import MAX_PACKET, Kind, Packet, State
from medusa.overlay.gossip.voices import MISTRUST

ALIVE, SUSPECT, DEAD, LEFT = Health.ALIVE, Health.SUSPECT, Health.DEAD, Health.LEFT


def words(send: Send) -> list[tuple[Word, bytes]]:
    claims = [read_claim(data) for data in send.packet.claims]
    return [(claim.word, claim.subject) for claim in claims]


# -- probing


def test_a_lone_peer_keeps_its_news_for_the_first_that_comes() -> None:
    """It makes no rounds of gossip until then."""
    roster = roster_of("a")
    start = Start(0.0, 1)
    detector = Detector(peer(0), roster, QUICK, HashKeys(peer(0)), random.Random(1), start=start)
    assert detector.waiting
    ticks, now = 0, 0.0
    while now < 50 * QUICK.probe_interval_s:
        now, ticks = detector.next_due(), ticks + 1
        assert detector.handle(Tick(), now) == []
    assert ticks <= 2 * 50 + 2  # probes and push-pulls have their turns, too
    roster.add(peer(1), "b", 1)
    effects = detector.handle(Joined(peer(1)), now)
    while now < 60 * QUICK.probe_interval_s:
        now = detector.next_due()
        effects += detector.handle(Tick(), now)
    told = [words(each) for each in effects if isinstance(each, Send) and each.peer == peer(1)]
    assert any((Word.ALIVE, peer(0)) in claims for claims in told)


def test_probe_visits_everyone_once_a_round() -> None:
    lone = Lone("abcdefgh")
    pinged: list[bytes] = []

    def answer(send: Send) -> None:
        if send.packet.kind is Kind.PING:
            pinged.append(send.peer)
            lone.hear(send.peer[0], kind=Kind.ACK, number=send.packet.number)

    lone.until(16 * QUICK.probe_interval_s, answer)
    rounds = [pinged[:7], pinged[7:14]]
    for visited in rounds:
        assert sorted(visited) == [peer(number) for number in range(1, 8)]
    assert lone.changes == []


def test_probe_unanswered_is_suspected_at_the_end_of_the_interval() -> None:
    lone = Lone()
    ping = lone.next_ping()
    started = lone.now
    lone.until(started + QUICK.probe_interval_s - 0.01)
    assert lone.changes == []
    lone.until(started + QUICK.probe_interval_s)
    assert lone.changes == [(ping.peer, SUSPECT)]


def test_probe_asks_others_for_help_and_believes_them() -> None:
    lone = Lone()
    ping = lone.next_ping()
    lone.until(lone.now + QUICK.probe_timeout_s)
    requests = [s for s in lone.sent if s.packet.kind is Kind.PING_REQUEST]
    assert len(requests) == QUICK.indirect_checks
    assert {s.packet.peer for s in requests} == {ping.peer}
    assert ping.peer not in {s.peer for s in requests}
    lone.hear(requests[0].peer[0], kind=Kind.ACK, number=ping.packet.number)
    lone.until(lone.now + QUICK.probe_timeout_s)
    assert lone.changes == []


def test_probe_is_not_answered_by_anybody_else() -> None:
    lone = Lone("abcdefghij")
    ping = lone.next_ping()
    stranger = next(n for n in range(1, 10) if peer(n) != ping.peer)
    lone.hear(stranger, kind=Kind.ACK, number=ping.packet.number)
    lone.until(lone.now + QUICK.probe_interval_s)
    assert (ping.peer, SUSPECT) in lone.changes


def test_probe_falls_back_to_the_stream() -> None:
    lone = Lone()
    ping = lone.next_ping()
    lone.until(lone.now + QUICK.probe_timeout_s)
    assert Reach(ping.peer, ping.packet.number) in lone.effects
    lone.do(Reached(ping.peer, ping.packet.number))
    lone.until(lone.now + QUICK.probe_timeout_s)
    assert lone.changes == []


def test_a_helper_pings_and_passes_the_answer_on() -> None:
    lone = Lone()
    lone.do(Received(peer(1), Packet(Kind.PING_REQUEST, 77, peer(2))))
    ping = lone.sent[-1]
    assert (ping.peer, ping.packet.kind) == (peer(2), Kind.PING)
    lone.hear(3, kind=Kind.ACK, number=ping.packet.number)  # this is not the peer that was asked
    assert len(lone.sent) == 1
    lone.hear(2, kind=Kind.ACK, number=ping.packet.number)
    assert (lone.sent[-1].peer, lone.sent[-1].packet.kind) == (peer(1), Kind.ACK)
    assert lone.sent[-1].packet.number == 77


def test_one_asker_cannot_use_up_all_help() -> None:
    lone = Lone()
    for number in range(100):
        lone.do(Received(peer(1), Packet(Kind.PING_REQUEST, number, peer(2))))
    assert len(lone.sent) == 32
    lone.do(Received(peer(3), Packet(Kind.PING_REQUEST, 1, peer(2))))
    assert len(lone.sent) == 33
    lone.until(QUICK.probe_timeout_s + QUICK.probe_interval_s)
    before = len(lone.sent)
    lone.do(Received(peer(1), Packet(Kind.PING_REQUEST, 1, peer(2))))
    assert len(lone.sent) == before + 1


def test_a_helper_without_answer_says_that_it_is_there_itself() -> None:
    lone = Lone()
    lone.do(Received(peer(1), Packet(Kind.PING_REQUEST, 77, peer(2))))
    lone.until(QUICK.probe_timeout_s)
    nacks = [s for s in lone.sent if s.packet.kind is Kind.NACK]
    assert [(s.peer, s.packet.number) for s in nacks] == [(peer(1), 77)]


# -- Lifeguard: local health


def test_awareness_degraded_by_missed_nacks_and_improved_by_answers() -> None:
    lone = Lone()
    ping = lone.next_ping()
    lone.until(lone.now + QUICK.probe_timeout_s)
    helper = next(s.peer for s in lone.sent if s.packet.kind is Kind.PING_REQUEST)
    lone.hear(helper[0], kind=Kind.NACK, number=ping.packet.number)
    lone.until(lone.now + QUICK.probe_timeout_s * 1.6)
    assert lone.detector.awareness.score == QUICK.indirect_checks - 1
    ping = [s for s in lone.sent if s.packet.kind is Kind.PING][-1]  # the ping of the next turn
    lone.hear(ping.peer[0], kind=Kind.ACK, number=ping.packet.number)
    assert lone.detector.awareness.score == QUICK.indirect_checks - 2


def test_awareness_stays_when_all_helpers_speak() -> None:
    lone = Lone()
    ping = lone.next_ping()
    lone.until(lone.now + QUICK.probe_timeout_s)
    for send in [s for s in lone.sent if s.packet.kind is Kind.PING_REQUEST]:
        lone.hear(send.peer[0], kind=Kind.NACK, number=ping.packet.number)
    lone.until(lone.now + QUICK.probe_timeout_s * 1.6)
    assert lone.changes == [(ping.peer, SUSPECT)]
    assert lone.detector.awareness.score == 0


def test_awareness_stretches_the_next_probe() -> None:
    lone = Lone()
    lone.next_ping()
    lone.until(lone.now + QUICK.probe_interval_s)
    assert lone.detector.awareness.score == 3
    pings = [s for s in lone.sent if s.packet.kind is Kind.PING]
    second = pings[-1]  # the next turn began when the first ping failed
    assert len(pings) == 2
    started, before = lone.now, len(lone.sent)
    lone.until(started + 4 * QUICK.probe_timeout_s - 0.01)
    assert not [s for s in lone.sent[before:] if s.packet.kind is Kind.PING_REQUEST]
    lone.until(started + 4 * QUICK.probe_interval_s)
    assert (second.peer, SUSPECT) in lone.changes


def test_a_late_tick_is_our_own_fault_and_no_peer_is_judged_by_it() -> None:
    lone = Lone()
    ping = lone.next_ping()
    lone.now += 5.0  # our process did not run; the answer waits in the socket
    lone.do(Tick())
    assert lone.changes == []
    assert lone.detector.awareness.score == 1
    lone.hear(ping.peer[0], kind=Kind.ACK, number=ping.packet.number)
    lone.until(lone.now + 1.0)
    assert (ping.peer, SUSPECT) not in lone.changes


def test_a_peer_that_is_always_late_still_finds_the_dead() -> None:
    lone = Lone("ab")
    for _ in range(200):
        lone.now = max(lone.now, lone.detector.next_due()) + QUICK.probe_timeout_s
        lone.do(Tick())
    assert lone.health(1) is DEAD


# -- Lifeguard: buddy system


def test_a_suspect_receives_the_suspicion_with_the_next_ping() -> None:
    lone = Lone()
    lone.hear(2, word(2, Word.SUSPECT, 1))
    lone.until(20.0)
    pings = [s for s in lone.sent if s.peer == peer(1) and s.packet.kind is Kind.PING]
    assert words(pings[0])[0] == (Word.SUSPECT, peer(1))
    lone.hear(1, kind=Kind.PING, number=5)
    assert (lone.sent[-1].peer, lone.sent[-1].packet.kind) == (peer(1), Kind.ACK)
    assert words(lone.sent[-1])[0][1] == peer(1)


# -- alive


def test_alive_is_believed_of_the_subject_only() -> None:
    lone = Lone()
    lone.hear(1, word(1, Word.SUSPECT, 2))
    forged = bytearray(word(2, Word.ALIVE, 2, 5))
    forged[-1] ^= 1
    lone.hear(1, bytes(forged))
    assert lone.health(2) is SUSPECT
    assert lone.detector.counters.forged == 1
    lone.hear(1, word(2, Word.ALIVE, 2, 5))  # the sender of the claim does not matter
    assert lone.health(2) is ALIVE


def test_alive_is_idempotent() -> None:
    lone = Lone()
    claim = word(2, Word.ALIVE, 2, 5)
    lone.hear(1, claim)
    verified, waiting = lone.keys.verified, lone.detector.waiting
    lone.hear(3, claim, claim)
    assert (lone.keys.verified, lone.detector.waiting) == (verified, waiting)
    assert lone.detector.counters.old == 2


def test_alive_of_the_same_incarnation_does_not_clear_a_suspicion() -> None:
    lone = Lone()
    lone.hear(1, word(1, Word.SUSPECT, 2))
    lone.hear(1, word(2, Word.ALIVE, 2, 1))
    assert lone.health(2) is SUSPECT


def one_ping_later(lone: Lone, answer: Callable[[Send], None] = lambda send: None) -> None:
    """Wait long enough for the detector to check claims itself."""
    lone.until(lone.now + QUICK.probe_timeout_s + 0.01, answer)


def test_a_dead_peer_rises_with_a_higher_incarnation_only() -> None:
    lone = Lone("aaa")
    lone.hear(1, word(1, Word.DEAD, 2))
    one_ping_later(lone)
    assert lone.health(2) is DEAD
    lone.hear(1, word(2, Word.ALIVE, 2, 1))
    assert lone.health(2) is DEAD
    lone.hear(1, word(2, Word.ALIVE, 2, 2))
    assert lone.health(2) is ALIVE
    lone.hear(1, word(1, Word.DEAD, 2, 1))  # an old claim again
    assert lone.health(2) is ALIVE


def test_a_new_record_revives() -> None:
    lone = Lone("aaa")
    lone.hear(1, word(1, Word.DEAD, 2))
    one_ping_later(lone)
    assert lone.health(2) is DEAD
    assert lone.roster.add(peer(2), "a", 9)
    lone.do(Joined(peer(2)))
    assert lone.health(2) is ALIVE
    lone.hear(1, word(1, Word.DEAD, 2, 1))
    assert lone.health(2) is ALIVE


# -- accusations


def test_suspect_twice_is_one_voice() -> None:
    lone = Lone()
    claim = word(1, Word.SUSPECT, 2)
    lone.hear(1, claim)
    verified = lone.keys.verified
    lone.hear(3, claim)
    assert lone.changes == [(peer(2), SUSPECT)]
    assert lone.keys.verified == verified


@pytest.mark.parametrize("kind", [Word.SUSPECT, Word.DEAD])
def test_old_accusations_count_no_more(kind: Word) -> None:
    lone = Lone("aaa")
    lone.hear(2, word(2, Word.ALIVE, 2, 5))
    lone.hear(1, word(1, kind, 2, 4))
    assert lone.changes == []


@pytest.mark.parametrize("kind", [Word.SUSPECT, Word.DEAD])
def test_a_peer_cannot_raise_the_incarnation_of_another(kind: Word) -> None:
    lone = Lone("aaa")
    lone.hear(1, word(1, kind, 2, 2**50))
    assert lone.changes == []
    assert lone.detector.counters.ahead == 1


def test_an_accusation_is_refuted_with_a_higher_incarnation_written_down_first() -> None:
    lone = Lone()
    lone.hear(1, word(1, Word.SUSPECT, 0), kind=Kind.PING, number=3)
    persist, ack = lone.effects
    assert isinstance(persist, Persist)
    assert isinstance(ack, Send)
    refutation = read_claim(ack.packet.claims[0])
    assert (refutation.word, refutation.subject) == (Word.ALIVE, peer(0))
    assert 1 < refutation.incarnation <= persist.incarnation
    assert lone.detector.awareness.score == 1
    lone.hear(1, word(1, Word.SUSPECT, 0))  # the same claim again
    assert lone.detector.incarnation == refutation.incarnation


def test_slander_does_not_make_us_feel_unwell_for_long() -> None:
    lone = Lone()

    def answer(send: Send) -> None:
        if send.packet.kind is Kind.PING:
            lone.hear(send.peer[0], kind=Kind.ACK, number=send.packet.number)

    for _ in range(200):
        lone.hear(1, word(1, Word.SUSPECT, 0, lone.detector.incarnation))
        lone.until(lone.now + 0.1, answer)
        assert lone.detector.awareness.score <= 1
    assert lone.detector.counters.refuted == 200


def test_a_peer_that_missed_our_refutation_receives_it_again() -> None:
    lone = Lone()
    lone.hear(1, word(1, Word.SUSPECT, 0))
    lone.until(30.0)
    assert lone.detector.waiting == 0
    lone.hear(2, word(1, Word.DEAD, 0), kind=Kind.PING, number=3)
    assert (Word.ALIVE, peer(0)) in words(lone.sent[-1])


def test_our_own_word_of_an_earlier_life_is_outdone() -> None:
    lone = Lone()
    lone.hear(1, word(0, Word.LEFT, 0, 40))
    assert lone.detector.incarnation == 41
    assert any(isinstance(effect, Persist) for effect in lone.effects)


# -- suspicion, dogpile


def test_confirmations_shorten_a_suspicion() -> None:
    """With N = 30, two confirmations by others shorten the suspicion from six times the shortest to
    the shortest."""
    shortest, longest = QUICK.suspicion_s(30)
    ends = []
    for confirmed in range(1, 4):
        lone = Lone([f"p{n}" for n in range(30)])
        for accuser in range(2, 3 + confirmed):
            lone.hear(accuser, word(accuser, Word.SUSPECT, 1))
        suspect = lone.detector.members.get(peer(1))
        assert suspect is not None
        ends.append(suspect.until)
    half = math.log(2) / math.log(3)
    assert ends == pytest.approx([longest - half * (longest - shortest), shortest, shortest])


def test_a_lone_stranger_cannot_kill_a_peer_that_answers_us() -> None:
    lone = Lone("abcde")
    lone.hear(1, word(1, Word.DEAD, 2), word(1, Word.SUSPECT, 2))

    def answer(send: Send) -> None:
        if send.packet.kind is Kind.PING:
            lone.hear(send.peer[0], kind=Kind.ACK, number=send.packet.number)

    lone.until(200.0, answer)
    assert lone.changes == [(peer(2), SUSPECT)]
    lone.hear(1, word(2, Word.ALIVE, 2, 2))
    assert lone.health(2) is ALIVE


def test_many_peers_of_one_stranger_are_one_voice() -> None:
    lone = Lone("abbbbbbc")
    for accuser in range(1, 7):
        lone.hear(accuser, word(accuser, Word.DEAD, 7))
    assert lone.health(7) is SUSPECT
    lone.hear(7, word(7, Word.ALIVE, 7, 2))
    assert lone.health(7) is ALIVE


def test_many_peers_of_one_stranger_do_not_shorten_a_suspicion() -> None:
    ends = []
    for accusers in ([1], [1, 2, 3, 4], [1, 5]):
        lone = Lone("abbbbcdefghijk")
        for accuser in accusers:
            lone.hear(accuser, word(accuser, Word.SUSPECT, 9))
        suspect = lone.detector.members.get(peer(9))
        assert suspect is not None
        ends.append(suspect.until)
    assert ends[0] == ends[1] > ends[2]


def test_two_participants_are_believed_after_one_ping() -> None:
    lone = Lone("abcde")
    lone.hear(1, word(1, Word.DEAD, 4))
    one_ping_later(lone)
    assert lone.health(4) is SUSPECT
    lone.hear(1, word(2, Word.DEAD, 4))
    assert lone.health(4) is SUSPECT
    one_ping_later(lone)
    assert lone.health(4) is DEAD
    lone.until(lone.now + 1.0)
    passed_on = {data for send in lone.sent for data in send.packet.claims}
    assert {word(1, Word.DEAD, 4), word(2, Word.DEAD, 4)} <= passed_on


def test_among_peers_of_one_owner_one_is_enough() -> None:
    lone = Lone("aaaa")
    lone.hear(1, word(1, Word.DEAD, 3))
    one_ping_later(lone)
    assert lone.health(3) is DEAD


def test_a_peer_that_we_reach_is_not_dead_whatever_others_claim() -> None:
    lone = Lone("abcdefgh")
    for accuser in range(1, 7):
        lone.hear(accuser, word(accuser, Word.DEAD, 7), word(accuser, Word.SUSPECT, 7))

    def answer(send: Send) -> None:
        if send.packet.kind is Kind.PING:
            lone.hear(send.peer[0], kind=Kind.ACK, number=send.packet.number)

    lone.until(200.0, answer)
    assert lone.changes == [(peer(7), SUSPECT)]


def test_a_peer_that_accused_in_vain_causes_no_pings_for_a_while() -> None:
    lone = Lone("abcdefgh")
    pings = []

    def answer(send: Send) -> None:
        if send.packet.kind is Kind.PING:
            pings.append((lone.now, send.peer))
            lone.hear(send.peer[0], kind=Kind.ACK, number=send.packet.number)

    def sentence(incarnation: int, *accusers: int) -> int:
        """Return how many pings the accused peer gets in the time of one ping."""
        before = len(pings)
        for accuser in accusers:
            lone.hear(accuser, word(accuser, Word.DEAD, 7, incarnation))
        one_ping_later(lone, answer)
        lone.hear(7, word(7, Word.ALIVE, 7, incarnation + 1))
        return sum(to == peer(7) for _, to in pings[before:])

    assert sentence(1, 1, 2) == 1
    lone.until(lone.now + 5.0, answer)
    assert [sentence(n, 1, 2) for n in range(2, 6)].count(0) >= 3, "in turn at most"
    assert sentence(6, 1, 3) <= 1, "nor by the word of one beside"
    assert sentence(7, 3, 4) >= 1, "others are heard"
    lone.until(lone.now + MISTRUST * QUICK.probe_interval_s, answer)
    assert sentence(8, 1, 2) >= 1, "and they are again"


def test_a_peer_that_accuses_without_end_is_ignored() -> None:
    lone = Lone(["a", "b", *(f"p{n}" for n in range(98))])
    for subject in range(2, 100):
        lone.hear(1, word(1, Word.SUSPECT, subject))
    assert lone.detector.counters.excessive == 98 - 32
    assert len(lone.changes) == 32


def test_a_gone_peer_dies_soon() -> None:
    lone = Lone("abcde")
    lone.do(Doubt(peer(3)))
    assert lone.effects[-1] == Reach(peer(3), lone.sent[-1].packet.number)
    lone.do(Doubt(peer(3), gone=True))
    lone.until(QUICK.probe_timeout_s)
    assert lone.health(3) is SUSPECT
    lone.until(QUICK.probe_timeout_s + QUICK.gone_s)
    assert lone.health(3) is DEAD


def test_a_doubted_peer_that_answers_is_alive() -> None:
    lone = Lone("abcde")
    lone.do(Doubt(peer(3)))
    lone.do(Doubt(peer(3), gone=True))
    lone.hear(3, kind=Kind.ACK, number=lone.sent[0].packet.number)
    lone.until(QUICK.probe_timeout_s)
    assert lone.changes == []


# -- members


def test_claims_by_and_about_strangers_are_ignored_and_counted() -> None:
    lone = Lone("abc")
    lone.hear(1, word(9, Word.SUSPECT, 2), word(1, Word.SUSPECT, 9), word(9, Word.ALIVE, 9, 9))
    lone.hear(9, word(1, Word.SUSPECT, 2))
    assert lone.changes == []
    assert lone.detector.counters.unknown == 4
    assert lone.keys.verified == 0


def test_a_revoked_peer_leaves() -> None:
    lone = Lone("abc")
    lone.hear(1, word(1, Word.SUSPECT, 2))
    lone.roster.discard(peer(2))
    assert lone.do(Removed(peer(2))) == [Changed(peer(2), LEFT)]
    assert lone.health(2) is LEFT
    lone.hear(1, word(1, Word.SUSPECT, 2), word(2, Word.ALIVE, 2, 7))
    lone.until(10.0)
    assert lone.health(2) is LEFT
    assert set(lone.detector.members.counts().values()) == {1, 0}
    assert peer(2) not in {send.peer for send in lone.sent}


def test_claims_behind_a_forgery_are_ignored() -> None:
    lone = Lone("aaaa")
    forged = word(1, Word.SUSPECT, 2)[:-1] + b"\0"
    lone.hear(1, forged, word(1, Word.SUSPECT, 3))
    assert lone.changes == []


def test_left_is_not_suspected_and_comes_back() -> None:
    network = Network("abcd")
    network.run(3.0)
    network.notify(3, Leave())
    network.kill(3)
    network.run(60.0)
    assert network.health(3) == [LEFT] * 3
    assert not [change for change in network.changes if change[3] in {SUSPECT, DEAD}]
    network.start(3)
    network.run(5.0)
    assert network.health(3) == [ALIVE] * 3


# -- gossip, push-pull, packets


def test_gossip_reaches_the_dead_so_that_they_refute() -> None:
    lone = Lone("aaaa")
    lone.hear(1, word(1, Word.DEAD, 3))
    lone.until(2.0)
    told = [send for send in lone.sent if send.peer == peer(3)]
    assert told
    assert words(told[0])[0] == (Word.DEAD, peer(3))


def test_a_packet_is_never_too_long_and_news_go_out_a_bounded_number_of_times() -> None:
    lone = Lone(["a"] * 100)
    for subject in range(2, 34):
        lone.hear(1, word(1, Word.SUSPECT, subject))
    lone.until(60.0)
    counts: dict[bytes, int] = {}
    for send in lone.sent:
        assert send.packet.size <= MAX_PACKET
        for data in send.packet.claims:
            counts[data] = counts.get(data, 0) + 1
    assert lone.detector.waiting == 0
    counts = {word(1, Word.SUSPECT, n): counts[word(1, Word.SUSPECT, n)] for n in range(2, 34)}
    # if the packet has a claim to a suspect about itself, that claim counts, too
    limit = QUICK.retransmits(100) - 1
    # in addition, suspects receive the claim when they are pinged
    assert max(counts.values()) <= limit + 21
    assert sorted(counts.values())[len(counts) // 2] >= limit


def test_push_pull_brings_everything_together() -> None:
    one, two = Lone("abcde"), Lone("abcde")
    one.hear(1, word(1, Word.DEAD, 4), word(2, Word.DEAD, 4), word(3, Word.ALIVE, 3, 5))
    two.do(Synced(peer(1), one.detector.state()))
    one_ping_later(two)
    assert two.health(4) is DEAD
    two.hear(1, word(1, Word.SUSPECT, 3, 4))
    assert two.health(3) is ALIVE
    one.until(2 * QUICK.push_pull_interval_s)
    assert any(isinstance(effect, PushPull) for effect in one.effects)


def test_a_state_of_a_stranger_is_ignored() -> None:
    lone = Lone("aaa")
    lone.do(Synced(peer(9), State((word(1, Word.DEAD, 2),), ())))
    assert lone.changes == []


def test_a_partition_heals() -> None:
    network = Network("aabbccdd", seed=4)
    network.run(3.0)
    halves = ({peer(n) for n in range(4)}, {peer(n) for n in range(4, 8)})
    network.cut = lambda one, other: (one in halves[0]) != (other in halves[0])
    network.run(60.0)
    assert set(network.health(0)) == {ALIVE, DEAD}
    network.cut = lambda one, other: False
    network.run(60.0)
    for number in range(8):
        assert set(network.health(number)) == {ALIVE}


def test_a_stopped_peer_comes_back_without_accusing_the_others() -> None:
    network = Network("abcde", seed=5)
    network.run(3.0)
    network.stop(2)
    network.run(60.0)
    assert network.health(2) == [DEAD] * 4
    before = len(network.changes)
    network.resume(2)
    network.run(30.0)
    assert network.health(2) == [ALIVE] * 4
    by_it = [c for c in network.changes[before:] if c[1] == peer(2) and c[3] is DEAD]
    assert by_it == []


def test_keys_of_the_tests_detect_forgeries() -> None:
    keys = HashKeys(peer(1))
    assert keys.verify(peer(1), "d", b"x", keys.sign("d", b"x"))
    assert not keys.verify(peer(2), "d", b"x", keys.sign("d", b"x"))
    assert not keys.verify(peer(1), "e", b"x", keys.sign("d", b"x"))


# -- incarnations derive from clocks: an incarnation of the future is refused, since no peer could
# exceed it

FUTURE = 2**62


def test_claims_of_the_future_are_refused_and_counted() -> None:
    lone = Lone()
    lone.latest = 1000
    lone.hear(1, word(1, Word.ALIVE, 1, 1001), word(1, Word.LEFT, 1, FUTURE))
    lone.hear(2, word(2, Word.SUSPECT, 1, FUTURE), word(2, Word.DEAD, 1, 1001))
    lone.hear(3, word(0, Word.ALIVE, 0, FUTURE))  # a claim about ourselves, signed with our key
    assert lone.changes == []
    assert lone.detector.counters.future == 5
    assert lone.detector.members.incarnation(peer(1)) == 1
    assert lone.detector.incarnation == 1
    lone.hear(1, word(1, Word.LEFT, 1, 1000))
    assert lone.changes == [(peer(1), LEFT)]


def test_an_owner_exceeds_the_claims_of_a_thief_of_its_key() -> None:
    """A claim may be ahead of the clock only so far that the owner's next claim exceeds it soon."""
    robbed, other = Lone(), Lone()
    robbed.latest = other.latest = 1000
    robbed.hear(3, word(0, Word.LEFT, 0, 1000))
    robbed.until(1.0)
    said = [read_claim(data) for send in robbed.sent for data in send.packet.claims]
    assert {(claim.word, claim.incarnation) for claim in said if claim.subject == peer(0)} == {
        (Word.ALIVE, 1001)
    }
    other.hear(3, word(1, Word.LEFT, 1, 1000))
    other.latest = 1001
    other.hear(2, word(1, Word.ALIVE, 1, 1001))
    assert other.changes == [(peer(1), LEFT), (peer(1), ALIVE)]


def test_beliefs_from_a_fast_clock_do_not_stand_in_the_way() -> None:
    lone = Lone()
    lone.latest = FUTURE
    lone.hear(1, word(1, Word.LEFT, 1, 10**9))
    assert lone.health(1) is LEFT
    lone.latest = 1000
    lone.hear(1, word(1, Word.ALIVE, 1, 7))
    assert lone.health(1) is ALIVE
    assert lone.detector.members.incarnation(peer(1)) == 7


def test_when_our_clock_is_set_we_begin_an_incarnation_of_that_time() -> None:
    lone = Lone()
    for latest, ours, begun in ((10**6, 5000, 5001), (10**3, 700, 701), (10**3, 300, 701)):
        lone.latest = latest
        lone.roster.discard(peer(0))
        lone.roster.add(peer(0), "a", ours)
        lone.do(Joined(peer(0)))
        assert lone.detector.incarnation == begun
    persisted = [effect.incarnation for effect in lone.effects if isinstance(effect, Persist)]
    assert len(persisted) == 2
    assert persisted[0] > 5001 > persisted[1] > 701

"""Messages over the wire: all invalid bytes give one error; and the formulas of gossip."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from overlay_gossip_network import QUICK, HashKeys, Lone, peer, roster_of, word

from medusa.overlay.encoding import encode
from medusa.overlay.errors import DecodeError, InvalidInputError
from medusa.overlay.gossip.claims import (
    MAX_INCARNATION,
    OTHERS_BYTES,
    OWN_BYTES,
    Claim,
    Word,
    is_signed,
    make_claim,
    read_claim,
)
from medusa.overlay.gossip.config import GossipConfig, Preset, suspicion_timeout
from medusa.overlay.gossip.digests import MAX_BYTES, MAX_DIGEST, MAX_ITEMS, Broadcasts, Digests
from medusa.overlay.gossip.events import DigestChanged, PublishDigest, Received, Synced
from medusa.overlay.gossip.members import Counters, Members, Roster
from medusa.overlay.gossip.messages import (
    MAX_PACKET,
    PER_ITEM,
    Kind,
    Packet,
    State,
    decode_packet,
    encode_packet,
)
from medusa.overlay.gossip.probing import Round
from medusa.overlay.gossip.timers import Timers

ONE = make_claim(HashKeys(peer(1)), peer(1), Word.SUSPECT, peer(2), 7)


# -- the wire


@given(st.binary(max_size=2 * MAX_PACKET))
def test_any_bytes_are_a_packet_or_a_decode_error(data: bytes) -> None:
    try:
        packet = decode_packet(data)
    except DecodeError:
        return
    assert isinstance(packet.kind, Kind)


@given(
    st.tuples(
        st.integers(-1, 6),
        st.integers(-(2**63), 2**64 - 1),
        st.binary(max_size=21),
        st.lists(st.binary(max_size=120), max_size=4),
        st.lists(st.binary(max_size=120), max_size=4),
    )
)
def test_any_fields_are_a_packet_or_a_decode_error(fields: tuple[object, ...]) -> None:
    """A packet that decodes does no harm to a detector."""
    try:
        packet = decode_packet(encode(fields))
    except DecodeError:
        return
    lone = Lone()
    lone.do(Received(peer(1), packet))
    lone.do(Synced(peer(1), State(packet.claims, packet.digests)))
    assert lone.changes == []


@given(st.sampled_from(Kind), st.integers(0, 2**32 - 1), st.lists(st.binary(max_size=400)))
def test_packets_survive_the_wire_and_know_their_size(
    kind: Kind, number: int, items: list[bytes]
) -> None:
    about = peer(3) if kind is Kind.PING_REQUEST else b""
    packet = Packet(kind, number, about, tuple(items[::2]), tuple(items[1::2]))
    data = encode_packet(packet)
    assert len(data) <= packet.size
    if packet.size <= MAX_PACKET:
        assert decode_packet(data) == packet


@given(st.binary(min_size=OWN_BYTES - 1, max_size=OTHERS_BYTES + 1))
def test_any_bytes_are_a_claim_or_a_decode_error(data: bytes) -> None:
    try:
        claim = read_claim(data)
    except DecodeError:
        return
    assert claim.data == data
    assert claim.incarnation <= MAX_INCARNATION


@pytest.mark.parametrize("author", [1, 2])
@pytest.mark.parametrize("kind", list(Word))
def test_claims_survive_the_wire(author: int, kind: Word) -> None:
    own = kind in {Word.ALIVE, Word.LEFT}
    subject = author if own else 9
    claim = make_claim(HashKeys(peer(author)), peer(author), kind, peer(subject), 5)
    assert read_claim(claim.data) == claim
    assert len(claim.data) == (OWN_BYTES if own else OTHERS_BYTES)
    assert is_signed(claim, HashKeys(b""))


@given(st.integers(0, OTHERS_BYTES - 1), st.integers(1, 255))
def test_a_claim_changed_anywhere_is_not_signed(place: int, bits: int) -> None:
    changed = bytearray(ONE.data)
    changed[place] ^= bits
    try:
        claim: Claim = read_claim(bytes(changed))
    except DecodeError:
        return
    assert not is_signed(claim, HashKeys(b""))


def test_a_claim_cannot_accuse_its_signer_nor_speak_for_another() -> None:
    layout_of_others = bytearray(ONE.data)
    layout_of_others[29:49] = peer(2)
    for data in (
        bytes(layout_of_others),
        bytes([Word.ALIVE]) + ONE.data[1:],
        bytes([Word.SUSPECT]) + word(1, Word.ALIVE, 1)[1:],
        b"",
    ):
        with pytest.raises(DecodeError):
            read_claim(data)


# -- digests


def digests(me: int, owners: str = "abc") -> Digests:
    return Digests(
        peer(me), roster_of(owners), HashKeys(peer(me)), Counters(), lambda: 4, gap_s=1.0
    )


def test_the_newest_digest_of_each_peer_is_kept() -> None:
    one, two = digests(1), digests(2)
    one.publish(b"first", 1)
    (first,) = one.take(1000)
    one.publish(b"second", 1)
    (second,) = one.take(1000)
    one.publish(b"after a restart", 2)
    (third,) = one.take(1000)
    for data in (second, first, third, second):
        two.receive(data, 0.0)
    assert two.contents == {peer(1): b"after a restart"}


def test_the_same_digest_again_is_no_news() -> None:
    one, two = digests(1), digests(2)
    one.publish(b"load 0", 1)
    first = one.take(1000)
    one.publish(b"load 0", 1)
    assert one.take(1000) == first
    one.publish(b"load 0", 2)  # for example, after the claim was refuted
    (later,) = one.take(1000)
    assert two.receive(first[0], 0.0) == two.receive(later, 0.0) == peer(1)


def test_a_new_digest_of_a_peer_is_reported_once() -> None:
    lone, one = Lone(["a", "b"]), digests(1, "ab")
    one.publish(b"first", 1)
    packet = Packet(Kind.PING, 1, digests=tuple(one.take(1000)))
    told = [
        effect
        for _ in range(2)
        for effect in lone.detector.handle(Received(peer(1), packet), lone.now)
        if isinstance(effect, DigestChanged)
    ]
    assert told == [DigestChanged(peer(1), b"first")]


def test_constant_publications_are_passed_on_now_and_then() -> None:
    one, two = digests(1), digests(2)
    passed_on = []
    for tenth in range(30):
        one.publish(bytes([tenth]), 1)
        two.receive(one.take(1000)[0], tenth / 10)
        passed_on += [item for item in two.take(1000) if item not in passed_on]
    assert len(passed_on) == 3
    assert two.contents == {peer(1): bytes([29])}  # the contents are known here all the same


@given(st.integers(0, 100), st.integers(1, 255))
def test_a_digest_changed_anywhere_is_dropped(place: int, bits: int) -> None:
    one, two = digests(1), digests(2)
    one.publish(b"x" * 30, 1)
    changed = bytearray(one.take(1000)[0])
    changed[place] ^= bits
    two.receive(bytes(changed), 0.0)
    assert two.contents == {}


@given(st.binary(max_size=MAX_BYTES + 1))
def test_any_bytes_as_a_digest_do_no_harm(data: bytes) -> None:
    one = digests(1)
    one.receive(data, 0.0)
    assert one.contents == {}


def test_digests_fill_packets_and_never_burst_them() -> None:
    lone = Lone(["a"] * 40)
    lone.do(PublishDigest(bytes(MAX_DIGEST)))
    for author in range(1, 40):
        other = digests(author, "a" * 40)
        other.publish(bytes([author]) * (author * 12), 1)
        lone.do(Received(peer(author), Packet(Kind.PING, 1, digests=tuple(other.take(1000)))))
    assert len(lone.detector.digests) == 40
    assert all(send.packet.size <= MAX_PACKET for send in lone.sent)
    own = lone.sent[0].packet.digests[0]
    assert all(send.packet.digests[0] == own for send in lone.sent)
    assert max(len(send.packet.digests) for send in lone.sent) > 1
    with pytest.raises(InvalidInputError):
        lone.do(PublishDigest(bytes(MAX_DIGEST + 1)))


# -- broadcasts


def test_fewest_sent_goes_first_and_nothing_is_sent_too_often() -> None:
    queue: Broadcasts[int] = Broadcasts(lambda: 3)
    queue.put(1, b"one")
    assert queue.take(100)[0] == [b"one"]
    queue.put(2, b"two")
    assert queue.take(3 + PER_ITEM)[0] == [b"two"]
    assert queue.take(3 + PER_ITEM)[0] in ([b"one"], [b"two"])
    rest = [queue.take(100)[0] for _ in range(3)]
    sent = [b"one", b"two", *(item for items in rest for item in items)]
    assert len(sent) + 1 == 6
    assert len(queue) == 0
    assert queue.take(100) == ([], 100)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 5), st.binary(max_size=20)),
            st.tuples(st.just("drop"), st.integers(0, 5), st.just(b"")),
            st.tuples(st.just("take"), st.integers(0, 60), st.just(b"")),
        )
    )
)
def test_broadcasts_against_a_simple_model(steps: list[tuple[str, int, bytes]]) -> None:
    queue: Broadcasts[int] = Broadcasts(lambda: 2)
    model: dict[int, tuple[bytes, int]] = {}
    for what, number, content in steps:
        if what == "put":
            item = bytes([number]) + content  # each taken item names its subject
            queue.put(number, item)
            model[number] = (item, 0)
        elif what == "drop":
            queue.drop(number)
            model.pop(number, None)
        else:
            taken, room = queue.take(number)
            assert room == number - sum(len(data) + PER_ITEM for data in taken) >= 0
            fits = [times for data, times in model.values() if len(data) + PER_ITEM <= number]
            assert bool(taken) == bool(fits)
            for data in taken:
                key = data[0]
                model[key] = (data, model[key][1] + 1)
                if model[key][1] >= 2:
                    del model[key]
        assert len(queue) == len(model)


def test_broadcasts_are_bounded() -> None:
    queue: Broadcasts[int] = Broadcasts(lambda: 5)
    for key in range(MAX_ITEMS + 10):
        queue.put(key, b"x")
    assert len(queue) == MAX_ITEMS


# -- formulas and structures


def test_the_lan_and_wan_presets_are_memberlists() -> None:
    lan, wan = GossipConfig.of(Preset.LAN), GossipConfig.of(Preset.WAN)
    assert (lan.probe_interval_s, lan.probe_timeout_s, lan.indirect_checks) == (1.0, 0.5, 3)
    assert (lan.suspicion_mult, lan.suspicion_max_mult, lan.retransmit_mult) == (4, 6, 4)
    assert (lan.gossip_interval_s, lan.gossip_fanout, lan.gossip_to_dead_s) == (0.2, 3, 30.0)
    assert (wan.probe_interval_s, wan.probe_timeout_s, wan.indirect_checks) == (5.0, 3.0, 3)
    assert (wan.suspicion_mult, wan.suspicion_max_mult, wan.retransmit_mult) == (6, 6, 4)
    assert (wan.gossip_interval_s, wan.gossip_fanout, wan.gossip_to_dead_s) == (0.5, 4, 60.0)
    assert (lan.push_pull_interval_s, wan.push_pull_interval_s) == (30.0, 60.0)


def test_memberlists_formulas() -> None:
    """The values are those of its util_test.go and suspicion_test.go."""
    lan = GossipConfig.of(Preset.LAN)
    assert lan.suspicion_s(5)[0] == lan.suspicion_s(10)[0] == 4.0
    assert lan.suspicion_s(50)[0] == pytest.approx(6.796, abs=0.01)
    assert lan.suspicion_s(500)[0] == pytest.approx(10.796, abs=0.01)
    assert [lan.retransmits(n) for n in (1, 9, 10, 99, 100)] == [4, 4, 8, 8, 12]
    assert [lan.push_pull_s(n) / 30 for n in (0, 32, 33, 64, 65, 128)] == [1, 1, 2, 2, 3, 3]
    timeouts = [suspicion_timeout(2.0, 30.0, 3, confirmed) for confirmed in range(5)]
    assert timeouts == pytest.approx([30.0, 16.0, 7.8, 2.0, 2.0], abs=0.05)
    assert suspicion_timeout(2.0, 30.0, 0, 0) == 2.0


@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.floats(0, 100)))))
def test_timers_against_a_dict(steps: list[tuple[int, float | None]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, float] = {}
    for key, at in steps:
        if at is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.set(key, at)
            model[key] = at
        assert timers.next_due() == min(model.values(), default=math.inf)
    popped = []
    while (key := timers.pop(100.0)) is not None:
        popped.append(model.pop(key))
    assert model == {}
    assert popped == sorted(popped)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_roster_against_a_dict(steps: list[tuple[bool, int]]) -> None:
    roster, model = Roster(), dict[bytes, str]()
    for add, number in steps:
        owner = "ab"[number % 2]
        if add:
            assert roster.add(peer(number), owner) == (peer(number) not in model)
            model[peer(number)] = owner
        else:
            assert roster.discard(peer(number)) == (model.pop(peer(number), None) is not None)
        assert sorted(roster[index] for index in range(len(roster))) == sorted(model)
        assert roster.participants == len(set(model.values()))
        assert roster.size_of("a") == list(model.values()).count("a")


@given(st.integers(1, 60), st.integers(0, 2**32))
def test_a_round_visits_every_peer_once(size: int, seed: int) -> None:
    members = Members(peer(0), roster_of("a" * size))
    order = Round(members, peer(0), random.Random(seed))
    for _ in range(3):
        visited = [order.next() for _ in range(size - 1)]
        if size == 1:
            assert order.next() is None
        assert sorted(p for p in visited if p) == [peer(n) for n in range(1, size)]


@pytest.mark.parametrize("size", [2, 10, 200])
@pytest.mark.parametrize("dead", [0.0, 0.4, 0.9])
def test_random_peers_live_and_are_distinct(size: int, dead: float) -> None:
    lone = Lone(["a"] * size)
    for number in range(2, 2 + int(dead * (size - 2))):
        lone.hear(1, word(1, Word.DEAD, number))
    members, rng = lone.detector.members, random.Random(1)
    seen: set[bytes] = set()
    for _ in range(300):
        chosen = members.some(3, rng)
        assert len(set(chosen)) == len(chosen) <= 3
        seen.update(chosen)
    living = {peer(n) for n in range(1, size) if not members.is_gone(peer(n))}
    assert seen == living or (size == 200 and seen <= living and len(seen) > 0.9 * len(living))


def test_the_config_of_the_tests_is_a_config() -> None:
    assert QUICK.confirmations(3) == 0
    assert QUICK.confirmations(4) == 2


def test_a_digest_of_the_future_is_refused_and_one_made_with_our_key_is_outdone() -> None:
    roster, latest = roster_of("abc"), 1000

    def digests_of(me: int) -> Digests:
        keys, counters = HashKeys(peer(me)), Counters()
        return Digests(
            peer(me), roster, keys, counters, lambda: 4, gap_s=1.0, latest=lambda: latest
        )

    one, thief, other = digests_of(1), digests_of(1), digests_of(2)
    one.publish(b"honest", 1)
    for incarnation in (1001, 2**62):
        thief._incarnation = 0
        thief.publish(b"lie", incarnation)
        assert other.receive(thief.take(1000)[0], 0.0) is None
        assert one.receive(thief.take(1000)[0], 0.0) is None
    thief._incarnation = 0
    thief.publish(b"lie", 1000)
    assert other.receive(thief.take(1000)[0], 0.0) == peer(1)
    one.receive(thief.take(1000)[0], 0.0)
    latest = 1001  # time advances
    assert other.receive(one.take(1000)[0], 0.0) == peer(1)
    assert other.contents == {peer(1): b"honest"}
    one.publish(b"later", 1)
    other.receive(one.take(1000)[0], 0.0)
    assert other.contents == {peer(1): b"later"}
    latest = 500  # our clock was ahead: claims that we sent because of it no longer count
    one.publish(b"now", 400)
    assert other.receive(one.take(1000)[0], 0.0) == peer(1)
    assert other.contents == {peer(1): b"now"}

"""Datagrams reach a handler only if they are fresh and really from their sender; all others are
counted."""

from __future__ import annotations

import dataclasses

import pytest
import trio
import trio.testing
from deadline import DEADLINE_S
from hypothesis import given
from hypothesis import strategies as st

from medusa.overlay.addresses import Address
from medusa.overlay.datagrams import (
    MAX_DATAGRAM,
    MAX_PAYLOAD,
    QUEUE,
    Channel,
    Datagrams,
    Envelope,
    open_datagrams,
)
from medusa.overlay.encoding import decode, encode
from medusa.overlay.errors import ConflictError, DecodeError, InvalidInputError, MedusaError
from medusa.overlay.events import Events
from medusa.overlay.identity import Identity, Root
from medusa.overlay.membership import Membership
from medusa.overlay.peers import PeerTable
from medusa.overlay.signing import Signed, signed

NOW = 1_700_000_000.0
MIT, EVIL = Root.create("mit.edu", NOW), Root.create("evil.org", NOW)
ONE, TWO = Identity.issue(MIT, NOW), Identity.issue(MIT, NOW)
MEMBERS = Membership.found(MIT, NOW)
SOURCE = ("127.0.0.1", 1)


def tables(membership: Membership = MEMBERS) -> tuple[PeerTable, PeerTable]:
    one, two = PeerTable(ONE, membership), PeerTable(TWO, membership)
    one.announce([("127.0.0.1", 1)], NOW)
    two.announce([("127.0.0.1", 2)], NOW)
    one.merge(two.missing(()), NOW)
    two.merge(one.missing(()), NOW)
    return one, two


FROM, TO = tables()


class Receiver(Datagrams):
    """Datagrams without a socket: the tests use `receive` alone."""

    def __init__(self, peers: PeerTable = TO, now: float = NOW) -> None:
        envelope = Envelope(TWO, peers)
        super().__init__(None, SOURCE, envelope, Events(), lambda: now)  # type: ignore[arg-type]
        self.got: list[tuple[bytes, Address, bytes]] = []
        self.on(Channel.DHT, lambda *args: self.got.append(args))

    def counted(self) -> dict[str, int]:
        counts = dataclasses.asdict(self.counters)
        return {name: count for name, count in counts.items() if count}


def seal(payload: bytes = b"hello", channel: Channel = Channel.DHT, now: float = NOW) -> bytes:
    return Envelope(ONE, FROM).seal(channel, payload, now)


def test_a_good_datagram_arrives() -> None:
    receiver = Receiver()
    receiver.receive(seal(), SOURCE)
    assert receiver.got == [(ONE.peer_id, SOURCE, b"hello")]
    assert receiver.counted() == {"received": 1}


def test_answers_go_where_the_sender_has_signed_to_be() -> None:
    receiver = Receiver()
    victim = ("10.9.9.9", 53)
    receiver.receive(seal(), victim)  # a third party repeats the datagram, or names a false source
    assert receiver.got == [(ONE.peer_id, SOURCE, b"hello")]


@pytest.mark.parametrize(("seconds", "kind"), [(-61, "stale"), (61, "stale"), (-59, "received")])
def test_a_replayed_datagram_is_too_old(seconds: float, kind: str) -> None:
    receiver = Receiver()
    receiver.receive(seal(now=NOW + seconds), SOURCE)
    assert receiver.counted() == {kind: 1}


def test_a_forged_datagram_is_counted_and_dropped() -> None:
    receiver = Receiver()
    envelope = decode(seal(), Signed, limit=MAX_DATAGRAM, what="")
    domain = "medusa datagram of " + MEMBERS.federation
    for forged in (
        signed(TWO.private_key, domain, envelope.payload),
        signed(ONE.private_key, "medusa datagram of another", envelope.payload),
        Signed(envelope.payload.replace(b"hello", b"jello"), envelope.signature),
        Signed(envelope.payload, b""),
    ):
        receiver.receive(encode(forged), SOURCE)
    assert receiver.counted() == {"forged": 4}
    assert receiver.got == []


def test_unknown_revoked_and_expired_senders() -> None:
    membership = Membership.found(MIT, NOW)
    _, two = tables(membership)
    receiver = Receiver(two)
    stranger = PeerTable(Identity.issue(EVIL, NOW), membership)
    datagram = Envelope(stranger.identity, stranger).seal(Channel.DHT, b"", NOW)
    receiver.receive(datagram, SOURCE)
    good = Envelope(ONE, two).seal(Channel.DHT, b"", NOW)
    receiver.receive(good, SOURCE)
    membership.revoke(MIT, "mit.edu", ONE.peer_id, now=NOW)
    receiver.receive(good, SOURCE)
    assert receiver.counted() == {"received": 1, "unknown": 2}
    late = NOW + 365 * 86400
    receiver = Receiver(now=late)
    receiver.receive(seal(now=late), SOURCE)
    assert receiver.counted() == {"unknown": 1}


def test_a_datagram_of_another_federation_with_the_same_peers() -> None:
    other, _ = tables(Membership.found(MIT, NOW + 1))
    receiver = Receiver()
    receiver.receive(Envelope(ONE, other).seal(Channel.DHT, b"", NOW), SOURCE)
    assert receiver.counted() == {"forged": 1}


def test_channels() -> None:
    receiver = Receiver()
    receiver.receive(seal(channel=Channel.GOSSIP), SOURCE)
    body = [ONE.peer_id, int(NOW * 1e6), 77, b""]
    domain = "medusa datagram of " + MEMBERS.federation
    receiver.receive(encode(signed(ONE.private_key, domain, encode(body))), SOURCE)
    assert receiver.counted() == {"unhandled": 1, "malformed": 1}


def test_a_handler_may_refuse() -> None:
    receiver = Receiver()

    def refuse(sender: bytes, source: Address, payload: bytes) -> None:
        raise DecodeError("nonsense inside")

    receiver.on(Channel.GOSSIP, refuse)
    receiver.receive(seal(channel=Channel.GOSSIP), SOURCE)
    assert receiver.counted() == {"received": 1, "rejected": 1}
    assert "nonsense inside" in receiver._events.recent()[-1].text


@given(st.binary(max_size=300) | st.integers(0, 255).map(lambda byte: bytes([byte]) * 9001))
def test_random_bytes_are_counted(data: bytes) -> None:
    receiver = Receiver()
    receiver.receive(data, SOURCE)
    assert receiver.counted() == {"malformed": 1}


@given(st.data())
def test_a_damaged_datagram_never_arrives(data: st.DataObject) -> None:
    datagram = bytearray(seal())
    where = data.draw(st.integers(0, len(datagram) - 1))
    datagram[where] ^= data.draw(st.integers(1, 255))
    receiver = Receiver()
    receiver.receive(bytes(datagram), SOURCE)
    assert receiver.got == []
    assert sum(receiver.counted().values()) == 1


def test_the_largest_payload_fits_and_a_larger_one_is_refused() -> None:
    datagram = seal(bytes(MAX_PAYLOAD))
    assert len(datagram) < MAX_DATAGRAM
    receiver = Receiver()
    receiver.receive(datagram, SOURCE)
    assert receiver.counted() == {"received": 1}
    with pytest.raises(InvalidInputError, match="at most 8192"):
        seal(bytes(MAX_PAYLOAD + 1))


def test_a_full_queue_drops_and_counts() -> None:
    receiver = Receiver()
    for _ in range(QUEUE + 5):
        receiver.send(Channel.DHT, ("127.0.0.1", 9), b"")
    assert receiver.counted() == {"full": 5}
    with pytest.raises(InvalidInputError, match="no IP"):
        receiver.send(Channel.DHT, ("localhost", 9), b"")


async def test_over_sockets_with_noise() -> None:
    got = trio.Event()
    replies: list[bytes] = []

    def on_question(sender: bytes, source: Address, payload: bytes) -> None:
        assert sender == ONE.peer_id
        two.send(Channel.DHT, source, payload[::-1])

    def on_answer(sender: bytes, source: Address, payload: bytes) -> None:
        assert sender == TWO.peer_id
        replies.append(payload)
        got.set()

    localhost = ("127.0.0.1", 0)
    from_, to = tables()
    async with (
        open_datagrams(ONE, from_, localhost, Events(), lambda: NOW) as one,
        open_datagrams(TWO, to, localhost, Events(), lambda: NOW) as two,
    ):
        to.merge([from_.announce([one.address], NOW).data], NOW)
        from_.merge([to.announce([two.address], NOW).data], NOW)
        one.on(Channel.DHT, on_answer)
        two.on(Channel.DHT, on_question)
        with trio.socket.socket(type=trio.socket.SOCK_DGRAM) as noise:
            for junk in (b"", b"junk", bytes(8000), bytes(20000)):
                await noise.sendto(junk, two.address)
        one.send(Channel.DHT, two.address, b"abc")
        with trio.fail_after(DEADLINE_S):
            await got.wait()
        assert replies == [b"cba"]
        assert two.counters.malformed == 4
        assert (one.counters.sent, two.counters.received) == (1, 1)


async def test_a_port_in_use() -> None:
    async with open_datagrams(ONE, FROM, ("127.0.0.1", 0), Events()) as first:
        with pytest.raises(
            ConflictError, match=f"{first.address[1]}: the port is in use"
        ) as caught:
            async with open_datagrams(TWO, TO, first.address, Events()):
                pass
    assert isinstance(caught.value, MedusaError)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidInputError, match=r"cannot listen on 192\.0\.2\.1:0"):
        async with open_datagrams(TWO, TO, ("192.0.2.1", 0), Events()):
            pass

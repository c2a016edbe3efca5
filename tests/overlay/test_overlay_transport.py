"""Connections between peers over real TLS on loopback: admission, one connection per pair,
faults."""

import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
import trio
from msgspec import Struct

from medusa.overlay.addresses import Address
from medusa.overlay.connection import Connection, KeepAlive
from medusa.overlay.errors import (
    BrokenError,
    ConflictError,
    InvalidInputError,
    UnavailableError,
    UntrustedError,
)
from medusa.overlay.events import Events
from medusa.overlay.greeting import Answer, receive_verdict, send_hello
from medusa.overlay.identity import Identity, Root
from medusa.overlay.listening import ConnectionLimits
from medusa.overlay.membership import Membership
from medusa.overlay.rpc import Caller, Service
from medusa.overlay.tls import PEER_PROTOCOL, PeerContexts, client_context, shake_hands
from medusa.overlay.tls_stream import TlsStream
from medusa.overlay.transport import Transport, TransportConfig, open_transport

NOW = time.time()
LOCAL = ("127.0.0.1", 0)
YEAR = 365 * 86400.0


class Word(Struct):
    text: str


@dataclass
class Federation:
    """A federation that mit.edu founded; it admitted utah.edu, and nobody admitted evil.org."""

    mit: Root = field(default_factory=lambda: Root.create("mit.edu", NOW))
    utah: Root = field(default_factory=lambda: Root.create("utah.edu", NOW))
    evil: Root = field(default_factory=lambda: Root.create("evil.org", NOW))

    def __post_init__(self) -> None:
        self.membership = Membership.found(self.mit, NOW)
        self.membership.admit(self.mit, self.utah.certificate, NOW)

    def copy(self) -> Membership:
        founded = Membership(self.membership.charter)
        founded.merge(self.membership.statements(), NOW)
        return founded


@dataclass
class Peer:
    identity: Identity
    membership: Membership
    transport: Transport
    events: Events

    @property
    def id(self) -> bytes:
        return self.identity.peer_id


@pytest.fixture(scope="module")
def keys() -> Federation:
    return Federation()


@pytest.fixture
def federation(keys: Federation) -> Federation:
    return Federation(keys.mit, keys.utah, keys.evil)


Book = dict[bytes, list[Address]]


@asynccontextmanager
async def peer(
    identity: Identity,
    membership: Membership,
    book: Book,
    config: TransportConfig | None = None,
    clock: Callable[[], float] = lambda: NOW,
) -> AsyncIterator[Peer]:
    service = Service()

    async def whoami(caller: Caller, request: Word, body: bytes) -> Word:
        return Word(f"{caller.participant} {(caller.peer_id or b'').hex()} {request.text}")

    async def hang(caller: Caller, request: Word, body: bytes) -> Word:
        await trio.sleep_forever()
        raise AssertionError

    service.unary("whoami", Word, whoami)
    service.unary("hang", Word, hang)

    def address_of(peer_id: bytes) -> Sequence[Address]:
        return book.get(peer_id, [])

    events = Events()
    async with open_transport(
        identity, membership, service, LOCAL, address_of, events, config, clock=clock
    ) as transport:
        book.setdefault(identity.peer_id, [transport.address])
        yield Peer(identity, membership, transport, events)


@asynccontextmanager
async def two(federation: Federation, book: Book | None = None) -> AsyncIterator[tuple[Peer, Peer]]:
    book = {} if book is None else book
    mit, utah = Identity.issue(federation.mit, NOW), Identity.issue(federation.utah, NOW)
    async with (
        peer(mit, federation.copy(), book) as left,
        peer(utah, federation.copy(), book) as right,
    ):
        yield left, right


async def ask(connection: Connection, text: str = "x") -> str:
    return (await connection.call("whoami", Word(text), Word)).text


async def test_both_ways_over_one_connection(federation: Federation) -> None:
    async with two(federation) as (mit, utah):
        there = await mit.transport.connection(utah.id)
        assert there.remote == utah.identity.name
        assert await ask(there) == f"mit.edu {mit.id.hex()} x"
        back = await utah.transport.connection(mit.id)
        assert await ask(back) == f"utah.edu {utah.id.hex()} x"
        assert len(mit.transport.connections()) == len(utah.transport.connections()) == 1
        assert await mit.transport.connection(utah.id) is there
        assert await mit.transport.dial(utah.transport.address) is there


async def test_a_dial_learns_the_identity_of_the_peer_that_answers(federation: Federation) -> None:
    async with two(federation) as (mit, utah):
        assert (await mit.transport.dial(utah.transport.address)).remote == utah.identity.name
        with pytest.raises(InvalidInputError, match="our own address"):
            await mit.transport.dial(mit.transport.address)


@pytest.mark.parametrize("round_", range(5))
async def test_both_dial_at_once_gives_one_connection(federation: Federation, round_: int) -> None:
    async with two(federation) as (mit, utah):
        got: list[Connection] = []

        async def reach(one: Peer, other: Peer) -> None:
            got.append(await one.transport.connection(other.id))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(reach, mit, utah)
                nursery.start_soon(reach, utah, mit)
        assert len(set(got)) == 2
        assert len(mit.transport.connections()) == len(utah.transport.connections()) == 1
        for connection in set(got):
            assert not connection.closed.is_set()
            assert "x" in await ask(connection)


async def test_the_smaller_ids_dial_is_kept(federation: Federation) -> None:
    """Two peers dial each other at once: the one with the smaller id refuses the other's connection
    while it waits for the answer to its own."""
    identities = [Identity.issue(federation.mit, NOW) for _ in range(2)]
    small, large = sorted(identities, key=lambda identity: identity.peer_id)
    for own, other, answer in ((small, large, Answer.DUPLICATE), (large, small, Answer.ACCEPTED)):
        async with (
            peer(own, federation.copy(), {}) as ours,
            ours.transport._links.to(other.peer_id).greeting,
        ):
            stream = await trio.open_tcp_stream(*ours.transport.address)
            tls = await hands(stream, other, federation)
            await send_hello(tls, b"i" * 16)
            assert (await receive_verdict(tls)).answer is answer
            await trio.aclose_forcefully(tls)


async def hands(stream: trio.abc.Stream, identity: Identity, federation: Federation) -> TlsStream:
    context = PeerContexts(identity).context(federation.membership.roots(), server_side=False)
    return await shake_hands(stream, context, PEER_PROTOCOL, server_side=False)


async def test_a_restarted_peer_replaces_its_dead_connection(federation: Federation) -> None:
    book: Book = {}
    identity = Identity.issue(federation.utah, NOW)
    async with (
        peer(Identity.issue(federation.mit, NOW), federation.copy(), book) as mit,
        peer(identity, federation.copy(), book) as first,
        peer(identity, federation.copy(), book) as second,
    ):
        old = await first.transport.connection(mit.id)
        assert "utah.edu" in await ask(await second.transport.connection(mit.id))
        await old.closed.wait()
        assert len(mit.transport.connections()) == 1


async def test_a_second_hello_of_the_same_start_probes_the_standing_connection(
    federation: Federation,
) -> None:
    quick = TransportConfig(keep_alive=KeepAlive(probe_s=0.05))
    other = Identity.issue(federation.utah, NOW)
    async with peer(Identity.issue(federation.mit, NOW), federation.copy(), {}, quick) as mit:
        answers = []
        streams = []
        for _ in range(2):
            stream = await trio.open_tcp_stream(*mit.transport.address)
            tls = await hands(stream, other, federation)
            streams.append(tls)
            await send_hello(tls, b"i" * 16)
            answers.append((await receive_verdict(tls)).answer)
        assert answers == [Answer.ACCEPTED, Answer.DUPLICATE]
        (standing,) = mit.transport.connections()
        await standing.closed.wait()  # the connection never answers the ping
        for stream in streams:
            await trio.aclose_forcefully(stream)


async def test_a_root_admitted_at_run_time_counts(federation: Federation) -> None:
    book: Book = {}
    late = Root.create("late.org", NOW)
    knows = federation.copy()
    knows.admit(federation.mit, late.certificate, NOW)
    async with (
        peer(Identity.issue(late, NOW), knows, book) as newcomer,
        peer(Identity.issue(federation.mit, NOW), federation.copy(), book) as mit,
    ):
        with pytest.raises(UntrustedError, match="refuses our certificate"):
            await newcomer.transport.dial(mit.transport.address)
        mit.membership.merge(knows.statements(), NOW)
        assert "late.org" in await ask(await newcomer.transport.dial(mit.transport.address))


async def refused(federation: Federation, stranger: Identity, membership: Membership) -> None:
    """Check that neither side admits the other, and that the member continues."""
    book: Book = {}
    async with (
        peer(Identity.issue(federation.mit, NOW), federation.copy(), book) as mit,
        peer(stranger, membership, book) as other,
    ):
        with pytest.raises(UntrustedError):
            await mit.transport.connection(stranger.peer_id)
        with pytest.raises(UntrustedError):
            await other.transport.connection(mit.id)
        assert not mit.transport.connections()
        assert not other.transport.connections()
        assert mit.events.recent()


async def test_a_foreign_certificate_is_refused_on_both_sides(federation: Federation) -> None:
    own = Membership.found(federation.evil, NOW)
    own.admit(federation.evil, federation.mit.certificate, NOW)
    await refused(federation, Identity.issue(federation.evil, NOW), own)


async def test_a_self_made_root_of_an_admitted_name_is_refused(federation: Federation) -> None:
    fake = Root.create("utah.edu", NOW)
    own = Membership.found(federation.mit, NOW)
    own.admit(federation.mit, fake.certificate, NOW)
    await refused(federation, Identity.issue(fake, NOW), own)


async def test_an_expired_certificate_is_refused_on_both_sides(federation: Federation) -> None:
    root = Root.create("old.org", NOW - 3 * YEAR)
    federation.membership.admit(federation.mit, root.certificate, NOW)
    await refused(federation, Identity.issue(root, NOW - 3 * YEAR), federation.copy())


async def test_a_revoked_peer_is_refused_on_both_sides(federation: Federation) -> None:
    stranger = Identity.issue(federation.utah, NOW)
    unaware = federation.copy()
    federation.membership.revoke(federation.utah, "utah.edu", stranger.peer_id, now=NOW)
    await refused(federation, stranger, unaware)


async def test_revocation_ends_the_standing_connection(federation: Federation) -> None:
    async with two(federation) as (mit, utah):
        connection = await utah.transport.connection(mit.id)
        mit.membership.revoke(federation.mit, "utah.edu", now=NOW)
        mit.transport.drop_revoked()
        await connection.closed.wait()
        with pytest.raises(UntrustedError, match="refuses"):
            await utah.transport.dial(mit.transport.address)


async def test_a_dial_refuses_another_peer_at_the_address(federation: Federation) -> None:
    async with two(federation) as (mit, utah):
        wanted = Identity.issue(federation.utah, NOW).peer_id
        mit.transport._address_of = lambda _: [utah.transport.address]
        with pytest.raises(UntrustedError, match="answers there, not peer"):
            await mit.transport.connection(wanted)


async def test_a_dial_fails_at_once_until_the_pause_is_over(federation: Federation) -> None:
    dead = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = dead[0].socket.getsockname()[:2]
    await dead[0].aclose()
    book: Book = {}
    config = TransportConfig(backoff_s=1000, max_backoff_s=1000)
    other = Identity.issue(federation.utah, NOW)
    async with peer(Identity.issue(federation.mit, NOW), federation.copy(), book, config) as mit:
        with pytest.raises(UnavailableError, match="no address"):
            await mit.transport.connection(b"?" * 20)
        book[other.peer_id] = [address]
        with pytest.raises(UnavailableError, match=r"127.0.0.1:\d+ cannot be reached"):
            await mit.transport.connection(other.peer_id)
        with pytest.raises(UnavailableError, match=r"next try in \d+"):
            await mit.transport.connection(other.peer_id)
        async with peer(other, federation.copy(), book) as utah:
            await utah.transport.connection(mit.id)  # its dial helps ours
            assert "x" in await ask(await mit.transport.connection(utah.id))


async def test_the_next_address_is_tried(federation: Federation) -> None:
    book: Book = {}
    async with two(federation, book) as (mit, utah):
        book[utah.id] = [("127.0.0.1", 1), mit.transport.address, utah.transport.address]
        assert "x" in await ask(await mit.transport.connection(utah.id))


async def test_a_cut_connection_breaks_its_calls_and_is_dialled_again(
    federation: Federation,
) -> None:
    async with two(federation) as (mit, utah):
        connection = await mit.transport.connection(utah.id)

        async def hang() -> None:
            with pytest.raises(BrokenError):
                await connection.call("hang", Word("x"), Word)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang)
            await ask(connection)
            utah.transport.drop(mit.id)
        await connection.closed.wait()
        assert "x" in await ask(await mit.transport.connection(utah.id))


@pytest.mark.parametrize("noise", [b"", b"\x00" * 1000, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"])
async def test_noise_on_the_port_does_no_harm(federation: Federation, noise: bytes) -> None:
    async with two(federation) as (mit, utah):
        stream = await trio.open_tcp_stream(*mit.transport.address)
        await stream.send_all(noise)
        await stream.send_eof()
        with suppress(trio.BrokenResourceError):
            async for _ in stream:
                pass
        await stream.aclose()
        assert "x" in await ask(await utah.transport.connection(mit.id))


@pytest.mark.parametrize("greeted", [False, True])
async def test_noise_after_tls_does_no_harm(federation: Federation, greeted: bool) -> None:
    async with two(federation) as (mit, utah):
        other = Identity.issue(federation.utah, NOW)
        stream = await trio.open_tcp_stream(*mit.transport.address)
        tls = await hands(stream, other, federation)
        if greeted:
            await send_hello(tls, b"i" * 16)
            assert (await receive_verdict(tls)).answer is Answer.ACCEPTED
        await tls.send_all(b"\xff" * 5000)
        with suppress(trio.BrokenResourceError):
            while await tls.receive_some(1000):
                pass
        await trio.aclose_forcefully(tls)
        assert "x" in await ask(await utah.transport.connection(mit.id))


async def test_a_client_without_certificate_is_refused(federation: Federation) -> None:
    async with two(federation) as (mit, _):
        stream = await trio.open_tcp_stream(*mit.transport.address)
        tls = TlsStream(stream, client_context(federation.mit.certificate), server_side=False)
        await tls.do_handshake()  # in TLS 1.3 the refusal follows the handshake
        with pytest.raises(trio.BrokenResourceError):
            await tls.receive_some(1)
        await trio.aclose_forcefully(stream)


async def test_a_handshake_that_never_comes_is_given_up(federation: Federation) -> None:
    config = TransportConfig(handshake_s=0.05)
    async with peer(Identity.issue(federation.mit, NOW), federation.copy(), {}, config) as mit:
        stream = await trio.open_tcp_stream(*mit.transport.address)
        assert await stream.receive_some(1) == b""
        await stream.aclose()
        silent = await trio.open_tcp_listeners(0, host="127.0.0.1")
        with pytest.raises(UnavailableError, match="did not complete the handshake"):
            await mit.transport.dial(silent[0].socket.getsockname()[:2])
        await silent[0].aclose()


async def test_an_unproven_connection_gives_way_when_there_is_no_room(
    federation: Federation,
) -> None:
    config = TransportConfig(limits=ConnectionLimits(handshakes=3, per_network=3, in_all=3))
    book: Book = {}
    async with (
        peer(Identity.issue(federation.mit, NOW), federation.copy(), book, config) as mit,
        peer(Identity.issue(federation.utah, NOW), federation.copy(), book) as utah,
    ):
        silent = [await trio.open_tcp_stream(*mit.transport.address) for _ in range(10)]
        assert "x" in await ask(await utah.transport.connection(mit.id))
        silent += [await trio.open_tcp_stream(*mit.transport.address) for _ in range(10)]
        assert await silent[9].receive_some(1) == b""
        assert "x" in await ask(await utah.transport.connection(mit.id))
        assert any("too many others" in event.text for event in mit.events.recent())
        for stream in silent:
            await trio.aclose_forcefully(stream)


async def test_connections_are_limited(federation: Federation) -> None:
    book: Book = {}
    told = r"utah\.edu has 1 connections here, all of its share of the (1|768) .* close some"
    for limits in (ConnectionLimits(in_all=1), ConnectionLimits(per_holder=1)):
        config = TransportConfig(limits=limits)
        one, two_ = (Identity.issue(federation.utah, NOW) for _ in range(2))
        async with (
            peer(Identity.issue(federation.mit, NOW), federation.copy(), book, config) as mit,
            peer(one, federation.copy(), book) as first,
            peer(two_, federation.copy(), book) as second,
        ):
            assert "x" in await ask(await first.transport.connection(mit.id))
            with pytest.raises(UnavailableError, match=told):
                await second.transport.connection(mit.id)
            assert any(re.search(told, event.text) for event in mit.events.recent())


async def test_peers_that_come_and_go_are_forgotten(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("medusa.overlay.links.MAX_LINKS", 3)
    async with two(federation) as (mit, utah):
        assert "x" in await ask(await utah.transport.connection(mit.id))
        for number in range(10):
            with pytest.raises(UnavailableError):
                await mit.transport.connection(bytes([number]) * 20)
        assert len(mit.transport._links.all()) <= 3
        assert "x" in await ask(await mit.transport.connection(utah.id))
        assert len(mit.transport.connections()) == 1


async def test_a_port_in_use_is_named(federation: Federation) -> None:
    async with two(federation) as (mit, _):
        identity = Identity.issue(federation.mit, NOW)
        with pytest.raises(ConflictError, match=f"{mit.transport.address[1]}: the port is in use"):
            async with open_transport(
                identity,
                federation.membership,
                Service(),
                mit.transport.address,
                lambda _: [],
                Events(),
            ):
                raise AssertionError

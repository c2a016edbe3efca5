"""The TLS stream: pieces of any size, both ways at once, ends and noise."""

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from medusa.overlay.connection import Connection, running
from medusa.overlay.errors import UnavailableError, UntrustedError
from medusa.overlay.events import Events
from medusa.overlay.identity import Identity, Root
from medusa.overlay.rpc import Caller, Duplex, EndOfCall, Service
from medusa.overlay.tls import (
    CLIENT_PROTOCOL,
    PEER_PROTOCOL,
    client_context,
    failure,
    listener_context,
    shake_hands,
)
from medusa.overlay.tls_stream import PIECE_BYTES, RECORD_BYTES, TlsStream

NOW = time.time()
ROOT = Root.create("mit.edu", NOW)
SERVER = listener_context(Identity.issue(ROOT, NOW))
CLIENT = client_context(ROOT.certificate)


@asynccontextmanager
async def encrypted(
    server: ssl.SSLContext = SERVER, client: ssl.SSLContext = CLIENT
) -> AsyncIterator[tuple[TlsStream, TlsStream]]:
    left, right = trio.testing.memory_stream_pair()
    here = TlsStream(left, client, server_side=False)
    there = TlsStream(right, server, server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.do_handshake)
        nursery.start_soon(there.do_handshake)
    yield here, there


@given(pieces=st.lists(st.integers(0, 70_000), max_size=6), most=st.integers(1, 100_000))
@settings(max_examples=25)
def test_both_ways_at_once_in_pieces_of_any_size(pieces: list[int], most: int) -> None:
    data = b"".join(bytes([n % 251]) * size for n, size in enumerate(pieces))

    async def send(stream: TlsStream) -> None:
        at = 0
        for size in pieces:
            await stream.send_all(data[at : at + size])
            at += size

    async def receive(stream: TlsStream) -> None:
        got = bytearray()
        while len(got) < len(data):
            part = await stream.receive_some(most)
            assert 0 < len(part) <= most
            got += part
        assert got == data

    async def both() -> None:
        async with encrypted() as (here, there), trio.open_nursery() as nursery:
            for stream in (here, there):
                nursery.start_soon(send, stream)
                nursery.start_soon(receive, stream)

    trio.run(both)


async def test_many_records_come_in_one_read() -> None:
    async with encrypted() as (here, there), trio.open_nursery() as nursery:
        nursery.start_soon(here.send_all, bytes(100_000))
        await trio.testing.wait_all_tasks_blocked()
        assert len(await there.receive_some()) == 100_000


async def test_openssl_holds_little_of_a_long_message() -> None:
    """OpenSSL's buffers never shrink, and a peer has many connections."""
    async with encrypted() as (here, there), trio.open_nursery() as nursery:
        nursery.start_soon(here.send_all, bytes(1_000_000))
        await trio.testing.wait_all_tasks_blocked()
        received, fed = 0, 0
        while received < 1_000_000:
            received += len(await there.receive_some(1000))
            fed = max(fed, there._incoming.pending)
    assert fed <= PIECE_BYTES + 2 * RECORD_BYTES


async def test_the_end_of_the_transport_is_the_end() -> None:
    async with encrypted() as (here, there):
        await here.send_all(b"last")
        await here.aclose()
        assert await there.receive_some() == b"last"
        assert await there.receive_some() == b""
        with pytest.raises(trio.BrokenResourceError):
            await there.send_all(b"x")


async def test_noise_breaks_the_stream() -> None:
    async with encrypted() as (here, there):
        await here._transport.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(trio.BrokenResourceError):
            await there.receive_some()


async def test_the_owner_of_a_refused_certificate_receives_the_reason() -> None:
    other = client_context(Root.create("mit.edu", NOW).certificate)
    left, right = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            with pytest.raises(UntrustedError, match="refuses our certificate"):
                await shake_hands(right, SERVER, CLIENT_PROTOCOL, server_side=True)

        nursery.start_soon(serve)
        with pytest.raises(UntrustedError, match="its certificate is refused"):
            await shake_hands(left, other, CLIENT_PROTOCOL, server_side=False)


async def test_another_protocol_is_refused() -> None:
    left, right = trio.testing.memory_stream_pair()
    client = client_context(ROOT.certificate)
    client.set_alpn_protocols(["h2"])
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            with pytest.raises(UnavailableError, match="does not speak medusa-client"):
                await shake_hands(right, SERVER, CLIENT_PROTOCOL, server_side=True)

        nursery.start_soon(serve)
        with pytest.raises(UnavailableError, match="does not speak medusa-peer"):
            await shake_hands(left, client, PEER_PROTOCOL, server_side=False)


def test_a_break_without_tls_reason_is_unavailable() -> None:
    assert type(failure(trio.BrokenResourceError())) is UnavailableError


class Word(Struct):
    text: str


async def test_a_connection_cut_anywhere_is_broken_and_never_the_end_of_a_call() -> None:
    """A man in the middle ends the TCP connection in order, after any number of bytes."""
    total = await _called_through_a_cut(10**9)
    assert total > 2000
    for cut in [*range(0, total - 1, 97), total - 1]:
        assert await _called_through_a_cut(cut) == cut


async def _called_through_a_cut(most: int) -> int:
    """Return the bytes that passed from the answering side. If some bytes are missing, the caller
    has only the first messages, and no end."""
    left, left_far = trio.testing.memory_stream_pair()
    right, right_far = trio.testing.memory_stream_pair()
    service = Service()

    async def three(caller: Caller, request: Word, duplex: Duplex) -> None:
        for text in ("one", "two", "three"):
            await duplex.send(Word(text), bytes(500))

    service.streaming("three", Word, three)
    passed = 0

    async def forward() -> None:
        nonlocal passed
        async for data in right_far:
            part = data[: most - passed]
            passed += len(part)
            await left_far.send_all(part)
            if passed == most:
                await left_far.send_eof()
                return

    async def back() -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in left_far:
                await right_far.send_all(data)

    async def serve() -> None:
        with suppress(UnavailableError):
            tls = await shake_hands(right, SERVER, CLIENT_PROTOCOL, server_side=True)
            await connection(tls, dialled=False).run()

    def connection(tls: TlsStream, *, dialled: bool) -> Connection:
        return Connection(
            tls, Caller("mit.edu", b"p" * 20), dialled=dialled, service=service, events=Events()
        )

    async with trio.open_nursery() as nursery:
        for task in (forward, back, serve):
            nursery.start_soon(task)
        got: list[str] = []
        try:
            tls = await shake_hands(left, CLIENT, CLIENT_PROTOCOL, server_side=False)
            caller = connection(tls, dialled=True)
            async with running(caller), caller.open("three", Word("")) as duplex:
                while True:
                    got.append((await duplex.receive(Word))[0].text)
        except EndOfCall:
            assert got == ["one", "two", "three"]
        except UnavailableError:  # `BrokenError`, or the error of the handshake
            assert most < 10**9
        assert got == ["one", "two", "three"][: len(got)]
        nursery.cancel_scope.cancel()
    return passed


async def test_a_broken_stream_stays_broken() -> None:
    async with encrypted() as (here, there):
        await here.send_all(b"good")
        await here._transport.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert await there.receive_some() == b"good"
        for _ in range(3):
            with pytest.raises(trio.BrokenResourceError):
                await there.receive_some()

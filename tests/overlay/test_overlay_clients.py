"""Clients prove themselves by a token, check the peer's certificate, and may make their calls."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from deadline import DEADLINE_S
from msgspec import Struct
from owner import owner_clients

from medusa.overlay.addresses import Address
from medusa.overlay.client_tokens import proof_of
from medusa.overlay.clients import open_client, open_client_listener
from medusa.overlay.errors import BrokenError, NotAuthorisedError, UnavailableError, UntrustedError
from medusa.overlay.events import Events
from medusa.overlay.greeting import PROTOCOL
from medusa.overlay.identity import Identity, Root
from medusa.overlay.rpc import Caller, Service
from medusa.overlay.tls import CLIENT_PROTOCOL, client_context, shake_hands

NOW = time.time()
LOCAL = ("127.0.0.1", 0)
TOKEN = b"t" * 32


class Word(Struct):
    text: str


@pytest.fixture(scope="module")
def root() -> Root:
    return Root.create("mit.edu", NOW)


@asynccontextmanager
async def listening(
    root: Root, events: Events | None = None, handshake_s: float = 10
) -> AsyncIterator[Address]:
    service = Service()

    async def whoami(caller: Caller, request: Word, body: bytes) -> Word:
        return Word(f"{caller.participant} {caller.peer_id}")

    service.unary("whoami", Word, whoami, clients=True)
    service.unary("internal", Word, whoami)
    identity = Identity.issue(root, NOW)
    async with open_client_listener(
        identity, owner_clients(TOKEN), service, LOCAL, events or Events(), handshake_s=handshake_s
    ) as address:
        yield address


async def test_a_client_with_the_token(root: Root) -> None:
    async with (
        listening(root) as address,
        open_client(address, "mit.edu", root.certificate, TOKEN) as client,
    ):
        assert (await client.call("whoami", Word("x"), Word)).text == "mit.edu None"
        with pytest.raises(NotAuthorisedError, match="not for clients"):
            await client.call("internal", Word("x"), Word)


async def test_a_wrong_token_is_refused(root: Root) -> None:
    async with listening(root) as address:
        for token in (b"", b"t" * 31, b"u" * 32):
            with pytest.raises(NotAuthorisedError, match="wrong token"):
                async with open_client(address, "mit.edu", root.certificate, token):
                    raise AssertionError


async def test_a_client_of_another_protocol_is_refused_with_the_reason(root: Root) -> None:
    events = Events()
    async with listening(root, events) as address:
        stream = await trio.open_tcp_stream(*address)
        tls = await shake_hands(
            stream, client_context(root.certificate), CLIENT_PROTOCOL, server_side=False
        )
        with trio.fail_after(DEADLINE_S):
            await tls.send_all((PROTOCOL + 1).to_bytes(2) + proof_of(TOKEN))
            assert await tls.receive_some(100) == PROTOCOL.to_bytes(2)
            with suppress(trio.BrokenResourceError):
                while await tls.receive_some(100):
                    pass
        await trio.aclose_forcefully(tls)
    assert "this side is too old, and needs a newer Medusa" in events.recent()[0].text


async def test_nothing_is_read_before_the_token(root: Root) -> None:
    async with listening(root) as address:
        stream = await trio.open_tcp_stream(*address)
        tls = await shake_hands(
            stream, client_context(root.certificate), CLIENT_PROTOCOL, server_side=False
        )
        sent = 0
        with suppress(trio.BrokenResourceError), trio.fail_after(DEADLINE_S):
            while sent < 64 * 2**20:  # a large call, from a client without the token
                await tls.send_all(bytes(64 * 2**10))
                sent += 64 * 2**10
        assert sent < 32 * 2**20  # bytes that fit into the kernels' buffers
        await trio.aclose_forcefully(tls)


async def test_a_client_that_never_shows_a_token_is_sent_away(root: Root) -> None:
    events = Events()
    async with listening(root, events, handshake_s=0.2) as address:
        stream = await trio.open_tcp_stream(*address)
        tls = await shake_hands(
            stream, client_context(root.certificate), CLIENT_PROTOCOL, server_side=False
        )
        with suppress(trio.BrokenResourceError):
            while await tls.receive_some(1000):
                pass
        await trio.aclose_forcefully(tls)
        async with open_client(address, "mit.edu", root.certificate, TOKEN) as client:
            closed = trio.move_on_after(0.4)
            with closed:
                await client.closed.wait()
            assert closed.cancelled_caught  # the time limit only applied until the token was shown
    assert "no greeting within 0.2 s" in events.recent()[0].text


async def test_a_client_believes_its_participants_peers_alone(root: Root) -> None:
    async with listening(root) as address:
        fake = Root.create("mit.edu", NOW)
        with pytest.raises(UntrustedError):
            async with open_client(address, "mit.edu", fake.certificate, TOKEN):
                raise AssertionError
        with pytest.raises(UntrustedError, match=r"peer of mit.edu, not utah.edu"):
            async with open_client(address, "utah.edu", root.certificate, TOKEN):
                raise AssertionError
        with pytest.raises(UntrustedError):
            async with open_client(
                address, "mit.edu", root.certificate, TOKEN, clock=lambda: NOW + 20 * 365 * 86400
            ):
                raise AssertionError


async def test_a_client_says_that_the_peer_cannot_be_reached(root: Root) -> None:
    async with listening(root) as address:
        pass
    with pytest.raises(UnavailableError, match="cannot be reached"):
        async with open_client(address, "mit.edu", root.certificate, TOKEN):
            raise AssertionError


@pytest.mark.parametrize("noise", [b"\x00" * 500, b"GET / HTTP/1.1\r\n\r\n"])
async def test_noise_on_the_client_port(root: Root, noise: bytes) -> None:
    async with listening(root) as address:
        stream = await trio.open_tcp_stream(*address)
        await stream.send_all(noise)
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some(1000):
                pass
        await stream.aclose()
        async with open_client(address, "mit.edu", root.certificate, TOKEN) as client:
            assert (await client.call("whoami", Word("x"), Word)).text == "mit.edu None"


async def test_a_listener_that_closes_breaks_its_clients(root: Root) -> None:
    served = trio.CancelScope()

    async def serve(task_status: trio.TaskStatus[Address]) -> None:
        with served:
            async with listening(root) as address:
                task_status.started(address)
                await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve)
        async with open_client(address, "mit.edu", root.certificate, TOKEN) as client:
            served.cancel()
            await client.closed.wait()
            with pytest.raises(BrokenError):
                await client.call("whoami", Word("x"), Word)


async def test_an_error_of_the_block_is_not_wrapped(root: Root) -> None:
    async with listening(root) as address:
        with pytest.raises(KeyError):
            async with open_client(address, "mit.edu", root.certificate, TOKEN):
                raise KeyError

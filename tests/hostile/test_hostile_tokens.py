"""Clients with one token take all that they can get: clients with another token are served
meanwhile, from the same machine, within their usual time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import pytest
import trio
from engine_peers import Cluster, Place, make_stream, received, rows, schema_of, send_rows
from hostile_siege import Siege
from tools_xmlrpc import OpenStock, address_of, settled, token_for, trusting

from medusa.engine.objects.definitions import StreamDefinition
from medusa.engine.streams.messages import Subscribe
from medusa.overlay.client_tokens import Scope
from medusa.overlay.clients import open_client
from medusa.overlay.connection import Connection
from medusa.overlay.errors import BusyError, MedusaError
from medusa.overlay.identity import read_certificate
from medusa.overlay.listening import ConnectionLimits
from medusa.tools.client.async_client import open_medusa
from medusa.tools.home.token_file import TokenFile
from medusa.tools.xmlrpc import listener

USUAL_S: Final = 3.0
"""The seconds that a call of another client may take: a multiple of its duration on a busy
machine."""

ATTEMPTS: Final = ConnectionLimits().per_holder + 20


async def hostile(place: Place) -> tuple[str, str]:
    """Return two tokens of the peer: the token of the attacker, and another one."""
    return token_for(place, Scope.READ), token_for(place, Scope.READ, Scope.POST)


def native(place: Place, token: str) -> AbstractAsyncContextManager[Connection]:
    home = place.home
    return open_client(
        place.up.running.client,
        place.participant,
        read_certificate(home.root_certificate),
        token.encode(),
    )


async def served(place: Place, token: str, stream: str) -> float:
    """Return the seconds in which a client with that token connects, posts a row and reads the
    stream."""
    before = time.monotonic()
    async with open_medusa(place.home.folder, token=token) as client:
        assert await received(client.subscribe(stream), 1) == [(1, 1)]
    return time.monotonic() - before


@pytest.fixture
async def besieged(cluster: Cluster) -> tuple[Place, str]:
    """Give a peer that serves XML-RPC, and a stream with a row."""
    mit = await settled(cluster)
    client = await cluster.client(mit)
    stream = await make_stream(client, mit, "s")
    await send_rows(client, stream, [(1, 1)], boundary=1)
    return mit, stream


async def test_connections_of_one_token(besieged: tuple[Place, str]) -> None:
    mit, stream = besieged
    greedy, other = await hostile(mit)
    refusals: list[str] = []
    async with AsyncExitStack() as opened:
        for _ in range(ATTEMPTS):
            try:
                await opened.enter_async_context(native(mit, greedy))
            except* BusyError as group:
                refusals += map(str, group.exceptions)
        assert len(refusals) == 20
        assert "client token read has 256 connections here, all of its share" in refusals[0]
        assert "close some" in refusals[0]
        assert await served(mit, other, stream) < USUAL_S
    assert await served(mit, greedy, stream) < USUAL_S, "once it has let go"


async def test_calls_of_one_token(besieged: tuple[Place, str]) -> None:
    """The client opens as many subscriptions as the peer accepts, and reads none."""
    mit, stream = besieged
    greedy, other = await hostile(mit)
    async with AsyncExitStack() as opened:
        for _ in range(4):
            connection: Connection = await opened.enter_async_context(native(mit, greedy))
            for _ in range(500):
                await opened.enter_async_context(connection.open("subscribe", Subscribe(stream)))
        assert await served(mit, other, stream) < USUAL_S


async def begin_a_body(place: Place, token: str) -> trio.SSLStream[trio.SocketStream]:
    """Begin a call by XML-RPC whose body never comes."""
    tcp = await trio.open_tcp_stream(*address_of(place))
    tls = trio.SSLStream(tcp, trusting(place), https_compatible=True)
    fields = {
        "Host": "x",
        "Authorization": f"Bearer {token}",
        "Content-Type": "text/xml",
        "Content-Length": "100",
    }
    lines = [f"{name}: {value}" for name, value in fields.items()]
    await tls.send_all("\r\n".join(["POST / HTTP/1.1", *lines, "", ""]).encode())
    return tls


@asynccontextmanager
async def bodies_that_never_come(place: Place, token: str, count: int) -> AsyncIterator[None]:
    streams = [await begin_a_body(place, token) for _ in range(count)]
    try:
        yield
    finally:
        for stream in streams:
            await trio.aclose_forcefully(stream)


async def test_bodies_that_never_come(besieged: tuple[Place, str], stock: OpenStock) -> None:
    mit, stream = besieged
    greedy, other = await hostile(mit)
    client = stock(mit, other)
    async with bodies_that_never_come(mit, greedy, 60):
        for _ in range(3):
            before = time.monotonic()
            found = await client.receive_events(stream)
            assert [event["value"] for event in found["events"]] == [1]
            assert time.monotonic() - before < USUAL_S
        assert await served(mit, other, stream) < USUAL_S


async def test_a_token_that_used_up_its_share_of_bodies_gets_an_error(
    besieged: tuple[Place, str], stock: OpenStock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit, _ = besieged
    greedy, _ = await hostile(mit)
    monkeypatch.setattr(listener, "TURN_S", 0.5)
    async with bodies_that_never_come(mit, greedy, 16):
        number, text = await stock(mit, greedy).refused("lookup_object", mit.name("s"))
        assert number == 10
        assert "client token read has 16 requests under way, all of its share of the 32" in text
        assert "send the bodies" in text


async def test_connections_by_xml_rpc_of_one_token(
    besieged: tuple[Place, str], stock: OpenStock
) -> None:
    mit, stream = besieged
    greedy, other = await hostile(mit)
    limits = listener.CONNECTIONS
    held = [stock(mit, greedy) for _ in range(limits.per_holder)]
    for client in held:
        await client.lookup_object(stream)
    _, text = await stock(mit, greedy).refused("lookup_object", stream)
    assert f"client token read has {limits.per_holder} connections here" in text
    before = time.monotonic()
    await stock(mit, other).lookup_object(stream)
    assert time.monotonic() - before < USUAL_S


async def test_strangers_that_prove_nothing(besieged: tuple[Place, str], stock: OpenStock) -> None:
    """Strangers open more connections than there are places, from the same machine, and never show
    a token."""
    mit, stream = besieged
    _, other = await hostile(mit)
    silent: list[trio.SocketStream] = []
    for address in (mit.up.running.client, address_of(mit)):
        for _ in range(ConnectionLimits().handshakes + 10):
            with suppress(OSError):
                silent.append(await trio.open_tcp_stream(*address))
    before = time.monotonic()
    assert await served(mit, other, stream) < USUAL_S
    await stock(mit, other).lookup_object(stream)
    assert time.monotonic() - before < 2 * USUAL_S
    for each in silent:
        await trio.aclose_forcefully(each)


async def test_posts_of_one_token(siege: Siege, seconds: float) -> None:
    """A script with a token that may post sends all it can over eight connections, with times that
    wait for a boundary: honest posts and deliveries of other clients continue."""
    home, stream = siege.mit.home, "medusa://mit.edu/flooded"
    tokens = TokenFile(home)
    token = tokens.add(f"flood{seconds:g}", frozenset({Scope.POST}), None, time.time()).decode()
    async with open_medusa(home.folder) as owner:
        schema = schema_of("mit.edu").name
        await owner.create_stream(StreamDefinition(stream, schema, slack_us=2**40))
    table = rows([(number, number) for number in range(100_000)])

    async def flood() -> None:
        async with open_medusa(home.folder, token=token) as client:
            while True:
                with suppress(MedusaError):
                    await client.post_event(stream, table)

    async with siege.watched(seconds) as watch, trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(flood)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    print(watch)
    watch.check()

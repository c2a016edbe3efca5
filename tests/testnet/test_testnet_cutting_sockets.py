"""Sockets whose links are cut inside the process: messages wait, are lost, or come later."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import trio

from medusa.testnet.cutting.sockets import CuttableSocket, CuttableSockets, Reach
from medusa.testnet.cutting.switchboard import HOST

A, B = HOST.format(9, 1), HOST.format(9, 2)
UNHEARD_S = 0.05
"""The loopback delivers within microseconds: bytes that have not arrived after this time are
held back."""


@dataclass
class Pair:
    """Two peers: a has dialled b, which has accepted."""

    a_sockets: CuttableSockets
    b_sockets: CuttableSockets
    listener: trio.SocketListener
    a: trio.SocketStream
    b: trio.SocketStream

    def cut(self, *, a_to_b: bool, b_to_a: bool) -> None:
        """Cut the links as the switchboard does."""
        to_b = frozenset([B]) if a_to_b else frozenset()
        from_b = frozenset([B]) if b_to_a else frozenset()
        to_a = frozenset([A]) if b_to_a else frozenset()
        from_a = frozenset([A]) if a_to_b else frozenset()
        self.a_sockets.obey(Reach(from_b, to_b))
        self.b_sockets.obey(Reach(from_a, to_a))

    def heal(self) -> None:
        self.cut(a_to_b=False, b_to_a=False)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    a_sockets, b_sockets = CuttableSockets(A), CuttableSockets(B)
    listening = b_sockets.socket()
    await listening.bind((B, 0))
    listening.listen()
    dialled = a_sockets.socket()
    await dialled.connect(listening.getsockname())
    listener, a = trio.SocketListener(listening), trio.SocketStream(dialled)
    b = await listener.accept()
    async with listener, a, b:
        yield Pair(a_sockets, b_sockets, listener, a, b)


async def silent(stream: trio.SocketStream) -> bool:
    """Whether no bytes arrive."""
    with trio.move_on_after(UNHEARD_S) as waited:
        await stream.receive_some()
    return waited.cancelled_caught


async def receive(stream: trio.SocketStream, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = await stream.receive_some(length - len(data))
        assert piece
        data += piece
    return data


# -- TCP


async def test_both_ends_know_each_other_by_their_ips(pair: Pair) -> None:
    assert pair.b.socket.getpeername()[0] == A
    assert pair.a.socket.getpeername()[0] == B
    await pair.a.send_all(b"there")
    await pair.b.send_all(b"back")
    assert await receive(pair.b, 5) == b"there"
    assert await receive(pair.a, 4) == b"back"


async def test_cut_both_ways_nothing_arrives_until_it_is_healed(pair: Pair) -> None:
    pair.cut(a_to_b=True, b_to_a=True)
    await pair.a.send_all(b"there")  # sending neither waits nor fails
    await pair.b.send_all(b"back")
    assert await silent(pair.a)
    assert await silent(pair.b)
    pair.heal()
    assert await receive(pair.b, 5) == b"there"
    assert await receive(pair.a, 4) == b"back"


async def test_cut_one_way_the_other_flows(pair: Pair) -> None:
    pair.cut(a_to_b=True, b_to_a=False)
    await pair.a.send_all(b"there")
    await pair.b.send_all(b"back")
    assert await receive(pair.a, 4) == b"back"
    assert await silent(pair.b)
    pair.cut(a_to_b=False, b_to_a=True)
    assert await receive(pair.b, 5) == b"there"
    await pair.b.send_all(b"more")
    assert await silent(pair.a)


async def test_a_waiting_receiver_gets_the_bytes_only_after_the_cut(pair: Pair) -> None:
    async with trio.open_nursery() as nursery:
        heard: list[bytes] = []

        async def listen() -> None:
            heard.append(await pair.b.receive_some())

        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        pair.cut(a_to_b=True, b_to_a=False)
        await pair.a.send_all(b"there")
        await trio.testing.wait_all_tasks_blocked(UNHEARD_S)
        assert not heard
        pair.heal()
        await trio.testing.wait_all_tasks_blocked()
        assert heard == [b"there"]


async def test_cuts_again_and_again_lose_and_double_nothing(pair: Pair) -> None:
    chunk, chunks = 2**16, 400
    sent, received = hashlib.sha256(), hashlib.sha256()
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            for number in range(chunks):
                data = number.to_bytes(4, "big") * (chunk // 4)
                sent.update(data)
                await pair.a.send_all(data)

        async def weather() -> None:
            ways = [(True, True), (False, False), (True, False), (False, True)]
            while True:
                for a_to_b, b_to_a in ways:
                    pair.cut(a_to_b=a_to_b, b_to_a=b_to_a)
                    await trio.sleep(0.002)

        nursery.start_soon(send)
        nursery.start_soon(weather)
        left = chunk * chunks
        while left:
            data = await pair.b.receive_some()
            assert data
            received.update(data)
            left -= len(data)
        nursery.cancel_scope.cancel()
    assert received.digest() == sent.digest()


async def test_buffers_are_as_large_as_the_kernels(pair: Pair) -> None:
    pair.cut(a_to_b=True, b_to_a=True)
    data, sent = bytes(2**16), 0
    with trio.move_on_after(1.0) as full:
        while True:
            sent += await pair.a.socket.send(data)
    assert full.cancelled_caught
    pair.heal()
    assert await receive(pair.b, sent) == bytes(sent)


async def test_an_end_that_dies_is_not_noticed(pair: Pair) -> None:
    pair.cut(a_to_b=True, b_to_a=True)
    await pair.a.send_all(b"last words")
    # The kernel resets the connection of a program that dies with unread bytes.
    pair.a.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    await pair.a.aclose()
    assert await silent(pair.b)
    await pair.b.send_all(b"anybody there?")
    await pair.b.send_all(b"anybody?")
    pair.heal()
    assert await receive(pair.b, 10) == b"last words"
    assert await pair.b.receive_some() == b""
    with pytest.raises(trio.BrokenResourceError):
        await pair.b.send_all(b"now")


async def test_an_end_that_closes_is_noticed_after_it(pair: Pair) -> None:
    pair.cut(a_to_b=True, b_to_a=True)
    await pair.a.send_all(b"bye")
    await pair.a.aclose()
    assert await silent(pair.b)
    pair.heal()
    assert await receive(pair.b, 3) == b"bye"
    assert await pair.b.receive_some() == b""


async def test_a_reader_that_waits_for_the_cable_learns_that_its_socket_is_closed(
    pair: Pair,
) -> None:
    async with trio.open_nursery() as nursery:
        pair.cut(a_to_b=True, b_to_a=True)

        async def listen() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await pair.b.receive_some()

        nursery.start_soon(listen)
        await trio.testing.wait_all_tasks_blocked()
        await pair.b.aclose()


# -- dials


@pytest.mark.parametrize(("a_to_b", "b_to_a"), [(True, True), (True, False), (False, True)])
async def test_a_dial_waits_for_both_directions(pair: Pair, a_to_b: bool, b_to_a: bool) -> None:
    async with trio.open_nursery() as nursery:
        pair.cut(a_to_b=a_to_b, b_to_a=b_to_a)
        reached: list[str] = []
        with pair.a_sockets.socket() as dialled:

            async def dial() -> None:
                await dialled.connect(pair.listener.socket.getsockname())
                reached.append(dialled.getpeername()[0])

            nursery.start_soon(dial)
            await trio.testing.wait_all_tasks_blocked(UNHEARD_S)
            assert not reached
            pair.heal()
            async with await pair.listener.accept():
                await trio.testing.wait_all_tasks_blocked()
                assert reached == [B]


async def test_a_dial_to_a_dead_port_says_so_only_over_a_cable(pair: Pair) -> None:
    address = pair.listener.socket.getsockname()
    await pair.listener.aclose()
    pair.cut(a_to_b=True, b_to_a=True)
    with pair.a_sockets.socket() as dialled:
        with trio.move_on_after(UNHEARD_S) as waited:
            await dialled.connect(address)
        assert waited.cancelled_caught
    pair.heal()
    with pair.a_sockets.socket() as dialled, pytest.raises(ConnectionRefusedError):
        await dialled.connect(address)


async def test_clients_are_never_cut_off(pair: Pair) -> None:
    pair.cut(a_to_b=True, b_to_a=True)
    with pair.b_sockets.socket() as listening, trio.socket.socket() as dialled:
        await listening.bind(("127.0.0.1", 0))
        listening.listen()
        await dialled.connect(listening.getsockname())
        async with await trio.SocketListener(listening).accept() as accepted:
            await dialled.send(b"status?")
            assert await accepted.receive_some() == b"status?"


# -- UDP


async def test_datagrams_are_lost_in_the_direction_that_is_cut(pair: Pair) -> None:
    kind = (socket.AF_INET, socket.SOCK_DGRAM)
    with pair.a_sockets.socket(*kind) as a, pair.b_sockets.socket(*kind) as b:
        await a.bind((A, 0))
        await b.bind((B, 0))
        pair.cut(a_to_b=True, b_to_a=False)
        assert await a.sendto(b"lost", b.getsockname()) == 4
        await b.sendto(b"back", a.getsockname())
        assert await a.recvfrom(100) == (b"back", b.getsockname())
        pair.heal()
        await a.sendto(b"there", b.getsockname())
        assert await b.recvfrom(100) == (b"there", a.getsockname())


# -- behaviour of trio's own sockets


async def test_other_sockets_are_trios_own() -> None:
    with CuttableSockets(A).socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        assert not isinstance(other, CuttableSocket)


async def test_trio_listens_and_dials_with_cuttable_sockets() -> None:
    trio.socket.set_custom_socket_factory(CuttableSockets(A))
    (listener,) = await trio.open_tcp_listeners(0, host=A)
    async with listener:
        stream = await trio.open_tcp_stream(*listener.socket.getsockname())
        async with stream, await listener.accept() as accepted:
            await stream.send_all(b"x")
            await stream.send_eof()
            await stream.wait_send_all_might_not_block()
            assert await receive(accepted, 1) == b"x"
            assert await accepted.receive_some() == b""

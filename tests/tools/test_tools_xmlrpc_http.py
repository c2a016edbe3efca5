"""Senders without a token at the port for XML-RPC: whatever they send ends only their own
connection."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any
from xmlrpc.client import dumps, loads

import pytest
import trio
from deadline import DEADLINE_S
from engine_peers import Cluster, Place
from hypothesis import given
from hypothesis import strategies as st
from tools_xmlrpc import OpenStock, address_of, bearer, posted, settled, trusting

from medusa.overlay.errors import MedusaError
from medusa.tools.xmlrpc import listener
from medusa.tools.xmlrpc.http import MAX_HEAD_BYTES, HttpError, HttpServer
from medusa.tools.xmlrpc.listener import MAX_BODY_BYTES, open_xmlrpc_listener

NONE_SUCH = dumps(("medusa://mit.edu/none",), "lookup_object").encode()


@contextmanager
def connected(place: Place) -> Iterator[ssl.SSLSocket]:
    plain = socket.create_connection(address_of(place), timeout=DEADLINE_S)
    with plain, trusting(place).wrap_socket(plain) as encrypted:
        yield encrypted


def talk(place: Place, *pieces: bytes) -> bytes:
    """Return all that the peer answers until it ends the connection."""
    with connected(place) as stream:
        for piece in pieces:
            stream.sendall(piece)
        told = b""
        while data := stream.recv(65_536):
            told += data
        return told


async def answers(stock: OpenStock, place: Place) -> None:
    """Check that the peer still answers other clients."""
    number, _ = await stock(place).refused("lookup_object", "medusa://mit.edu/none")
    assert number == 7


def head(place: Place, **headers: str) -> bytes:
    token = bearer(place)["Authorization"]
    fields = {"Host": "x", "Authorization": token, "Content-Type": "text/xml", **headers}
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join(["POST / HTTP/1.1", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("headers", "path", "status", "reason"),
    [
        ({}, "/none", 404, "/RPC2"),
        ({"Content-Type": "text/plain"}, "/", 415, "text/xml"),
        ({"Content-Type": ""}, "/", 415, "text/xml"),
        ({"Content-Encoding": "gzip"}, "/", 415, "uncompressed"),
        ({"Content-Length": str(MAX_BODY_BYTES + 1)}, "/", 413, str(MAX_BODY_BYTES)),
    ],
)
async def test_invalid_calls_of_xml_rpc_are_refused(  # noqa: PLR0917 - fixtures
    stock: OpenStock, cluster: Cluster, headers: dict[str, str], path: str, status: int, reason: str
) -> None:
    mit = await settled(cluster)
    body = b"x" * (MAX_BODY_BYTES + 1) if "Content-Length" in headers else NONE_SUCH
    sent = {**bearer(mit), **headers}
    answer = await trio.to_thread.run_sync(posted, mit, body, sent, path)
    assert answer[0] == status
    assert reason in answer[1].decode()
    await answers(stock, mit)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({}, "no token"),
        ({"Authorization": "Basic !!"}, "no token"),
        ({"Authorization": "Basic w6k="}, "no token"),
        ({"Authorization": "Digest x"}, "no token"),
        ({"Authorization": "Bearer nonsense"}, "wrong token"),
        ({"Authorization": "Bearer medusa-client1-xxxx"}, "client token"),
    ],
)
async def test_without_a_token_there_is_a_fault_and_nothing_else(
    stock: OpenStock, cluster: Cluster, said: dict[str, str], reason: str
) -> None:
    mit = await settled(cluster)
    headers = {"Content-Type": "text/xml", **said}
    status, body = await trio.to_thread.run_sync(posted, mit, b"<a>", headers)
    assert status == 200
    with pytest.raises(Exception, match=reason) as raised:
        loads(body)
    assert raised.value.faultCode == 4  # type: ignore[attr-defined]
    await answers(stock, mit)


async def test_pieces_in_any_size_and_calls_one_after_the_other(cluster: Cluster) -> None:
    mit = await settled(cluster)
    request = head(mit, Content_Length=str(len(NONE_SUCH))) + NONE_SUCH
    last = head(mit, Content_Length=str(len(NONE_SUCH)), Connection="close") + NONE_SUCH
    single = [request[at : at + 1] for at in range(len(request))]
    told = await trio.to_thread.run_sync(partial(talk, mit, *single, request + last))
    assert told.count(b"HTTP/1.1 200") == 3
    assert told.count(b"<int>7</int>") == 3


async def test_a_body_in_chunks_after_continue(cluster: Cluster) -> None:
    mit = await settled(cluster)
    start = head(mit, Transfer_Encoding="chunked", Expect="100-continue", Connection="close")
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(NONE_SUCH), NONE_SUCH)

    def wait_for_leave() -> bytes:
        with connected(mit) as stream:
            stream.sendall(start)
            assert stream.recv(1024).startswith(b"HTTP/1.1 100")
            stream.sendall(body)
            return stream.recv(4096)

    assert b"<int>7</int>" in await trio.to_thread.run_sync(wait_for_leave)


async def test_another_token_needs_another_connection(cluster: Cluster) -> None:
    mit = await settled(cluster)
    good = head(mit, Content_Length=str(len(NONE_SUCH))) + NONE_SUCH
    other = good.replace(b"Bearer ", b"Bearer x")
    told = await trio.to_thread.run_sync(talk, mit, good, other)
    assert told.count(b"<int>7</int>") == 1
    assert told.count(b"<int>4</int>") == 1


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01 hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * MAX_HEAD_BYTES,
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    ],
)
async def test_nonsense_is_answered_with_a_status(
    stock: OpenStock, cluster: Cluster, nonsense: bytes
) -> None:
    mit = await settled(cluster)
    told = await trio.to_thread.run_sync(talk, mit, nonsense)
    assert told.startswith(b"HTTP/1.1 4"), told
    await answers(stock, mit)


async def test_a_client_that_is_silent_or_slow_is_sent_away(
    stock: OpenStock, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = partial(open_xmlrpc_listener, handshake_s=0.3, idle_s=0.3)
    monkeypatch.setattr(listener, "open_xmlrpc_listener", quick)
    monkeypatch.setattr(listener, "BODY_S", 0.3)
    mit = await settled(cluster)
    assert await trio.to_thread.run_sync(talk, mit) == b""
    assert await trio.to_thread.run_sync(talk, mit, b"POST / HT") == b""
    idle = head(mit, Content_Length=str(len(NONE_SUCH))) + NONE_SUCH
    assert (await trio.to_thread.run_sync(talk, mit, idle)).count(b"HTTP/1.1") == 1
    half = head(mit, Content_Length=str(len(NONE_SUCH))) + NONE_SUCH[:9]
    assert (await trio.to_thread.run_sync(talk, mit, half)).startswith(b"HTTP/1.1 408")
    await answers(stock, mit)


async def test_a_stranger_without_tls_holds_nothing_up(stock: OpenStock, cluster: Cluster) -> None:
    mit = await settled(cluster)

    def plain() -> bytes:
        with socket.create_connection(address_of(mit), timeout=DEADLINE_S) as stream:
            stream.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
            return stream.recv(1024)

    assert b"HTTP" not in await trio.to_thread.run_sync(plain)
    await answers(stock, mit)


async def test_a_fault_of_ours_is_a_fault_with_an_id(
    stock: OpenStock, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    mit = await settled(cluster)

    def broken(*_: Any) -> bytes:
        raise ZeroDivisionError

    client = stock(mit)
    monkeypatch.setattr(listener, "read_call", broken)
    number, text = await client.refused("lookup_object", "medusa://mit.edu/none")
    assert (number, "failed inside the peer" in text) == (20, True)
    monkeypatch.undo()
    await answers(stock, mit)


@given(st.lists(st.binary(max_size=64), max_size=8), st.booleans())
def test_no_bytes_raise_anything_but_an_error_of_http(pieces: list[bytes], honest: bool) -> None:
    begin = [b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"] if honest else []

    class Pieces(trio.abc.Stream):
        """Sends those bytes, and then ends."""

        def __init__(self) -> None:
            self.left = [*begin, *(piece for piece in pieces if piece)]

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            return self.left.pop(0) if self.left else b""

        async def send_all(self, data: Any) -> None: ...

        async def wait_send_all_might_not_block(self) -> None: ...

        async def aclose(self) -> None: ...

    async def serve() -> None:
        http = HttpServer(Pieces())
        try:
            while await http.head() is not None:
                await http.body(16)
                if not await http.answer(HTTPStatus.OK, "text/xml", b"x"):
                    return
        except HttpError as error:
            await http.refuse(error)
        except MedusaError:
            return

    trio.run(serve)

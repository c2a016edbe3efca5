"""Sinks: the peer calls an XML-RPC server of the standard library with each batch of events."""

from __future__ import annotations

import datetime
import hashlib
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault
from xmlrpc.server import SimpleXMLRPCServer

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from engine_peers import Cluster, make_stream, rows, send_rows, until
from tools_xmlrpc import OpenStock, native_and_stock, settled

from medusa.overlay.client_tokens import EVERY_SCOPE
from medusa.overlay.errors import InvalidInputError, NotAuthorisedError
from medusa.tools.home.config import XmlRpcConfig
from medusa.tools.home.token_file import TokenFile
from medusa.tools.xmlrpc.listener import open_xmlrpc_listener
from medusa.tools.xmlrpc.sinks import MAX_SINKS, Sink, check_place

HERE = ("127.0.0.1", 0)


class Listening:
    """A client's sink, with the events that it received."""

    def __init__(self, server: SimpleXMLRPCServer) -> None:
        self.batches: list[dict[str, Any]] = []
        self.faults = 0
        self.calls = 0
        host, port = server.socket.getsockname()[:2]
        self.address = f"{host}:{port}"

    def take(self, batch: dict[str, Any]) -> bool:
        self.calls += 1
        if self.calls <= self.faults:
            raise Fault(7, "not yet")
        self.batches.append(batch)
        return True

    @property
    def values(self) -> list[int]:
        return [event["value"] for batch in self.batches for event in batch["events"]]

    @property
    def in_one_piece(self) -> bool:
        """Whether each batch begins where the batch before ended."""
        pairs = zip(self.batches, self.batches[1:], strict=False)
        return all(before["upto"] == batch["after"] for before, batch in pairs)


@contextmanager
def listening(
    name: str = "sink", context: ssl.SSLContext | None = None, faults: int = 0
) -> Iterator[Listening]:
    with SimpleXMLRPCServer(HERE, logRequests=False, use_builtin_types=True) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        sink = Listening(server)
        sink.faults = faults
        server.register_function(sink.take, f"{name}.receive_events")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()


async def test_a_sink_gets_all_tuples_in_order_once(stock: OpenStock, cluster: Cluster) -> None:
    native, client, stream = await native_and_stock(cluster, stock)
    await send_rows(native, stream, [(1, 1), (2, 2)], boundary=2)
    with listening("MyTCPSink") as sink:
        added = await client.subscribe(stream, "tcp", sink.address, "MyTCPSink", "ADD")
        assert added == {"sinks": 1}
        await until(lambda: sink.values == [1, 2])
        for value in range(3, 50):
            await native.post_event(stream, rows([(value, value)]), boundary=value)
        await until(lambda: sink.values == list(range(1, 50)))
        assert sink.in_one_piece
        removed = await client.subscribe(stream, "tcp", sink.address, "MyTCPSink", "REMOVE")
        assert removed == {"sinks": 0}
        await send_rows(native, stream, [(60, 60)], boundary=61)
        with listening() as other:
            late = {"after": "49"}
            await client.subscribe(stream, "tcp", other.address, "sink", "ADD", late)
            await until(lambda: other.values == [60])
        assert sink.values == list(range(1, 50))


async def test_a_sink_that_fails_gets_the_same_batch_again(
    stock: OpenStock, cluster: Cluster
) -> None:
    native, client, stream = await native_and_stock(cluster, stock)
    with listening(faults=2) as sink:
        await client.subscribe(stream, "tcp", sink.address, "sink")
        await native.post_event(stream, rows([(1, 1)]), end=True)
        await until(lambda: sink.values == [1])
        assert sink.calls == 3 + len(sink.batches) - 1


async def test_a_sink_is_served_as_long_as_its_token_counts(
    stock: OpenStock, cluster: Cluster
) -> None:
    mit = await settled(cluster)
    native = await cluster.client(mit)
    stream = await make_stream(native, mit, "s")
    file = TokenFile(mit.home)
    token = file.add("ci", EVERY_SCOPE, None, time.time()).decode()
    events = mit.up.engine.overlay.events
    with listening() as sink:
        await stock(mit, token).subscribe(stream, "tcp", sink.address, "sink")
        await native.post_event(stream, rows([(1, 1)]), boundary=1)
        await until(lambda: sink.values == [1])
        file.revoke("ci", time.time())
        await until(
            lambda: any("serves sink sink at" in event.text for event in events.recent()),
            "it is served no longer",
        )
        await send_rows(native, stream, [(2, 2)], boundary=2)
        with listening() as other:
            await stock(mit).subscribe(stream, "tcp", other.address, "sink")
            await until(lambda: other.values == [1, 2])
        assert sink.values == [1]


async def test_a_token_has_so_many_sinks(stock: OpenStock, cluster: Cluster) -> None:
    _native, client, stream = await native_and_stock(cluster, stock)
    with listening() as sink:
        for number in range(MAX_SINKS):
            await client.subscribe(stream, "tcp", sink.address, f"sink{number}")
        number, text = await client.refused("subscribe", stream, "tcp", sink.address, "more")
        assert (number, "remove one" in text) == (10, True)
        again = await client.subscribe(stream, "tcp", sink.address, "sink0")
        assert again == {"sinks": MAX_SINKS}
        number, _ = await client.refused("subscribe", stream, "tcp", sink.address, "x", "REMOVE")
        assert number == 7


async def test_no_sink_elsewhere(stock: OpenStock, cluster: Cluster) -> None:
    _native, client, stream = await native_and_stock(cluster, stock)
    for place in ("127.0.0.2:80", "169.254.169.254:80", "[::1]:80"):
        number, text = await client.refused("subscribe", stream, "tcp", place, "sink")
        assert (number, "xmlrpc.sinks" in text) == (4, True)
    for place in ("localhost:80", "0.0.0.0:80", "224.0.0.1:80", "255.255.255.255:80"):
        number, text = await client.refused("subscribe", stream, "tcp", place, "sink")
        assert (number, "IP of one machine" in text) == (2, True)


@pytest.mark.parametrize(
    ("protocol", "place", "came_from", "sinks", "allowed"),
    [
        ("tcp", "127.0.0.1:9", "127.0.0.1", (), True),
        ("tls", "127.0.0.1:9", "127.0.0.1", (), True),
        ("tcp", "10.1.2.3:9", "10.1.2.3", (), False),
        ("tls", "10.1.2.3:9", "10.1.2.3", (), True),
        ("tls", "10.1.2.4:9", "10.1.2.3", (), False),
        ("tls", "10.1.2.4:9", "10.1.2.3", ("10.1.0.0/16",), True),
        ("tcp", "10.1.2.4:9", "192.0.2.1", ("10.1.0.0/16",), True),
        ("tcp", "10.2.2.4:9", "10.1.2.3", ("10.1.0.0/16",), False),
        ("tls", "[2001:db8::1]:9", "2001:db8::1", (), True),
        ("tls", "[2001:db8::2]:9", "2001:db8::1", (), False),
        ("tcp", "[::1]:9", "::1", (), True),
        ("tcp", "127.0.0.1:9", "::ffff:127.0.0.1", (), True),
    ],
)
def test_where_a_sink_may_be(
    protocol: str, place: str, came_from: str, sinks: tuple[str, ...], allowed: bool
) -> None:
    sink = Sink.of("medusa://mit.edu/s", protocol, place, "sink")
    networks = XmlRpcConfig(sinks=sinks).networks()
    if allowed:
        check_place(sink, came_from, networks)
    else:
        with pytest.raises(NotAuthorisedError, match=r"xmlrpc\.sinks"):
            check_place(sink, came_from, networks)


@pytest.mark.parametrize("name", ["", "a b", "a\n", "ü", "x" * 65, "<x>"])
def test_invalid_names_of_sinks_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="sink"):
        Sink.of("medusa://mit.edu/s", "tcp", "127.0.0.1:9", name)


def certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return a self-signed certificate, as a server's context, and its hash."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sink")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "sink.pem").write_bytes(secret + made.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "sink.pem")
    return context, hashlib.sha256(made.public_bytes(Encoding.DER)).hexdigest()


async def test_a_sink_with_tls_is_known_by_its_certificate(
    stock: OpenStock, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(open_xmlrpc_listener, sink_patience_s=0.1)
    monkeypatch.setattr("medusa.tools.xmlrpc.listener.open_xmlrpc_listener", impatient)
    mit = await settled(cluster)
    native, client = await cluster.client(mit), stock(mit)
    stream = await make_stream(native, mit, "s")
    await send_rows(native, stream, [(1, 1)], boundary=1)
    events = mit.up.engine.overlay.events
    context, right = await trio.to_thread.run_sync(certificate, tmp_path)
    with listening(context=context) as sink:
        for wrong in ({}, {"certificate": "ab"}):
            arguments = (stream, "tls", sink.address, "sink", "ADD", wrong)
            number, text = await client.refused("subscribe", *arguments)
            assert (number, "SHA-256" in text) == (2, True)
        wrong = {"certificate": "0" * 64}
        await client.subscribe(stream, "tls", sink.address, "sink", "ADD", wrong)
        shown = f"shows certificate {right}, not 0000"
        await until(lambda: any(shown in event.text for event in events.recent()), "is given up")
        assert sink.calls == 0
        await client.subscribe(stream, "tls", sink.address, "sink", "ADD", {"certificate": right})
        await until(lambda: sink.values == [1])

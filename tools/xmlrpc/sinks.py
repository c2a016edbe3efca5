"""Sinks: XML-RPC servers of clients, as in the first paper, which the peer calls with each batch of
events.

A sink is an XML-RPC server of the client. It lies at the address from which the client subscribed,
so that no client can make a peer connect elsewhere; the peer's operator may allow more.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final
from xmlrpc.client import Fault

import trio
from msgspec import Struct

from medusa.engine.objects.schema import END
from medusa.engine.streams.log.recent import Epoch
from medusa.overlay.addresses import Address, check_address, is_one_machine, shown
from medusa.overlay.errors import (
    BusyError,
    DecodeError,
    InvalidInputError,
    MedusaError,
    NotAuthorisedError,
    NotFoundError,
    UnavailableError,
)
from medusa.overlay.events import Events
from medusa.overlay.listening import dial_tcp
from medusa.overlay.rpc import holder_with
from medusa.overlay.threads import Threads
from medusa.overlay.tls_stream import TlsStream
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.client.link import Patience
from medusa.tools.home.addresses import parse_address
from medusa.tools.home.config import Network
from medusa.tools.xmlrpc.events import batches
from medusa.tools.xmlrpc.http import post
from medusa.tools.xmlrpc.values import Value, read_answer, write_call

MAX_SINKS: Final = 16
"""Sinks of one token: each holds a batch of events until it has answered."""

MAX_ALL_SINKS: Final = 64
"""Sinks of one peer: each holds a batch of events until it has answered."""

MAX_SINK_NAME: Final = 64
"""Characters of a sink's name, which is part of a method's name."""

MAX_SINK_ANSWER: Final = 64 * 2**10
"""Bytes of a sink's answer, of which only the faults are read."""

NOTIFY_S: Final = 30.0
"""Seconds for one call of a sink, which may be a slow program."""

PULL_S: Final = 30.0
"""Seconds that a sink's peer waits for tuples at a time."""

PATH: Final = "/RPC2"
"""The usual path of XML-RPC servers, Python's included."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]+")
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class Operation(StrEnum):
    """The last argument of the paper's `subscribe`."""

    ADD = "ADD"
    REMOVE = "REMOVE"


class SinkOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The last argument of `subscribe`.

    Attributes:
        after: the boundary that the client has; by default the one before every tuple.
        certificate: for a sink with TLS: the SHA-256 of its certificate, hex.
    """

    after: Any = None
    certificate: str = ""


@dataclass(frozen=True)
class Subscriber:
    """A client that subscribes sinks.

    Attributes:
        token: the name of its token. host: the IP from which it called.
        client: opens a client inside the peer, with its token.
    """

    token: str
    host: str
    client: Callable[[], AbstractAsyncContextManager[AsyncMedusaClient]]

    @property
    def holder(self) -> str:
        """The holder whose share of the peer the request takes: that of its token."""
        return holder_with(self.token)


@dataclass(frozen=True)
class Sink:
    """The stream that a subscription names, and the client's object that gets its events.
    Attributes: encrypted: whether by TLS.
    """

    stream: str
    encrypted: bool
    address: Address
    name: str

    @staticmethod
    def of(stream: str, protocol: str, address: str, name: str) -> Sink:
        """
        Raises:
            InvalidInputError: an argument names no sink.
        """
        if protocol not in {"tcp", "tls"}:
            raise InvalidInputError(f'protocol {protocol[:40]!a}: expected "tcp" or "tls"')
        if len(name) > MAX_SINK_NAME or _NAME.fullmatch(name) is None:
            raise InvalidInputError(
                f"sink {name[:MAX_SINK_NAME]!a}: 1 to {MAX_SINK_NAME} letters, digits and _.:/-"
            )
        where = check_address(parse_address(address))
        if not is_one_machine(where[0]):
            raise InvalidInputError(f"sink at {shown(where)}: write the IP of one machine")
        return Sink(stream, protocol == "tls", where, name)

    def __str__(self) -> str:
        return f"sink {self.name} at {shown(self.address)}"


@dataclass(frozen=True, eq=False)
class Sinks:
    """The sinks of one peer's clients. A sink lasts as long as the peer runs and its token counts.
    Attributes: networks: where sinks may be, even in clear, besides the client's own host.
    patience_s: how long a sink may be away.
    """

    nursery: trio.Nursery
    networks: Sequence[Network]
    threads: Threads
    events: Events
    patience_s: float

    def __post_init__(self) -> None:
        self._served: dict[tuple[str, Sink], trio.CancelScope]
        object.__setattr__(self, "_served", {})

    def count(self, subscriber: Subscriber) -> int:
        """How many sinks there are with the subscriber's token."""
        return sum(token == subscriber.token for token, _ in self._served)

    def add(self, subscriber: Subscriber, sink: Sink, after: int, certificate: str) -> None:
        """Send the sink all tuples after a boundary. A sink that exists begins anew. Raises:
        NotAuthorisedError: no sink may be at that address. InvalidInputError: the hash is
        malformed, or missing. BusyError: the token has as many sinks as it may.
        """
        check_place(sink, subscriber.host, self.networks)
        if sink.encrypted and _HASH.fullmatch(certificate) is None:
            raise InvalidInputError(
                f'{sink}: a "tls" sink needs the option certificate: the SHA-256 of its '
                "certificate (DER), 64 digits of hex"
            )
        key = (subscriber.token, sink)
        if (before := self._served.pop(key, None)) is not None:
            before.cancel()
        elif self.count(subscriber) >= MAX_SINKS:
            raise BusyError(f"client token {subscriber.token!a} has {MAX_SINKS} sinks: remove one")
        elif len(self._served) >= MAX_ALL_SINKS:
            raise BusyError(f"this peer has {MAX_ALL_SINKS} sinks: pull with receive_events")
        self._served[key] = scope = trio.CancelScope()
        self.nursery.start_soon(self._serve, subscriber, sink, after, certificate, scope)

    def remove(self, subscriber: Subscriber, sink: Sink) -> None:
        """
        Raises:
            NotFoundError: there is no such sink.
        """
        scope = self._served.pop((subscriber.token, sink), None)
        if scope is None:
            raise NotFoundError(f"{sink} has no subscription to {sink.stream}")
        scope.cancel()

    async def _serve(
        self,
        subscriber: Subscriber,
        sink: Sink,
        after: int,
        certificate: str,
        scope: trio.CancelScope,
    ) -> None:
        key = (subscriber.token, sink)
        with scope:
            try:
                await self._send_on(subscriber, sink, after, certificate)
                self.events.note(
                    "info", f"ended {sink}: it has all of {sink.stream}, which has ended"
                )
            except MedusaError as error:
                self.events.note("warning", f"serves {sink} no longer: {sink.stream}: {error}")
            except Exception as error:  # noqa: BLE001 - one sink ends, and no other
                self.events.fault(f"failed to serve {sink}", error)
        if self._served.get(key) is scope:
            del self._served[key]

    async def _send_on(
        self, subscriber: Subscriber, sink: Sink, after: int, certificate: str
    ) -> None:
        """Pull tuples, and send them to the sink, so that the peer holds one answer for it, not a
        whole epoch."""
        patience = Patience(self.patience_s)
        async with subscriber.client() as client:
            while after < END:
                try:
                    epoch = await client.receive_events(sink.stream, after, PULL_S)
                except MedusaError as error:
                    await patience.bear(error)
                    continue
                patience.progress()
                if epoch is not None:
                    await self._notify_all(sink, certificate, epoch)
                    after = epoch.upto

    async def _notify_all(self, sink: Sink, certificate: str, epoch: Epoch) -> None:
        made = batches(sink.stream, epoch)
        while body := await self.threads.run(str(sink), partial(_next_call, sink, made)):
            await self._notify(sink, certificate, body)

    async def _notify(self, sink: Sink, certificate: str, body: bytes) -> None:
        patience = Patience(self.patience_s)
        while True:
            try:
                with trio.fail_after(NOTIFY_S):
                    async with _connected(sink, certificate) as stream:
                        read_answer(await post(stream, sink.address, PATH, body, MAX_SINK_ANSWER))
                    return
            except trio.TooSlowError:
                await patience.bear(UnavailableError(f"{sink}: no answer within {NOTIFY_S:g} s"))
            except Fault as fault:
                text = f"{sink} answers with fault {fault.faultCode}: {fault.faultString[:200]}"
                await patience.bear(UnavailableError(text))
            except DecodeError as error:
                await patience.bear(UnavailableError(f"{sink}: {error}"))
            except UnavailableError as error:
                await patience.bear(error)


def check_place(sink: Sink, came_from: str, networks: Sequence[Network]) -> None:
    """Check that a client at `came_from` may have a sink there.

    Raises:
        NotAuthorisedError: it may not.
    """
    place, own = (_plain(host) for host in (sink.address[0], came_from))
    if any(place in network for network in networks):
        return
    if place != own:
        raise NotAuthorisedError(
            f"{sink}: a sink is at the address that its client calls from, {own}; who runs the "
            "peer can allow other networks (xmlrpc.sinks in medusa.toml), or pull with "
            "receive_events"
        )
    if not sink.encrypted and not place.is_loopback:
        raise NotAuthorisedError(
            f'{sink}: tuples do not leave this machine in clear: use "tls" with the option '
            "certificate, or have who runs the peer add the network to xmlrpc.sinks"
        )


def _plain(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else ipaddress.IPv4Address(mapped)


def _next_call(sink: Sink, made: Iterator[dict[str, Value]]) -> bytes:
    """The call for the next batch; b"": there is none."""
    batch = next(made, None)
    return b"" if batch is None else write_call(f"{sink.name}.receive_events", batch)


@asynccontextmanager
async def _connected(sink: Sink, certificate: str) -> AsyncIterator[trio.abc.Stream]:
    """A connection to the sink, closed at the end of the block.

    Raises:
        UnavailableError: nobody answers there, or it shows another certificate.
    """
    stream = await dial_tcp(sink.address)
    try:
        yield await _encrypted(sink, stream, certificate) if sink.encrypted else stream
    finally:
        await trio.aclose_forcefully(stream)


async def _encrypted(sink: Sink, stream: trio.SocketStream, certificate: str) -> TlsStream:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the subscriber has named the certificate
    tls = TlsStream(stream, context, server_side=False)
    try:
        await tls.do_handshake()
    except trio.BrokenResourceError:
        raise UnavailableError(f"{sink}: the TLS handshake failed") from None
    shows = hashlib.sha256(tls.certificate).hexdigest()
    if not hmac.compare_digest(shows, certificate):
        raise UnavailableError(f"{sink} shows certificate {shows}, not {certificate}")
    return tls

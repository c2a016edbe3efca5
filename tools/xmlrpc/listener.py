"""The listener for clients that speak XML-RPC: HTTP over TLS, and the tokens of all clients."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final

import trio

from medusa.overlay.addresses import Address
from medusa.overlay.client_tokens import proof_of
from medusa.overlay.clients import Clients, open_admitted_client
from medusa.overlay.errors import (
    BrokenError,
    BusyError,
    InternalError,
    MedusaError,
    NotAuthorisedError,
)
from medusa.overlay.events import Events
from medusa.overlay.identity import Identity
from medusa.overlay.listeners import Listeners
from medusa.overlay.listening import (
    HANDSHAKE_S,
    Admit,
    ConnectionLimits,
    Listening,
    bound_address,
    listen_tcp,
)
from medusa.overlay.memory import Memory
from medusa.overlay.places import Places
from medusa.overlay.rpc import Service, holder_with
from medusa.overlay.threads import Threads
from medusa.overlay.tls import HTTP_PROTOCOL, listener_context, shake_hands, show
from medusa.tools.client.async_client import AsyncMedusaClient
from medusa.tools.client.link import open_background, open_link
from medusa.tools.home.config import XmlRpcConfig
from medusa.tools.home.token_text import PREFIX, parse_token
from medusa.tools.xmlrpc.calls import Calls, Made
from medusa.tools.xmlrpc.faults import number_of
from medusa.tools.xmlrpc.http import XML, Head, HttpError, HttpServer
from medusa.tools.xmlrpc.posting import Posting
from medusa.tools.xmlrpc.sinks import Sinks, Subscriber
from medusa.tools.xmlrpc.values import Call, read_call, write_answer, write_fault

MAX_BODY_BYTES: Final = 2 * 2**20
"""Bytes of a request: a document of 1 MiB whose every other character needs an escape."""

BODY_S: Final = 30.0
"""Seconds for the body of a request: some slow round trips."""

TURN_S: Final = 30.0
"""Seconds that a request may wait for those of the same token: as long as a body may take."""

SEND_S: Final = 60.0
"""Seconds for an answer, with the wait for its turn: many events to a slow client."""

IDLE_S: Final = 120.0
"""Seconds between two requests over one connection: longer than any pull waits."""

BODIES_AT_ONCE: Final = 32
"""Requests and answers under way. Each token may have as many as are free; further ones wait for
their turn."""

CONNECTIONS: Final = ConnectionLimits(handshakes=64, per_network=32, per_holder=96, in_all=192)
"""The most connections, fewer than for clients of the peer's own protocol: an answer that waits for
its turn is held as tuples, and takes up to 8 MiB."""

PATIENCE_S: Final = 20.0
"""Seconds for which a stream's leader, or a query's peer, may be away during one call."""

SINK_PATIENCE_S: Final = 60.0
"""Seconds for which a sink may be away: a program that is started again is back by then."""

SHORT_BYTES: Final = 16 * 2**10
"""Bytes of a document that is read on the event loop: a thread costs more."""

PATHS: Final = frozenset({"/", "/RPC2"})
"""The paths under which the calls are answered."""

KINDS: Final = frozenset({XML, "application/xml"})

_BEARER: Final = re.compile(r"bearer +([!-~]+)", re.IGNORECASE)
_BASIC: Final = re.compile(r"basic +([A-Za-z0-9+/=]+)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Desk:
    """The state that all connections of the listener share."""

    identity: Identity
    clients: Clients
    service: Service
    events: Events
    threads: Threads
    memory: Memory
    posting: Posting
    sinks: Sinks
    bodies: Places

    @asynccontextmanager
    async def client(
        self, proof: bytes, came_from: Address, patience_s: float = PATIENCE_S
    ) -> AsyncIterator[Calls]:
        """The calls of a new client inside the peer, with that token.

        Raises:
            NotAuthorisedError: the token does not count.
        """
        token = self.clients.admit(proof)
        dial = partial(
            open_admitted_client,
            self.identity.participant,
            self.clients,
            self.service,
            proof,
            came_from=came_from,
            events=self.events,
            memory=self.memory,
        )
        subscriber = Subscriber(token.name, came_from[0], partial(self.reader, proof, came_from))
        async with open_background() as nursery:
            link = await open_link(dial, nursery)
            client = AsyncMedusaClient(link, nursery, producer="", patience_s=patience_s)
            yield Calls(client, link, subscriber, self.posting, self.sinks, self.threads)

    @asynccontextmanager
    async def reader(self, proof: bytes, came_from: Address) -> AsyncIterator[AsyncMedusaClient]:
        """A new client for a sink, which outlives the connection that subscribed it."""
        async with self.client(proof, came_from, SINK_PATIENCE_S) as calls:
            yield calls.client


@asynccontextmanager
async def open_xmlrpc_listener(
    identity: Identity,
    clients: Clients,
    service: Service,
    config: XmlRpcConfig,
    events: Events,
    *,
    renewed: Listeners[[Identity]],
    memory: Memory,
    threads: Threads,
    limits: ConnectionLimits | None = None,
    handshake_s: float = HANDSHAKE_S,
    idle_s: float = IDLE_S,
    sink_patience_s: float = SINK_PATIENCE_S,
) -> AsyncIterator[Address]:
    """Serve clients of `identity`'s participant that speak XML-RPC; yields the address.

    Args:
        config: its `listen` is set.
        events: gets faults in calls, and refused clients.
        renewed: tells when the identity's certificate was renewed.
        memory: the bound on memory that clients share with all others.
        threads: read and write long documents.
        handshake_s: the time from the connection to its first request. idle_s: the time between two
            requests.

    Raises:
        ConflictError: the port is in use.
        InvalidInputError: the address cannot be listened on.
    """
    assert config.listen is not None
    context = listener_context(identity, HTTP_PROTOCOL)
    renewed.add(partial(show, context))
    listener = await listen_tcp(config.listen)
    async with trio.open_nursery() as nursery:
        sinks = Sinks(nursery, config.networks(), threads, events, sink_patience_s)
        desk = Desk(
            identity,
            clients,
            service,
            events,
            threads,
            memory,
            Posting(identity.peer_id.hex(), PATIENCE_S),
            sinks,
            Places(BODIES_AT_ONCE),
        )

        async def welcome(stream: trio.SocketStream, admit: Admit) -> None:
            tls = await shake_hands(stream, context, HTTP_PROTOCOL, server_side=True, unnamed=True)
            host, port = stream.socket.getpeername()[:2]
            await Visit(desk, HttpServer(tls), (_plain(host), port), idle_s).serve(admit)

        listening = Listening(welcome, limits or CONNECTIONS, events, handshake_s)
        nursery.start_soon(listening.serve, listener)
        yield bound_address(listener)
        nursery.cancel_scope.cancel()


@dataclass(eq=False)
class Visit:
    """One connection of a client, which has one token from its first request on."""

    desk: Desk
    http: HttpServer
    came_from: Address
    idle_s: float

    async def serve(self, admit: Admit) -> None:
        """Answer requests until the client goes. admit: called with the first good token. Raises:
        NotAuthorisedError: the token does not count; the client has got the error. BusyError: the
        token's share of connections is used up; the client has got the error. BrokenError: the
        connection broke.
        """
        async with AsyncExitStack() as opened:
            calls: Calls | None = None
            shown: bytes | None = None
            try:
                while (head := await self._next_head(first=calls is None)) is not None:
                    _check_head(head)
                    try:
                        proof = proof_of(token_in(head))
                        token = self.desk.clients.admit(proof)
                        if shown not in {None, proof}:
                            raise NotAuthorisedError("another token: open a connection of its own")
                        if calls is None:
                            admit(holder_with(token.name))
                            client = self.desk.client(proof, self.came_from)
                            calls, shown = await opened.enter_async_context(client), proof
                    except (NotAuthorisedError, BusyError) as error:
                        await self._send_away(error)
                        raise
                    if not await self._answer(calls):
                        return
            except HttpError as error:
                await self.http.refuse(error)
            except BrokenError:
                if calls is None:
                    raise  # the listener notes the error; a client may leave at any time

    async def _next_head(self, *, first: bool) -> Head | None:
        """The next request; None: the client has gone, or sent none in time. The listener limits
        the time of the first."""
        with trio.move_on_after(float("inf") if first else self.idle_s):
            return await self.http.head()
        return None

    async def _send_away(self, error: MedusaError) -> None:
        """Answer that a client is refused; first read its request, because otherwise it would not
        read the answer."""
        with trio.move_on_after(BODY_S):
            await self.http.body(MAX_BODY_BYTES, keep=False)
            await self._send(write_fault(number_of(error), str(error)))

    async def _answer(self, calls: Calls) -> bool:
        """Answer one call; whether another one may follow."""
        try:
            body = await self._body(calls.subscriber.holder)
        except BusyError as error:
            await self._send_away(error)
            return False
        made = await self._carried_out(calls, body)
        with trio.move_on_after(SEND_S):
            async with self.desk.bodies.place(calls.subscriber.holder):
                return await self._send(await self._document(calls, made))
        return False

    async def _body(self, holder: str) -> bytes:
        """The body of a request, once the holder may have another one under way.

        Raises:
            HttpError: the body does not come. BusyError: the holder does not get a turn in time.
        """
        bodies = self.desk.bodies
        with trio.move_on_after(TURN_S) as turn:
            async with bodies.place(holder):
                turn.deadline = float("inf")
                with trio.move_on_after(BODY_S):
                    return await self.http.body(MAX_BODY_BYTES)
                raise HttpError(HTTPStatus.REQUEST_TIMEOUT, f"no request within {BODY_S:g} s")
        raise BusyError(
            f"{holder} has {bodies.held(holder)} requests under way, all of its share of the "
            f"{bodies.limit} that others use, too, and none ended within {TURN_S:g} s: send the "
            "bodies of its requests, read its answers, or send fewer at a time"
        )

    async def _send(self, document: bytes) -> bool:
        return await self.http.answer(HTTPStatus.OK, XML, document)

    async def _carried_out(self, calls: Calls, body: bytes) -> Made | bytes:
        """Carry out a call. Returns the function that makes its value, or the document of a
        fault."""
        try:
            return await calls.answer(await self._read(calls, body))
        except Exception as error:  # noqa: BLE001 - a boundary: only the caller's call ends
            return self._fault(error)

    async def _document(self, calls: Calls, made: Made | bytes) -> bytes:
        if isinstance(made, bytes):
            return made
        try:
            label = calls.subscriber.holder
            return await self.desk.threads.run(label, lambda: write_answer(made()))
        except Exception as error:  # noqa: BLE001 - as above
            return self._fault(error)

    async def _read(self, calls: Calls, body: bytes) -> Call:
        if len(body) <= SHORT_BYTES:
            return read_call(body)
        return await self.desk.threads.run(calls.subscriber.holder, partial(read_call, body))

    def _fault(self, error: Exception) -> bytes:
        if isinstance(error, MedusaError):
            return write_fault(number_of(error), str(error))
        events = self.desk.events
        why = events.why(events.fault("failed at a call by XML-RPC", error))
        return write_fault(number_of(InternalError()), f"the call failed inside the peer; {why}")


def token_in(head: Head) -> bytes:
    """The secret in a request: a bearer token, or the user of `https://TOKEN@host:port`; the token
    as `medusa-peer token add` prints it, or its secret alone, as in client.token.

    Raises:
        NotAuthorisedError: there is none.
    """
    said = head.headers.get("authorization", "").strip()
    text = ""
    if (found := _BEARER.fullmatch(said)) is not None:
        text = found[1]
    elif (found := _BASIC.fullmatch(said)) is not None:
        try:
            text = base64.b64decode(found[1], validate=True).decode("ascii").partition(":")[0]
        except (binascii.Error, ValueError):
            text = ""
    if not text:
        raise NotAuthorisedError(
            "no token: call https://TOKEN@HOST:PORT, or send the header `Authorization: Bearer "
            "TOKEN`, with a token that `medusa-peer token add` has printed"
        )
    if not text.startswith(PREFIX):
        return text.encode()
    try:
        return parse_token(text).secret
    except MedusaError as error:
        raise NotAuthorisedError(str(error)) from None


def _check_head(head: Head) -> None:
    """
    Raises:
        HttpError: the request is no call of XML-RPC.
    """
    if head.path not in PATHS:
        raise HttpError(HTTPStatus.NOT_FOUND, f"calls go to one of: {', '.join(sorted(PATHS))}")
    if head.method != "POST":
        raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, "calls are POST requests")
    kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in KINDS:
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the Content-Type must be {XML}")
    if head.headers.get("content-encoding", "identity").lower() != "identity":
        raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the call uncompressed")


def _plain(host: str) -> str:
    """The host; for an IPv4 client of a listener for both protocols, its IPv4 address."""
    address = ipaddress.ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)
    return host if mapped is None else str(mapped)
